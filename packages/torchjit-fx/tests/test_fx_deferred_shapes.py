"""sympy waits for the first symbol, and what stands for torch's symbolic shapes until then says the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch._prims_common
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from torchjit_core.paths import Arg
from torchjit_fx import FxSettings, TensorDomain, deferred_shapes
from torchjit_fx.testing import SimpleSizes

_PLAIN: tuple[Any, ...] = (
    True, False, 3, 0, 2.5, "name", None, (1, 2), [1, 2], (1, 2.5), (1, (2, 3)), [1, [2, 3]], [], torch.Size([2, 3]),
    torch.ones(2, 3), torch.ones(2, 3).to_sparse(), (torch.ones(1), 3),
)  # fmt: skip

_STATIC = """
import sys
import torch, torch.nn.functional as F
from torchjit_fx.testing import SimpleSizes, capture_by_proxy
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.LayerNorm(6), torch.nn.Linear(6, 5))
captured = capture_by_proxy(lambda x: F.softmax(net(x), -1).pow(2).mean(), torch.randn(2, 3, 8, 8))
captured(torch.randn(2, 3, 8, 8)).backward()
assert "sympy" not in sys.modules
import torch.fx.experimental.symbolic_shapes as shapes
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode as early, guard_or_false
assert "sympy" not in sys.modules and guard_or_false(True) is True
"""

_WANTED = """
from torch.fx.experimental.symbolic_shapes import ShapeEnv
assert "sympy" in sys.modules and type(shapes) is type(sys) and shapes is sys.modules[shapes.__name__]
assert shapes is torch.fx.experimental.symbolic_shapes and shapes.ShapeEnv is ShapeEnv
real = shapes.GuardOnDataDependentSymNode
assert early is not real and early not in vars(shapes).values()
for module in list(sys.modules.values()):
    held = getattr(module, "__dict__", {}).get("GuardOnDataDependentSymNode")
    assert held is None or held is real or module.__name__ in ("__main__", "torchjit_fx.deferred_shapes"), module
n = shapes.ShapeEnv().create_unbacked_symint()
assert guard_or_false(n == 3) is False
capture_by_proxy(lambda x: x.view(-1) * x.shape[0], torch.randn(4, 3), sizes=SimpleSizes())
compiled = torch.compile(lambda x: torch.cos(x) + 1, backend="eager", dynamic=True)
assert torch.equal(compiled(torch.ones(3)), torch.cos(torch.ones(3)) + 1)
"""

_WAYS = {
    "a name": "shapes.ShapeEnv",
    "a listing": "dir(shapes)",
    "an assignment": "shapes._of_a_test = 1; assert shapes._of_a_test == 1",
    "torch's compiler": "import torch._dynamo",
    "two threads": (
        "import threading\n"
        "wrong = []\n"
        "def look():\n"
        "    try:\n"
        "        assert shapes.ShapeEnv().create_unbacked_symint() is not None\n"
        "    except BaseException as error:\n"
        "        wrong.append(error)\n"
        "threads = [threading.Thread(target=look) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert not wrong, wrong"
    ),
}


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=[pytest.mark.slow] if w != "two threads" else []) for w in _WAYS]
)
def test_sympy_waits_until_it_is_wanted(way: str) -> None:
    _run(_STATIC + _WAYS[way] + "\n" + _WANTED)


def _result(function: Any, value: Any) -> Any:
    try:
        made = function(value)
        return list(made) if inspect.isgenerator(made) or hasattr(made, "__next__") else made
    except Exception as error:  # the texts of their errors are torch's
        return type(error)


@pytest.mark.parametrize("answer", deferred_shapes._ANSWERS, ids=lambda a: a.__name__)
def test_answers_for_our_symbols_are_those_of_the_module(answer: Any) -> None:
    real = getattr(deferred_shapes.load_symbolic_shapes(), answer.__name__, None)
    if real is None or isinstance(answer, type) or answer.__name__ in ("_advise_is_bounded", "sym_and", "sym_or"):
        return
    sizes = SimpleSizes()
    domain = TensorDomain(lambda gm, inputs: gm, sizes, FxSettings())
    n = domain.numbers.sym_int(sizes.size(5, Arg.of(0, "x").size(0)))
    fake = torch.empty(3, device="meta")
    values = [n, n * 2 + 1, n + 1 > 1, n == 5, n == 6, n > 7, (n, 3), [n, [n + 1]], fake, (fake, n)]
    for value in values:
        if answer.__name__ == "sym_eq":
            pairs = [(value, other) for other in values[:5]] + [
                ((n, 2), (n, 2)),
                ((n, 2), (n, 3)),
                ((n,), [n, 1]),
                (n, 5),
            ]
            for left, right in pairs:
                mine, theirs = (_result(lambda v, f=f, w=left: f(w, v), right) for f in (answer, real))
                assert str(mine) == str(theirs), (left, right)
            continue
        if answer.__name__ == "compute_unbacked_bindings":
            assert answer(domain.numbers.shape_env, value) is None
            continue
        assert _result(answer, value) == _result(real, value), value


@pytest.mark.parametrize("answer", deferred_shapes._ANSWERS, ids=lambda a: a.__name__)
def test_answers_for_plain_values_are_those_of_the_module(answer: Any) -> None:
    real = getattr(deferred_shapes.load_symbolic_shapes(), answer.__name__, None)
    if real is None:
        pytest.skip("a name of another version of torch")
    assert answer.__module__ in (deferred_shapes.NAME, deferred_shapes.__name__)
    if isinstance(answer, type):
        return
    if answer.__name__ in ("sym_eq", "sym_and", "sym_or"):
        for left in _PLAIN[:13]:
            for right in _PLAIN[:13]:
                ours = _result(lambda v, left=left: answer(left, v), right)
                theirs = _result(lambda v, left=left: real(left, v), right)
                assert ours == theirs and type(ours) is type(theirs), (left, right)
        return
    if answer.__name__ == "compute_unbacked_bindings":
        assert answer(None, 3) is None is real(None, 3)
        return
    for value in _PLAIN:
        assert _result(answer, value) == _result(real, value), value


def test_types_are_promoted_as_before() -> None:
    promote = torch._prims_common.elementwise_dtypes
    kinds = (KIND.DEFAULT, KIND.INT_TO_FLOAT, KIND.ALWAYS_BOOL, KIND.COMPLEX_TO_FLOAT)
    for kind in kinds:
        for other in (2, 2.5, True, None, torch.ones(2, dtype=torch.float64), torch.tensor(3)):
            with torch.no_grad():
                made = promote(torch.ones(2, dtype=torch.int32), other, type_promotion_kind=kind)
            assert all(isinstance(d, torch.dtype) for d in made)
    expected = (torch.float32, torch.float32)
    assert promote(torch.ones(2, dtype=torch.int32), 2.5, type_promotion_kind=KIND.DEFAULT) == expected
    import sympy  # a number of sympy's, imported by now or not

    assert promote(torch.ones(2), sympy.Integer(2), type_promotion_kind=KIND.DEFAULT) == expected
    with pytest.raises(ValueError, match="Unexpected type"):
        promote("text", type_promotion_kind=KIND.DEFAULT)


def test_layouts_are_judged_as_before() -> None:
    judge = torch._prims_common.is_non_overlapping_and_dense_or_false
    x = torch.ones(2, 3, 4)
    assert judge(x) and judge(x.permute(2, 0, 1)) and judge(x[:1, :1, :1]) and judge(torch.ones(0, 3))
    assert not judge(x[:, :, ::2]) and not judge(torch.ones(3, 1).expand(3, 4))
