"""Inputs for a transformers model from the names in its `forward` and the numbers in its config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["attempts"]

BATCH, LENGTH = 2, 16


class _Inputs:
    """Makes the tensor for a parameter's name. Random values come from a generator of its own."""

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        self.model, self.config, self.device = model, model.config, device
        self.random = torch.Generator().manual_seed(0)

    def find(self, *names: str, default: Any = None) -> Any:
        """The first of these attributes in the config or the configs inside it."""
        configs = [self.config]
        for config in configs:
            configs += [
                v
                for v in vars(config).values()
                if hasattr(v, "to_dict") and hasattr(v, "model_type") and v not in configs
            ]
        for name in names:
            for config in configs:
                value = getattr(config, name, None)
                if value is not None and not callable(value):
                    return value
        return default

    def ids(self, length: int = LENGTH) -> torch.Tensor:
        top = min(int(self.find("vocab_size", "text_vocab_size", default=100)), 1024) - 64
        return torch.randint(3 if top > 8 else 0, max(top, 5), (BATCH, length), generator=self.random)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.random)

    def image(self) -> tuple[int, int, int]:
        size = self.find("image_size", "img_size", "input_size", default=64)
        height, width = (size[0], size[-1]) if isinstance(size, list | tuple) else (size, size)
        if isinstance(size, dict):
            height, width = size.get("height", 64), size.get("width", 64)
        channels = self.find("num_channels", "in_channels", "in_chans", "n_channels", default=3)
        return int(channels), int(height), int(width)

    def make(self, name: str) -> Any:
        """The value for a parameter, or None if nothing is known about it."""
        maker = _MAKERS.get(name)
        value = None if maker is None else maker(self)
        return value.to(self.device) if isinstance(value, torch.Tensor) else value


def _pixels(i: _Inputs) -> torch.Tensor:
    return i.normal(BATCH, *i.image())


def _video(i: _Inputs) -> torch.Tensor:
    frames = int(i.find("num_frames", "frames_per_clip", "num_image_with_embedding", default=4))
    return i.normal(BATCH, frames, *i.image())


def _mel(i: _Inputs) -> torch.Tensor:
    frames = 2 * int(i.find("max_source_positions", default=50))
    return i.normal(BATCH, int(i.find("num_mel_bins", "feature_size", "n_mels", default=80)), frames)


