"""What somebody does who has read the guide only: compile a model, find its breaks, write what the hints say, train it, read the report."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

from torchjit.cli import main
from torchjit.testing import fresh

PROGRAM = """import torch
import torchjit

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x):
        y = self.layer(x).relu()
        print("layer done")
        return y / y.abs().max().item()

torch.manual_seed(0)
model = Net()
fast = torchjit.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    loss = fast(torch.ones(2, 8)).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(float(loss))
assert len(set(losses)) == 3
"""


def explained(program: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with fresh():
        assert main(["explain", str(program)]) == 0
    return capsys.readouterr().out.partition("== torchjit explain")[2]


def test_breaks_are_found_and_removed_by_the_hints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = explained(program, capsys)
    assert "Graph breaks: 2" in told and 'print("layer done")' in told and "return y / y.abs().max().item()" in told
    cures = re.findall(r"hint: .*?: (torchjit\.config\..*)", told)
    assert len(cures) == 2
    program.write_text(PROGRAM.replace("import torchjit\n", "import torchjit\n" + "\n".join(cures) + "\n"))
    told = explained(program, capsys)
    assert "Graph breaks: 0" in told and "Graphs: 1 " in told, told


def test_the_report_of_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"TORCHJIT_TRACE": str(tmp_path / "trace")}
    command = [sys.executable, "program.py"]
    done = forked.run(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert main(["report", str(tmp_path / "trace"), "-o", str(tmp_path / "report.html")]) == 0
    assert "Report: " in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "layer done" in page and "reorderable_logging_functions.add(print)" in page
    costly = page.split('id="costly"')[1].split("</section>")[0]
    assert (
        costly.count("card break") == 2
        and costly.count("entering regions behind it") == 2
        and "does not tell" not in costly
    )


def test_what_keeps_compiling_is_found_and_stopped_by_the_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    text = """import torch, torchjit
fast = torchjit.compile(lambda pixels: (pixels * 2).sum(), backend="eager")
for n in (2, 3, 4):
    pixels = torch.ones(n, 3)
    fast(pixels)
"""
    program.write_text(text)
    told = explained(program, capsys)
    (line,) = re.findall(r"avoid it: .*?(torchjit\.mark_dynamic\(.*?\)),", told)
    assert "Specialisations: 2" in told and line == "torchjit.mark_dynamic(pixels, 0)"
    program.write_text(text.replace("    fast(", f"    {line}\n    fast("))
    told = explained(program, capsys)
    assert "Specialisations: 1" in told and "Recompile" not in told


def test_a_hugging_face_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers: Any = pytest.importorskip("transformers")
    assert transformers.BertConfig
    model = """
from transformers import BertConfig, BertForSequenceClassification
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
config.problem_type = "single_label_classification"  # else the first call sets it, and the second one compiles again
bert = BertForSequenceClassification(config)

class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = bert

    def forward(self, **inputs):
        out = self.bert(**inputs)
        print("logits", tuple(out.logits.shape))
        return out.loss * 2

fast = torchjit.compile(Noisy(), backend="eager")
optimizer = torch.optim.AdamW(bert.parameters(), lr=1e-2)
losses = []
for _ in range(3):
    loss = fast(input_ids=torch.arange(10).reshape(2, 5), labels=torch.tensor([0, 1]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(float(loss))
bert.save_pretrained("saved")
assert not any("_orig_mod" in name for name in BertForSequenceClassification.from_pretrained("saved").state_dict())
"""
    program = tmp_path / "program.py"
    program.write_text("import torch, torchjit\n" + model)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        told = explained(program, capsys)
        assert "Graph breaks: 1" in told and 'print("logits"' in told, told
        (cure,) = re.findall(r"hint: .*?: (torchjit\.config\..*)", told)
        program.write_text(f"import torch, torchjit\n{cure}\n{model}")
        assert "Graph breaks: 0" in explained(program, capsys)
