"""Where the equal blocks of known models are found and repeated: a row per model, mode and graph, with the reason where not.

The models are narrow, with 12 layers and random weights; a ResNet has the depths of resnet101.

    OMP_NUM_THREADS=1 uv run --with transformers python benchmarks/equal_blocks_of_models.py [MODEL ...] [--modes infer train]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torchvision
import transformers as hf
from torch import Tensor, nn

import torchjit
from torchjit_core import events

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

LAYERS, WIDTH, HEADS, WORDS = 12, 64, 4, 100


class Called(nn.Module):
    """A model and what it is called with besides its tokens or images."""

    def __init__(self, model: nn.Module, **given: Any) -> None:
        super().__init__()
        self.model, self.given = model, given

    def forward(self, x: Tensor) -> Tensor:
        """The main result."""
        found = self.model(x, **self.given)
        return found if isinstance(found, Tensor) else found[0]


def _tokens() -> Tensor:
    return torch.randint(0, WORDS, (2, 32))


def _llama() -> tuple[nn.Module, Tensor]:
    config = hf.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
    )
    return Called(hf.LlamaForCausalLM(config), use_cache=False), _tokens()


def _gpt2() -> tuple[nn.Module, Tensor]:
    config = hf.GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    return Called(hf.GPT2LMHeadModel(config), use_cache=False), _tokens()


def _bert() -> tuple[nn.Module, Tensor]:
    config = hf.BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
    )
    return Called(hf.BertModel(config)), _tokens()


def _vit() -> tuple[nn.Module, Tensor]:
    config = hf.ViTConfig(
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        image_size=64,
    )
    return Called(hf.ViTModel(config)), torch.randn(2, 3, 64, 64)


def _t5() -> tuple[nn.Module, Tensor]:
    config = hf.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=2 * WIDTH, num_layers=LAYERS, num_heads=HEADS
    )
    return Called(hf.T5ForConditionalGeneration(config), decoder_input_ids=_tokens(), use_cache=False), _tokens()


def _resnet() -> tuple[nn.Module, Tensor]:
    return torchvision.models.resnet101(), torch.randn(2, 3, 64, 64)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "llama": _llama, "gpt2": _gpt2, "bert": _bert, "vit": _vit, "t5": _t5, "resnet": _resnet,
}  # fmt: skip


def rows(name: str, mode: str) -> list[str]:
    """Compile one model, and say what became of its blocks."""
    torch.manual_seed(0)
    torchjit.reset()
    model, x = MODELS[name]()
    model.train(mode == "train")
    told: list[dict[str, Any]] = []
    start = time.process_time()
    with events.listen(lambda _, fields: told.append(dict(fields)), {"repeated_blocks"}):
        compiled = torchjit.compile(model)
        with torch.set_grad_enabled(mode == "train"):
            result = compiled(x)
            if mode == "train":
                result.square().mean().backward()
    seconds = time.process_time() - start
    found = [
        f"| {name} | {mode} | {seconds:.1f} | {t['name'].removeprefix('graph_')} | {t['blocks']} | {t['nodes']} | {t['kept']} | "
        f"{'repeated' if t['expanded'] else t['detail']} |"
        for t in told
    ]
    return found or [f"| {name} | {mode} | {seconds:.1f} | | | | | no equal blocks |"]


def main() -> None:
    """Print a row per graph with equal blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=" ".join(MODELS))
    parser.add_argument("--modes", nargs="+", default=["infer", "train"], choices=["infer", "train"])
    o = parser.parse_args()
    print("| model | mode | s | graph | blocks | nodes of one | compiled | became |\n|---|---|---|---|---|---|---|---|")
    for name in o.models:
        for mode in o.modes:
            print("\n".join(rows(name, mode)), flush=True)


if __name__ == "__main__":
    main()
