"""The models of `cpu_models.py`: ten of torchvision, ten of timm, ten of transformers, with random weights, and those of `cpu_own_models.py`.

Each entry builds a module and its keyword arguments. The transformers models have the width of the published ones and at most six
layers, so that thirty of them compile in an afternoon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cpu_own_models import OWN

Built = tuple[torch.nn.Module, dict[str, Any]]


def _torchvision(name: str, batch: int = 2) -> Callable[[], Built]:
    def build() -> Built:
        import torchvision

        return torchvision.models.get_model(name), {"x": torch.randn(batch, 3, 224, 224)}

    return build


def _timm(name: str, batch: int = 2, size: int = 224) -> Callable[[], Built]:
    def build() -> Built:
        import timm

        return timm.create_model(name, pretrained=False), {"x": torch.randn(batch, 3, size, size)}

    return build


def _transformers(config: str, model: str, batch: int = 2, length: int = 128, **changes: Any) -> Callable[[], Built]:
    def build() -> Built:
        import transformers

        made = getattr(transformers, config)(**changes)
        made.use_cache = False
        tokens = torch.randint(0, made.vocab_size, (batch, length))
        kwargs = {"input_ids": tokens}
        if made.is_encoder_decoder:
            kwargs["decoder_input_ids"] = tokens
        return getattr(transformers, model)(made), kwargs

    return build


_SMALL = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8}
_LLAMA = {**_SMALL, "num_key_value_heads": 4, "intermediate_size": 1376, "vocab_size": 8192}

MODELS: dict[str, Callable[[], Built]] = {
    "resnet18": _torchvision("resnet18", 4),
    "resnet50": _torchvision("resnet50"),
    "mobilenet_v3_large": _torchvision("mobilenet_v3_large", 4),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "vgg11_bn": _torchvision("vgg11_bn", 1),
    "densenet121": _torchvision("densenet121"),
    "convnext_tiny": _torchvision("convnext_tiny"),
    "vit_b_16": _torchvision("vit_b_16", 1),
    "swin_t": _torchvision("swin_t", 1),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0", 4),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "mixer_s32": _timm("mixer_s32_224"),
    "convnextv2_atto": _timm("convnextv2_atto"),
    "efficientnet_lite0": _timm("efficientnet_lite0"),
    "regnety_004": _timm("regnety_004"),
    "ghostnet_100": _timm("ghostnet_100"),
    "mobilevit_xs": _timm("mobilevit_xs", size=256),
    "edgenext_xx_small": _timm("edgenext_xx_small", size=256),
    "poolformer_s12": _timm("poolformer_s12", 1),
    "resmlp_12": _timm("resmlp_12_224"),
    "bert": _transformers("BertConfig", "BertModel", num_hidden_layers=6),
    "gpt2": _transformers("GPT2Config", "GPT2LMHeadModel", n_layer=6, vocab_size=8192),
    "distilbert": _transformers("DistilBertConfig", "DistilBertModel"),
    "electra_small": _transformers("ElectraConfig", "ElectraModel", num_hidden_layers=6),
    "albert": _transformers(
        "AlbertConfig",
        "AlbertModel",
        hidden_size=768,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "t5_small": _transformers("T5Config", "T5Model", decoder_start_token_id=0),
    "opt": _transformers("OPTConfig", "OPTModel", num_hidden_layers=6),
    "llama": _transformers("LlamaConfig", "LlamaForCausalLM", **_LLAMA),
    "qwen2": _transformers("Qwen2Config", "Qwen2ForCausalLM", **_LLAMA),
    "gpt_neox": _transformers("GPTNeoXConfig", "GPTNeoXModel", **_SMALL, intermediate_size=2048, vocab_size=8192),
    **OWN,
}
