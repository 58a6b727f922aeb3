"""The groups of programs. Each is a function that gives, by name, what runs one program; what it needs is imported when it is called."""

# ruff: noqa: PLC0415
from __future__ import annotations

import copy
import importlib.util
import random
from collections.abc import Callable
from typing import Any

from replaying.listener import Record

__all__ = ["GROUPS", "MODELS", "Programs"]

Programs = dict[str, Callable[[Record], object]]
"""By name: runs the program, compiled, and returns what is to be known of its outcome."""


def _compiled(f: Any, **options: Any) -> Any:
    import torchjit

    return torchjit.compile(f, **options)


def _outcome(value: Any) -> Any:
    """Results without numbers: types, dtypes, shapes, exceptions."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value.dtype} {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return [_outcome(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _outcome(v) for k, v in value.items()}
    return value if isinstance(value, (str, bool, type(None))) else type(value).__name__


def _caught(run: Callable[[], Any]) -> Any:
    try:
        return _outcome(run())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# ------------------------------------------------------------------------------------------------------------ goldens
def goldens() -> Programs:
    """The programs of the golden files: whole ones, and texts of lowered functions in both languages."""
    import test_goldens as whole
    import test_inductor_goldens as lowered
    import test_inductor_triton as triton
    import torch
    from flex_program import CASES, captured, inputs_of, texts_of
    from torch import nn

    from replaying.listener import triton_texts
    from torchjit_inductor.attention.text import Tiles
    from torchjit_inductor.passes import run_passes
    from torchjit_inductor.triton.backend import TritonBackend

    def text(stage: str, make: Callable[[], str]) -> Callable[[Record], None]:
        return lambda record: record.add(stage, make())

    def triton_text(case: Any) -> str:
        backend = TritonBackend(arch=90)
        program = run_passes(triton.program_of(case), backend.passes({}))
        kernels = triton_texts(backend, triton.kernels_of(program), program.buffers, graph="graph", hints={})
        return "\n\n".join(kernel.source for kernel in kernels)

    def flex(name: str) -> str:
        texts = texts_of(captured(CASES[name][0], *inputs_of(name)), Tiles(16, 16, 4, 1))
        return "\n\n".join(t.source for t in texts)

    found: Programs = {
        "affine": lambda _: _caught(lambda: _compiled(whole.affine)(torch.ones(3), 2.5)),
        "linear": lambda _: _caught(lambda: _compiled(nn.Linear(2, 3))(torch.ones(4, 2))),
        "branch": lambda _: _caught(lambda: _compiled(whole.branch)(torch.ones(3), torch.ones(3))),
    }
    for name, program in lowered.PROGRAMS.items():
        found[f"C {name}"] = text("C kernels", lambda program=program: lowered.text_of(*program))
    for name, case in triton.CASES.items():
        found[f"Triton {name}"] = text("Triton kernels", lambda case=case: triton_text(case))
    for name in CASES:
        found[f"flex {name}"] = text("Triton kernels", lambda name=name: flex(name))
    return found


# ------------------------------------------------------------------------------------------------------------ corpora
def torch_programs() -> Programs:
    """Tensor programs of users, with the backward of their results."""
    import test_torch_programs as tests

    def run(make: Any) -> Any:
        function, args, owners = make()
        return _outcome(tests._did(_compiled(function), args, owners)[: tests.CALLS])

    return {name: lambda _, make=make: run(make) for name, (_, make) in tests.PROGRAMS.items()}


def training_programs() -> Programs:
    """Programs about autograd; some of them with symbolic sizes, too."""
    import test_training_programs as tests

    def run(program: Any, **options: Any) -> Any:
        compiled = _compiled(program.f, **options)
        return [_caught(lambda: tests.observe(compiled, program)) for _ in range(2)]

    found: Programs = {name: lambda _, p=program: run(p) for name, program in tests.PROGRAMS.items()}
    for name in tests.SAMPLE:
        found[f"{name} dynamic"] = lambda _, p=tests.PROGRAMS[name]: run(p, dynamic=True)
    return found


def python_programs() -> Programs:
    """The VM's corpus on tensors."""
    import python_programs as corpus

    programs, outcome = corpus.programs()

    def run(program: Any) -> Any:
        with corpus.restored(program.function):
            compiled = _compiled(program.function)
            return [_outcome(outcome(compiled, copy.deepcopy(program.args))) for _ in range(2)]

    return {program.function.__name__: lambda _, p=program: run(p) for program in programs}


