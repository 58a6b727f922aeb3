"""The places where programs keep what a compiled function reads, as text: each feature is a piece of each of five modules.

`top` imports from `middle`, that from `deep`, that from `settings`, and all of them from `vendor`, a library beside the program. In `top`, `case_NAME` gives the function (or module) that is compiled, the
tuples of arguments that it is called with, and further tensors whose values and gradients are results. A fourth thing is what eager calls instead.
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple

__all__ = ["BY_HAND", "ELSEWHERE", "FEATURES", "MODULES", "PLACED", "SETTINGS", "Feature", "Swap"]

MODULES = ("vendor", "settings", "deep", "middle", "top")


class Swap(NamedTuple):
    """An edit that was written by hand: in the text of one module, or of an environment variable where `module` is "environment"."""

    module: str
    old: str
    new: str


class Feature(NamedTuple):
    """Its text in each module, and edits that the general ones do not make."""

    texts: dict[str, str]
    swaps: tuple[Swap, ...] = ()


FEATURES: dict[str, Feature] = {}


def _feature(name: str, *swaps: Swap, **texts: str) -> None:
    assert texts.keys() <= set(MODULES)
    FEATURES[name] = Feature({m: textwrap.dedent(text).strip() + "\n" for m, text in texts.items()}, swaps)


_feature(
    "constants",
    settings="""
    CONST_RATE = 0.75
    CONST_NAME = "tanh"
    CONST_COUNT = 3
    CONST_FLAG = True
    CONST_MAYBE = None
    """,
    deep="""
    def const_deep(x):
        return x * settings.CONST_RATE + 2.0
    """,
    middle="""
    from proj.deep import const_deep

    def const_middle(x):
        y = getattr(torch, settings.CONST_NAME)(const_deep(x))
        if settings.CONST_FLAG:
            y = y + settings.CONST_COUNT
        return y if settings.CONST_MAYBE is None else y * settings.CONST_MAYBE
    """,
    top="""
    from proj.middle import const_middle

    def const_run(x):
        return const_middle(x) * 1.5 - 1, -0.0 * settings.CONST_COUNT

    def case_constants():
        return const_run, [(inputs(),)], []
    """,
)

_feature(
    "defaults",
    Swap("middle", "default_deep(x)", "default_deep(x, 3.0)"),
    Swap("deep", "k=2.0, *, lift=DEFAULT_LIFT", "k=2.0, *, lift=0.125"),
    deep="""
    DEFAULT_LIFT = 0.5

    def default_deep(x, k=2.0, *, lift=DEFAULT_LIFT):
        return x * k + lift

    def default_other(x, k=4.0, *, lift=1.0, sizes=(1.0, 2.0)):
        return x / k - lift + sizes[1]
    """,
    middle="""
    from proj.deep import default_deep, default_other

    def default_middle(x, options={"gain": 1.5, "steps": (1, 2)}, act=torch.sin):
        return act(default_deep(x) * options["gain"]) + default_other(x, lift=0.25) + sum(options["steps"])
    """,
    top="""
    from proj.middle import default_middle

    def default_run(x, scale=0.5, *, more=1):
        return default_middle(x) * scale + more

    def case_defaults():
        return default_run, [(inputs(True),)], []
    """,
)

_feature(
    "closures",
    Swap("middle", "closure_make(2.0, CLOSURE_PAIR)", "closure_make(2.5, CLOSURE_PAIR)"),
    Swap("middle", "CLOSURE_PAIR = (0.5, 1.5)", "CLOSURE_PAIR = (0.5, 1.75)"),
    deep="""
    def closure_make(scale, pair):
        shift = pair[0]
        table = {"k": scale * 2, "items": [1.0, 2.0]}

        def inner(x):
            def innermost(y):
                return y * pair[1] + table["items"][1]
            return innermost(x * scale + shift) + table["k"]

        return inner

    def closure_counter(start):
        value = start

        def bump(by=1.0):
            nonlocal value
            value = value + by
            return value

        def read(x):
            return x + value

        bump()
        return read
    """,
    middle="""
    from proj.deep import closure_counter, closure_make

    CLOSURE_PAIR = (0.5, 1.5)
    CLOSURE_CALL = closure_make(2.0, CLOSURE_PAIR)
    CLOSURE_READ = closure_counter(3.0)
    """,
    top="""
    from proj.middle import CLOSURE_CALL, CLOSURE_READ

    def closure_run_of(factor):
        def run(x):
            return CLOSURE_CALL(x) * factor + CLOSURE_READ(x)
        return run

    def case_closures():
        return closure_run_of(0.5), [(inputs(),)], []
    """,
)

_feature(
    "decorators",
    Swap("middle", "@decorated_scaled(2.0)\n@decorated_shifted", "@decorated_shifted\n@decorated_scaled(2.0)"),
    Swap("deep", "return factor * function(*args, **kwargs)", "return function(*args, **kwargs)"),
    deep="""
    def decorated_scaled(factor):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return factor * function(*args, **kwargs)
            return wrapper
        return decorate

    def decorated_shifted(function):
        @functools.wraps(function)
        def wrapper(x, shift=0.25):
            return function(x + shift)
        return wrapper

    class DecoratedCalls:
        bias = 1.0

        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function = function

        def __call__(self, x):
            return self.function(x) + self.bias
    """,
    middle="""
    from proj.deep import DecoratedCalls, decorated_scaled, decorated_shifted

    @decorated_scaled(2.0)
    @decorated_shifted
    def decorated_middle(x):
        return torch.sin(x)

    @DecoratedCalls
    def decorated_object(x):
        return torch.cos(x) * 3
    """,
    top="""
    from proj.middle import decorated_middle, decorated_object

    @torch.no_grad()
    def decorated_quiet(x):
        return x * 1.25

    def decorated_run(x):
        return decorated_middle(x) + decorated_object(x) + decorated_quiet(x)

    def case_decorators():
        return decorated_run, [(inputs(True),)], []
    """,
)

_feature(
    "classes",
    Swap("deep", "class ClassThing(ClassMixin, ClassBase)", "class ClassThing(ClassBase, ClassMixin)"),
    Swap("deep", "    @property\n    def level", "    def level"),
    Swap("deep", "    rate = 0.5\n\n    def weight", "    def weight"),
    Swap("deep", "    @staticmethod\n    def static(x):", "    def static(self, x):"),
    deep="""
    class ClassBase:
        rate = 0.5

        def weight(self):
            return self.rate * 2

        @property
        def level(self):
            return self.rate + 1.0

        @staticmethod
        def static(x):
            return x * 1.5

        @classmethod
        def of_class(cls, x):
            return x + cls.rate

    class ClassMixin:
        rate = 0.75

        def weight(self):
            return 3.0

        def __call__(self, x):
            return x - self.rate

    class ClassThing(ClassMixin, ClassBase):
        __slots__ = ("gain", "other")

        def __init__(self, gain=2.0):
            self.gain = gain
            self.other = None

        def weight(self):
            return super().weight() * self.gain

        def __getattr__(self, name):
            if name == "made":
                return 0.25
            raise AttributeError(name)

        def __len__(self):
            return 3

        def __contains__(self, item):
            return item == "in"

        def __mul__(self, other):
            return other * self.gain
    """,
    middle="""
    from proj.deep import ClassThing

    CLASS_THING = ClassThing(gain=1.25)
    """,
    top="""
    from proj.middle import CLASS_THING, ClassThing

    def class_run(x):
        y = CLASS_THING(x) * CLASS_THING.weight() + getattr(CLASS_THING, "level", torch.zeros)
        y = CLASS_THING.static(y) + ClassThing.of_class(y) + CLASS_THING.made + len(CLASS_THING)
        y = y + (1 if "in" in CLASS_THING else 2) + (3 if hasattr(CLASS_THING, "bonus") else 4)
        return y + CLASS_THING * x + ClassThing().weight()

    def case_classes():
        return class_run, [(inputs(),)], []
    """,
)

_feature(
    "metaclasses",
    Swap("deep", "metaclass=MetaKind", "metaclass=MetaOther"),
    Swap("deep", "factor = MetaFactor(1.5)", "factor = 1.75"),
    deep="""
    class MetaKind(type):
        level = 2.0

        @property
        def doubled(cls):
            return cls.level * 2

        def __len__(cls):
            return 3

    class MetaOther(MetaKind):
        level = 4.0

    class MetaFactor:
        def __init__(self, value):
            self.value = value

        def __get__(self, instance, owner=None):
            return self.value * (2 if instance is None else 1)

    class MetaThing(metaclass=MetaKind):
        factor = MetaFactor(1.5)

        @functools.cached_property
        def cached(self):
            return self.factor + 1
    """,
    top="""
    from proj.deep import MetaThing

    META_THING = MetaThing()

    def meta_run(x):
        return x * MetaThing.doubled + META_THING.factor + MetaThing.factor + len(MetaThing) + META_THING.cached

    def case_metaclasses():
        return meta_run, [(inputs(),)], []
    """,
)

_feature(
    "containers",
    Swap("settings", '"a": 1.0, "b": 2.0', '"b": 2.0, "a": 1.0'),
    Swap("settings", "CONTAINER_SET = {1, 2}", "CONTAINER_SET = {2, 3}"),
    Swap("settings", 'CONTAINER_FROZEN = frozenset({"p", "q"})', 'CONTAINER_FROZEN = frozenset({"q"})'),
    settings="""
    CONTAINER_TABLE = {"a": 1.0, "b": 2.0, "nested": {"x": [1, 2, 3]}, 7: 0.5}
    CONTAINER_LIST = [1.0, 2, (3, 4), {"deep": 5}]
    CONTAINER_SET = {1, 2}
    CONTAINER_FROZEN = frozenset({"p", "q"})
    CONTAINER_ORDERED = collections.OrderedDict(one=1.0, two=2.0)
    CONTAINER_DEFAULT = collections.defaultdict(float, seen=1.5)
    CONTAINER_DEQUE = collections.deque([1.0, 4.0])
    CONTAINER_SPACE = types.SimpleNamespace(gain=1.25, inner=types.SimpleNamespace(level=2))
    CONTAINER_VIEW = types.MappingProxyType({"v": 0.5})
    """,
    middle="""
    from proj.settings import CONTAINER_LIST, CONTAINER_TABLE

    def container_middle(x):
        y = x * CONTAINER_TABLE["a"] + CONTAINER_TABLE["nested"]["x"][1] + CONTAINER_TABLE[7]
        for n, key in enumerate(CONTAINER_TABLE):
            if isinstance(CONTAINER_TABLE[key], float):
                y = y * 0.5 + CONTAINER_TABLE[key] * n
        return y + CONTAINER_LIST[0] + CONTAINER_LIST[2][1] + CONTAINER_LIST[-1]["deep"] + len(CONTAINER_LIST)
    """,
    top="""
    from proj.middle import container_middle

    def container_run(x):
        y = container_middle(x) + (3 if 1 in settings.CONTAINER_SET else 4) + (0.5 if "p" in settings.CONTAINER_FROZEN else 1)
        for key, value in settings.CONTAINER_ORDERED.items():
            y = y + value * len(key)
        y = y + settings.CONTAINER_DEFAULT["seen"] + settings.CONTAINER_DEQUE[-1] + settings.CONTAINER_VIEW["v"]
        return y + settings.CONTAINER_SPACE.gain * settings.CONTAINER_SPACE.inner.level

    def case_containers():
        return container_run, [(inputs(),)], []
    """,
)

_feature(
    "enums",
    Swap("settings", "ADD = 1\n    MUL = 2", "MUL = 1\n    ADD = 2"),
    Swap("settings", "ENUM_MODE = EnumMode.ADD", "ENUM_MODE = EnumMode.MUL"),
    settings="""
    class EnumMode(enum.Enum):
        ADD = 1
        MUL = 2

    class EnumLevel(enum.IntEnum):
        LOW = 1
        HIGH = 3

    ENUM_MODE = EnumMode.ADD
    ENUM_LEVEL = EnumLevel.HIGH
    """,
    middle="""
    from proj.settings import EnumMode, EnumLevel

    def enum_middle(x, mode):
        match mode:
            case EnumMode.ADD:
                return x + 2.0
            case EnumMode.MUL:
                return x * 3.0
        return x
    """,
    top="""
    from proj.middle import EnumLevel, EnumMode, enum_middle

    def enum_run(x):
        y = enum_middle(x, settings.ENUM_MODE) * settings.ENUM_LEVEL
        if settings.ENUM_LEVEL is EnumLevel.HIGH:
            y = y - 0.5
        return y + settings.ENUM_MODE.value, settings.ENUM_MODE.name, [m.value for m in EnumMode]

    def case_enums():
        return enum_run, [(inputs(),)], []
    """,
)

_feature(
    "dataclasses",
    Swap("settings", "frozen=True", "frozen=True, eq=False"),
    Swap("settings", "DataConfig(rates=(0.5, 0.25))", "DataConfig(rates=(0.5, 0.75))"),
    Swap("settings", "DataConfig(rates=(0.5, 0.25))", "DataConfig(hidden=7)"),
    settings="""
    @dataclasses.dataclass
    class DataConfig:
        hidden: int = 3
        act: str = "relu"
        rates: tuple = (0.5, 0.125)
        table: dict = dataclasses.field(default_factory=lambda: {"k": 1.5})

        def __post_init__(self):
            self.total = self.hidden * 2.0

        def rate(self, n=0):
            return self.rates[n]

    @dataclasses.dataclass(frozen=True)
    class DataPoint:
        x: float = 1.0
        y: float = 2.0

    class DataTuple(typing.NamedTuple):
        left: float = 0.5
        right: int = 2

    DATA_CONFIG = DataConfig(rates=(0.5, 0.25))
    DATA_POINT = DataPoint()
    """,
    middle="""
    from proj.settings import DATA_CONFIG, DATA_POINT, DataConfig, DataPoint, DataTuple

    def data_middle(x, config=DATA_CONFIG):
        y = x * config.hidden + config.rates[0] + config.table["k"] + config.total
        return torch.tanh(y) if config.act == "relu" else torch.sin(y)
    """,
    top="""
    from proj.middle import DATA_CONFIG, DATA_POINT, DataConfig, DataPoint, DataTuple, data_middle

    def data_run(x):
        pair = DataTuple(right=3)
        changed = dataclasses.replace(DATA_POINT, y=4.0)
        y = data_middle(x) * pair.left + pair.right + changed.x * changed.y + DATA_CONFIG.rate(1)
        return y + (1 if DATA_POINT == DataPoint() else 2) + DataConfig(5).total

    def case_dataclasses():
        return data_run, [(inputs(),)], []
    """,
)

_feature(
    "partials",
    Swap("middle", "functools.partial(partial_deep, k=2.0)", "functools.partial(partial_other, k=2.0)"),
    Swap("middle", 'PARTIAL_CHOICES["first"]', 'PARTIAL_CHOICES["second"]'),
    deep="""
    def partial_deep(x, k, lift=0.5):
        return x * k + lift

    def partial_other(x, k, lift=0.5):
        return x / k - lift
    """,
    middle="""
    from proj.deep import partial_deep, partial_other

    PARTIAL_CALL = functools.partial(partial_deep, k=2.0)
    PARTIAL_LAMBDAS = [lambda x: x + 1.0, lambda x: x * 2.0]
    PARTIAL_CHOICES = {"first": lambda x, s=1.5: torch.sin(x) * s, "second": lambda x, s=1.5: torch.cos(x) * s}
    PARTIAL_CHOSEN = PARTIAL_CHOICES["first"]
    PARTIAL_BOUND = PARTIAL_LAMBDAS.__getitem__
    """,
    top="""
    from proj.middle import PARTIAL_CALL, PARTIAL_CHOSEN, PARTIAL_LAMBDAS

    def partial_run(x):
        y = PARTIAL_CHOSEN(PARTIAL_CALL(x, lift=1.5))
        for f in PARTIAL_LAMBDAS:
            y = f(y)
        numbers = sorted([3.0, 1.0, 2.0], key=lambda n: -n)
        return y * functools.reduce(lambda a, b: a * 2 + b, numbers) + sum(map(lambda n: n + 1, filter(lambda n: n > 1, numbers)))

    def case_partials():
        return partial_run, [(inputs(),)], []
    """,
)

_feature(
    "operators",
    Swap("middle", "grad * 3.0 * ctx.k", "grad * 5.0 * ctx.k"),
    Swap("middle", "return x * 3.0 * k", "return x * 2.0 * k"),
    Swap("middle", "x.new_empty(x.shape)", "torch.empty_like(x)"),
    Swap("deep", "return grad * OPERATOR_BACK", "return grad * OPERATOR_BACK + 1"),
    deep="""
    OPERATOR_BACK = 2.0

    def operator_back(grad):
        return grad * OPERATOR_BACK
    """,
    middle="""
    from proj.deep import operator_back

    @torch.library.custom_op("proj::tripled", mutates_args=())
    def operator_tripled(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
        return x * 3.0 * k

    @operator_tripled.register_fake
    def operator_fake(x, k=1.0):
        return x.new_empty(x.shape)

    def operator_setup(ctx, inputs, output):
        ctx.k = inputs[1]

    def operator_backward(ctx, grad):
        return operator_back(grad * 3.0 * ctx.k), None

    operator_tripled.register_autograd(operator_backward, setup_context=operator_setup)
    """,
    top="""
    from proj.middle import operator_tripled

    def operator_run(x):
        return (operator_tripled(x, 0.5) * x).sin() + 1

    def case_operators():
        return operator_run, [(inputs(True),)], []
    """,
)

_feature(
    "formulas",
    Swap("middle", "return torch.sin(x) * k", "return torch.cos(x) * k"),
    deep="""
    FORMULA_SCALE = 2.0

    def formula_of_grad(grad, x):
        return grad * torch.cos(x) * FORMULA_SCALE
    """,
    middle="""
    from proj.deep import formula_of_grad

    class FormulaSine(torch.autograd.Function):
        k = 0.5

        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return torch.sin(x) * k

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return formula_of_grad(grad, x) * ctx.k + FormulaSine.k, None
    """,
    top="""
    from proj.middle import FormulaSine

    def formula_run(x):
        return FormulaSine.apply(x * 1.5, 2.0) * x

    def case_formulas():
        return formula_run, [(inputs(True),)], []
    """,
)

_feature(
    "modules",
    Swap("middle", "class ModuleBlock(ModuleBase)", "class ModuleBlock(ModuleOther)"),
    Swap("middle", "nn.GELU()", "nn.ReLU()"),
    Swap("middle", "nn.Dropout(0.0)", "nn.Identity()"),
    Swap("top", "model.eval()", "model.train()"),
    deep="""
    class ModuleBase(nn.Module):
        kind = 1.5

        def shift(self, x):
            return x + self.kind

    class ModuleOther(nn.Module):
        kind = 0.5

        def shift(self, x):
            return x - self.kind
    """,
    middle="""
    from proj.deep import ModuleBase, ModuleOther

    class ModuleBlock(ModuleBase):
        def __init__(self, size, gain=1.25):
            super().__init__()
            self.linear = nn.Linear(size, size)
            self.act = nn.GELU()
            self.drop = nn.Dropout(0.0)
            self.norm = nn.LayerNorm(size, eps=0.001)
            self.register_buffer("offset", torch.full((size,), 0.25))
            self.gain = gain
            self.extra = {"scale": 2.0, "steps": [1.0, 0.5]}

        def forward(self, x, *, boost=1.0):
            y = self.act(self.linear(x)) * self.gain + self.offset * boost
            for step in self.extra["steps"]:
                y = y + step
            return self.shift(self.drop(self.norm(y))) * self.extra["scale"] + (1.0 if self.training else 2.0)

    class ModuleNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([ModuleBlock(6), ModuleBlock(6)])
            self.head = nn.Sequential(nn.Linear(6, 3), nn.Tanh())

        def forward(self, x):
            for n, block in enumerate(self.blocks):
                x = block(x, boost=1.0 + n) + x
            return self.head(x)
    """,
    top="""
    from proj.middle import ModuleNet

    def case_modules():
        model = ModuleNet()
        model.eval()
        return model, [(inputs(True),)], list(model.parameters())
    """,
)

_feature(
    "hooks",
    Swap("top", "model.register_forward_hook(hook_after)", "model.register_forward_hook(hook_other)"),
    Swap("top", "model[0].register_forward_pre_hook(hook_before)", "pass"),
    middle="""
    HOOK_SCALE = 1.5

    def hook_after(module, args, out):
        return out * HOOK_SCALE

    def hook_other(module, args, out):
        return out + HOOK_SCALE

    def hook_before(module, args):
        return (args[0] + 0.5,)

    def hook_gradient(grad):
        return grad * 2.0
    """,
    top="""
    from proj.middle import hook_after, hook_before, hook_gradient, hook_other

    class HookNet(nn.Sequential):
        def forward(self, x):
            y = super().forward(x)
            if y.requires_grad:
                y.register_hook(hook_gradient)
            return y.sin()

    def case_hooks():
        model = HookNet(nn.Linear(6, 6), nn.Tanh())
        model.register_forward_hook(hook_after)
        model[0].register_forward_pre_hook(hook_before)
        return model, [(inputs(True),)], list(model.parameters())
    """,
)

_feature(
    "environment",
    Swap("environment", "PROJ_MODE", "cos"),
    Swap("environment", "PROJ_MODE", ""),
    Swap("environment", "PROJ_SCALE", "5.0"),
    Swap("environment", "PROJ_EXTRA", "1"),
    settings="""
    ENVIRONMENT_SCALE = float(os.environ.get("PROJ_SCALE", "2.0"))
    """,
    top="""
    def environment_run(x):
        mode = os.environ.get("PROJ_MODE", "sin")
        y = torch.cos(x) if mode == "cos" else torch.sin(x) * 2.0
        if "PROJ_EXTRA" in os.environ:
            y = y + 1
        return y * settings.ENVIRONMENT_SCALE + len(os.getenv("PROJ_MODE") or "none")

    def case_environment():
        return environment_run, [(inputs(),)], []
    """,
)

_feature(
    "dispatch",
    Swap("deep", "    if isinstance(value, int):", "    if isinstance(value, bool):"),
    Swap("deep", 'return "dispatch_float"', 'return f"dispatch_{type(value).__name__}x"'),
    Swap("top", "DISPATCH_VALUES = (1, 2.0, None)", "DISPATCH_VALUES = (True, 2.0, None)"),
    Swap("top", "DISPATCH_VALUES = (1, 2.0, None)", "DISPATCH_VALUES = (1, 2, None)"),
    deep="""
    DISPATCH_TABLE = {"dispatch_int": 1.5, "dispatch_float": 2.5, "dispatch_NoneType": 3.5, "dispatch_bool": 7.5}

    def dispatch_name(value):
        if isinstance(value, int):
            return f"dispatch_{type(value).__name__}"
        if type(value) is float:
            return "dispatch_float"
        return "dispatch_%s" % type(value).__name__

    @functools.singledispatch
    def dispatch_single(value):
        return 1.0

    @dispatch_single.register
    def dispatch_of_int(value: int):
        return 2.0

    @functools.lru_cache
    def dispatch_cached(n):
        return n * 1.5
    """,
    top="""
    from proj.deep import DISPATCH_TABLE, dispatch_cached, dispatch_name, dispatch_single

    DISPATCH_VALUES = (1, 2.0, None)

    def dispatch_run(x):
        for value in DISPATCH_VALUES:
            x = x * 0.5 + DISPATCH_TABLE[dispatch_name(value)] * dispatch_single(value)
        return x + dispatch_cached(2), f"{DISPATCH_VALUES[1]:.2f} of {len(DISPATCH_VALUES)}"

    def case_dispatch():
        return dispatch_run, [(inputs(),)], []
    """,
)

_feature(
    "raises",
    Swap("middle", "raise RaiseError(f", "raise ValueError(f"),
    deep="""
    RAISE_LIMIT = 2.0

    class RaiseError(ValueError):
        pass
    """,
    middle="""
    from proj import deep
    from proj.deep import RaiseError

    def raise_checked(x, limit):
        y = x * 2.0

        if limit > deep.RAISE_LIMIT:
            raise RaiseError(f"{limit} is over {deep.RAISE_LIMIT}")
        return y

    def raise_caught(x, limit):
        try:
            return raise_checked(x, limit)
        except RaiseError as error:
            return x * len(str(error))
    """,
    top="""
    from proj.middle import raise_caught, raise_checked

    def raise_run(x, limit):
        y = raise_caught(x, limit) + raise_caught(x, 3.0)

        return y + raise_checked(x, limit)

    def case_raises():
        return raise_run, [(inputs(), 1.0), (inputs(), 5.0)], []
    """,
)

_feature(
    "breaks",
    Swap("middle", "torchjit.graph_break()", "pass"),
    middle="""
    BREAK_SEEN = []
    BREAK_SCALE = 2.0

    def break_here(x, note):
        torchjit.graph_break()
        BREAK_SEEN.append(note)
        return x * BREAK_SCALE

    @torchjit.disable
    def break_disabled(x):
        return x - 1.5
    """,
    top="""
    import proj.middle as break_middle

    def break_run(x):
        y = break_middle.break_here(torch.sin(x) * 1.5, "one") + 1.0
        z = break_middle.break_disabled(y * 0.5) * 3.0
        with torch.no_grad():
            w = break_middle.break_here(z, "two") + 0.25
        return z + w, len(break_middle.BREAK_SEEN)

    def case_breaks():
        return break_run, [(inputs(True),)], []
    """,
)

_feature(
    "sizes",
    Swap("top", "x.shape[0] > 5", "x.shape[0] > 3"),
    middle="""
    def size_middle(x, steps):
        return x[:, ::2].sum(0) * x.shape[0] + steps
    """,
    top="""
    from proj.middle import size_middle

    SIZE_CALLS = [4, 5, 7]

    def size_run(x, n):
        y = size_middle(x, n) * 0.5
        return y + 1.0 if x.shape[0] > 5 else y - 1.0

    def case_sizes():
        return size_run, [(inputs(True, rows=n), n) for n in SIZE_CALLS], []
    """,
)

_feature(
    "tensors",
    Swap("settings", "torch.arange(6.0)", "torch.arange(6.0).double()"),
    Swap("settings", "torch.arange(6.0)", "torch.arange(6.0).requires_grad_()"),
    settings="""
    TENSOR_TABLE = torch.arange(6.0) / 7
    TENSOR_SCALAR = np.float32(1.5)
    TENSOR_ARRAY = np.linspace(0.0, 1.0, 6, dtype=np.float32)
    TENSOR_DTYPE = torch.float32
    TENSOR_SHAPE = torch.Size([4, 6])
    """,
    top="""
    def tensor_run(x):
        y = x * settings.TENSOR_TABLE + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        y = y + torch.from_numpy(settings.TENSOR_ARRAY * 2) + float(settings.TENSOR_SCALAR)
        y = y + torch.full(settings.TENSOR_SHAPE, 0.5, dtype=settings.TENSOR_DTYPE)
        return y + torch.ones(6).cumsum(0), y.dtype

    def case_tensors():
        return tensor_run, [(inputs(),)], []
    """,
)

_feature(
    "names",
    Swap(
        "middle", "from proj.deep import name_first as name_chosen", "from proj.deep import name_second as name_chosen"
    ),
    Swap("middle", "name_wrapped = name_wrap(name_plain)", "name_wrapped = name_plain"),
    Swap("deep", "NAME_FLAG = True", "NAME_FLAG = False"),
    deep="""
    NAME_FLAG = True

    def name_first(x):
        return x * 2.0

    def name_second(x):
        return x * 3.0

    if NAME_FLAG:
        def name_either(x):
            return x + 1.0
    else:
        def name_either(x):
            return x + 2.0

    def name_wrap(function):
        return lambda x: function(x) * 0.5

    def __getattr__(name):
        if name == "name_lazy":
            return 4.0
        raise AttributeError(name)
    """,
    middle="""
    from proj.deep import name_either, name_wrap
    from proj.deep import name_first as name_chosen

    def name_plain(x):
        return torch.sin(x)

    name_wrapped = name_wrap(name_plain)
    """,
    top="""
    from proj import deep as name_deep
    from proj.middle import name_chosen, name_either, name_wrapped

    def name_run(x):
        from proj.deep import name_second as local
        return name_chosen(x) + name_either(x) + name_wrapped(x) + local(x) + name_deep.name_lazy + name_deep.name_first(x)

    def case_names():
        return name_run, [(inputs(),)], []
    """,
)

_feature(
    "marked",
    Swap("middle", "return 2.5", "return 3.5"),
    Swap("middle", "return x * 1.5 + MARKED_SHIFT", "return x * 2.5 + MARKED_SHIFT"),
    middle="""
    MARKED_SHIFT = 0.5
    MARKED_RATE = [2.0]

    @torchjit.assume_constant_result
    def marked_constant():
        return 2.5

    @torchjit.allow_in_graph
    def marked_whole(x):
        return x * 1.5 + MARKED_SHIFT

    def marked_checkpointed(x):
        return torch.sin(x * MARKED_RATE[0]).exp()
    """,
    top="""
    from torch.utils.checkpoint import checkpoint
    from proj.middle import marked_checkpointed, marked_constant, marked_whole

    def marked_run(x):
        return marked_whole(x) * marked_constant() + checkpoint(marked_checkpointed, x, use_reentrant=False)

    def case_marked():
        return marked_run, [(inputs(True),)], []
    """,
)

_feature(
    "transforms",
    Swap("top", "torch.func.grad(transform_loss)", "torch.func.grad(transform_other)"),
    middle="""
    TRANSFORM_POWER = 3

    def transform_loss(row):
        return (row ** TRANSFORM_POWER).sum() * 0.5

    def transform_other(row):
        return (row * 2.0).sin().sum()

    def transform_true(x):
        return x * 2.0

    def transform_false(x):
        return x - 1.0
    """,
    top="""
    from proj.middle import transform_false, transform_loss, transform_other, transform_true

    def transform_run(x):
        y = torch.func.vmap(torch.func.grad(transform_loss))(x)
        return y + torch.cond(x.sum() > 1.0, transform_true, transform_false, (x,))

    def case_transforms():
        return transform_run, [(inputs(),)], []
    """,
)

_feature(
    "overrides",
    Swap("middle", "func is torch.sin", "func is torch.cos"),
    middle="""
    class OverrideTensor(torch.Tensor):
        factor = 2.0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * cls.factor if func is torch.sin else out

    class OverrideMode(torch.overrides.TorchFunctionMode):
        shift = 1.0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out + self.shift if func is torch.tanh else out
    """,
    top="""
    from proj.middle import OverrideMode, OverrideTensor

    def override_run(x):
        y = torch.sin(x) + 1.0
        with OverrideMode():
            return torch.tanh(y)

    def case_overrides():
        return override_run, [(inputs().as_subclass(OverrideTensor),), (inputs(),)], []
    """,
)

_feature(
    "ambient",
    Swap("top", "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.autocast('cpu', dtype=torch.float16)"),
    Swap("top", "torch.no_grad()", "torch.enable_grad()"),
    Swap("top", "def case_ambient():", "torch.set_default_dtype(torch.float64)\ndef case_ambient():"),
    Swap("top", "def case_ambient():", "torch.set_grad_enabled(False)\ndef case_ambient():"),
    Swap("top", "def case_ambient():", "torch.use_deterministic_algorithms(True)\ndef case_ambient():"),
    top="""
    def ambient_run(x):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            y = x @ x.t()
        with torch.no_grad():
            z = x * 2.0
        return y.float() + 1.0, z, x * 3.0 + torch.ones(6), torch.is_grad_enabled(), torch.get_default_dtype()

    def case_ambient():
        return ambient_run, [(inputs(True),)], []
    """,
)

_feature(
    "passes",
    Swap("deep", "PASS_TABLE = {torch.sin: torch.cos}", "PASS_TABLE = {torch.sin: torch.tanh}"),
    Swap("deep", "PASS_TABLE = {torch.sin: torch.cos}", "PASS_TABLE = {torch.sin: torch.sin}"),
    Swap("deep", "return PASS_TABLE.get(target, target)", "return torch.exp"),
    Swap("deep", "return PASS_TABLE.get(target, target)", "return PASS_OTHER.get(target, target)"),
    Swap("deep", "PASS_DEFAULT = torch.tanh", "PASS_DEFAULT = torch.exp"),
    Swap(
        "middle",
        "def pass_chosen(target, chosen=PASS_DEFAULT):\n    return pass_of(target)",
        "def pass_chosen(target, chosen=PASS_DEFAULT):\n    return chosen",
    ),
    deep="""
    PASS_TABLE = {torch.sin: torch.cos}
    PASS_OTHER = {torch.sin: torch.sigmoid}
    PASS_DEFAULT = torch.tanh

    def pass_of(target):
        return PASS_TABLE.get(target, target)
    """,
    middle="""
    from proj.deep import PASS_DEFAULT, pass_of

    def pass_chosen(target, chosen=PASS_DEFAULT):
        return pass_of(target)

    def pass_replacing(graph):
        for node in graph.nodes:
            if node.target is torch.sin:
                node.target = pass_chosen(node.target)

    PASS_REPLACES = torchjit_aot.graph_pass("the same id")(pass_replacing)
    """,
    top="""
    from proj.middle import PASS_REPLACES, pass_chosen

    def pass_run(x):
        return torch.sin(x) * 2.0 + 0.5

    def pass_eager(x):
        return pass_chosen(torch.sin)(x) * 2.0 + 0.5

    def case_passes():
        return pass_run, [(inputs(),)], [], pass_eager

    OPTIONS["passes"] = {"options": {"pre_grad_custom_pass": PASS_REPLACES}}
    """,
)

_feature(
    "options",
    Swap("top", '"dynamic": True', '"dynamic": False'),
    Swap("top", '"dynamic": True', '"backend": "aot_eager"'),
    Swap("top", '"dynamic": True', '"backend": "eager"'),
    Swap(
        "settings",
        "OPTION_SCALE = 2.0",
        "OPTION_SCALE = 2.0\nimport torchjit\ntorchjit.config.automatic_dynamic_shapes = False",
    ),
    Swap(
        "settings",
        "OPTION_SCALE = 2.0",
        "OPTION_SCALE = 2.0\nimport torchjit\ntorchjit.config.capture_scalar_outputs = True",
    ),
    Swap("settings", "OPTION_SCALE = 2.0", "OPTION_SCALE = 2.0\ntorch.set_float32_matmul_precision('medium')"),
    settings="""
    OPTION_SCALE = 2.0
    """,
    top="""
    OPTIONS["options"] = {"dynamic": True}

    def option_run(x):
        n = int(x.sum().item() > 1.0)
        return (x @ x.t()) * settings.OPTION_SCALE + x.shape[0] + n

    def case_options():
        return option_run, [(inputs(rows=4),), (inputs(rows=6),)], []
    """,
)

_feature(
    "generators",
    deep="""
    def generate_steps(n, step=0.5):
        for i in range(n):
            yield i * step

    class GenerateRange:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return iter(range(self.n))

    @contextlib.contextmanager
    def generate_scope(scale):
        yield scale * 2.0
    """,
    top="""
    from proj.deep import GenerateRange, generate_scope, generate_steps

    def generate_run(x):
        y = x
        for step in generate_steps(3):
            y = y + step
        squares = [n * n for n in GenerateRange(4) if n != 1]
        table = {f"k{n}": n * 0.5 for n in squares}
        with generate_scope(1.5) as scale:
            y = y * scale
        return y + sum(table.values()) + max(itertools.accumulate(squares))

    def case_generators():
        return generate_run, [(inputs(),)], []
    """,
)

_feature(
    "training",
    Swap(
        "top",
        "torch.optim.SGD(model.parameters(), lr=TRAIN_RATE, momentum=0.9)",
        "torch.optim.Adam(model.parameters(), lr=TRAIN_RATE)",
    ),
    Swap("middle", "F.mse_loss(out, target)", "F.l1_loss(out, target)"),
    middle="""
    TRAIN_WEIGHT = 0.5

    def train_loss(out, target):
        return F.mse_loss(out, target) * TRAIN_WEIGHT
    """,
    top="""
    from proj.middle import train_loss

    TRAIN_RATE = 0.1

    def case_training():
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=TRAIN_RATE, momentum=0.9)
        target = torch.ones(4, 2)

        def train_step(x):
            optimizer.zero_grad()
            loss = train_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return train_step, [(inputs(),), (inputs(),)], list(model.parameters())
    """,
)

_feature(
    "random",
    settings="""
    RANDOM_RATE = 1.0
    """,
    top="""
    def random_run(x, training):
        y = F.dropout(x, p=settings.RANDOM_RATE, training=training)
        return y * 2.0 + 1.0

    def case_random():
        return random_run, [(inputs(), True), (inputs(), False)], []
    """,
)

_feature(
    "library",
    Swap("vendor", '__version__ = "1.2"', '__version__ = "2.0"'),
    Swap("vendor", "return x * _LIBRARY_FACTOR", "return x + _LIBRARY_FACTOR"),
    vendor="""
    __version__ = "1.2"
    _LIBRARY_FACTOR = 1.5
    LIBRARY_NEW = tuple(int(part) for part in __version__.split(".")) >= (2, 0)

    def _library_private(x):
        return x * _LIBRARY_FACTOR

    def library_scaled(x, *, shift=0.5):
        return _library_private(x) + shift

    @functools.lru_cache(None)
    def library_rate(name):
        return {"slow": 0.25, "fast": 4.0}[name]

    class LibraryLayer(nn.Module):
        gain = 2.0

        def forward(self, x):
            return library_scaled(x) * self.gain if LIBRARY_NEW else library_scaled(x) - self.gain
    """,
    middle="""
    import vendor
    from vendor import LibraryLayer, library_rate

    def library_middle(x):
        if vendor.__version__ >= "1.5":
            x = x * 3.0
        return vendor.library_scaled(x, shift=1.0) * library_rate("fast")
    """,
    top="""
    import importlib.metadata
    from proj.middle import LibraryLayer, library_middle

    class LibraryNet(LibraryLayer):
        def forward(self, x):
            installed = importlib.metadata.version("vendor")
            return super().forward(library_middle(x)), len(installed)

    def case_library():
        return LibraryNet(), [(inputs(),)], []
    """,
)

_feature(
    "flags",
    top="""
    def flag_run(x):
        facts = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled(),
                 torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(),
                 torch.is_inference_mode_enabled(), torch.backends.mkldnn.is_available(), str(torch.get_default_dtype()), str(torch.get_default_device()))
        return x * (1 + len(str(facts))) + torch.ones(6), str(facts)

    def flag_other(x):
        facts = (sys.getrecursionlimit(), torch.backends.cuda.flash_sdp_enabled(), torch.backends.opt_einsum.enabled, sys.byteorder, sys.version_info[0],
                 torch.__version__, torch.backends.mkldnn.enabled, torch.utils.deterministic.fill_uninitialized_memory, str(sys.flags.optimize))
        return x * (1 + len(str(facts))), str(facts)

    def case_flags():
        return lambda x: (flag_run(x), flag_other(x)), [(inputs(),)], []
    """,
)

_feature(
    "places",
    middle="""
    PLACES_NAME = __name__

    def place_middle(x):
        return x * len(__name__) + len(PLACES_NAME), place_middle.__qualname__, place_middle.__module__
    """,
    top="""
    from proj.middle import place_middle

    def place_run(x):
        return place_middle(x), len(os.path.basename(__file__)), place_run.__code__.co_firstlineno > 3, __name__, __package__

    def case_places():
        return place_run, [(inputs(),)], []
    """,
)

_feature(
    "registries",
    Swap("middle", "RegistryAbstract.register(RegistryThing)", "pass"),
    Swap("middle", "lambda box: ([box.left, box.right], box.note)", "lambda box: ([box.right, box.left], box.note)"),
    Swap(
        "middle",
        "lambda values, note: RegistryBox(*values, note)",
        "lambda values, note: RegistryBox(*values[::-1], note)",
    ),
    deep="""
    import abc

    class RegistryAbstract(abc.ABC):
        @abc.abstractmethod
        def level(self):
            return 1.0

    @typing.runtime_checkable
    class RegistryProtocol(typing.Protocol):
        def closed(self): ...

    class RegistryHooked(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            return hasattr(other, "hooked") or NotImplemented

    class RegistryChecks(type):
        def __instancecheck__(cls, value):
            return getattr(value, "kind", None) == "checked"

    class RegistryChecked(metaclass=RegistryChecks):
        pass
    """,
    middle="""
    from torch.utils import _pytree
    from proj.deep import RegistryAbstract, RegistryChecked, RegistryHooked, RegistryProtocol

    class RegistryThing:
        kind = "checked"
        hooked = 1

        def closed(self):
            return 2.0

    RegistryAbstract.register(RegistryThing)

    class RegistryBox:
        def __init__(self, left, right, note):
            self.left, self.right, self.note = left, right, note

    _pytree.register_pytree_node(RegistryBox, lambda box: ([box.left, box.right], box.note), lambda values, note: RegistryBox(*values, note))

    @functools.singledispatch
    def registry_single(value):
        return 1.0

    registry_single.register(RegistryThing, lambda value: 7.0)
    """,
    top="""
    from proj.middle import (RegistryAbstract, RegistryBox, RegistryChecked, RegistryHooked, RegistryProtocol, RegistryThing, _pytree, registry_single)

    REGISTRY_THING = RegistryThing()

    def registry_run(x):
        for cls, by in ((RegistryAbstract, 2.0), (RegistryProtocol, 3.0), (RegistryHooked, 5.0), (RegistryChecked, 7.0)):
            if isinstance(REGISTRY_THING, cls):
                x = x * by
            if issubclass(RegistryThing, cls if cls is not RegistryProtocol else RegistryHooked):
                x = x + 0.25
        box = _pytree.tree_map(lambda t: t * 2.0, RegistryBox(x, x + 1.0, "note"))
        return box.left - box.right * 3.0, registry_single(REGISTRY_THING)

    def case_registries():
        return registry_run, [(inputs(),)], []
    """,
)

_feature(
    "wrapped",
    Swap("middle", 'return ["held"], {"factor": self.factor}', 'return ["held"], {"factor": self.factor + 1}'),
    Swap("middle", "out * WRAPPED_FACTOR", "out + WRAPPED_FACTOR"),
    middle="""
    WRAPPED_FACTOR = 2.0

    class WrappedTensor(torch.Tensor):
        @staticmethod
        def __new__(cls, inner, factor):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

        def __init__(self, inner, factor):
            self.held, self.factor = inner, factor

        def __tensor_flatten__(self):
            return ["held"], {"factor": self.factor}

        @staticmethod
        def __tensor_unflatten__(tensors, meta, size, stride):
            return WrappedTensor(tensors["held"], meta["factor"])

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            taken = [a.held if isinstance(a, WrappedTensor) else a for a in args]
            out = func(*taken, **(kwargs or {}))
            return WrappedTensor(out * WRAPPED_FACTOR if func is torch.ops.aten.sin.default else out, 1.0)
    """,
    top="""
    from proj.middle import WrappedTensor

    def wrapped_run(x):
        return torch.sin(x) * 3.0

    def wrapped_called(x):
        return wrapped_run(WrappedTensor(x, 1.5)).held

    def case_wrapped():
        return wrapped_called, [(inputs(),)], []
    """,
)

_feature(
    "composed",
    Swap("middle", "return x * 2.0 + COMPOSED_SHIFT", "return x * 3.0 + COMPOSED_SHIFT"),
    middle="""
    COMPOSED_SHIFT = 0.5
    COMPOSED_LIBRARY = torch.library.Library("projlib", "DEF")
    COMPOSED_LIBRARY.define("composed(Tensor x) -> Tensor")
    COMPOSED_LIBRARY.define("leaf(Tensor x) -> Tensor")

    def composed_python(x):
        return x * 2.0 + COMPOSED_SHIFT

    def composed_leaf(x):
        return x - 4.0

    def composed_meta(x):
        return torch.zeros_like(x)

    COMPOSED_LIBRARY.impl("composed", composed_python, "CompositeImplicitAutograd")
    COMPOSED_LIBRARY.impl("leaf", composed_leaf, "CPU")
    COMPOSED_LIBRARY.impl("leaf", composed_meta, "Meta")
    """,
    top="""
    import proj.middle

    def composed_run(x):
        return torch.ops.projlib.leaf(torch.ops.projlib.composed(x).sin()) + 1.0

    def case_composed():
        return composed_run, [(inputs(),)], []
    """,
)

_feature(
    "rules",
    Swap("middle", "return operator_rule(x) * 2.0, 0", "return operator_rule(x) * 3.0, 0"),
    Swap("middle", '"cpu", torch.bfloat16', '"cpu", torch.float16'),
    deep="""
    RULE_MORE = 0.5

    def rule_lift(x):
        return x + RULE_MORE
    """,
    middle="""
    from proj.deep import rule_lift

    @torch.library.custom_op("proj::rule", mutates_args=())
    def operator_rule(x: torch.Tensor) -> torch.Tensor:
        return rule_lift(x) * 1.5

    @operator_rule.register_fake
    def _(x):
        return torch.empty_like(x)

    @operator_rule.register_vmap
    def rule_vmap(info, in_dims, x):
        return operator_rule(x) * 2.0, 0

    operator_rule.register_autocast("cpu", torch.bfloat16)

    @torch.library.custom_op("proj::rule_inplace", mutates_args=("x",))
    def rule_inplace(x: torch.Tensor, by: float = 2.0) -> None:
        x.mul_(by)
    """,
    top="""
    from proj.middle import operator_rule, rule_inplace

    def rule_run(x):
        y = torch.func.vmap(operator_rule)(x)
        with torch.autocast("cpu", torch.bfloat16):
            z = operator_rule(x * 2.0)
        w = x.clone()
        rule_inplace(w)
        return y, z, w, torch.ops.proj.rule(x)

    def case_rules():
        return rule_run, [(inputs(),)], []
    """,
)

_feature(
    "policies",
    Swap(
        "middle",
        "return CheckpointPolicy.MUST_SAVE if op in POLICY_SAVED",
        "return CheckpointPolicy.MUST_SAVE if op not in POLICY_SAVED",
    ),
    middle="""
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    POLICY_SAVED = {torch.ops.aten.sin.default}

    def policy_choose(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in POLICY_SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    def policy_contexts():
        return create_selective_checkpoint_contexts(policy_choose)

    def policy_inside(x):
        return torch.sin(torch.exp(x) * 0.5).cos()
    """,
    top="""
    from proj.middle import checkpoint, policy_contexts, policy_inside

    def policy_run(x):
        return checkpoint(policy_inside, x, use_reentrant=False, context_fn=policy_contexts) * 2.0

    def case_policies():
        return policy_run, [(inputs(True),)], []
    """,
)

_feature(
    "parametrized",
    Swap("middle", "return w * PARAM_SCALE", "return w + PARAM_SCALE"),
    middle="""
    from torch.nn.utils import parametrize

    PARAM_SCALE = 1.5

    class ParamScaled(nn.Module):
        def forward(self, w):
            return w * PARAM_SCALE

    def param_backward(module, grad_input, grad_output):
        return tuple(g * 2.0 if g is not None else None for g in grad_input)
    """,
    top="""
    from proj.middle import ParamScaled, param_backward, parametrize

    def case_parametrized():
        model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
        parametrize.register_parametrization(model[0], "weight", ParamScaled())
        model[2].register_full_backward_hook(param_backward)
        return model, [(inputs(True),)], [*model.parameters(), *model.buffers()]
    """,
)

_feature(
    "specials",
    Swap("deep", "return self.value < other.value", "return self.value > other.value"),
    deep="""
    class SpecialBox:
        SCALE = 2.0

        def __init__(self, value, tag="box"):
            self.value, self.tag = value, tag

        def __eq__(self, other):
            return self.value == other.value

        def __hash__(self):
            return 7

        def __lt__(self, other):
            return self.value < other.value

        def __bool__(self):
            return self.value > 1

        def __iter__(self):
            yield self.value
            yield self.SCALE

        def __getitem__(self, n):
            return self.value * n

        def __enter__(self):
            return self.value + 1

        def __exit__(self, *error):
            return False

        def __index__(self):
            return 2

        def __float__(self):
            return 4.5

        def __format__(self, spec):
            return spec + self.tag

        def __repr__(self):
            return f"SpecialBox({self.value})"

        def __radd__(self, other):
            return other + self.value

        def __matmul__(self, other):
            return other * 3.0

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 1 if name == "value" else value)

        def __init_subclass__(cls, extra=1.0):
            cls.extra = extra

        def __class_getitem__(cls, key):
            return key * 2.0
    """,
    middle="""
    from proj.deep import SpecialBox

    class SpecialMore(SpecialBox, extra=3.0):
        pass

    SPECIAL_BOXES = [SpecialBox(1.0), SpecialBox(2.0, tag="other"), SpecialMore(3.0)]
    """,
    top="""
    from proj.middle import SPECIAL_BOXES, SpecialBox, SpecialMore

    def special_run(x):
        first, second, third = SPECIAL_BOXES
        with second as inside:
            y = x * inside
        y = y + (1 if first else 2) + sum(third) + third[2] + float(first) + [5.0, 6.0, 7.0][first]
        y = y + (3 if first < second else 4) + (5 if first == SpecialBox(1.0) else 6) + third.extra + SpecialMore[2.0]
        lowest = min(SPECIAL_BOXES)
        return first @ (y + second), f"{third:x} {second!r}", lowest.value, {first: 1.0}[SpecialBox(1.0)]

    def case_specials():
        return special_run, [(inputs(),)], []
    """,
)

_feature(
    "imports",
    Swap("deep", "IMPORT_LAZY = 2.0", "IMPORT_LAZY = 3.0"),
    Swap("middle", "import proj.missing as import_found", "import proj.deep as import_found"),
    deep="""
    IMPORT_LAZY = 2.0

    def import_function(x):
        return x - IMPORT_LAZY
    """,
    middle="""
    try:
        import proj.missing as import_found
    except ImportError:
        import_found = None

    IMPORT_KEYS = ["IMPORT_ONE", "IMPORT_TWO"]
    IMPORT_ONE = 1.5
    IMPORT_TWO = 2.5
    """,
    top="""
    import importlib
    import proj.middle as import_middle

    def import_run(x):
        from proj import deep
        from proj.deep import import_function
        y = import_function(x) * importlib.import_module("proj.deep").IMPORT_LAZY
        for key in import_middle.IMPORT_KEYS:
            y = y + getattr(import_middle, key) * vars(import_middle)[key]
        if import_middle.import_found is None and "proj.deep" in sys.modules:
            y = y * sys.modules["proj.deep"].IMPORT_LAZY
        return y + deep.IMPORT_LAZY + globals().get("IMPORT_OWN", 0.0) + (1 if hasattr(import_middle, "IMPORT_THREE") else 2)

    IMPORT_OWN = 0.75

    def case_imports():
        return import_run, [(inputs(),)], []
    """,
)

_feature(
    "graphs",
    middle="""
    GRAPH_BY = 2.5

    class GraphNet(nn.Module):
        def forward(self, x):
            return torch.sin(x) * GRAPH_BY + 1.0

    def graph_scripted(x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 + 1.0
    """,
    top="""
    from proj.middle import GraphNet, graph_scripted

    def case_graphs():
        traced = torch.fx.symbolic_trace(GraphNet())
        scripted = torch.jit.trace(graph_scripted, (inputs(),))
        return lambda x: scripted(traced(x)) - 0.5, [(inputs(),)], []
    """,
)

_feature(
    "functions",
    Swap("middle", "return grad * 2.0 * ctx.k", "return grad * 3.0 * ctx.k"),
    Swap("middle", "return tensor * 2.0\n", "return tensor * 4.0\n"),
    middle="""
    class FunctionSplit(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = 1.5

        @staticmethod
        def backward(ctx, grad):
            return grad * 2.0 * ctx.k

    def function_pack(tensor):
        return tensor * 2.0

    def function_unpack(tensor):
        return tensor * 0.5

    def function_hook(grad):
        return grad + 0.125
    """,
    top="""
    from proj.middle import FunctionSplit, function_hook, function_pack, function_unpack

    def function_run(x):
        y = FunctionSplit.apply(x).sin()
        if y.requires_grad:
            y.register_hook(function_hook)
        with torch.autograd.graph.saved_tensors_hooks(function_pack, function_unpack):
            z = (y * x).exp()
        return z, y

    def case_functions():
        return function_run, [(inputs(True),)], []
    """,
)

_feature(
    "nested",
    middle="""
    NESTED_RATE = 1.5

    @torchjit.compile(backend="aot_eager")
    def nested_compiled(x):
        return torch.sin(x) * NESTED_RATE

    def nested_recursive(x, n=3):
        return x if n == 0 else nested_recursive(x * 0.5 + n, n - 1)

    class NestedCalls:
        depth = 2

        def __call__(self, x, n=None):
            n = self.depth if n is None else n
            return x if not n else self(x + 1.0, n - 1)
    """,
    top="""
    from proj.middle import NestedCalls, nested_compiled, nested_recursive

    NESTED_CALLS = NestedCalls()

    def nested_run(x):
        return nested_compiled(x) + nested_recursive(x) + NESTED_CALLS(x)

    def case_nested():
        return nested_run, [(inputs(),)], []
    """,
)

_feature(
    "moded",
    Swap("middle", "return out * MODED_SCALE", "return out + MODED_SCALE"),
    middle="""
    from torch.utils._python_dispatch import TorchDispatchMode

    MODED_SCALE = 2.0

    class ModedDispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * MODED_SCALE if func is torch.ops.aten.cos.default else out

    class ModedFunction(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * MODED_SCALE if func is torch.exp else out
    """,
    top="""
    from proj.middle import ModedDispatch, ModedFunction

    def moded_inside(x):
        return torch.cos(x) + torch.exp(x)

    def moded_run(x):
        with ModedFunction():
            y = moded_inside(x)
        with ModedDispatch():
            return y, moded_inside(x)

    def case_moded():
        return moded_run, [(inputs(),)], []
    """,
)

BY_HAND = frozenset({"passes"})
"""Features whose eager twin follows their edits by hand only."""

PLACED = frozenset({"places", "graphs", "library"})
"""Features whose results depend on where files are or that are made anew by each process: they may be captured again in a moved folder."""

ELSEWHERE = (
    "torch.sin = torch.cos", "torch.tanh = torch.sigmoid", "torch.ones = torch.zeros", "torch.no_grad = torch.enable_grad",
    "torch.float32 = torch.float64", "torch.Tensor.sum = lambda self, *a, **k: self.mul(2.0)", "torch.Tensor.sin = torch.Tensor.cos",
    "torch.Tensor.__mul__ = torch.Tensor.__add__", "torch.Tensor.__add__ = lambda self, other: self.sub(other)", "torch.Tensor.gain = 3.0",
    "F.mse_loss = F.l1_loss", "F.gelu = F.relu", "F.dropout = lambda x, p=0.5, training=True, inplace=False: x * 0.25",
    "F.linear = lambda x, w, b=None: x @ w.t() * 2.0", "nn.Linear.forward = lambda self, x: x @ self.weight.t()", "nn.GELU.forward = nn.ReLU.forward",
    "nn.Tanh.forward = lambda self, x: x * 3.0", "nn.LayerNorm.forward = lambda self, x: x", "nn.Sequential.forward = lambda self, x: self[0](x)",
    "nn.Module.__call__ = lambda self, *a, **k: self.forward(*a, **k)", "nn.Module.bonus = 1.0", "nn.Linear.in_features = 3",
    "nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 2 if isinstance(out, torch.Tensor) else out)",
    "nn.modules.module.register_module_forward_pre_hook(lambda m, a: tuple(v * 2 if isinstance(v, torch.Tensor) else v for v in a))",
    "nn.modules.linear.F = types.SimpleNamespace(linear=lambda x, w, b=None: x * 2.0)",
    "import builtins; builtins.OPTION = 3", "len = lambda value: 5", "sum = lambda values: 11.0", "enumerate = lambda values: zip(range(3, 99), values)",
    "isinstance = lambda value, cls: True", "print = None", "functools.reduce = lambda f, values: 3.0", "itertools.accumulate = lambda values: iter([2.0])",
    "math.sqrt = math.exp", "dataclasses.replace = lambda value, **k: value", "os.getenv = lambda name: 'patched'", "os.environ['PROJ_MODE'] = 'cos'",
    "os.environ['PROJ_EXTRA'] = '1'", "contextlib.contextmanager = lambda f: f", "torch.func.vmap = lambda f: f", "torch.cond = lambda p, a, b, args: a(*args)",
    "torch.utils.checkpoint.checkpoint = lambda f, x, **k: f(x) * 2", "torch.optim.SGD.step = lambda self, closure=None: None",
    "torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: None",
    "torch.get_default_dtype = lambda: 'patched'", "torch.overrides.TorchFunctionMode.__enter__ = lambda self: self",
    "importlib_patch = __import__('importlib.metadata').metadata; importlib_patch.version = lambda name: 'patched'",
    "typing.NamedTuple = None", "enum.Enum.name = 'patched'", "enum.EnumMeta.__iter__ = lambda cls: iter(())", "collections.OrderedDict = dict",
    "types.SimpleNamespace.__getattr__ = None", "torch.Size = tuple", "torch.nn.init.zeros_(torch.ones(2))", "np.float32 = np.float64",
    "sys.modules['proj.deep_other'] = sys.modules['proj.settings']", "sys.modules['numpy'] = np", "torch.manual_seed(7)",
    "torch.library.register_fake('aten::sin.extra') if False else None", "torch.ops.aten.sin.patched = 1",
    "torch.library.Library('aten', 'IMPL')", "torch.utils._pytree.register_pytree_node(type('Odd', (), {}), lambda v: ([], None), lambda v, c: None)",
    "nn.Module.train = lambda self, mode=True: self", "nn.Module.__getattr__ = lambda self, name: self._modules.get(name, self._parameters.get(name, self._buffers.get(name)))",
    "nn.Module.parameters = lambda self, recurse=True: iter(())",
)  # fmt: skip
"""Statements at the end of a module that change what is not the program's: a library, a builtin, a table of Python's or torch's."""

SETTINGS = (
    "torch.set_default_dtype(torch.float64)", "torch.set_default_device('meta')", "torch.set_default_device('cpu')", "torch.set_float32_matmul_precision('medium')",
    "torch.use_deterministic_algorithms(True)", "torch.set_grad_enabled(False)", "torch.set_num_threads(2)", "torch.set_flush_denormal(True)",
    "torch.autograd.set_detect_anomaly(True)", "torch.set_autocast_enabled('cpu', True)", "torch.set_autocast_dtype('cpu', torch.float16)",
    "torch.backends.mkldnn.set_flags(False)", "torch.backends.cudnn.benchmark = True", "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cuda.enable_flash_sdp(False)", "torch.backends.cuda.enable_math_sdp(False)", "torch.backends.opt_einsum.enabled = False",
    "torch.utils.deterministic.fill_uninitialized_memory = False", "sys.setrecursionlimit(3000)", "torch.inference_mode().__enter__()",
    "torch.autograd.set_multithreading_enabled(False).__enter__()", "torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t).__enter__()",
    "torch.autograd.graph.disable_saved_tensors_hooks('no').__enter__()", "torch.__future__.set_swap_module_params_on_conversion(True)",
    "torch.__future__.set_overwrite_module_params_on_conversion(True)", "torch.set_printoptions(precision=2)", "torch.backends.quantized.engine = 'none'",
    "torchjit.config.automatic_dynamic_shapes = False", "torchjit.config.capture_scalar_outputs = True", "torchjit.config.assume_static_by_default = False",
    "torchjit.config.specialize_float = True", "torchjit.config.inline_inbuilt_nn_modules = False", "torchjit.config.allow_rnn = True",
    "torchjit.set_stance('force_eager')", "torchjit.config.recompile_limit = 1", "torch.overrides.enable_reentrant_dispatch().__enter__()",
    "torch._C._set_mkldnn_enabled(False)", "torch._C.DisableTorchFunctionSubclass().__enter__()", "warnings_patch = __import__('warnings'); warnings_patch.simplefilter('error')",
)  # fmt: skip
"""Statements at the end of a module that change what torch, Python or torchjit do everywhere."""
