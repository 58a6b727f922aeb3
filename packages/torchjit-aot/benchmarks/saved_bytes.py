"""What the forward saves for the backward, beside torch.compile's default partition of the same graph.

    uv run --group models python packages/torchjit-aot/benchmarks/saved_bytes.py [--models bert_base ...] [--histograms] [--list] [--small]

Attention is without dropout, so that the flash kernels are used as they are on a GPU.
Everything is fake: nothing is computed, and sizes are those of a real training step. Dynamo captures the model once;
torchjit-aot and torch's `compile_fx` (with its joint passes and decompositions) get the same graph. Counted are saved
tensors that do not live in a parameter, a buffer or an input of the step; each storage once, with all its bytes.
Node counts are those of the forward and of the backward graph.
"""

from __future__ import annotations

import argparse
import collections
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import torchjit_aot
from torchjit_aot import AotSettings
from torchjit_inductor.lowering.registry import LOWERINGS

BF16 = torch.bfloat16


# ------------------------------------------------------------------------------------------------- models
def _hf(
    config: str, model: str, batch: int, length: int, **options: Any
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import transformers

    made = getattr(transformers, config)(**options)
    module = getattr(transformers, model)(made)
    if (
        "loss_type" in options
    ):  # some versions do not read it from the configuration, and warn, which breaks Dynamo's graph
        module.loss_type = options["loss_type"]
    ids = torch.zeros(batch, length, dtype=torch.int64)
    return module, (), {"input_ids": ids, "labels": ids.clone()}


def _vision(make: Callable[[], Any], batch: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return make(), (torch.empty(batch, 3, 224, 224),), {}


def _tv(name: str) -> Any:
    import torchvision

    return getattr(torchvision.models, name)()


def _timm(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False)


class LlamaBlock(torch.nn.Module):
    """RMS norm, rotary attention, gated MLP."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(
            self.rope(q, cos, sin), self.rope(k, cos, sin), v, is_causal=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.silu(self.gate(self.n2(x))) * self.up(self.n2(x)))


class Llama(torch.nn.Module):
    def __init__(self, width: int = 2048, layers: int = 12, heads: int = 16, hidden: int = 5632) -> None:
        super().__init__()
        self.emb = torch.nn.Embedding(32000, width)
        self.blocks = torch.nn.ModuleList([LlamaBlock(width, heads, hidden) for _ in range(layers)])
        self.norm = torch.nn.RMSNorm(width)
        self.head = torch.nn.Linear(width, 32000, bias=False)
        angles = torch.arange(4096).float()[:, None] / (
            10000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        )
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x, self.cos[: ids.shape[1]], self.sin[: ids.shape[1]])
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def _llama() -> Any:
    return Llama(), (torch.zeros(4, 512, dtype=torch.int64),), {}


MODELS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: _vision(lambda: _tv("resnet50"), 64),
    "mobilenet_v3": lambda: _vision(lambda: _tv("mobilenet_v3_large"), 64),
    "convnext_tiny": lambda: _vision(lambda: _timm("convnext_tiny"), 64),
    "vit_base": lambda: _vision(lambda: _timm("vit_base_patch16_224"), 32),
    "swin_tiny": lambda: _vision(lambda: _timm("swin_tiny_patch4_window7_224"), 32),
    "efficientnet_b0": lambda: _vision(lambda: _timm("efficientnet_b0"), 64),
    "densenet121": lambda: _vision(lambda: _tv("densenet121"), 32),
    "bert_base": lambda: _hf("BertConfig", "BertForMaskedLM", 16, 256, attention_probs_dropout_prob=0.0),
    "gpt2": lambda: _hf("GPT2Config", "GPT2LMHeadModel", 8, 512, attn_pdrop=0.0, loss_type="ForCausalLM"),
    "t5_small": lambda: _hf("T5Config", "T5ForConditionalGeneration", 8, 256, decoder_start_token_id=0),
    "distilbert": lambda: _hf("DistilBertConfig", "DistilBertForMaskedLM", 32, 128, attention_dropout=0.0),
    "llama_12": _llama,
}


FLOAT32 = ("resnet50", "mobilenet_v3", "convnext_tiny", "swin_tiny", "efficientnet_b0", "densenet121")
"""On the CPU a half-precision batch norm keeps its statistics in half precision, on a GPU it does not."""


# ------------------------------------------------------------------------------------------------- the two sides
class Side:
    """The forward and backward graphs of one compiler."""

    def __init__(self) -> None:
        self.graphs: dict[str, fx.GraphModule] = {}
        self.outputs = 0
        self.seconds = 0.0

    def saved(self) -> list[fx.Node]:
        forward, backward = self.graphs["forward"], self.graphs["backward"]
        wanted = {n.name for n in backward.graph.nodes if n.op == "placeholder"}
        returned = next(n for n in forward.graph.nodes if n.op == "output").args[0]
        outside = {_storage(n) for n in forward.graph.nodes if n.op == "placeholder" and _storage(n) is not None}
        found, seen = [], set(outside)
        for node in returned:
            if isinstance(node, fx.Node) and node.name in wanted and node.op != "placeholder":
                key = _storage(node)
                if key is not None and key not in seen:
                    seen.add(key)
                    found.append(node)
        return found


def _storage(node: fx.Node) -> int | None:
    val = node.meta.get("val")
    return val.untyped_storage()._cdata if isinstance(val, torch.Tensor) else None


def _bytes(node: fx.Node) -> int:
    return int(node.meta["val"].untyped_storage().nbytes())


def ours(gm: fx.GraphModule, inputs: Sequence[Any]) -> Side:
    side = Side()
    start = time.process_time()

    def grab(graph: fx.GraphModule, example: Any, *, kind: str, **_: Any) -> Any:
        side.graphs[kind] = graph
        return lambda *args: [None] * 1000

    for node in gm.graph.nodes:
        if node.op == "placeholder":
            example = node.meta.get("example_value")
            node.meta["static"] = isinstance(example, torch.nn.Parameter) or "buffer" in str(node.target)
    settings = AotSettings(
        decompositions=torchjit_aot.default_decompositions(), keep_ops=frozenset(LOWERINGS), eager_backward=True,
        fallback=False, fuse=True,
    )  # fmt: skip
    torchjit_aot.compile(gm, inputs, compiler=grab, settings=settings)  # type: ignore[arg-type]
    side.seconds = time.process_time() - start
    return side


def theirs(gm: fx.GraphModule, inputs: Sequence[Any]) -> Side:
    from torch._inductor.compile_fx import compile_fx

    side = Side()

    def grab(graph: fx.GraphModule, example: Any, **options: Any) -> Any:
        side.graphs["backward" if options.get("is_backward") else "forward"] = graph
        return lambda *args: [None] * 1000

    start = time.process_time()
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True, enable_autograd_cache=False):
        compile_fx(gm, list(inputs), inner_compile=grab)
    side.seconds = time.process_time() - start
    return side


def capture(name: str, repeat: int = 1) -> list[dict[str, Side]]:
    """Both sides of one model, several times."""
    found: list[dict[str, Side]] = []

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        import copy

        for _ in range(repeat):
            pair = [copy.deepcopy(gm), copy.deepcopy(gm)]
            for twin in pair:
                for a, b in zip(gm.graph.nodes, twin.graph.nodes, strict=True):
                    b.meta = dict(a.meta)
            found.append({"theirs": theirs(pair[0], inputs), "ours": ours(pair[1], inputs)})
        raise _Done

    torch._dynamo.reset()
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if name in FLOAT32 else BF16)
    try:
        with torch.device("meta"):
            module, args, kwargs = MODELS[name]()
    finally:
        torch.set_default_dtype(previous)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        _on_the_cpu(module)
        args, kwargs = torch.utils._pytree.tree_map(_fake_cpu, (args, kwargs))
        module.train()
        try:
            torch.compile(module, backend=backend, fullgraph=True)(*args, **kwargs)
        except Exception:
            if len(found) < repeat:
                raise
    return found


def _fake_cpu(value: Any) -> Any:
    return (
        torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
        if isinstance(value, torch.Tensor)
        else value
    )


def _on_the_cpu(module: torch.nn.Module) -> None:
    """Fake CPU tensors in place of the meta ones that it was built with; tied parameters stay tied."""
    made: dict[int, torch.nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                twin = made.setdefault(id(parameter), torch.nn.Parameter(_fake_cpu(parameter), parameter.requires_grad))
                part._parameters[name] = twin
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _fake_cpu(buffer)


class _Done(Exception):
    pass


def histogram(graph: fx.GraphModule) -> collections.Counter[str]:
    return collections.Counter(str(n.target) for n in graph.graph.nodes if n.op == "call_function")


def show_histograms(sides: dict[str, Side]) -> None:
    for kind in ("forward", "backward"):
        a, b = histogram(sides["ours"].graphs[kind]), histogram(sides["theirs"].graphs[kind])
        print(f"  {kind}: operator, torchjit, torch.compile")
        for op in sorted(set(a) | set(b), key=lambda op: -abs(a[op] - b[op])):
            if a[op] != b[op]:
                print(f"    {op:50} {a[op]:5} {b[op]:5}")


def show_saved(side: Side) -> None:
    groups: dict[tuple[Any, ...], list[fx.Node]] = {}
    for node in side.saved():
        val = node.meta["val"]
        groups.setdefault((str(node.target), tuple(val.shape), val.dtype, _bytes(node)), []).append(node)
    for (target, shape, dtype, size), nodes in sorted(groups.items(), key=lambda item: -item[0][3] * len(item[1])):
        print(f"    {size * len(nodes) / 1e6:9.2f} MB  {len(nodes):4} x {target} {shape} {dtype}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--histograms", action="store_true", help="operators whose counts differ")
    parser.add_argument("--list", action="store_true", help="the saved tensors, grouped")
    options = parser.parse_args()
    ratios = []
    print("| model | torch.compile MB | torchjit MB | ratio | nodes (forward + backward) torch | torchjit |")
    print("|---|---|---|---|---|---|")
    for name in options.models:
        (sides,) = capture(name)
        totals = {key: sum(_bytes(n) for n in side.saved()) for key, side in sides.items()}
        counts = {
            key: " + ".join(str(sum(histogram(side.graphs[k]).values())) for k in ("forward", "backward"))
            for key, side in sides.items()
        }
        if totals["theirs"] == 0:
            continue
        ratio = totals["ours"] / totals["theirs"]
        ratios.append(ratio)
        print(
            f"| {name} | {totals['theirs'] / 1e6:.1f} | {totals['ours'] / 1e6:.1f} | {ratio:.3f} | {counts['theirs']} "
            f"| {counts['ours']} |", flush=True,
        )  # fmt: skip
        if options.list:
            for key, side in sides.items():
                print(f"  {key}:")
                show_saved(side)
        if options.histograms:
            show_histograms(sides)
    print(f"geomean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
