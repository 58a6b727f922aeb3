"""Which compiled entries can be kept on disk: programs run twice, the second time with what the first has stored.

    uv run python tools/stored_share.py                     # models and corpora; a minute
    uv run python tools/stored_share.py models torch --only bert --show

Both runs are in one process, with compilations of their own and a cache folder that goes afterwards. Printed are, per corpus, the share of
entries that were stored, the refusals by reason and place, and programs whose two runs differ in a bit: then the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent
for place in ("integration_tests", "tools/corpora"):
    sys.path.insert(0, str(ROOT / place))

import torch  # noqa: E402
from torch.utils.hooks import RemovableHandle  # noqa: E402

import torchjit  # noqa: E402
from torchjit_core.events import listen  # noqa: E402

Programs = Iterator[tuple[str, Callable[[], tuple[Any, Callable[[], Any]]]]]
"""Names, and what makes a compiled callable and a function that runs it and says all that can be seen."""


# ------------------------------------------------------------------------------------------------------------- corpora
def _models() -> Programs:
    """Small models, in inference and training."""
    for name, make in _model_makers().items():
        for train in (False, True):

            def build(make: Callable[[], tuple[Any, tuple[Any, ...]]] = make, train: bool = train) -> Any:
                torch.manual_seed(0)
                module, args = make()
                module.train(train)
                compiled = torchjit.compile(module)
                state = copy.deepcopy(module.state_dict())

                def run() -> Any:
                    module.load_state_dict(state)
                    module.zero_grad()
                    torch.manual_seed(3)
                    with contextlib.nullcontext() if train else torch.no_grad():
                        out = _tensors(compiled(*args))
                    if train:
                        out[0].double().square().sum().backward()
                    grads = [p.grad for p in module.parameters()]
                    return [*out, *grads, *(b.clone() for b in module.buffers())]

                return compiled, run

            yield f"{name} {'training' if train else 'inference'}", build


def _model_makers() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]]:
    import test_models  # noqa: PLC0415  # of the tests

    made: dict[str, Any] = {name: (lambda make=make: _with_tuple(make())) for name, make in test_models.CASES.items()}
    with contextlib.suppress(ImportError):
        import torchvision.models as vision  # noqa: PLC0415  # an optional library

        image = torch.randn(2, 3, 64, 64)
        for name in ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "shufflenet_v2_x0_5"):
            made[f"torchvision {name}"] = lambda name=name: (getattr(vision, name)(weights=None), (image,))
    with contextlib.suppress(ImportError):
        import timm  # noqa: PLC0415  # an optional library

        for name in ("resnet10t", "vit_tiny_patch16_224", "convnext_atto"):
            size = 224 if "224" in name else 64
            made[f"timm {name}"] = lambda name=name, size=size: (
                timm.create_model(name),
                (torch.randn(1, 3, size, size),),
            )
    with contextlib.suppress(ImportError):
        import transformers  # noqa: PLC0415  # an optional library

        small = {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "num_attention_heads": 2,
            "intermediate_size": 96,
            "vocab_size": 60,
        }
        ids = torch.randint(0, 60, (2, 12))
        for name in ("Bert", "Llama", "Roberta", "Electra", "Mistral", "Qwen2"):
            model, config = getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")
            extra = {"num_key_value_heads": 1} if name in ("Llama", "Mistral", "Qwen2") else {}
            made[f"transformers {name}"] = lambda model=model, config=config, extra=extra: (
                model(config(**small, **extra)),
                (ids,),
            )
        made["transformers GPT2"] = lambda: (
            transformers.GPT2Model(transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=60)), (ids,),
        )  # fmt: skip
        made["transformers T5"] = lambda: (
            transformers.T5EncoderModel(
                transformers.T5Config(num_layers=2, d_model=64, d_kv=16, d_ff=96, num_heads=2, vocab_size=60)
            ),
            (ids,),
        )
    return made


def _with_tuple(made: tuple[Any, Any]) -> tuple[Any, tuple[Any, ...]]:
    return made[0], (made[1],)


def _tensors(value: Any) -> list[torch.Tensor]:
    if not isinstance(value, (torch.Tensor, tuple, list, dict)) and hasattr(value, "to_tuple"):
        value = value.to_tuple()
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def _torch() -> Programs:
    """Tensor programs of users."""
    import test_torch_programs as tests  # noqa: PLC0415  # of the tests

    for name, (_, make) in tests.PROGRAMS.items():

        def build(make: Any = make) -> Any:
            torch.manual_seed(1)
            made: list[Any] = [make()]
            compiled = torchjit.compile(made[0][0])

            def run() -> Any:
                _, args, owners = made.pop() if made else copy.deepcopy(kept)
                return tests._did(compiled, args, owners)

            kept = copy.deepcopy((None, *made[0][1:]))
            return compiled, run

        yield name, build


def _training() -> Programs:
    """Programs about autograd."""
    import test_training_programs as tests  # noqa: PLC0415  # of the tests

    for name, program in tests.PROGRAMS.items():

        def build(program: Any = program) -> Any:
            compiled = torchjit.compile(program.f)
            return compiled, lambda: tests.observe(compiled, program)

        yield name, build


def _python() -> Programs:
    """The VM's corpus on tensors."""
    import python_programs  # noqa: PLC0415  # of the tests

    programs, outcome = python_programs.programs()
    for program in programs:

        def build(program: Any = program) -> Any:
            compiled = torchjit.compile(program.function)

            def run() -> Any:
                with python_programs.restored(program.function):  # its module is in `sys.modules` meanwhile
                    return outcome(compiled, copy.deepcopy(program.args))

            return compiled, run

        yield program.function.__name__, build


