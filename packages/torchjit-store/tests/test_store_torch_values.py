"""Values of torch come back from documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchjit_core.storing import NotStorable
from torchjit_store.finder import Finder
from torchjit_store.forms import Document, FormatError, decode, encode
from torchjit_store.origins import Origins
from torchjit_store.stale import Stale
from torchjit_store.testing import NoExternals, Table, again

torch: Any = pytest.importorskip("torch")
RemovableHandle: Any = pytest.importorskip("torch.utils.hooks").RemovableHandle


class Nothing(Table):
    """Refuses every tensor."""

    def reference(self, obj: object) -> int:
        if isinstance(obj, torch.Tensor):
            self.refused = (obj,)
        return super().reference(obj)


def test_values() -> None:
    aten = torch.ops.aten
    values = [
        torch.float32, torch.device("cpu"), torch.device("cuda", 1), torch.strided, torch.channels_last, torch.Size([2, 3]),
        torch._C._dispatch_keys(torch.ones(1)), aten.add.Tensor, aten.add, aten.mm.default._op, torch.ops.higher_order.cond,
    ]  # fmt: skip
    table = Table()
    found = again(values, table)
    assert table.objects == []
    for before, after in zip(values, found, strict=True):
        assert type(after) is type(before) and after == before
    assert found[9] is values[9] and found[7] is values[7] and found[10] is values[10]


def test_the_entry_of_an_operator_that_python_defines() -> None:
    @torch.library.custom_op("torchjit_store_tests::twice", mutates_args=())  # type: ignore[untyped-decorator]
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    handle = torch.ops.torchjit_store_tests.twice.default._op
    assert again([handle], Nothing())[0] is handle


def test_the_programs_tensors_are_its_own() -> None:
    tensor = torch.ones(3)
    assert again([tensor])[0] is tensor


@pytest.mark.parametrize(
    "tensor", [torch.tensor(3), torch.tensor([]), torch.randn(3, 4).t().contiguous(), torch.empty_strided((2, 3), (1, 4)).fill_(2.5), torch.tensor([True, False]), torch.ones(2, dtype=torch.bfloat16), torch.empty(0).set_(torch.arange(6.0).untyped_storage(), 2, (3,), (1,))]
)  # fmt: skip
def test_constants(tensor: Any) -> None:
    found = again([tensor], Nothing())[0]
    assert found is not tensor and found.dtype == tensor.dtype and found.stride() == tensor.stride()
    assert torch.equal(found, tensor)


@pytest.mark.parametrize(
    "tensor", [torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3)), torch.ones(4)[1:], torch.ones(2_000_000), torch.ones(2, device="meta")]
)  # fmt: skip
def test_what_is_no_constant(tensor: Any) -> None:
    with pytest.raises(NotStorable, match=r"TJ-STORE-002|tensor"):
        encode([tensor], Nothing(), NoExternals())


@pytest.mark.parametrize(
    ("tag", "data", "error"),
    [("operator", "nobody.has_this.default", Stale), ("operator", "aten.add.Tensor.x", Stale), ("operator", "aten.__class__", Stale), ("dtype", "load", FormatError),
     ("device", "no device", FormatError), ("tensor", ["float32", [4], [1], 0, 0], FormatError), ("tensor", ["float32", [4], [1], 0, 7], FormatError),
     ("higher-order", "__class__", Stale), ("load", "x", Stale)],
)  # fmt: skip
def test_damage(tag: str, data: Any, error: type[Exception]) -> None:
    batches = [["value", [tag], 1, [data], 0]]
    with pytest.raises(error):
        decode(
            Document(
                {"format": 1, "atoms": [], "late": [], "batches": batches, "positions": 1, "root": 0}, (b"abcd", b"")
            ),
            Table(),
            NoExternals(),
        )


def test_hooks_of_tensors_are_found() -> None:
    first = RemovableHandle.next_id

    def weight() -> Any:
        RemovableHandle.next_id = first  # as in a process that has come as far
        made = torch.ones(2, requires_grad=True)
        made.register_hook(lambda gradient: gradient * 2)
        made.register_post_accumulate_grad_hook(print)
        return made

    stored, found = [weight()], [weight()]
    hooks = [next(iter(w._backward_hooks.values())) for w in (*stored, *found)]
    origins = Origins([], [stored])
    references = [origins.reference(obj) for obj in (hooks[0], stored[0]._post_accumulate_grad_hooks)]
    finder = Finder(json.loads(json.dumps(origins.table())), [found])
    assert [finder.find(r) for r in references] == [hooks[1], found[0]._post_accumulate_grad_hooks]


def test_a_namespace_of_operators_is_made_where_nobody_has_asked_for_it() -> None:
    origins = Origins([])
    reference = origins.reference(torch.ops.store_test_operators)
    table = json.loads(json.dumps(origins.table()))
    del torch.ops.store_test_operators  # as in a process that comes to it later
    found = Finder(table).find(reference)
    assert found is torch.ops.store_test_operators
