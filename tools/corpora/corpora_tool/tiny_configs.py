"""Shrinks any transformers config: a few layers, narrow, small vocabularies and images, everything else as it was.

Widths are divided by one common factor in the whole tree of configs, which keeps what must divide or match each other (heads, projections between
towers, rotary sections); counts of layers and experts are capped; token ids that no longer fit the vocabulary get new places at its end.
"""

from __future__ import annotations

import re
from typing import Any, final

import attrs

__all__ = ["LEVELS", "Level", "shrink"]

VOCABULARY = 1024
CHUNK = 16  # of a scan over chunks of the sequence: sequences are that long
SPECIAL_IDS = 64  # at the end of the vocabulary
LAYERS = 2
EXPERTS = 16

_LAYERS = re.compile(
    r"^(num_|n_)?((hidden|encoder|decoder|text|vision|audio|attention|cross|transformer|dense|prelude|coda|fusion|codec|"
    r"postnet|depth|rnn|lstm|conv|refinement|local|global|semantic|x|l|r|speech|flow|duration_predictor_flow|"
    r"xlm|backbone|embedding|mtp|perception|prediction|nextn|predict)_)*(layers?|blocks|depth)(_num)?$"
)
_NOT_LAYERS = re.compile(
    r"feat_extract|adapter|index|select|feature_layer|out_|skip|start|drop|first|interval|freq|every|conv_layers|nextn|predict"
)
_WIDTH = re.compile(
    r"(hidden_size|hidden_sizes|_dim|^dim|dims|d_model|n_embd|n_inner|d_ff|d_kv|d_ssm|width|channels?$|channels|flow_size|ffn|intermediate|embed_size|embedding_size|"
    r"emb_size|inner_size|lora_rank|bottleneck|feature_size|fpn_size|proj_size|state_size|expand_size|mlp_size|d_inner|d_embed|d_head|filter_size|mrope_section|"
    r"d_state|neck_hidden|output_size|projection_size|size_per_head|latents?_size|model_size)"
)
_NOT_WIDTH = re.compile(
    r"^num_|_num|num_channels|in_channels|n_channels|in_chans|image_size|patch|kernel|window|ratio|factor|vocab|grid|"
    r"max_|position|mel|stride|expand$|coordinate|sampling|temporal|audio_channels|axes_dims|class|bin|shape|label|queries"
)
_VOCABULARY = re.compile(r"vocab_size|^n_vocab|vocabulary_size|num_embeddings$|codebook_size")
_HEAD_COUNT = re.compile(r"heads$|^n_head$|^num_heads")
_HEAD_WIDTH = re.compile(r"head_dim|mrope_section|^d_kv$|d_head|rope_dim")
_EXPERTS = re.compile(
    r"^(num|n|moe_num|num_local|num_routed|n_routed)_?(local_|routed_)?experts$|^moe_num_experts$|^num_experts$"
)
_CHUNK = re.compile(r"^(\w+_)?chunk_size$")
_TOKEN = re.compile(r"(token_id|token_index|token_ids|_id)$|^(pad|bos|eos|sep|cls|mask)_token")


@final
@attrs.frozen
class Level:
    """How hard to shrink. Attempts go from small and odd to large and sure.

    Attributes:
        divide: widths are divided by this.
        image: pixels, or None to keep the size.
        positions: upper limit for lengths of position tables, or None.
        vocabulary: cap vocabularies.
        heads: divide the number of heads instead of their width (rotary sections may be constants of the model's code).
    """

    divide: int
    image: int | None
    positions: int | None
    vocabulary: bool = True
    heads: bool = False


LEVELS = (
    Level(8, 64, 512),
    Level(8, None, 512),
    Level(4, 64, 512, heads=True),
    Level(4, 64, None),
    Level(1, 64, None),
    Level(1, None, None, False),
)


def shrink(config: Any, level: Level) -> Any:
    """Shrink a config in place and return it."""
    ids: dict[int, int] = {}
    _shrink(config, level, ids, set())
    return config


def _attributes(config: Any) -> dict[str, Any]:
    return config if isinstance(config, dict) else vars(config)


