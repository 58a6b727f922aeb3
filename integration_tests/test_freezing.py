"""The option `freezing` on models: equal results, parameters that change, training, other callers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import torchjit
from torchjit_core.events import listen


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
            nn.Conv2d(16, 256, 3, padding=1), nn.BatchNorm2d(256, affine=False), nn.ReLU(), nn.Conv2d(256, 256, 3),
        )  # fmt: skip
        self.head = nn.Linear(256, 10)
        self.scale = nn.Parameter(torch.randn(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.features(x).mean((2, 3)))
        return y * self.scale.exp().softmax(0)


def model() -> Net:
    torch.manual_seed(0)
    made = Net()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return made.eval()


def close(have: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_results_follow_the_parameters(context: type[torch.no_grad]) -> None:
    net, x = model(), torch.randn(2, 3, 16, 16)
    compiled = torchjit.compile(net, options={"freezing": True})
    programs: list[str] = []
    with listen(lambda kind, fields: programs.append(fields["source"]) if kind == "host_program" else None), context():
        close(compiled(x), net(x))
        close(compiled(x + 1), net(x + 1))
    assert 1 <= len(programs) <= 2  # under inference_mode the second input is a tensor of another kind
    assert "frozen" in programs[0]
    assert "mkldnn__convolution_pointwise" in programs[0]  # 256 x 256 x 3 x 3 on 4 x 4: packed
    net.load_state_dict({k: v * 1.1 for k, v in net.state_dict().items()})
    with context():
        close(compiled(x), net(x))
    net.features[0].weight = nn.Parameter(net.features[0].weight.detach() * 0.5)  # type: ignore[operator]
    net.head.weight.data = net.head.weight.data * 3
    with context():
        close(compiled(x), net(x))
        close(compiled(x[:1]), net(x[:1]))


def test_training_is_not_frozen() -> None:
    net, x = model(), torch.randn(2, 3, 16, 16)
    other = copy.deepcopy(net)
    compiled = torchjit.compile(net, options={"freezing": True})
    with torch.no_grad():
        close(compiled(x), other(x))
    for _ in range(2):
        for each, call in ((net, compiled), (other, other)):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.01)
            each.train()
            call(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            each.eval()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), other(x), rtol=1e-3, atol=1e-3)
