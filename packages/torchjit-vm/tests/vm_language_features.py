"""More of the language for the random programs: classes with hooks of every kind, library containers, generators driven by hand.

A template's `$` letters stand for random parts: `$i` a number, `$c` a condition, `$l` a list, `$k` a key, `$t` a text, `$x` a
leaf, `$o` an object, `$a` anything, `$s` an iterable, `$v` a number's name of this function, `$e` a kind of exception.
"""

from __future__ import annotations

__all__ = ["FEATURES", "NUMBERS", "STATEMENTS", "VALUES"]

FEATURES = """
import abc, copy, dataclasses, enum, types, typing

class Field:
    def __init__(self, default=0):
        self.default = default
    def __set_name__(self, owner, name):
        self.name = name
        note("set name", (owner.__name__, name))
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        note("get field", self.name)
        return instance.__dict__.get("_" + self.name, self.default)
    def __set__(self, instance, value):
        note("set field", self.name)
        if value is None:
            raise ValueError(self.name, value)
        instance.__dict__["_" + self.name] = value
    def __delete__(self, instance):
        note("delete field", self.name)
        del instance.__dict__["_" + self.name]

class Computed:
    def __init__(self, function):
        self.function = function
    def __get__(self, instance, owner=None):
        note("computed")
        return self.function(instance, owner)

class Meta(type):
    def __new__(mcs, name, bases, names, **options):
        note("new class", (name, sorted(options)))
        return super().__new__(mcs, name, bases, names)
    def __init__(cls, name, bases, names, **options):
        super().__init__(name, bases, names)
        cls.options = options
    def __call__(cls, *args, **kw):
        note("make", cls.__name__)
        return super().__call__(*args, **kw)
    def __len__(cls):
        return 3
    def __iter__(cls):
        return iter((cls.__name__, 2))
    def __getitem__(cls, key):
        return (cls.__name__, key)
    def __contains__(cls, value):
        return value == 2
    def __instancecheck__(cls, value):
        note("instancecheck")
        return hasattr(value, "p") or super().__instancecheck__(value)
    @property
    def title(cls):
        return cls.__name__.lower()

class Managed(metaclass=Meta, size=2):
    p, q = Field(1), Field()
    def __init__(self, p=1, q=2):
        self.p, self.q = p, q
    @Computed
    def twice(self, owner):
        return (owner.__name__, None if self is None else self.p * 2)
    def __init_subclass__(cls, **kw):
        note("subclass", (cls.__name__, sorted(kw)))
        super().__init_subclass__()
    def __eq__(self, other):
        if not type(other) is type(self):
            return NotImplemented
        return (self.p, self.q) == (other.p, other.q)
    __hash__ = None

class Slotted:
    __slots__ = ("a", "b", "__dict__")
    def __init__(self, a=1):
        self.a = a
    def __setattr__(self, name, value):
        note("setattr", name)
        super().__setattr__(name, value)
    def __delattr__(self, name):
        note("delattr", name)
        object.__delattr__(self, name)

class Bare:
    __slots__ = ("a", "b")
    def __init__(self, a=1):
        self.a = a

class Watched:
    shared = [0]
    def __init__(self, v=1):
        self.v = v
    def __getattribute__(self, name):
        if name != "__dict__":
            note("read", name)
        return super().__getattribute__(name)
    def __getattr__(self, name):
        if name == "other":
            return 5
        raise AttributeError("no " + name)

class Proxy:
    def __init__(self, of):
        object.__setattr__(self, "of", of)
    def __getattr__(self, name):
        return getattr(self.of, name)
    def __setattr__(self, name, value):
        note("pass on", name)
        setattr(self.of, name, value)
    def __dir__(self):
        return ["of"]

@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list, compare=False)
    def __post_init__(self):
        note("post init", self.x)
    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by)

@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Frozen:
    x: int
    y: int = dataclasses.field(default=3, repr=False)

@dataclasses.dataclass(kw_only=True)
class Point3(Point):
    z: int = 4

class Pair(typing.NamedTuple):
    left: int
    right: object = None
    def swapped(self):
        return self._replace(left=self.right, right=self.left)
    @property
    def size(self):
        return len(self)

class Color(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1
    @classmethod
    def _missing_(cls, value):
        note("missing", value)
        return cls.GREEN if value == 5 else None
    def next(self):
        return Color(self.value % 2 + 1)

class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3

class Items(list):
    def append(self, value):
        note("append")
        super().append(value)
    def __getitem__(self, key):
        note("item", key)
        return super().__getitem__(key)

class Table(dict):
    def __missing__(self, key):
        note("missing key", key)
        self[key] = 0
        return 0
    def __setitem__(self, key, value):
        note("store", key)
        super().__setitem__(key, value)

class Plain(dict):
    pass

class Ordered(OrderedDict):
    def __delitem__(self, key):
        note("del key", key)
        super().__delitem__(key)

class Bag(Counter):
    kind = "bag"

class Queue(deque):
    def append(self, value):
        note("queue", value)
        super().append(value)

class Steps:
    def __init__(self, *values):
        self.values = list(values)
    def __iter__(self):
        return self
    def __next__(self):
        note("step", len(self.values))
        if not self.values:
            raise StopIteration(9)
        return self.values.pop(0)
    def __length_hint__(self):
        return 2
    def __reversed__(self):
        return iter(self.values[::-1])

class Amount:
    def __init__(self, n):
        self.n = n
    def __index__(self):
        note("index")
        return self.n
    def __int__(self):
        return self.n + 1
    def __float__(self):
        return self.n + 0.5
    def __round__(self, digits=None):
        return (self.n, digits)
    def __mul__(self, other):
        return Amount(self.n * other) if isinstance(other, int) else NotImplemented
    def __rmul__(self, other):
        note("rmul")
        return self.n
    def __imul__(self, other):
        note("imul")
        self.n += 1
        return self
    def __neg__(self):
        return Amount(-self.n)
    def __divmod__(self, other):
        return (self.n, other)
    def __matmul__(self, other):
        return "at"
    def __repr__(self):
        return f"Amount({self.n})"

@functools.total_ordering
class Rank:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return isinstance(other, Rank) and self.n == other.n
    def __lt__(self, other):
        note("rank lt", (self.n, getattr(other, "n", None)))
        if not isinstance(other, Rank):
            return NotImplemented
        return self.n < other.n
    def __hash__(self):
        return 3

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @staticmethod
    @functools.cache
    def unit(n):
        return n * 2

class Square(Shape):
    def area(self):
        return self.unit(2)

class Root:
    def chain(self):
        return ["root"]
class Left(Root):
    def chain(self):
        return ["left", *super().chain()]
class Right(Root):
    def chain(self):
        return ["right", *super().chain()]
class Both(Left, Right):
    def chain(self):
        return ["both", *super().chain()]

@functools.singledispatch
def described(value):
    return "any"
@described.register
def _(value: int):
    return "int"
@described.register(list)
def _(value):
    return note("listed", "list")

def echo():
    total = 0
    while True:
        try:
            got = yield total
        except ValueError as error:
            note("echo caught", error.args)
            total -= 1
        else:
            note("echo got", got)
            if got is None:
                return total
            total += got

def outer_echo(log=True):
    result = yield from echo()
    if log:
        note("echo result", result)
    return result

def drive(generator, *values):
    found = []
    try:
        found.append(next(generator))
        for value in values:
            if isinstance(value, type) and issubclass(value, BaseException):
                found.append(generator.throw(value("thrown")))
            else:
                found.append(generator.send(value))
    except StopIteration as stop:
        found.append(("stopped", stop.value))
    return found

def leaves_early(values, mode):
    for value in values:
        try:
            note("try", mode)
            if mode == 0:
                return value
            if mode == 1:
                break
            if mode == 2:
                continue
            if mode == 3:
                raise KeyError(mode)
        except KeyError:
            try:
                return "caught"
            finally:
                note("inner finally")
        finally:
            note("finally", mode)
            if mode == 4:
                return "finally"
            mode += 1
    else:
        return "else"
    return "after"

def reraises(error, cause=None):
    try:
        raise error
    except LookupError as caught:
        caught.add_note("noted")
        raise Custom(1) from cause
    except ValueError:
        raise

def grouped(*errors):
    raise ExceptionGroup("group", list(errors))

class Guarding:
    def __init__(self, swallow=False):
        self.swallow = swallow
    def __enter__(self):
        return note("guard in", self)
    def __exit__(self, kind, error, tb):
        note("guard out", (kind and kind.__name__, error and error.args))
        return self.swallow

class guarded(contextlib.ContextDecorator):
    def __enter__(self):
        note("decorated in")
    def __exit__(self, *exc):
        note("decorated out", exc[0] and exc[0].__name__)
        return exc[0] is KeyError

@guarded()
def decorated(value):
    if value == 2:
        raise KeyError(value)
    return value

"""

