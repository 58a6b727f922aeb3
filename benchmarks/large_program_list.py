"""Short programs whose tensors fill a GPU: the table of `never_slower` cases, and single operators, chains and networks drawn by a seed.

A program is a module (in training mode, run under `no_grad`) and its inputs. `Sizes` shrinks the sizes that are free, so that the same
programs run on a CPU in tests of the benchmark itself.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Body = Callable[..., Tensor]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The device, and whether free sizes are as large as the card wants them."""

    device: str
    small: bool = False

    def of(self, size: int) -> int:
        """A free size: batches, rows, positions. Channels and kernels stay as they are."""
        return max(8, size // 64) if self.small else size

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Program:
    """`make` gives the module and its inputs (float tensors on the device), drawn anew at each call."""

    name: str
    group: str
    kind: str
    make: Callable[[Sizes], tuple[nn.Module, list[Tensor]]]


class Call(nn.Module):
    """Layers by name, and what is computed with them."""

    def __init__(self, body: Callable[..., Tensor], *layers: nn.Module, **state: Tensor) -> None:
        super().__init__()
        self.body = body
        self.layers = nn.ModuleList(layers)
        for name, value in state.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.body(*self.layers, *self._parameters.values(), *inputs)


# --- the table ----------------------------------------------------------------------------------------------------------------------------


def _conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int] = 3,
    *,
    image: tuple[int, int, int],
    body: Body,
    after: tuple[nn.Module, ...] = (),
) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        batch, height, width = image
        shape = (sizes.of(batch), inputs, max(16, sizes.of(height)), max(16, sizes.of(width)))
        return Call(body, nn.Conv2d(inputs, outputs, kernel), *after).to(sizes.device), [sizes.random(*shape)]

    return make


def _transposed3d(
    body: Callable[..., Tensor], *after: nn.Module, biased: bool = True
) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        layer = nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1)
        state = {"bias": torch.randn(64, 1, 1, 1)} if biased else {}
        return Call(body, layer, *after, **state).to(sizes.device), [
            sizes.random(sizes.of(16), 32, *map(sizes.of, (16, 32, 32)))
        ]

    return make


def _lone(layer: Callable[[], nn.Module], *shape: int) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        batch, channels, *rest = shape
        return layer().to(sizes.device), [
            sizes.random(sizes.of(batch), channels, *(max(16, sizes.of(s)) for s in rest))
        ]

    return make


def _function(
    body: Callable[..., Tensor], *shapes: tuple[int, ...]
) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        return Call(body), [sizes.random(*map(sizes.of, shape)) for shape in shapes]

    return make


def _linear(body: Callable[..., Tensor], rows: int, features: int) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        size = sizes.of(features)
        return Call(body, nn.Linear(size, size, bias=False), bias=torch.randn(size)).to(sizes.device), [
            sizes.random(sizes.of(rows), size)
        ]

    return make


def _recurrent(
    kind: type[nn.GRU] | type[nn.LSTM], layers: int, both: bool
) -> Callable[[Sizes], tuple[nn.Module, list[Tensor]]]:
    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        layer = kind(128, 256, num_layers=layers, bidirectional=both)
        return Call(lambda cell, x: cell(x)[0], layer).to(sizes.device), [
            sizes.random(sizes.of(512), sizes.of(10), 128)
        ]

    return make


def _exclusive(x: Tensor) -> Tensor:
    summed = torch.cumsum(x.narrow(1, 0, x.shape[1] - 1), 1)
    return torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), summed), 1)