def _mel_last(i: _Inputs) -> torch.Tensor:
    bins = int(i.find("num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "n_mels", default=80))
    return i.normal(BATCH, 64, bins)


def _boxes(i: _Inputs) -> torch.Tensor:
    corner = torch.randint(0, 400, (BATCH, LENGTH, 2), generator=i.random)
    return torch.cat([corner, corner + 50], -1)


_MAKERS: dict[str, Callable[[_Inputs], Any]] = {
    "input_ids": lambda i: i.ids(),
    "decoder_input_ids": lambda i: i.ids(),
    "attention_mask": lambda i: torch.ones(BATCH, LENGTH, dtype=torch.long),
    "inputs_embeds": lambda i: i.normal(BATCH, LENGTH, int(i.find("hidden_size", "d_model", default=32))),
    "hidden_states": lambda i: i.normal(BATCH, LENGTH, int(i.find("hidden_size", "d_model", default=32))),
    "encoder_hidden_states": lambda i: i.normal(
        BATCH, LENGTH, int(i.find("encoder_hidden_size", "hidden_size", default=32))
    ),
    "query_embeds": lambda i: i.normal(BATCH, 8, int(i.find("hidden_size", default=32))),
    "pixel_values": _pixels,
    "pixel_values_videos": _video,
    "pixel_mask": lambda i: torch.ones(BATCH, *i.image()[1:], dtype=torch.long),
    "input_values": lambda i: i.normal(BATCH, 4000),
    "input_features": _mel,
    "features": _mel_last,
    "input_audio": lambda i: i.normal(BATCH, 1, 4000),
    "bbox": _boxes,
    "labels": lambda i: i.ids(),
    "past_values": lambda i: i.normal(
        BATCH,
        int(i.find("context_length", "prediction_length", default=32)) + max(i.find("lags_sequence", default=[0])),
    ),
    "past_time_features": lambda i: i.normal(
        BATCH,
        int(i.find("context_length", default=32)) + max(i.find("lags_sequence", default=[0])),
        int(i.find("num_time_features", default=0)),
    ),
    "past_observed_mask": lambda i: torch.ones(
        BATCH, int(i.find("context_length", default=32)) + max(i.find("lags_sequence", default=[0]))
    ),
    "freq": lambda i: torch.zeros(BATCH, 1, dtype=torch.long),
    "states": lambda i: i.normal(BATCH, LENGTH, int(i.find("state_dim", default=17))),
    "actions": lambda i: i.normal(BATCH, LENGTH, int(i.find("act_dim", default=4))),
    "rewards": lambda i: i.normal(BATCH, LENGTH, 1),
    "returns_to_go": lambda i: i.normal(BATCH, LENGTH, 1),
    "timesteps": lambda i: torch.arange(LENGTH).repeat(BATCH, 1),
    "visual_feats": lambda i: i.normal(BATCH, 6, int(i.find("visual_feat_dim", "visual_embedding_dim", default=2048))),
    "visual_pos": lambda i: torch.rand(BATCH, 6, 4, generator=i.random),
    "visual_embeds": lambda i: i.normal(BATCH, 6, int(i.find("visual_embedding_dim", default=64))),
    "bool_masked_pos": lambda i: None,
    "original_sizes": lambda i: torch.tensor([list(i.image()[1:])] * BATCH),
    "image_sizes": lambda i: torch.tensor([list(i.image()[1:])] * BATCH),
    "task_inputs": lambda i: i.ids(8),
}
# Several layouts are in use for one name; they are tried in turn.
_VARIANTS: dict[str, tuple[Callable[[_Inputs], torch.Tensor], ...]] = {
    "pixel_values": (
        _pixels,
        _video,
        lambda i: i.normal(BATCH, 1, *i.image()),
        lambda i: i.normal(BATCH, i.image()[0], 4, *i.image()[1:]),
    ),
    "input_values": (
        lambda i: i.normal(BATCH, 4000),
        lambda i: i.normal(BATCH, 1, 4000),
        lambda i: i.normal(BATCH, 1024, int(i.find("num_mel_bins", default=128))),
        lambda i: i.normal(BATCH, 32, int(i.find("num_mel_bins", default=80))),
    ),
    "input_features": (
        _mel,
        _mel_last,
        lambda i: i.normal(BATCH, 1, 1001, 64),
        lambda i: i.normal(BATCH, 3000 // 4, int(i.find("feature_size", default=80))),
    ),
    "past_values": (
        lambda i: i.normal(
            BATCH, int(i.find("context_length", default=32)), int(i.find("num_input_channels", default=1))
        ),
        _MAKERS["past_values"],
    ),
}
_PAIRS = (
    (),
    ("decoder_input_ids",),
    ("input_ids",),
    ("pixel_values",),
    ("pixel_values", "input_ids"),
    ("input_features", "decoder_input_ids"),
    ("input_ids", "attention_mask"),
    ("pixel_values", "decoder_input_ids"),
    ("pixel_values", "pixel_mask"),
    ("input_ids", "bbox"),
    ("input_ids", "bbox", "pixel_values"),
    ("input_ids", "visual_embeds"),
    ("input_ids", "input_features"),
    ("input_ids", "input_values"),
    ("past_values", "past_time_features", "past_observed_mask"),
)


def attempts(model: Any, device: str, *, labels: bool, errors: list[str]) -> Iterator[dict[str, Any]]:
    """Keyword arguments to try, the richest that are likely to work first."""
    parameters = inspect.signature(model.forward).parameters
    required = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    main = model.main_input_name if isinstance(model.main_input_name, str) else "input_ids"
    extra = ["labels"] if labels and "labels" in parameters else []
    with_image = _text_with_image(model, device, parameters, errors)
    if with_image is not None:
        yield with_image | ({"labels": with_image["input_ids"].clone()} if extra else {})
    tried: list[tuple[str, ...]] = []
    for pair in _PAIRS:
        names = tuple(dict.fromkeys([*required, *([main] if main in parameters else []), *pair, *extra]))
        if any(n not in parameters for n in pair) or names in tried:
            continue
        tried.append(names)
        for variant in range(4):
            made = _values(_Inputs(model, device), names, variant)
            if made is None:
                break
            yield made


def _values(inputs: _Inputs, names: tuple[str, ...], variant: int) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    used = variant == 0
    for name in names:
        options = _VARIANTS.get(name)
        if options is not None and variant < len(options):
            try:
                values[name] = options[variant](inputs).to(inputs.device)
            except Exception:
                return None
            used = True
        else:
            values[name] = inputs.make(name)
            if values[name] is None:
                return None
    return values if used else None


def _text_with_image(model: Any, device: str, parameters: Any, errors: list[str]) -> dict[str, Any] | None:
    """Text with as many image tokens as the model makes of one image, or None."""
    inputs = _Inputs(model, device)
    token = inputs.find("image_token_id", "image_token_index")
    if token is None or "pixel_values" not in parameters or not hasattr(model, "get_image_features"):
        return None
    options: dict[str, Any] = {}
    if "image_grid_thw" in parameters:
        patch = int(inputs.find("patch_size", default=14))
        columns = 3 * int(inputs.find("temporal_patch_size", default=2)) * patch * patch
        options["image_grid_thw"] = torch.tensor([[1, 4, 4]], device=device)
        pixels = inputs.normal(16, columns)
    else:
        pixels = inputs.normal(1, *inputs.image())
        if "image_sizes" in inspect.signature(model.get_image_features).parameters:
            options["image_sizes"] = torch.tensor([list(inputs.image()[1:])], device=device)
            pixels = inputs.normal(1, *inputs.image()) if inputs.find("image_grid_pinpoints") is None else None
    if pixels is None:
        return None
    try:
        with torch.no_grad():
            features = model.get_image_features(pixels.to(device), **options)
    except Exception as error:
        errors.append(f"image features: {type(error).__name__}: {error}")
        return None
    features = getattr(features, "pooler_output", features)
    parts = features if isinstance(features, list | tuple) else [features]
    count = sum(p.shape[:-1].numel() for p in parts if isinstance(p, torch.Tensor))
    ids = inputs.ids(LENGTH)[:1]
    ids = torch.cat([ids[:, :4], torch.full((1, count), int(token)), ids[:, 4:]], 1).to(device)
    values = {"input_ids": ids, "pixel_values": pixels.to(device), **options}
    if "mm_token_type_ids" in parameters:
        values["mm_token_type_ids"] = (ids == int(token)).to(torch.int)
    return values