NUMBERS = (
    "Managed($i).p", "len(Managed)", "Managed(q=$i).q", "Slotted($i).a", "Watched($i).v", "Watched($i).other", "Proxy(o).v", "Point($i).x", "Point(1, $i).moved($i).x",
    "Frozen($i).y", "Pair($i, 2).left", "Pair($i, 2).size", "Color(2).value", "Color.RED.value", "Level.HIGH", "(Level.LOW + $i)", "len(Items($l))",
    "Table(a=$i)['a']", "Table(a=$i)['q']", "Bag('aab')['a']", "Bag('aab').total()", "int(Amount($i))", "operator.index(Amount($i))", "[5, 6, 7][Amount(1)]",
    "(2 * Amount($i))", "sum(Steps(1, $i))", "next(Steps($i))", "Square().area()", "Shape.unit($i)", "decorated(1)", "functools.partial(divmod, $i)($i)[0]",
    "operator.itemgetter(0)($l)", "operator.attrgetter('v')($o)", "operator.methodcaller('fixed')($o)", "functools.reduce(lambda q, w: q * 2 + w, $l)",
    "max($l, key=lambda q: note('key', q))", "min(l0, key=lambda q: -q, default=$i)", "sum(map(operator.neg, l0))", "len({*l0, *$l})", "(lambda *q, w=$i, **e: w)(*l0)",
    "[q for q in l0 if (w := q) > 1][0]", "sum(q * $i for q in l0 for w in range(q) if w != q)", "dict(zip('abc', l0)).get($k, $i)", "int(f'{$i:d}')", "int($t or 3)",
    "types.SimpleNamespace(v=$i).v", "defaultdict(lambda: note('factory', 4))[$k]", "(1).__add__($i)", "int.__add__(1, $i)", "type(o).fixed($i)", "Obj.method(o, $i)",
    "getattr(o, 'method')($i)", "o.__class__.made", "vars(o)['v']", "o.__dict__.get('w', $i)", "len(o.__dict__)", "sys.maxsize % 5", "(n).bit_length()", "round($i / 2)",
    "abs($i)", "pow($i, 2, 5)", "int.from_bytes(b'a', 'big') % 7", "len(f'{$i!r:>{i1}}')", "(l0.append(1), len(l0))[1]", "[*range($i)][-1]", "len(list(itertools.combinations(l0, 2)))",
    "len(deque(l0, maxlen=2))", "copy.copy(o).v", "copy.deepcopy(l0)[0]", "hash(Frozen(1)) % 1", "hash((1, 2)) % 3", "int(id(o) == id(o))", "len(Managed(1, 2).__dict__)",
)  # fmt: skip

