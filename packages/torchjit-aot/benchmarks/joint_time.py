"""CPU seconds from the captured graph to the forward and backward graphs, beside torch.compile's AOT autograd.

    python packages/torchjit-aot/benchmarks/joint_time.py [--models bert_base llama_12 resnet50] [--repeat 3]

Both sides get the same captured graph of a training step on fakes (as in `saved_bytes.py`): torchjit's joint trace,
functionalization, decompositions, simplification and partition against what torch's `compile_fx` does up to its inner
compiler (metadata pass, joint trace, decompositions, joint passes, partition). The minimum of the repeats, interleaved.
"""

from __future__ import annotations

import argparse

from saved_bytes import MODELS, capture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["bert_base", "llama_12", "resnet50"], choices=list(MODELS))
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print("| model | torch.compile CPU s | torchjit CPU s | ratio |\n|---|---|---|---|")
    for name in options.models:
        best = {"theirs": float("inf"), "ours": float("inf")}
        for sides in capture(name, repeat=options.repeat):
            best = {key: min(best[key], side.seconds) for key, side in sides.items()}
        print(
            f"| {name} | {best['theirs']:.2f} | {best['ours']:.2f} | {best['ours'] / best['theirs']:.3f} |", flush=True
        )


if __name__ == "__main__":
    main()
