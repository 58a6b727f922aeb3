"""Train with accelerate and Lightning, and denoise with diffusers: one line makes `torch.compile` torchjit's. Random weights, nothing is downloaded."""

import argparse
import importlib
import importlib.util

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchjit


def data(rows: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.randn(rows, 32), torch.randint(0, 4, (rows,))), 16)


def with_accelerate(steps: int) -> None:
    from accelerate import Accelerator  # noqa: PLC0415  of those that are installed

    accelerator = Accelerator(cpu=True, dynamo_backend="inductor")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data(16 * steps))
    for x, y in loader:
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def with_lightning(steps: int) -> None:
    import lightning.pytorch as pl  # noqa: PLC0415

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    model = Classifier()
    pl.Trainer(max_steps=steps, accelerator="cpu", barebones=True).fit(torch.compile(model), data(16 * steps))


def with_diffusers(steps: int) -> None:
    from diffusers import UNet2DModel  # noqa: PLC0415

    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1, "sample_size": 16}
    down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    unet = UNet2DModel(in_channels=3, out_channels=3, down_block_types=down, up_block_types=up, **blocks).eval()
    unet.compile(fullgraph=True)
    with torch.no_grad():
        for step in range(steps):
            unet(torch.randn(1, 3, 16, 16), torch.tensor([step]))


PROGRAMS = {"accelerate": with_accelerate, "lightning": with_lightning, "diffusers": with_diffusers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="few steps")
    steps = 3 if parser.parse_args().small else 50
    for name, program in PROGRAMS.items():
        torchjit.reset()
        if importlib.util.find_spec(name) is None:
            print(f"skipped: `pip install {name}` to see it")
            continue
        importlib.import_module(name)  # first: lightning puts its own function around torch.compile
        with torchjit.replace_torch_compile():  # the one line; without `with` it holds for the whole program
            program(steps)
        print(f"{name}: {steps} steps, graphs: {torchjit.counters['stats']['unique_graphs']}")


if __name__ == "__main__":
    main()