VALUES = (
    "Managed($i)", "Managed.title", "[*Managed]", "Managed[$i]", "2 in Managed", "Managed.twice", "Managed().twice", "isinstance($o, Managed)", "Managed.options", "Managed() == Managed()",
    "Managed() == $i", "Slotted($i)", "Bare($i)", "Point($i)", "Point($i) == Point($i, tags=$l)", "repr(Point($i))", "dataclasses.asdict(Point($i, tags=$l))", "dataclasses.astuple(Point($i))",
    "Point3(x=$i, z=2)", "Frozen($i)", "Frozen($i) < Frozen($i)", "sorted([Frozen(2), Frozen(1, $i), Frozen(1)])", "{Frozen($i): 1}", "[f.name for f in dataclasses.fields(Point3)]",
    "Pair($i)", "Pair($i).swapped()", "Pair($i)._asdict()", "Pair(*$l)", "Pair($i) == ($i, None)", "Pair._fields", "Color.RED", "Color(5)", "Color['GREEN']", "[*Color]", "Color.CRIMSON.name",
    "Color.RED.next()", "Color.RED is Color(1)", "{Color.RED: $a}", "Flags.A | Flags.B", "(Flags.A | Flags.C) & Flags.C", "Flags.B in (Flags.A | Flags.B)", "~Flags.A", "bool(Flags(0))", "Level(3)",
    "f'{Level.HIGH} {Color.RED}'", "Items($l)", "Items($l)[:1]", "Items($l) + [1]", "Table($d)", "Plain($d)", "Plain(a=1) | {'b': 2}", "Ordered(a=1, b=$i)", "Ordered(b=1) == Ordered(b=1)", "Bag(l0)",
    "Bag('aab') + Bag('b')", "Bag('aab') - Bag('a')", "Bag('abb').most_common(1)", "Bag(a=2) & Bag(a=1)", "sorted(Bag('ab').elements())", "Queue($l, 3)", "deque($l, maxlen=2)", "deque(l0) + deque([1])",
    "defaultdict(list, a=[1])", "list(Steps($i, 2))", "[*reversed(Steps(1, $i))]", "dict.fromkeys(Steps(1, 2), $i)", "a_b if False else Amount($i)", "round(Amount($i))", "round(Amount(2), 1)", "-Amount($i)",
    "divmod(Amount(1), $i)", "Amount(1) @ 2", "Amount(2) * $i", "sorted([Rank(2), Rank(1), Rank($i)])[0].n", "max(Rank(1), Rank($i)).n", "Rank(1) <= Rank($i)", "Rank(1) in [Rank($i)]", "{Rank(1), Rank($i)}",
    "{Rank(1): 2}.get(Rank(1))", "Rank(1) < $i", "Shape()", "isinstance(Square(), Shape)", "Both().chain()", "[c.__name__ for c in Both.__mro__]", "super(Left, Both()).chain()", "described($a)",
    "described($l)", "drive(echo(), 1, $i)", "drive(echo(), 2, ValueError, $i)", "drive(outer_echo(), $i, None)", "drive(outer_echo(), KeyError)", "drive(counting(3), ValueError)", "drive(delegating(2), $i, None, LookupError)",
    "leaves_early($l, $i)", "leaves_early(l0, i1)", "decorated($i)", "functools.partial(o.method, $i)", "functools.partial(opaque, $i).args", "operator.attrgetter('v', 'items')($o)", "operator.itemgetter(0, -1)(l0)",
    "[(q, [*w]) for q, w in itertools.groupby(l0, key=lambda q: q % 2)]", "list(itertools.starmap(lambda q, w: q + w, [(1, $i)]))", "[*itertools.compress('abc', l0)]", "[*itertools.dropwhile(lambda q: q > 1, l0)]",
    "[*itertools.filterfalse(None, l0)]", "[*itertools.permutations(l0[:2])]", "[*itertools.accumulate(l0, lambda q, w: note('acc', q) + w, initial=$i)]", "[*itertools.repeat($i, 2)]", "[*itertools.chain.from_iterable([l0, 'a'])]",
    "(lambda q: [next(q), *itertools.islice(q, 1), sum(q)])(iter(l0 + [1, 2]))", "(lambda q: [[*w] for w in q])(itertools.tee(iter(l0)))", "[*map(lambda q, w: (q, w), l0, Steps(1, $i))]", "[*zip(l0, Steps(1, 2), strict=False)]",
    "f'{$i:>5d}|{n:.2f}|{$i:#x}|{n!r:^9}|{i0:+}'", "f'{o.v:{i1}}'", "'%5.1f|%-4s|%(0)s' % ($i, 'q')", "'%(a)s %(b)r' % d", "'{0:>{w}}{1!r}'.format($t, $i, w=i1)", "'{0.v}{1[0]}'.format(o, l0)", "format($i, '04d')", "format(n, ',.1f')",
    "f'{n=}'", "f'{$i:b}{$i:e}'", "str.join('-', $t)", "$t.split('x')", "$t.partition('t')", "$t.center(9, '*')", "$t.encode()", "$t.translate({116: 'T'})", "$t.find('x')", "'a,b'.rsplit(',', 1)", "$t.isalpha()", "$t == $t", "$t < 'm'",
    "types.MappingProxyType(d)['a']", "types.SimpleNamespace(a=$i, b=$l)", "{**types.MappingProxyType({'q': $i})}", "type('Made', (Obj,), {'extra': $i})(2).extra", "(lambda: (yield $i))()", "[(lambda w=q: w + $i)() for q in l0]",
    "[f() for f in [lambda: q for q in range(2)]]", "{q: (lambda: q)() for q in l0}", "[[q + w for w in l0] for q in range(2)]", "{(q, w) for q in 'ab' for w in range(1)}", "[w for q in l0 if (w := q * 2) > 2]", "all((w := q) for q in l0)",
    "slice(1, $i) == slice(1, $i)", "l0[slice(None, $i)]", "range($i)[::2]", "$i in range(3)", "memoryview(b'abc')[1]", "bytes(l0[:1])", "bytearray(b'a') + b'b'", "frozenset(l0) <= {1, 2, 3}", "{1: 'a', 1.0: 'b', True: $i}",
    "callable($a)", "isinstance($a, typing.Hashable)", "isinstance($a, (list, Pair, Point))", "issubclass(Square, Shape)", "type($a).__name__", "hasattr($o, '__iter__')", "d.keys() & {'a'}", "d.items() <= d.items()", "list(reversed(d))", "l0 < $l",
    "copy.copy(l)", "copy.copy(Point($i))", "copy.deepcopy([l0, l0])", "copy.deepcopy(Point(1, tags=l0))", "o.__class__ is type(o)", "Obj.prop.fget(o)", "Obj.__dict__['kind']", "o.method.__self__ is o", "o.method.__func__ is Obj.method",
    "x is l[-1]", "[y, y][0] is y", "divmod($i, $i)", "($i, *l0, *$s)", "[*$s, *d]", "{**d, 'q': [*$l]}", "[l0, [*l0], l0[:]]", "(lambda *a, **k: (a, sorted(k)))(*$l, **d0)", "print($a) or 1", "note('pair', ($a, $a))",
)  # fmt: skip