def numpy_programs() -> Programs:
    """Programs with arrays of NumPy."""
    import numpy_programs as corpus
    import torch
    import torch._dynamo  # torch._numpy imports it, for seconds, where it first needs a default dtype

    def run(f: Any) -> Any:
        compiled = _compiled(f)
        found = []
        for seed in range(2):
            torch.manual_seed(seed)
            found.append(_caught(lambda: compiled(torch.randn(3, 4))))
        return found

    found: Programs = {name: lambda _, f=f: run(f) for name, (f, _) in corpus.PROGRAMS.items()}
    return {**found, **{f"failing {name}": lambda _, f=f: run(f) for name, f in corpus.FAILING.items()}}


# ------------------------------------------------------------------------------------------------------------- models
_VISION = (
    "resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "googlenet", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf",
    "mnasnet0_5", "convnext_tiny", "swin_t", "vit_b_32", "alexnet", "segmentation/lraspp_mobilenet_v3_large", "video/r3d_18", "optical_flow/raft_small",
)  # fmt: skip
_TIMM = (
    "ghostnet_050",
    "levit_128s",
    "mixer_s32_224",
    "xcit_nano_12_p16_224",
    "edgenext_xx_small",
    "repvgg_a0",
    "coat_tiny",
    "poolformer_s12",
)
_TRANSFORMERS = (
    "bert", "gpt2:causal-lm", "llama:causal-lm", "t5:seq2seq-lm", "mistral", "qwen2:causal-lm", "gemma2:causal-lm", "mamba:causal-lm", "clip", "vit",
    "whisper", "roberta", "deberta-v2", "bart:seq2seq-lm", "mixtral", "distilbert",
)  # fmt: skip
_VARYING = frozenset(
    (
        "resnet18",
        "mobilenet_v3_small",
        "bert",
        "gpt2:causal-lm",
        "llama:causal-lm",
        "t5:seq2seq-lm",
        "vit",
        "convnext_tiny",
    )
)


def _models(corpus_name: str, package: str, chosen: tuple[str, ...]) -> Programs:
    """Inference and training of each model on two calls; of some with two batch sizes."""
    import corpora_tool.measure as measuring
    import torch

    corpus = importlib.import_module(f"corpora_tool.{corpus_name}")
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"{package} is not installed")
    corpus.prepare()
    missing = set(chosen) - set(corpus.names())
    if missing:
        raise LookupError(f"{package} has no {sorted(missing)}")

    def run(name: str, mode: str, varying: bool) -> Any:
        case = corpus.build(name, "train" if mode == "training" else "eval", "cpu")[0]
        compiled = _compiled(case.module)

        def call(batch: int | None) -> Any:
            args, kwargs = copy.deepcopy((case.args, case.kwargs))
            if batch is not None:
                again = lambda t: t.repeat(batch, *[1] * (t.dim() - 1)) if t.dim() else t  # noqa: E731
                args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, again, (args, kwargs))
            torch.manual_seed(0)
            random.seed(0)
            with torch.set_grad_enabled(case.backward):
                out = case.after(compiled(*args, **kwargs))
            loss = measuring.loss_of(out) if case.backward else None
            if loss is not None:
                loss.backward()
            return [type(out).__name__, [_outcome(t) for _, t in measuring.leaves(out)]]

        return [_caught(lambda b=b: call(b)) for b in ((None, 2, 3) if varying else (None, None))]

    found: Programs = {}
    for name in chosen:
        for mode in ("inference", "training"):
            found[f"{name} {mode}"] = lambda _, n=name, m=mode: run(n, m, False)
        if name in _VARYING:
            found[f"{name} varying"] = lambda _, n=name: run(n, "training", True)
    return found


GROUPS: dict[str, Callable[[], Programs]] = {
    "goldens": goldens,
    "torch_programs": torch_programs,
    "training_programs": training_programs,
    "python_programs": python_programs,
    "numpy_programs": numpy_programs,
    "torchvision": lambda: _models("torchvision_models", "torchvision", _VISION),
    "timm": lambda: _models("timm_models", "timm", _TIMM),
    "transformers": lambda: _models("transformers_models", "transformers", _TRANSFORMERS),
}
MODELS = ("torchvision", "timm", "transformers")
