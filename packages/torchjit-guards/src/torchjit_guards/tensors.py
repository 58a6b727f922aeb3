"""What lowering needs to know about tensors, whether torch is there or not.

`torchjit_guards.torch_support` knows torch; it is imported only when torch already is, so that this package works,
and stays light, without it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from torchjit_core.guards import TensorMatches
from torchjit_core.paths import Arg

if TYPE_CHECKING:
    from torchjit_guards.native_reads import NativeRead

__all__ = [
    "THE_TENSOR",
    "found_out",
    "key_set_holds",
    "matches",
    "native_read",
    "plain_facts",
    "prepare_raw_reads",
    "take_over",
    "tensor_test",
]

THE_TENSOR = Arg.of(0, "tensor")
"""The path of guards on a tensor that is at hand."""


def _torch_support() -> Any:
    """The module that knows torch, if torch has been imported (by whoever met a tensor); else None."""
    if sys.modules.get("torch") is None:
        return None
    from torchjit_guards import torch_support  # noqa: PLC0415  # imports torch: only when somebody else already did

    return torch_support


def prepare_raw_reads() -> None:
    """Let the C program read sizes and storages from memory, if torch is there and it can be done."""
    support = _torch_support()
    if support is not None:
        support.raw_reads()


def found_out() -> Any:
    """What other processes need not find out about this build of torch; None: nothing is known."""
    support = _torch_support()
    return None if support is None else support.found_out()


def take_over(found: Any) -> None:
    """Take it over from another process with the same build."""
    support = _torch_support()
    if support is not None and found is not None:
        support.take_over(*found)


def tensor_test(guard: TensorMatches) -> tuple[Callable[[Any], bool], tuple[Any, ...] | None]:
    """The slow test of a tensor, by attributes, and what the raw test compares (None: there is no raw test).

    Args:
        guard: on `THE_TENSOR`.
    """
    support = _torch_support()
    test = functools.partial(_matches, guard)
    return test, None if support is None else support.tensor_spec(guard)


def _matches(guard: TensorMatches, tensor: Any) -> bool:
    return matches(guard, (tensor,)) and key_set_holds(guard, tensor)


def matches(guard: TensorMatches, slots: tuple[Any, ...] | list[Any]) -> bool:
    """`guard.check`, which runs none of the program's code where the tensor is of a class of the program."""
    tensor = guard.path.resolve(slots)
    if type(tensor) is not guard.type:
        return False
    plain, facts = plain_facts(guard, tensor)
    return guard.check(slots) if facts is guard else facts.check((plain,))


def plain_facts(guard: TensorMatches, tensor: Any) -> tuple[Any, TensorMatches]:
    """A tensor as torch's own, and what it must be like; of another type where what autograd knows differs."""
    support = _torch_support()
    if support is None or not support.only_sees_functions(guard.type):
        return tensor, guard
    plain, facts = support.as_plain(tensor, attrs.evolve(guard, path=THE_TENSOR))
    return plain, facts


def key_set_holds(guard: TensorMatches, tensor: Any) -> bool:
    """Does the tensor have the guard's dispatch key set (None: any)? Key sets are torch's: without it, no."""
    if guard.key_set is None:
        return True
    support = _torch_support()
    if support is None:
        return False
    keys = support.dispatch_keys(tensor)
    return bool(guard.key_set == (keys.raw_repr() if isinstance(guard.key_set, int) else str(keys)))


def key_difference(guard: TensorMatches, tensor: Any) -> tuple[str, str]:
    """What the guard's dispatch keys say of a tensor that this one is not, in a reader's words: both sides."""
    support = _torch_support()
    if support is None:
        return "a tensor with these dispatch keys", "another"
    keys = support.dispatch_keys(tensor)
    want, got = (set(_KEY.findall(str(keys_))) for keys_ in (support.key_set(guard.key_set), keys))
    if _RECORDS_WRITES in want ^ got:
        inside, outside = "a tensor made in inference mode", "a tensor made outside of inference mode"
        return (outside, inside) if _RECORDS_WRITES in want else (inside, outside)
    return _kind(want - got), _kind(got - want)


def _kind(own_keys: set[str]) -> str:
    return f"a tensor with {', '.join(sorted(own_keys))}" if own_keys else "a plain tensor"


_KEY = re.compile(r"\w+(?=[,)])")
_RECORDS_WRITES = "ADInplaceOrView"  # which inference tensors lack


def native_read(read: Callable[[], Any], value: object) -> NativeRead | None:
    """The function of libtorch behind `read`, and what it returns for `value`, if there is one."""
    support = _torch_support()
    return None if support is None else support.native_read(read, value)