CORPORA: dict[str, Callable[[], Programs]] = {
    "models": _models, "torch": _torch, "training": _training, "python": _python,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------- stored and loaded
@attrs.define
class Found:
    """What became of the entries of one program.

    Attributes:
        made: captured in the first of two runs.
        stored: bytes of those that were written, by compile id.
        refused: why others were not.
        again: captured in the second run, with the reasons why entries on disk did not fit.
        loaded: seconds, of those that were.
        wrong: where the results of the two runs differ.
    """

    made: int = 0
    stored: dict[str, int] = attrs.field(factory=dict)
    refused: dict[str, str] = attrs.field(factory=dict)
    again: list[str] = attrs.field(factory=list)
    loaded: list[float] = attrs.field(factory=list)
    writing: float = 0.0
    wrong: str | None = None


def tried(build: Callable[[], tuple[Any, Callable[[], Any]]]) -> Found:
    """Run a program, then once more from the beginning with what it has left on disk, as another process would."""
    found = Found()

    def first(kind: str, fields: dict[str, Any]) -> None:
        if kind == "compile_start":
            found.made += 1
        elif kind == "entry_stored":
            found.stored[fields["compile_id"]] = fields["bytes"]
            found.writing += fields["seconds"]
        elif kind == "entry_not_stored":
            found.refused[fields["compile_id"]] = f"{fields['reason']} {fields['detail']}"

    handles = RemovableHandle.next_id  # hooks are known by numbers that begin anew in another process
    with listen(first):
        compiled, run = build()
        want = run()
        waiting = {s.compile_id for s in compiled.compiled.specializations}
    for compile_id in waiting - found.stored.keys() - found.refused.keys():
        found.refused[compile_id] = "waits for its backward"
    torchjit.reset()
    RemovableHandle.next_id = handles
    missed: list[str] = []

    def second(kind: str, fields: dict[str, Any]) -> None:
        if kind == "entry_loaded":
            found.loaded.append(fields["seconds"])
        elif kind == "entry_missed":
            missed.append(str(fields["why"]))
        elif kind == "compile_start":
            found.again.append(f"{fields.get('function')}: {'; '.join(missed)}")

    with listen(second):
        _, run = build()
        found.wrong = _difference(run(), want)
    return found


def _difference(got: Any, want: Any, where: str = "") -> str | None:
    if isinstance(want, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
            return f"{where}: {type(got).__name__}"
        same = (
            torch.equal(torch.nan_to_num(got.detach().cpu()), torch.nan_to_num(want.detach().cpu()))
            if not got.is_sparse
            else True
        )
        return None if same else f"{where}: {float((got.double() - want.double()).abs().max())}"
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)) and len(want) == len(got):
        return next(
            (d for i, (a, b) in enumerate(zip(got, want, strict=True)) if (d := _difference(a, b, f"{where}.{i}"))),
            None,
        )
    if isinstance(want, dict) and isinstance(got, dict) and want.keys() == got.keys():
        return next((d for k in want if (d := _difference(got[k], want[k], f"{where}.{k}"))), None)
    try:
        return None if got == want or repr(got) == repr(want) else f"{where}: {got!r:.80} for {want!r:.80}"
    except Exception:
        return None


# ------------------------------------------------------------------------------------------------------------- the table
def _general(refusal: str) -> str:
    """A refusal without what tells one program from another."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", refusal)


def main() -> int:
    """Run the corpora."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "corpora", nargs="*", choices=[[], *CORPORA], help="models, torch, training, python; all by default"
    )
    parser.add_argument("--only", help="programs whose names contain this")
    parser.add_argument("--every", type=int, default=1, help="take every n-th program")
    parser.add_argument(
        "--guards", action="store_true", help="with the guards, whose objects need the call's arguments as roots"
    )
    parser.add_argument("--show", action="store_true", help="a line for each program")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    refusals: dict[str, list[str]] = collections.defaultdict(list)
    different: list[str] = []
    for corpus in options.corpora or CORPORA:
        stored = total = failed = again = loaded = 0
        size, writing, loading = 0, 0.0, 0.0
        programs = [p for p in CORPORA[corpus]() if options.only is None or options.only in p[0]]
        for name, build in programs[:: options.every]:
            torchjit.reset()
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    found = tried(build)
            except Exception as error:
                failed += 1
                if options.show:
                    print(f"{corpus} {name}: {type(error).__name__}: {str(error)[:200]}")
                continue
            total += found.made
            stored += len(found.stored)
            size += sum(found.stored.values())
            writing += found.writing
            loading += sum(found.loaded)
            loaded += len(found.loaded)
            if found.wrong is not None:
                different.append(f"{corpus} {name}: {found.wrong}")
            for refusal in found.refused.values():
                refusals[_general(refusal)].append(f"{corpus} {name}")
            if len(found.again) > len(found.refused):
                again += 1
                if options.show:
                    print(f"{corpus} {name}: captured again: {found.again}", flush=True)
            if options.show:
                print(f"{corpus} {name}: {len(found.stored)} of {found.made} stored {found.refused or ''}", flush=True)
        share = stored / total if total else 1.0
        print(
            f"{corpus}: {stored} of {total} entries stored ({share:.1%}), {size / 1e6:.1f} MB, {writing:.2f} s to write; "
            f"{loaded} loaded, {loading:.2f} s; {again} programs captured what was stored; {failed} programs were not run",
            flush=True,
        )
        for refusal, names in sorted(refusals.items(), key=lambda item: -len(item[1])):
            print(f"{len(names):4} {refusal}   [{names[0]}]", flush=True)
        refusals.clear()
    for line in different:
        print(f"DIFFERENT {line}")
    return 1 if different else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHJIT_CACHE_DIR"] = folder
        with torchjit.config.patch(store="on"):
            code = main()
    sys.exit(code)