def table() -> list[Program]:
    """The programs that a compiler lost against eager PyTorch, by class (`docs/benchmarks.md`)."""
    wide = (128, 128, 128)
    rows: list[tuple[str, str, Callable[[Sizes], tuple[nn.Module, list[Tensor]]]]] = [
        (
            "A",
            "conv, group norm, scale, max pool 4, clamp",
            _conv(
                8,
                64,
                image=wide,
                after=(nn.GroupNorm(16, 64), nn.MaxPool2d(4)),
                body=lambda c, n, p, x: p(n(c(x)) * 1.5).clamp(0.0, 1.0),
            ),
        ),
        (
            "A",
            "conv, group norm, tanh, hardswish, residual, logsumexp",
            _conv(8, 64, image=wide, after=(nn.GroupNorm(16, 64),), body=_residual_logsumexp),
        ),
        (
            "A",
            "transposed conv, GELU, group norm",
            _lone(
                lambda: nn.Sequential(nn.ConvTranspose2d(64, 64, 3), nn.GELU(), nn.GroupNorm(8, 64)), 128, 64, 256, 256
            ),
        ),
        (
            "A",
            "conv, mish, batch norm",
            _conv(64, 128, image=(64, 128, 128), after=(nn.BatchNorm2d(128),), body=_mish_norm),
        ),
        (
            "A",
            "conv, batch norm, times 2",
            _conv(8, 64, image=wide, after=(nn.BatchNorm2d(64),), body=lambda c, n, x: n(c(x)) * 2.0),
        ),
        (
            "A",
            "conv, instance norm, divide",
            _conv(64, 128, image=wide, after=(nn.InstanceNorm2d(128),), body=lambda c, n, x: n(c(x)) / 2.0),
        ),
        ("B", "linear, + bias, relu", _linear(lambda linear, bias, x: torch.relu(linear(x) + bias), 1024, 8192)),
        ("C", "conv, min, + bias, times 2", _biased_conv),
        (
            "C",
            "transposed conv 3d, layer norm, pool, GELU",
            _transposed3d(_sum_norm_pool, nn.LayerNorm(64), biased=False),
        ),
        ("C", "transposed conv 3d, + bias, residuals", _transposed3d(_residuals)),
        (
            "C",
            "transposed conv 3d, softmax, sigmoid",
            _transposed3d(lambda c, x: torch.sigmoid(torch.softmax(c(x), 1)), biased=False),
        ),
        (
            "C",
            "conv 3d, group norm, mean",
            _lone(lambda: _Mean(nn.Conv3d(3, 24, 3), nn.GroupNorm(8, 24)), 128, 3, 24, 32, 32),
        ),
        ("D", "max pool 1d, dilation 3", _lone(lambda: nn.MaxPool1d(8, stride=1, dilation=3), 64, 192, 65536)),
        ("D", "smooth l1 loss", _function(lambda x, y: F.smooth_l1_loss(x, y), (32768, 32768), (32768, 32768))),
        ("D", "exclusive cumsum", _function(_exclusive, (32768, 32768))),
        ("D", "average pool 1d", _lone(lambda: nn.AvgPool1d(8, stride=1), 64, 128, 65536)),
        ("D", "sum over a middle dimension", _function(lambda x: x.sum(1), (128, 4096, 4095))),
        ("D", "mean over a middle dimension", _function(lambda x: x.mean(1), (128, 4096, 4095))),
        (
            "E",
            "depthwise conv 3x7",
            _lone(lambda: nn.Conv2d(128, 128, (3, 7), groups=128, bias=False), 32, 128, 128, 256),
        ),
        ("E", "depthwise conv 3x1", _lone(lambda: nn.Conv2d(8, 8, (3, 1), groups=8, bias=False), 64, 8, 512, 512)),
        ("E", "1x1 conv", _lone(lambda: nn.Conv2d(64, 128, 1), 16, 64, 1024, 1024)),
        ("E", "conv 2d, large image", _lone(lambda: nn.Conv2d(32, 64, (5, 9)), 8, 32, 512, 512)),
        ("F", "GRU", _recurrent(nn.GRU, 6, False)),
        ("F", "GRU, both directions", _recurrent(nn.GRU, 6, True)),
        ("F", "LSTM", _recurrent(nn.LSTM, 6, False)),
    ]
    return [Program(name, "table", kind, make) for kind, name, make in rows]


