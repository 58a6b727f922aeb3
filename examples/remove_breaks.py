"""Find the graph breaks of a function, remove them, and see to it that none comes back."""

import argparse

import torch

import torchjit


def noisy(x: torch.Tensor) -> torch.Tensor:
    """Three breaks: a branch on data, a number read out of a tensor, a print."""
    y = x.relu()
    if y.sum() > 1:
        y = y / y.sum()
    y = y * (1 + y.max().item())
    print("normalised")
    return y.cos()


def quiet(x: torch.Tensor) -> torch.Tensor:
    """The same values: the branch computes both sides, the number stays a tensor, the print is the caller's."""
    y = x.relu()
    total = y.sum()
    y = torch.where(total > 1, y / total, y)
    y = y * (1 + y.max())
    return y.cos()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small tensor")
    x = torch.rand(16 if parser.parse_args().small else 1_000_000)

    told = torchjit.explain(noisy)(x)
    print(told)
    for obstacle in told.obstacles:  # the line that costs most time first, as data
        print(f"line {obstacle.location.lineno}: {obstacle.cures[0]}")
    assert told.graph_break_count == 3

    torch.testing.assert_close(quiet(x), noisy(x))
    assert torchjit.explain(quiet)(x).graph_break_count == 0

    strict = torchjit.compile(quiet, fullgraph=True)  # a break is an error from now on
    torch.testing.assert_close(strict(x), quiet(x))
    try:
        torchjit.compile(noisy, fullgraph=True)(x)
    except torchjit.exc.Unsupported as error:
        print("fullgraph=True:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