STATEMENTS = (
    "m = Managed($i); m.p = $i; del m.p; note('m', m.p)",
    "m = Managed(); m.q = None",
    "m = Managed(); m.__dict__['p'] = 9; note('m', (m.p, vars(m)))",
    "class Made(Managed, flag=$i): pass\nnote('made', (Made.title, Made($i).p))",
    "class Made(Obj):\n    __slots__ = ('extra',)\n    def __init_subclass__(cls, tag=0): note('tag', tag)\n    kind = $t\nclass Deeper(Made, tag=$i): pass\nnote('deeper', Deeper(2).kind)",
    "class Made:\n    total = $i\n    values = [total] * 2\n    def get(self): return __class__.total\nnote('made', (Made().get(), Made.values))",
    "m = Slotted($i); m.b = $a; m.c = $i; del m.b; note('slots', (m.a, m.c, hasattr(m, 'b')))",
    "m = Bare($i); m.c = 1",
    "m = Bare(); note('bare', hasattr(m, 'b')); m.b = $i; del m.a; m.a",
    "m = Watched($i); m.v += $i; note('watched', (m.v, m.other)); m.shared.append(1)",
    "m = Watched(); m.missing",
    "m = Proxy(o); m.v = $i; note('proxy', m.prop); m.v += 1",
    "m = Point($i); m.tags.append($i); m.x += 1; note('point', m)",
    "m = Frozen($i); m.x = 3",
    "m = Pair($i, [1]); m.right.append($a); a0, *b0 = m; note('pair', (m, a0, b0))",
    "m = Pair(1); m.left = 2",
    "Color.RED.value = 3",
    "match Color($i):\n    case Color.RED: note('red')\n    case Color.GREEN | 7: note('green')",
    "match Point($i, $i):\n    case Point(x=0, y=$v): note('zero', $v)\n    case Point(x, y=2) if x: note('two')\n    case Point(_, b0, [*c0]): note('tags', (b0, c0))" .replace("Point(x, y=2) if x", "Point(x=a0, y=2) if a0"),
    "match Pair($i, $a):\n    case Pair(1, None): note('one')\n    case (a0, int() | str() as b0): note('pair', b0)\n    case Pair(left=a0): note('left', a0)",
    "match d:\n    case {'a': int(a0), 'b': b0, **c0}: note('both', (a0, b0, c0))\n    case {'a': a0}: note('a', a0)\n    case {}: note('empty')",
    "match l:\n    case [int() as a0, *_, b0]: note('ends', (a0, b0))\n    case [a0] | [a0, _]: note('short', a0)\n    case []: note('none')",
    "match $a:\n    case {'a': [a0, *_]} | [{'b': a0}]: note('nested', a0)\n    case str(a0) if len(a0) > 2: note('long', a0)\n    case bool(a0) | float(a0): note('flag', a0)\n    case None | Obj(): note('none or obj')\n    case a0: note('rest')",
    "m = Table(a=$i); m['z'] += 1; m.setdefault('q', $i); m.update(b=2); note('table', [m, m.get('nope'), m.pop('a')])",
    "m = Ordered(a=1, b=2, c=3); m.move_to_end('a'); del m['b']; m.popitem(last=False); note('ordered', m)",
    "m = Bag(l0); m.update([1, 1]); m['q'] -= 2; m.subtract({1: 1}); note('bag', (m, +m))",
    "m = Queue(l0, 4); m.append($i); m.appendleft(0); m.rotate($i); note('queue', (m, m[0], m.maxlen))",
    "m = defaultdict(lambda: note('made', []), a=[1]); m['b'].append($a); m['a'] += [2]; note('dd', (m, 'c' in m))",
    "m = Items($l); m.append($a); m += [1]; m[0]; m *= 2; note('items', m)",
    "m = deque(l0); m.extendleft([8, 9]); m.remove(8); m.insert(1, $i)\nfor w0 in m:\n    if w0 == 2: m.append(1)",
    "for w0 in l0:\n    if w0 < 3 and len(l0) < 8: l0.append(w0 + 1)\n    note('grow', w0)",
    "for w0 in list(l0): l0.remove(w0)",
    "for w0 in d:\n    d[w0] = $i",
    "for w0 in d:\n    d[(w0, 1)] = $i",
    "for w0 in s0:\n    s0.add(w0 + 10)",
    "for w0, b0 in d.items():\n    if w0 == 'b': del d['a']; break",
    "it = iter(l0); next(it); l0.append(7); note('it', [*it]); l0.append(8); note('again', [*it])",
    "it = iter(l); next(it, None); G['it'] = it",
    "it = G.pop('it', iter(())); note('rest', next(it, 'none'))",
    "it = zip(iter(l0), itertools.count()); next(it, None); note('zip', next(it, None))\nfor w0, b0 in it: note('w', b0)",
    "it = iter(lambda: l0.pop() if l0 else 2, 2); note('it', [*it])",
    "a0, b0 = itertools.tee(l0); next(a0, None); note('tee', ([*a0], [*b0]))",
    "it = map(lambda q: note('mapped', q), l0); next(it, None); l0.clear(); note('it', list(it))",
    "l0.sort(key=lambda q: note('sort key', -q), reverse=$c)",
    "l0.sort(key=lambda q: l0.append(1) or q)",
    "l.sort(key=str)",
    "m = [Rank(2), Rank($i), Rank(1)]; m.sort(); note('ranks', [q.n for q in m])",
    "l[:], l0 = l0, [*l0, $i]" ,
    "l[1:1] = $s",
    "a0 = b0 = [$i]; a0 += [1]; b0 = b0 + [2]; note('alias', (a0, b0, a0 is b0))",
    "a0 = l; a0 += ($i,); note('alias', a0 is l)",
    "a0, l[len(l):] = l, [$i]; a0.pop()",
    "m = o.items; o.items = [*m, $i]; m.append(1); note('m', (m, o.items))",
    "m = (1, [2]); m[1] += [$i]",
    "d.setdefault('list', []).append($a)",
    "d['me'] = o; d['me'].v = $i; note('v', o.v)",
    "o.nested = {'o': o, 'l': l}; o.nested['l'].append($i); del o.nested['o']",
    "o.items.append(o.items)" ,
    "o.__dict__.update(w=$i, extra=$a)",
    "o.__class__ = $c and Sub or Obj",
    "vars(o)['v'] = $i; note('v', o.v)",
    "Obj.extra = $i; note('extra', o.extra); del Obj.extra",
    "Obj.patched = lambda self, q=1: note('patched', q) + 1; note('p', o.patched($i)); del Obj.patched",
    "setattr(o, 'dyn2', $a); delattr(o, 'dyn2'); note('dyn', o.dyn2)",
    "del o.v; note('v', getattr(o, 'v', 'gone'))",
    "x.half; $o.v = x",
    "o.leaf = x; o.leaf = o.leaf + $i; l.append(o.leaf); d['leaf'] = o.leaf",
    "l.append(y); l[-1] = l[-1] + 1",
    "try:\n    grouped(ValueError($i), KeyError($t), $e(1))\nexcept* LookupError as error:\n    note('lookup', [repr(q) for q in error.exceptions])\nexcept* ValueError as error:\n    note('value', error.exceptions)\n    raise",
    "try:\n    grouped($e(1), ExceptionGroup('in', [$e(2), TypeError(3)]))\nexcept* $e:\n    note('one')\nexcept* Exception as error:\n    note('all', (error.message, len(error.exceptions)))\nelse:\n    note('else')\nfinally:\n    note('finally')",
    "try:\n    $e2\nexcept* Exception as error:\n    raise KeyError($i)".replace("$e2", "raise $e(2)"),
    "try:\n    try:\n        raise $e($i)\n    finally:\n        note('inner', str(sys.exc_info()[0]))\n        l.append(1)\nexcept $e as error:\n    note('context', (type(error.__context__), error.__suppress_context__))",
    "try:\n    reraises($e(1), KeyError(2))\nexcept Exception as error:\n    note('chain', (type(error), type(error.__cause__), type(error.__context__), getattr(error, '__notes__', None)))",
    "try:\n    reraises($e(1))\nexcept Exception as error:\n    error.add_note('more'); d['error'] = error\n    raise",
    "try:\n    raise Custom($i) from None\nexcept Custom as error:\n    try:\n        raise Other(1)\n    except KeyError as second:\n        note('two', (second.__context__ is error, error.code))",
    "error = 5\ntry:\n    $e3\nexcept Exception as error:\n    pass\nnote('error', error)".replace("$e3", "raise $e"),
    "try:\n    note('r', leaves_early($s, $i))\nexcept $e: note('no')",
    "w0 = 0\nwhile True:\n    w0 += 1\n    try:\n        if w0 == 2: continue\n        if w0 > 3: break\n        note('w', 1 // (w0 - 1))\n    except ZeroDivisionError:\n        note('zero'); continue\n    finally:\n        note('f', w0)",
    "for w0 in range(3):\n    with Guarding($c), scope(w0, KeyError):\n        if w0 == 1: raise KeyError($i)\n        if w0 == 2: break",
    "with Guarding(True) as m, Guarding($c):\n    raise $e($i)\nnote('after', m.swallow)",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(Guarding(True))\n    stack.callback(note, 'called', $i)\n    stack.push(Guarding())\n    raise $e(1)",
    "note('decorated', (decorated(1), decorated(2)))",
    "g = echo(); next(g); g.send($i); note('g', g.send(2)); g.close()",
    "g = echo(); next(g); note('thrown', g.throw(ValueError($i)))\ntry: g.throw(KeyError('out'))\nexcept KeyError as error: note('out', error.args)",
    "g = outer_echo(); next(g); g.send(1)\ntry: g.send(None)\nexcept StopIteration as stop: note('value', stop.value)",
    "g = keep(outer_echo($c)); next(g); G['g'] = g",
    "g = G.get('g'); note('g', g and g.send($i))",
    "g = (note('lazy', q) for q in l0); next(g, None); l0.append(3); note('g', next(g, 'end')); g.close(); note('closed', [*g])",
    "g = echo()\ntry: g.send(1)\nexcept TypeError as error: note('early', str(error))",
    "def inner():\n    nonlocal w0\n    w0 = $i\n    def deeper():\n        nonlocal w0\n        w0 += 1\n        return w0\n    return deeper\nnote('cells', (inner()(), w0))",
    "fs = []\nfor w0 in range(3):\n    fs.append(lambda: w0)\n    fs.append(lambda w0=w0: w0)\nnote('fs', [q() for q in fs])",
    "def default(q=[], *, w={}):\n    q.append($i); w[len(q)] = 1\n    return len(q), len(w)\nnote('default', (default(), default()))",
    "def rec(q): return [q] if q < 1 else [*rec(q - 1), q]\nnote('rec', rec(3))",
    "TOTAL_2 = $i; TOTAL_2 += 1; note('global', TOTAL_2); del TOTAL_2",
    "G['n'] = G.get('n', 0) + $i; G |= {'w': $a}" .replace("G |= {'w': $a}", "G.update(w=$i)"),
    "if (a0 := $i) > 1 and (b0 := a0 + 1): note('walrus', (a0, b0))",
    "note('w', [a0 := $i, a0 + 1, a0])",
    "*a0, b0 = $s; note('star', (a0, b0))",
    "a0, (b0, *c0), *_ = $i, $l, $a; note('star', (a0, b0, c0))",
    "for a0, *b0 in [l0, (1, 2)]: note('for', (a0, b0))",
    "a0 = {**d}; a0 |= {'q': $i}; a0 |= [('r', 1)]; note('or', a0 == d)",
    "m = Amount($i); m *= 2; note('m', m); m = 3 * m",
    "m = types.SimpleNamespace(**{'a': $i}); m.b = m; del m.a; note('ns', m.b is m)",
    "l0[-1:] = []; del l0[:$i]; l0.insert(0, $i)",
    "del w0; w0 = $i",
    "del l[0], d['a']",
    "assert not $c, ('message', $i)",
    "note('sorted', sorted(l0 + [$i], key=lambda q: (note('k', q), -q)[1])); l0.reverse()",
    "print(f'{$i:>4}', *l0, sep='/', end=';\\n')",
    "import math as m; note('math', (m.floor(2.5), m.gcd($i, 4)))",
    "m = functools.lru_cache(lambda q: note('cached', q)); note('c', (m(1), m(1), m($i)))",
    "m = functools.cached_property(lambda self: note('once', self.v)); m.__set_name__(Obj, 'once'); Obj.once = m; note('cp', (o.once, o.once)); del Obj.once",
    "m = weakless = o; note('same', m is o and weakless is m); m.v = 4",
    "o.method = lambda *a: note('own method', len(a)); note('own', o.method($i)); del o.method",
    "m = super(Sub, Sub(2)); note('super', (m.method($i), m.kind))",
    "l.extend(l); del l[4:]",
    "l.append(l); l.pop()",
    "x2 = x; x2 += 1; note('same leaf', x2 is x)",
)  # fmt: skip