def _residual_logsumexp(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    y = conv(x)
    return torch.logsumexp(y + F.hardswish(torch.tanh(norm(y))), 1, keepdim=True)


def _mish_norm(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    y = conv(x)
    return norm(torch.tanh(F.softplus(y)) * y)  # type: ignore[no-any-return]


def _biased_conv(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
    module = Call(
        lambda c, bias, x: (torch.clamp(c(x), max=0.5) + bias) * 2.0, nn.Conv2d(64, 128, 3), bias=torch.randn(128, 1, 1)
    )
    return module.to(sizes.device), [sizes.random(sizes.of(128), 64, max(16, sizes.of(128)), max(16, sizes.of(128)))]


def _sum_norm_pool(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    return F.gelu(F.avg_pool3d(norm((conv(x) + 1.0).movedim(1, -1)).movedim(-1, 1), 2))


def _residuals(conv: nn.Module, bias: Tensor, x: Tensor) -> Tensor:
    y = conv(x)
    kept = y.detach()
    return ((y + bias) + kept) * kept + kept


class _Mean(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(1).mean(1)  # type: ignore[no-any-return]


# --- drawn by a seed ----------------------------------------------------------------------------------------------------------------------

POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "clamp": lambda x: x.clamp(-1.0, 1.0),
    "scale": lambda x: x * 1.7,
    "shift": lambda x: x + 0.3,
    "square": lambda x: x * x,
    "swish by hand": lambda x: x * torch.sigmoid(x),
    "exp of minus": lambda x: torch.exp(-x.abs()),
}

REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, d: x.sum(d, keepdim=True),
    "mean": lambda x, d: x.mean(d, keepdim=True),
    "amax": lambda x, d: x.amax(d, keepdim=True),
    "logsumexp": lambda x, d: torch.logsumexp(x, d, keepdim=True),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d, keepdim=True),
    "var": lambda x, d: x.var(d, keepdim=True),
    "softmax": torch.softmax,
    "log softmax": torch.log_softmax,
    "cumsum": torch.cumsum,
    "argmax": lambda x, d: x.argmax(d),
}

PRODUCERS = ("conv 2d", "conv 1x1", "depthwise", "transposed 2d", "conv 3d", "linear", "matmul")


def _producer(draw: random.Random, sizes: Sizes) -> tuple[nn.Module, Tensor, str]:
    """A convolution or product, with an input that keeps a card busy for about a millisecond."""
    kind, a, b = draw.choice(PRODUCERS), draw.choice((16, 32, 64, 96)), draw.choice((32, 64, 128))
    if kind in ("conv 2d", "conv 1x1", "depthwise", "transposed 2d"):
        side, batch = draw.choice((56, 112, 128, 224)), draw.choice((16, 32, 64))
        x = sizes.random(sizes.of(batch), a, max(16, sizes.of(side)), max(16, sizes.of(side)))
        layers = {
            "conv 2d": lambda: nn.Conv2d(a, b, 3, padding=1),
            "conv 1x1": lambda: nn.Conv2d(a, b, 1),
            "depthwise": lambda: nn.Conv2d(a, a, draw.choice((3, 5, 7)), padding=1, groups=a),
            "transposed 2d": lambda: nn.ConvTranspose2d(a, b, 3, stride=2),
        }
        return layers[kind](), x, f"{kind} {a}->{b} of {tuple(x.shape)}"
    if kind == "conv 3d":
        x = sizes.random(sizes.of(32), a, 16, max(16, sizes.of(48)), max(16, sizes.of(48)))
        return nn.Conv3d(a, b, 3, padding=1), x, f"conv 3d {a}->{b} of {tuple(x.shape)}"
    rows, inner, outer = (
        sizes.of(draw.choice(pool)) for pool in ((4096, 16384, 65536), (512, 1024, 2048), (1024, 2048, 4096))
    )
    return (
        nn.Linear(inner, outer, bias=kind == "linear"),
        sizes.random(rows, inner),
        f"{kind} {inner}->{outer} of {rows} rows",
    )


def _norm(draw: random.Random, x: Tensor) -> tuple[nn.Module, str] | None:
    """A norm over what a producer gives, `x` on the device `meta`."""
    channels = x.shape[1]
    if x.dim() == 2:
        return draw.choice(
            [
                (nn.LayerNorm(channels), "layer norm"),
                (nn.BatchNorm1d(channels), "batch norm"),
                (nn.GroupNorm(8, channels), "group norm"),
            ]
        )
    batch_norms = {4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    instance_norms = {4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}
    return draw.choice(
        [
            (batch_norms[x.dim()](channels), "batch norm"),
            (nn.GroupNorm(8, channels), "group norm"),
            (instance_norms[x.dim()](channels), "instance norm"),
        ]
    )


class _Steps(nn.Module):
    """A producer, then modules and functions in their order."""

    def __init__(self, producer: nn.Module, steps: list[nn.Module | Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.producer = producer
        self.layers = nn.ModuleList(s for s in steps if isinstance(s, nn.Module))
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        x = self.producer(x)
        for step in self.steps:
            x = step(x)
        return x


def _on_dim(reduction: Callable[[Tensor, int], Tensor], dim: int) -> Callable[[Tensor], Tensor]:
    return lambda x: reduction(x, dim)


def _chain(seed: int) -> Program:
    """A convolution or product with two to six operators behind it."""

    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        return _draw_chain(seed, sizes)[:2]

    name = _draw_chain(seed, Sizes("meta"))[2]
    return Program(name, "chains", name.split(" of ")[0].rsplit(" ", 1)[0], make)


def _draw_chain(seed: int, sizes: Sizes) -> tuple[nn.Module, list[Tensor], str]:
    draw = random.Random(seed)
    producer, x, name = _producer(draw, sizes)
    with torch.no_grad():
        shape = producer.to("meta")(x.to("meta"))
    steps: list[nn.Module | Callable[[Tensor], Tensor]] = []
    names = [name]
    for _ in range(draw.randint(1, 4)):
        chosen = draw.choice(tuple(POINTWISE))
        steps.append(POINTWISE[chosen])
        names.append(chosen)
    if draw.random() < 0.5 and (norm := _norm(draw, shape)) is not None:
        steps.insert(draw.randrange(len(steps) + 1), norm[0])
        names.append(norm[1])
    if draw.random() < 0.4:
        dim = draw.randrange(1, shape.dim())
        chosen = draw.choice(("sum", "mean", "amax", "logsumexp", "softmax"))
        steps.append(_on_dim(REDUCTIONS[chosen], dim))
        names.append(f"{chosen} of dim {dim}")
    producer = producer.to_empty(device=sizes.device)
    for parameter in producer.parameters():
        nn.init.normal_(parameter, std=0.05)
    return _Steps(producer, steps).to(sizes.device), [x], ", ".join(names)


_SHAPES = (
    (64, 512, 8191),
    (8192, 16384),
    (32768, 4096),
    (16, 64, 512, 512),
    (128, 128, 64, 64),
    (4, 1024, 32768),
    (1048576, 128),
    (32, 1 << 22),
)


def _operator(seed: int) -> Program:
    """One operator on some 100 million elements."""
    draw = random.Random(seed)
    shape = draw.choice(_SHAPES)
    family = draw.choice(("pointwise", "reduction", "reduction", "layer", "loss", "movement"))
    if family == "pointwise":
        name = draw.choice(tuple(POINTWISE))
        return Program(f"{name} of {shape}", "operators", family, _function(POINTWISE[name], shape))
    if family == "reduction":
        name, dim = draw.choice(tuple(REDUCTIONS)), draw.randrange(len(shape))
        return Program(
            f"{name} of dim {dim} of {shape}", "operators", family, _function(_on_dim(REDUCTIONS[name], dim), shape)
        )
    if family == "loss":
        name, loss = draw.choice(LOSSES)
        return Program(f"{name} of {shape}", "operators", family, _function(loss, shape, shape))
    if family == "movement":
        name, body = draw.choice(MOVEMENTS)
        return Program(f"{name} of {shape}", "operators", family, _function(body, shape))
    name, layer, of = draw.choice(LAYERS)
    return Program(f"{name} of {of}", "operators", family, _lone(layer, *of))


LOSSES: list[tuple[str, Body]] = [
    ("mse loss", F.mse_loss),
    ("l1 loss", F.l1_loss),
    ("huber loss", F.huber_loss),
    ("smooth l1 loss", F.smooth_l1_loss),
    ("kl div", lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean")),
    ("bce with logits", lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).float())),
    ("soft cross entropy", lambda x, y: F.cross_entropy(x.flatten(1), y.flatten(1).softmax(1))),
    ("hinge", lambda x, y: torch.clamp(1 - x * y.sign(), min=0).mean()),
    ("cosine similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1)),
    ("soft margin", lambda x, y: F.soft_margin_loss(x, y.sign())),
]

MOVEMENTS: list[tuple[str, Body]] = [
    ("transpose", lambda x: x.transpose(-1, -2).contiguous()),
    ("flip", lambda x: x.flip(-1)),
    ("roll", lambda x: x.roll(3, 1)),
    ("concatenation of halves", lambda x: torch.cat(x.chunk(2, -1)[::-1], -1)),
    ("pad", lambda x: F.pad(x, (1, 2))),
    ("repeat of every element", lambda x: x[..., : x.shape[-1] // 2].repeat_interleave(2, -1)),
    ("lower triangle", torch.tril),
    ("masked fill", lambda x: x.masked_fill(x > 0.5, 0.0)),
]

LAYERS: list[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = [
    ("max pool 2d", lambda: nn.MaxPool2d(3, stride=2, padding=1), (64, 64, 224, 224)),
    ("max pool 2d, stride 1", lambda: nn.MaxPool2d(3, stride=1), (32, 64, 256, 256)),
    ("average pool 2d", lambda: nn.AvgPool2d(11), (16, 64, 512, 512)),
    ("max pool 3d, dilation 2", lambda: nn.MaxPool3d(3, stride=2, dilation=2), (16, 32, 64, 64, 64)),
    ("average pool 3d", lambda: nn.AvgPool3d(3, stride=2, padding=1), (16, 32, 64, 64, 64)),
    ("max pool 1d", lambda: nn.MaxPool1d(8, stride=1), (64, 192, 16384)),
    ("batch norm", lambda: nn.BatchNorm2d(64), (64, 64, 256, 256)),
    ("group norm", lambda: nn.GroupNorm(8, 64), (64, 64, 256, 256)),
    ("instance norm", lambda: nn.InstanceNorm2d(64), (64, 64, 256, 256)),
    ("layer norm over everything", lambda: nn.LayerNorm((64, 256, 256)), (16, 64, 256, 256)),
    ("adaptive average pool", lambda: nn.AdaptiveAvgPool2d(7), (64, 256, 112, 112)),
    ("depthwise conv 3x3", lambda: nn.Conv2d(64, 64, 3, groups=64), (64, 64, 256, 256)),
    ("conv 1d, dilation 4", lambda: nn.Conv1d(64, 128, 3, stride=2, dilation=4), (32, 64, 65536)),
    ("transposed conv 1d", lambda: nn.ConvTranspose1d(64, 32, 5, stride=2), (32, 64, 32768)),
    ("upsampling, bilinear", lambda: nn.Upsample(scale_factor=2.0, mode="bilinear"), (16, 64, 256, 256)),
    ("upsampling, nearest", lambda: nn.Upsample(scale_factor=2.0), (16, 64, 256, 256)),
    ("pixel shuffle", lambda: nn.PixelShuffle(2), (16, 64, 512, 512)),
]


class _Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.joined, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.joined(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(width, inner, bias=False),
            nn.Linear(width, inner, bias=False),
            nn.Linear(inner, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class _Transposed(nn.Module):
    """A body over positions in place of channels, as mixers have it."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


def _conv_block(draw: random.Random, c: int) -> list[nn.Module]:
    norm = draw.choice((lambda: nn.BatchNorm2d(c), lambda: nn.GroupNorm(8, c)))
    act = draw.choice((nn.ReLU, nn.SiLU, nn.GELU))
    plain = [nn.Conv2d(c, c, 3, padding=1), norm(), act()]
    kinds = (
        plain,
        [
            _Residual(
                nn.Conv2d(c, c, 3, padding=1, bias=False),
                norm(),
                act(),
                nn.Conv2d(c, c, 3, padding=1, bias=False),
                norm(),
            ),
            act(),
        ],
        [
            _Residual(
                nn.Conv2d(c, c, 7, padding=3, groups=c), norm(), nn.Conv2d(c, 4 * c, 1), act(), nn.Conv2d(4 * c, c, 1)
            )
        ],
        [nn.Conv2d(c, c, 3, padding=1, groups=c), norm(), act(), nn.Conv2d(c, c, 1), norm(), act()],
    )
    return list(draw.choice(kinds))


def _sequence_block(draw: random.Random, width: int, length: int) -> nn.Module:
    kinds: tuple[Callable[[], nn.Module], ...] = (
        lambda: nn.Sequential(
            _Residual(nn.LayerNorm(width), _Attention(width, 8)),
            _Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
        ),
        lambda: nn.Sequential(
            _Residual(nn.RMSNorm(width), _Attention(width, 8)), _Residual(nn.RMSNorm(width), _Gated(width, 2 * width))
        ),
        lambda: nn.Sequential(
            _Residual(nn.LayerNorm(width), _Transposed(nn.Sequential(nn.Linear(length, length), nn.GELU()))),
            _Residual(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU()),
        ),
        lambda: _Residual(
            nn.LayerNorm(width),
            _Transposed(nn.Conv1d(width, width, 5, padding=2, groups=width)),
            nn.GELU(),
            nn.Linear(width, width),
        ),
    )
    return draw.choice(kinds)()


def _network(seed: int) -> Program:
    """Two to four equal blocks of a kind, as float32 or bfloat16."""

    def make(sizes: Sizes) -> tuple[nn.Module, list[Tensor]]:
        module, inputs, _ = _draw_network(seed, sizes)
        return module, inputs

    return Program(_draw_network(seed, Sizes("meta"))[2], "networks", "network", make)


def _layers(*modules: nn.Module) -> str:
    return " ".join(type(m).__name__ for module in modules for m in module.modules() if not len(list(m.children())))


def _draw_network(seed: int, sizes: Sizes) -> tuple[nn.Module, list[Tensor], str]:
    draw = random.Random(seed)
    depth, dtype = draw.randint(2, 4), draw.choice((torch.float32, torch.bfloat16))
    inner = draw.randrange(1 << 30)  # every block is drawn alike
    if draw.random() < 0.5:
        channels, side, batch = draw.choice((32, 64, 128)), draw.choice((56, 64, 112)), draw.choice((16, 32, 64))
        with torch.device(sizes.device):
            blocks = [layer for _ in range(depth) for layer in _conv_block(random.Random(inner), channels)]
            stem = nn.Conv2d(3, channels, 4, stride=2, padding=1)
            module: nn.Module = nn.Sequential(stem, *blocks)
        x = sizes.random(sizes.of(batch), 3, max(16, sizes.of(2 * side)), max(16, sizes.of(2 * side)), dtype=dtype)
        described = (
            f"{depth} blocks of {_layers(*blocks[: len(blocks) // depth])}, {channels} channels, {batch} x {side}"
        )
    else:
        width, length, batch = draw.choice((512, 768, 1024)), draw.choice((256, 512, 1024)), draw.choice((8, 16, 32))
        length = sizes.of(length)
        with torch.device(sizes.device):
            module = nn.Sequential(*(_sequence_block(random.Random(inner), width, length) for _ in range(depth)))
        x = sizes.random(sizes.of(batch), length, width, dtype=dtype)
        described = f"{depth} blocks of {_layers(module[0])}, width {width}, {batch} x {length}"
    return module.to(dtype), [x], f"{seed}: {described}, {str(dtype)[6:]}"


def drawn(group: str, seed: int, count: int) -> Iterator[Program]:
    """`count` programs of a group ("operators", "chains" or "networks"), which `seed` decides; equal ones are drawn again."""
    make = {"operators": _operator, "chains": _chain, "networks": _network}[group]
    names: set[str] = set()
    number = seed * 1_000_000
    while len(names) < count:
        program = make(number)
        number += 1
        if program.name not in names:
            names.add(program.name)
            yield program
