"""Names of files, functions, attributes, keys and parameters hold anything: none of it becomes code."""

import builtins
import io
import re
import tokenize
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import torchjit
from torchjit_core.comments import in_comment
from torchjit_core.events import listen

MARK = "torchjit_mark"
PIECES = [
    "\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\\", "\\\n", "??/", "*/", "/*", "//", "#", '"', "'", '"""', "{", "}", "{0}", "%s",
    " ", "\t", "\0", ";", "(", ")", "=", "²", "ﬁ", "名", "\udc80", "\u202e", "<lambda>", "None", "class", "__dunder__", ".", "a-b", "0",
    f"\nimport builtins; builtins.{MARK} = 1\n", f'\n#error {MARK}\nextern "C" int {MARK};\n', f"',builtins.{MARK},'", f"]; {MARK}(); x = [",
]  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)


@given(st.text() | NAMES)
def test_comments_end_where_the_line_ends(text: str) -> None:
    escaped = in_comment(text)
    assert escaped.isprintable()
    escaped.encode("utf-8")
    assert not re.search(r"\\$|\?\?|\*/", escaped)
    assert len(escaped.splitlines()) <= 1


def code_of(source: str, language: str) -> str:
    """The text without comments and, in Python, without constants."""
    if language == "c":
        return re.sub(r"(?s)//(\\.|[^\n\\])*", "", source)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(t.string for t in tokens if t.type not in (tokenize.COMMENT, tokenize.STRING))


def check(make: Callable[[], Any], *inputs: torch.Tensor, backend: str) -> None:
    """A program computes what it does in eager mode, and nothing generated for it has the mark in its code."""
    seen: list[tuple[str, str]] = []

    def listener(kind: str, fields: dict[str, Any]) -> None:
        if kind in ("kernel", "host_program", "emitted", "graph"):
            text = fields.get("source", fields.get("code", ""))
            seen.append((text, "c" if fields.get("language") == "c" else "python"))

    expected = make()(*inputs)
    with listen(listener):
        compiled = torchjit.compile(make(), backend=backend, on_error="raise")
        torch.testing.assert_close(compiled(*inputs), expected)
    assert not hasattr(builtins, MARK)
    for text, language in seen:
        assert not re.search(rf"\b{MARK}\b", code_of(text, language))


BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


@BACKENDS
@settings(max_examples=6, deadline=None)
@given(name=NAMES)
def test_files_and_functions(backend: str, name: str) -> None:
    def make() -> Any:
        code = (lambda x: (x.sin() * 2 + 1).sum(-1)).__code__
        code = code.replace(co_filename=name.replace("\0", ""), co_name=name, co_qualname=name)
        made = types.FunctionType(code, globals(), name)
        made.__qualname__ = name
        return made

    check(make, torch.linspace(0, 1, 6).view(2, 3), backend=backend)


@BACKENDS
@settings(max_examples=6, deadline=None)
@given(name=NAMES)
@example(name="\udc80")
def test_attributes_and_keys(backend: str, name: str) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = {name: torch.ones(3), (name, 1): torch.full((3,), 2.0)}
            self.__dict__[name] = torch.full((3,), 3.0)
            if name and "." not in name:
                self._parameters[name] = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)
                self._modules[name + "!"] = nn.Identity()

        def forward(self, x: torch.Tensor) -> dict[Any, Any]:
            y = x * self.weights[name] + self.weights[name, 1] * getattr(self, name) + self.__dict__[name]
            setattr(self, name + "?", y + 1)
            self.weights[name + "?"] = y * 2
            made = dict(**{name: y.cos()})
            return {**made, name + "+": self.weights[name + "?"] + getattr(self, name + "?")}

    check(Module, torch.linspace(0, 1, 3), backend=backend)


@BACKENDS
@settings(max_examples=4, deadline=None)
@given(name=NAMES)
def test_keyword_arguments_across_a_break(backend: str, name: str) -> None:
    def make() -> Any:
        def program(x: torch.Tensor) -> torch.Tensor:
            def takes(**kwargs: torch.Tensor) -> torch.Tensor:
                return sum(kwargs.values()) + len(repr(list(kwargs)))

            y = takes(**{name: x.sin(), name + "2": x})
            torchjit.graph_break()
            return y + takes(**{name: x.cos()})

        return program

    check(make, torch.linspace(0, 1, 3), backend=backend)