def _assign(config: Any, name: str, value: Any) -> None:
    if isinstance(config, dict):
        config[name] = value
    else:
        try:
            setattr(config, name, value)
        except Exception:
            vars(config)[name] = value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shrink(config: Any, level: Level, ids: dict[int, int], seen: set[int]) -> None:
    if id(config) in seen:
        return
    seen.add(id(config))
    before = {k: v for k, v in _attributes(config).items() if not k.startswith("_")}
    depths = {v for k, v in before.items() if _is_int(v) and v > LAYERS and _is_layers(k)}
    for name, value in before.items():
        if (hasattr(value, "to_dict") and hasattr(value, "model_type")) or (
            isinstance(value, dict) and not name.endswith(("2id", "2label"))
        ):
            _shrink(value, level, ids, seen)
        else:
            new = _smaller(name, value, level, ids, before, depths)
            if new is not value:
                _assign(config, name, new)


def _is_layers(name: str) -> bool:
    return bool(_LAYERS.search(name)) and not _NOT_LAYERS.search(name)


def _smaller(name: str, value: Any, level: Level, ids: dict[int, int], before: dict[str, Any], depths: set[int]) -> Any:
    numbers = isinstance(value, list | tuple) and value and all(map(_is_int, value))
    if level.vocabulary and _is_int(value):
        if _VOCABULARY.search(name):
            return min(value, VOCABULARY)
        if _TOKEN.search(name) and value >= VOCABULARY - SPECIAL_IDS:
            return ids.setdefault(value, VOCABULARY - 1 - len(ids))
    if _is_int(value) and _is_layers(name):
        return min(value, LAYERS)
    if name in ("image_size", "img_size", "input_size") and level.image is not None:
        size = _pixels(level.image, before)
        return type(value)(size for _ in value) if numbers else size if _is_int(value) and value > size else value
    if name == "image_embedding_size" and _is_int(value):  # patches in a row
        return value if level.image is None else min(value, _pixels(level.image, before) // int(before["patch_size"]))
    if _is_int(value) and _CHUNK.search(name):
        return min(value, CHUNK)
    if _is_int(value) and _EXPERTS.search(name):
        return min(value, EXPERTS)
    if _is_int(value) and name in (
        "num_experts_per_tok",
        "moe_topk",
        "num_experts_per_token",
        "moe_k",
        "top_k_experts",
    ):
        return min(value, 4)
    if (
        _is_int(value)
        and level.positions is not None
        and re.search(r"max_position|n_positions|n_ctx|max_(source|target)_positions|max_seq", name)
    ):
        return min(value, 64 if "source" in name or "target" in name else level.positions)
    if isinstance(value, list | tuple) and len(value) in depths and not _WIDTH.search(name):
        return type(value)(_representatives(value))
    if (
        numbers
        and re.search(r"depths?$|num_blocks|layers$|num_layers|layer_repeat", name)
        and not _NOT_LAYERS.search(name)
    ):
        return type(value)(min(v, 1) if len(value) > 2 else min(v, LAYERS) for v in value)
    if level.heads and _HEAD_COUNT.search(name) and _is_int(value):
        return _divide(value, level.divide)
    if level.heads and _HEAD_WIDTH.search(name):
        return value
    wide = _WIDTH.search(name) and not _NOT_WIDTH.search(name)
    if level.divide > 1 and (wide or name == "num_pos_feats"):  # of positions, half of the width that they are added to
        if numbers:
            return type(value)(_divide(v, level.divide) for v in value)
        if _is_int(value):
            return _divide(value, level.divide)
    return value


def _pixels(wanted: int, before: dict[str, Any]) -> int:
    patch = before.get("patch_size", 1)
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    return wanted if not patch or wanted % int(patch) == 0 else 4 * int(patch)


def _divide(value: int, by: int) -> int:
    return value // by if value % by == 0 and value >= 2 * by else value


def _representatives(value: Any) -> list[Any]:
    """Two entries of a per-layer list, of different kinds where there are any."""
    first = value[0]
    other = next((v for v in value if v != first), value[1])
    return [first, other]
