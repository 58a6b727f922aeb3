"""Train a classifier with the whole step compiled: forward, loss, backward, clipping and the optimizer's update."""

import argparse
import time

import torch
from torch import nn

import torchjit


def make_data(rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around one centre per class: inputs (rows, 32), int64 labels (rows,)."""
    labels = torch.randint(0, classes, (rows,))
    centres = torch.randn(classes, 32)
    return centres[labels] + 0.5 * torch.randn(rows, 32), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small network, few steps")
    small = parser.parse_args().small
    device = "cuda" if torch.cuda.is_available() and not small else "cpu"
    width, batch, steps = (32, 64, 30) if small else (512, 1024, 300)

    torch.manual_seed(0)
    inputs, labels = (t.to(device) for t in make_data(batch * 8, classes=10))
    model = nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    @torchjit.compile
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # one break: autograd runs between the two graphs
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses = []
    start = time.perf_counter()
    for number in range(steps):
        at = number % 8 * batch
        losses.append(step(inputs[at : at + batch], labels[at : at + batch]))
        schedule.step()  # outside: the learning rate is an input of the compiled step, never a constant
        if number == 1:
            print(f"two steps, compiling: {time.perf_counter() - start:.1f} s")
    first, last = float(losses[0]), float(losses[-1])
    print(f"loss {first:.3f} -> {last:.3f} on {device}")
    print(f"specialisations: {len(step.compiled.stats.regions)}, breaks: {step.compiled.stats.graph_break_count}")
    assert last < 0.5 * first


if __name__ == "__main__":
    main()
