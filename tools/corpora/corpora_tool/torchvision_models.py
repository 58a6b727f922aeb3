"""Every model of torchvision with random weights: classification, detection, segmentation, video, flow, quantised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from corpora_tool.case import Case, Skip

# What a model needs beyond a 64 px image and two of them: pixels, and keyword arguments of its builder.
_IMAGE: dict[str, tuple[int, dict[str, Any]]] = {
    "inception_v3": (299, {}),
    "quantized_inception_v3": (299, {}),
    "maxvit_t": (224, {}),
    "vit_b_16": (64, {"image_size": 64}),
    "vit_b_32": (64, {"image_size": 64}),
    "vit_l_16": (64, {"image_size": 64}),
    "vit_l_32": (64, {"image_size": 64}),
    "vit_h_14": (56, {"image_size": 56}),
}
_MODELS: Any = None


def prepare() -> None:
    """Import torchvision."""
    # Imported here: only this corpus needs it.
    import torchvision

    global _MODELS
    _MODELS = torchvision.models


def _groups() -> dict[str, tuple[Any, Callable[[str, str], Case]]]:
    m = _MODELS
    return {
        "": (m, _classification),
        "quantization": (m.quantization, _quantised),
        "segmentation": (m.segmentation, _segmentation),
        "video": (m.video, _video),
        "optical_flow": (m.optical_flow, _flow),
        "detection": (m.detection, _detection),
    }


def names() -> Sequence[str]:
    """`group/model`, or `model` for classification."""
    found = []
    for group, (package, _) in _groups().items():
        found += [f"{group}/{n}" if group else n for n in _MODELS.list_models(package)]
    return found


def build(name: str, mode: str, device: str) -> Sequence[Case]:
    """One case: two small images, one clip, or a list of images with boxes."""
    group, _, short = name.rpartition("/")
    torch.manual_seed(0)
    case = _groups()[group][1](short, mode)
    case.module.to(device).train(mode == "train" and group != "quantization")
    move = lambda v: torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), v)  # noqa: E731
    return [Case(name, case.module, move(case.args), move(case.kwargs), backward=case.backward and mode == "train")]


def _classification(name: str, mode: str) -> Case:
    pixels, options = _IMAGE.get(name, (64, {}))
    builder = _MODELS.get_model_builder(name)
    if name in ("googlenet", "inception_v3"):
        options = options | {"init_weights": False}
    return Case(name, builder(weights=None, num_classes=10, **options), (torch.randn(2, 3, pixels, pixels),))


def _quantised(name: str, mode: str) -> Case:
    if mode == "train":
        raise Skip("quantised models only infer")
    pixels, _ = _IMAGE.get(name, (64, {}))
    engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
    torch.backends.quantized.engine = engine
    model = _MODELS.get_model_builder(name)(weights=None, quantize=True)
    return Case(name, model, (torch.randn(2, 3, pixels, pixels),), backward=False)


def _segmentation(name: str, mode: str) -> Case:
    model = _MODELS.get_model_builder(name)(weights=None, weights_backbone=None, num_classes=5)
    return Case(name, model, (torch.randn(2, 3, 64, 64),))


def _video(name: str, mode: str) -> Case:
    shape = {"s3d": (1, 3, 16, 224, 224), "mvit_v1_b": (1, 3, 16, 224, 224), "mvit_v2_s": (1, 3, 16, 224, 224)}
    model = _MODELS.get_model_builder(name)(weights=None, num_classes=10)
    return Case(name, model, (torch.randn(*shape.get(name, (2, 3, 8, 64, 64))),))


def _flow(name: str, mode: str) -> Case:
    images = (torch.rand(1, 3, 128, 128) * 2 - 1, torch.rand(1, 3, 128, 128) * 2 - 1)
    return Case(name, _MODELS.get_model_builder(name)(weights=None), images, {"num_flow_updates": 3})


def _detection(name: str, mode: str) -> Case:
    # Image sizes that the models resize to; the defaults (800 px) only cost time.
    sizes = {} if name.startswith("ssd") else {"min_size": 128, "max_size": 160}
    model = _MODELS.get_model_builder(name)(weights=None, weights_backbone=None, num_classes=5, **sizes)
    images = [torch.rand(3, 96, 128), torch.rand(3, 128, 112)]
    if mode == "eval":
        return Case(name, model, (images,), backward=False)
    targets = [_target(name, image) for image in images]
    return Case(name, model, (images, targets))


def _target(name: str, image: torch.Tensor) -> dict[str, torch.Tensor]:
    _, height, width = image.shape
    boxes = torch.tensor([[5.0, 5.0, 60.0, 50.0], [20.0, 30.0, 90.0, 90.0]])
    target = {"boxes": boxes, "labels": torch.tensor([1, 2])}
    if "maskrcnn" in name:
        target["masks"] = (torch.rand(2, height, width) > 0.5).to(torch.uint8)
    if "keypointrcnn" in name:
        target["labels"] = torch.tensor([1, 1])
        target["keypoints"] = torch.cat([torch.rand(2, 17, 2) * 40 + 20, torch.ones(2, 17, 1)], -1)
    return target
