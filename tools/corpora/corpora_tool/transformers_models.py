"""Every architecture of transformers that `AutoModel` knows, with a tiny random config and generic inputs."""

from __future__ import annotations

import collections
import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from corpora_tool.case import Case, Skip
from corpora_tool.model_inputs import attempts
from corpora_tool.tiny_configs import LEVELS, shrink

MAX_PARAMETERS = 120_000_000
_T: Any = None
_CONFIGS: Any = None
_CLASSES: dict[str, Any] = {}


def prepare() -> None:
    """Import transformers."""
    # Imported here: only this corpus needs it.
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    global _T, _CONFIGS
    _T, _CONFIGS = transformers, configuration_auto.CONFIG_MAPPING
    transformers.logging.set_verbosity_error()
    _CLASSES[""] = modeling_auto.MODEL_MAPPING_NAMES
    _CLASSES["causal-lm"] = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    _CLASSES["seq2seq-lm"] = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    # What nearly every model imports; the processes are forked after this.
    for name in ("BertModel", "LlamaModel", "CLIPModel", "ViTModel", "T5Model"):
        getattr(transformers, name)


def names() -> Sequence[str]:
    """Model types such as `llama` (the headless model), then `llama:causal-lm` and `t5:seq2seq-lm` (with labels)."""
    return [n + (f":{head}" if head else "") for head, table in _CLASSES.items() for n in table]


def build(name: str, mode: str, device: str) -> Sequence[Case]:
    """One case: the first pair of config and inputs at which eager runs."""
    model_type, _, head = name.partition(":")
    classes = _CLASSES[head][model_type]
    cls = getattr(_T, classes if isinstance(classes, str) else classes[0])
    errors: list[str] = []
    for config in _configs(model_type, errors):
        try:
            with torch.device("meta"):
                count = sum(p.numel() for p in cls._from_config(copy.deepcopy(config)).parameters())
        except Exception as error:
            errors.append(f"meta: {type(error).__name__}: {error}")
            count = 0
        if count > MAX_PARAMETERS:
            errors.append(f"{count} parameters")
            continue
        try:
            model = _model(cls, config, device)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
            continue
        for kwargs in attempts(model, device, labels=bool(head), errors=errors):
            torch.manual_seed(0)
            try:
                with torch.no_grad():
                    model.train(mode == "train")(**copy.deepcopy(kwargs))
            except Exception as error:
                errors.append(f"{sorted(kwargs)}: {type(error).__name__}: {error}")
                continue
            model = _model(cls, config, device).train(mode == "train")
            return [Case(name, model, (), kwargs, backward=mode == "train")]
    counted = collections.Counter(e[:170].replace("\n", " ") for e in errors)
    raise Skip(" || ".join(f"{n}x {e}" for e, n in counted.items())[:1600])


def _configs(model_type: str, errors: list[str]) -> Iterator[Any]:
    for level in LEVELS:
        try:
            config = shrink(_CONFIGS[model_type](), level)
            for name, value in _SPECIAL.get(model_type, {}).items():
                setattr(config, name, value)
            yield config
        except Exception as error:
            errors.append(f"config: {type(error).__name__}: {error}")


# What the general rules get wrong.
_SPECIAL: dict[str, dict[str, Any]] = {
    "reformer": {"attn_layers": ["local", "lsh"], "axial_pos_shape": (4, 4), "axial_pos_embds_dim": (8, 24)},
}


def _model(cls: Any, config: Any, device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    model: torch.nn.Module = cls._from_config(config) if "_from_config" in dir(cls) else cls(config)
    assert inspect.ismethod(model.forward)
    return model.to(device=device, dtype=torch.get_default_dtype())
