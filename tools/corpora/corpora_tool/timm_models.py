"""The smallest model of each family of timm, on small images where the model allows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from corpora_tool.case import Case, Skip

_TIMM: Any = None
# Words for sizes in timm's names, small to large; a name without one stands in the middle.
_SIZES = [
    "zepto",
    "atto",
    "femto",
    "pico",
    "nano",
    "xxtiny",
    "xxs",
    "xxsmall",
    "xtiny",
    "xs",
    "xsmall",
    "t0",
    "n0",
    "mini",
    "lite",
    "tiny",
    "t",
    "ti",
    "small",
    "s",
    "lite0",
    "b0",
    "050",
    "100",
    "18",
    "26",
    "b1",
    "b2",
    "m",
    "medium",
    "base",
    "b",
    "l",
    "large",
    "xl",
    "xlarge",
    "h",
    "huge",
    "g",
    "giant",
    "gigantic",
    "xxl",
]
_MIDDLE = _SIZES.index("b1")


def prepare() -> None:
    """Import timm."""
    # Imported here: only this corpus needs it.
    import timm

    global _TIMM
    _TIMM = timm


def names() -> Sequence[str]:
    """One model of each family: a module of timm and the letters with which names start. Small ones by their names."""
    families: dict[tuple[str, str], list[str]] = {}
    for module in sorted(_TIMM.list_modules()):
        for name in _TIMM.list_models(module=module):
            if not name.startswith("test_"):
                families.setdefault((module, re.split(r"[_\d]", name.removeprefix("tf_"))[0]), []).append(name)
    return sorted(min(members, key=_size) for members in families.values())


def _size(name: str) -> tuple[int, int, int]:
    words = re.split(r"[_.]", name)
    if any(re.fullmatch(r"\d+b", w) for w in words):  # billions of parameters
        return len(_SIZES), sum(int(n) for n in re.findall(r"\d+", name)), len(name)
    ranks = [_SIZES.index(w) for w in words if w in _SIZES]
    numbers = [int(n) for n in re.findall(r"\d+", name)]
    return min(ranks, default=_MIDDLE), sum(numbers), len(name)


def build(name: str, mode: str, device: str) -> Sequence[Case]:
    """One case: two images, in the first of a few sizes at which eager runs."""
    errors = []
    for pixels, options in ((64, {}), (64, {"img_size": 64}), (128, {}), (128, {"img_size": 128}), (None, {})):
        torch.manual_seed(0)
        try:
            model = _TIMM.create_model(name, pretrained=False, num_classes=10, **options).to(device)
            channels, height, width = model.default_cfg.get("input_size", (3, 224, 224))
            if pixels is not None:
                height = width = pixels
            images = torch.randn(2, channels, height, width, device=device)
            with torch.no_grad():
                model.train()(images)
        except Exception as error:
            errors.append(f"{pixels}: {type(error).__name__}: {error}")
            continue
        torch.manual_seed(0)
        model = _TIMM.create_model(name, pretrained=False, num_classes=10, **options).to(device)
        return [Case(name, model.train(mode == "train"), (images,), backward=mode == "train")]
    raise Skip("; ".join(errors)[-500:])
