"""Compile a model of the transformers library: sentences of several lengths, then training. Random weights, nothing is downloaded."""

import argparse

import torch

import torchjit

try:
    from transformers import BertConfig, BertForSequenceClassification
except ImportError:
    BertConfig = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="one layer")
    small = parser.parse_args().small
    if BertConfig is None:
        print("skipped: this example needs `pip install transformers`")
        return
    width, layers = (32, 1) if small else (256, 4)
    config = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=2 * width, vocab_size=1000
    )
    model = BertForSequenceClassification(config).eval()  # yours: .from_pretrained(...)
    fast = torchjit.compile(model)

    with torch.no_grad():
        for length in (16, 24, 40):
            ids = torch.randint(0, 1000, (2, length))
            torchjit.mark_dynamic(ids, 1)  # lengths vary: one compilation for all of them
            torch.testing.assert_close(fast(input_ids=ids).logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
    print(fast.compiled.stats)

    fast.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, labels = torch.randint(0, 1000, (2, 16)), torch.tensor([0, 1])
    for _ in range(3):
        loss = fast(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss after three steps: {float(loss.detach()):.3f}")


if __name__ == "__main__":
    main()
