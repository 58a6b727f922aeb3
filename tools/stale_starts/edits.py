"""Edits: one change of a project. Most are made from the syntax of its modules; some are written by hand with its features.

An edit with `neutral` changes nothing that a compiled function sees: what was stored has to be loaded after it.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from .features import BY_HAND, ELSEWHERE, SETTINGS, Swap
from .projects import END, Piece, Project

__all__ = ["Edit", "edits_of", "neutral_edits"]


@attrs.frozen
class Edit:
    """What it is, the project behind it, and the feature that it is about ("": any)."""

    kind: str
    detail: str
    after: Project
    case: str = ""
    neutral: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


Change = tuple[str, ast.AST, str]
"""Kind, the node whose text is replaced, the new text."""
_OPERATORS: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.Pow: "*", ast.MatMult: "@"}
_COMPARISONS: Final = {ast.Lt: ">=", ast.Gt: "<=", ast.LtE: ">", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is",
                       ast.In: "not in", ast.NotIn: "in"}  # fmt: skip
_ATTRIBUTES: Final = {"sin": "cos", "cos": "sin", "tanh": "sigmoid", "sum": "mean", "exp": "sin", "GELU": "ReLU", "Tanh": "Sigmoid",
                      "no_grad": "enable_grad", "float32": "float64", "mse_loss": "l1_loss", "reduce": "reduce"}  # fmt: skip


class _Text:
    """A module's text and the places of its nodes in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where its text starts and ends."""
        n: ast.expr | ast.stmt = node  # type: ignore[assignment]
        assert n.end_lineno is not None and n.end_col_offset is not None
        return self._starts[n.lineno - 1] + n.col_offset, self._starts[n.end_lineno - 1] + n.end_col_offset

    def of(self, node: ast.AST) -> str:
        """Its text."""
        start, end = self.span(node)
        return self.text[start:end]

    def replaced(self, *changes: tuple[ast.AST, str]) -> str:
        """The text with these nodes, none inside of another, replaced."""
        text = self.text
        for (start, end), new in sorted(((self.span(node), new) for node, new in changes), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def with_line(self, lineno: int, line: str) -> str:
        """The text with a line put before this one."""
        at = self._starts[lineno - 1]
        return self.text[:at] + line + "\n" + self.text[at:]


def _other_constants(value: object, strings: list[str]) -> Iterator[str]:
    if value is None:
        yield "1.25"
    elif isinstance(value, bool):
        yield from (repr(not value), repr(int(value)))
    elif isinstance(value, int):
        yield from (repr(value + 1), repr(float(value)), repr(-value - 1), "True", "None")
    elif isinstance(value, float):
        yield from (repr(value * 2.5 + 0.5), repr(-value), "float('inf')", repr(int(value)))
    elif isinstance(value, str):
        yield from (repr(s) for s in strings if s != value)


def _changes(t: _Text, r: random.Random) -> Iterator[Change]:
    """One replacement of each kind for each node that has one."""
    docstrings = {id(n.value) for n in ast.walk(t.tree) if isinstance(n, ast.Expr)}
    inside_f = {id(v) for n in ast.walk(t.tree) if isinstance(n, ast.JoinedStr) for v in ast.walk(n)}
    strings = sorted(
        {
            n.value
            for n in ast.walk(t.tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and "\n" not in n.value
        }
    )
    classes = [n.name for n in t.tree.body if isinstance(n, ast.ClassDef)]
    cases = [n for n in t.tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("case_")]
    protocols = [n for n in ast.walk(t.tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("__torch_")]
    docstrings |= {id(d) for n in protocols for d in n.args.defaults}  # torch passes them, or not, as it likes
    of_cases = {id(v) for n in cases for v in ast.walk(n) if not isinstance(v, ast.Constant | ast.Attribute)}
    for n in ast.walk(t.tree):
        if id(n) in inside_f or isinstance(n, ast.FormattedValue):
            continue  # their places are not told by every Python
        if id(n) in of_cases:
            continue  # what they give is taken apart by the program, not by what is compiled
        if isinstance(n, ast.Constant) and id(n) not in docstrings:
            others = list(_other_constants(n.value, strings))
            if others:
                yield "constant", n, r.choice(others)
        elif (
            isinstance(n, ast.BinOp)
            and type(n.op) in _OPERATORS
            and id(n.left) not in inside_f
            and id(n.right) not in inside_f
        ):
            yield "operator", n, f"(({t.of(n.left)}) {_OPERATORS[type(n.op)]} ({t.of(n.right)}))"
        elif isinstance(n, ast.Compare) and type(n.ops[0]) in _COMPARISONS:
            yield "comparison", n, f"({t.of(n.left)} {_COMPARISONS[type(n.ops[0])]} {t.of(n.comparators[0])})"
        elif isinstance(n, ast.If | ast.IfExp):
            yield "test", n.test, f"(not ({t.of(n.test)}))"
        elif isinstance(n, ast.Attribute) and n.attr in _ATTRIBUTES:
            yield "attribute", n, f"{t.of(n.value)}.{_ATTRIBUTES[n.attr]}"
        elif isinstance(n, ast.Call):
            yield from _calls(t, n, r)
        elif isinstance(n, ast.ClassDef):
            for base in n.bases:
                yield "base", base, r.choice([c for c in classes if c != n.name] or ["object"])
        elif isinstance(n, ast.Tuple | ast.List) and isinstance(n.ctx, ast.Load) and len(n.elts) > 1:
            yield "order", n, _reversed(t, n)
        elif isinstance(n, ast.Expr | ast.Assign | ast.AugAssign) and id(getattr(n, "value", None)) not in docstrings:
            yield "statement", n, "pass"
        elif isinstance(n, ast.Return) and n.value is not None:
            yield "result", n.value, f"({t.of(n.value)}) * 1.5" if r.random() < 0.7 else "None"


def _reversed(t: _Text, n: ast.Tuple | ast.List) -> str:
    inner = ", ".join(t.of(e) for e in reversed(n.elts))
    return f"[{inner}]" if isinstance(n, ast.List) else f"({inner})"


def _calls(t: _Text, n: ast.Call, r: random.Random) -> Iterator[Change]:
    if n.keywords and all(k.arg for k in n.keywords):
        kept = [t.of(a) for a in n.args] + [f"{k.arg}={t.of(k.value)}" for k in n.keywords[1:]]
        yield "keyword", n, f"{t.of(n.func)}({', '.join(kept)})"
    if len(n.args) == 2 and not n.keywords:
        yield "arguments", n, f"{t.of(n.func)}({t.of(n.args[1])}, {t.of(n.args[0])})"


def _decorators(t: _Text) -> Iterator[tuple[str, str]]:
    """Texts without one decorator."""
    for n in ast.walk(t.tree):
        if isinstance(n, ast.FunctionDef | ast.ClassDef):
            for d in n.decorator_list:
                start, end = t.span(d)
                yield f"{n.name}: @{t.of(d)}", t.text[: start - 1].rstrip(" ") + t.text[end:].lstrip("\n")


def _bodies(t: _Text, r: random.Random) -> Iterator[tuple[str, str]]:
    """Texts in which two functions with equal signatures have changed their bodies, or one has another first statement."""
    functions = [n for n in ast.walk(t.tree) if isinstance(n, ast.FunctionDef)]
    for a in functions:
        x = next((arg.arg for arg in a.args.args if arg.arg in ("x", "y", "row", "value")), None)
        if x is not None:
            first = a.body[0]
            yield f"{a.name}: first line", t.with_line(first.lineno, f"{' ' * first.col_offset}{x} = {x} * 1.25")
        for b in functions:
            if (
                a.lineno < b.lineno
                and a.body[0].col_offset == b.body[0].col_offset
                and ast.dump(a.args) == ast.dump(b.args)
            ) and len(a.body) == len(b.body) == 1:
                yield (
                    f"{a.name} and {b.name}",
                    t.replaced((a.body[0], t.of(b.body[0])), (b.body[0], t.of(a.body[0]))),
                )


def _appended(t: _Text, r: random.Random) -> Iterator[str]:
    """Statements at the end of a module that change what is in it."""
    functions = [
        n.name for n in t.tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith(("case_", "__"))
    ]
    for n in t.tree.body:
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name):
            name, value = n.targets[0].id, n.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                yield f"{name} = {name} + 1"
                yield f"{name} = str({name})"
            elif isinstance(value, ast.Dict) and value.keys and value.keys[0] is not None:
                yield f"{name}[{t.of(value.keys[0])}] = 0.3125"
                yield f"{name}[{t.of(value.keys[-1])}] = 0.3125"  # type: ignore[arg-type]
                yield f"del {name}[{t.of(value.keys[0])}]"
                yield f"{name}['new'] = 0.3125"
            elif isinstance(value, ast.List):
                yield from (f"{name}.append(0.3125)", f"{name}.insert(0, {name}.pop())")
            elif isinstance(value, ast.Call):
                yield f"vars({name}).update(gain=0.3125, rate=0.3125, hidden=0.3125, extra=1)"
        elif isinstance(n, ast.ClassDef):
            for member in n.body:
                if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
                    yield f"{n.name}.{member.targets[0].id} = 0.3125"
                    yield f"del {n.name}.{member.targets[0].id}"
                elif isinstance(member, ast.FunctionDef):
                    yield f"{n.name}.{member.name} = lambda *args, **kwargs: args[-1]"
            yield f"{n.name}.bonus = 0.3125"
        elif isinstance(n, ast.FunctionDef) and n.name in functions:
            if n.args.defaults:
                yield f"{n.name}.__defaults__ = tuple(0.3125 for _ in {n.name}.__defaults__)"
            if n.args.kwonlyargs:
                yield f"{n.name}.__kwdefaults__ = {{k: 0.3125 for k in {n.name}.__kwdefaults__}}"
            yield f"{n.name} = {r.choice(functions)}"
            yield f"{n.name}.__code__ = {r.choice(functions)}.__code__"
            yield f"{n.name} = (lambda f: lambda *args, **kwargs: f(*args, **kwargs))({n.name})"


def _of_piece(text: str, r: random.Random) -> Iterator[tuple[str, str, str]]:
    """Kind, detail and new text of every edit of a piece's text."""
    t = _Text(text)
    for kind, node, new in _changes(t, r):
        yield kind, f"line {node.lineno}: {t.of(node)} -> {new}", t.replaced((node, new))  # type: ignore[attr-defined]
    for detail, other in _decorators(t):
        yield "decorator", detail, other
    for detail, other in _bodies(t, r):
        yield "body", detail, other
    statements = [n for f in ast.walk(t.tree) if isinstance(f, ast.FunctionDef) for n in f.body]
    for n in r.sample(statements, min(5, len(statements))):
        yield "comment inside", f"line {n.lineno}", t.with_line(n.lineno, f"{' ' * n.col_offset}# a comment")


def _with(project: Project, module: str, pieces: Iterable[Piece]) -> Project:
    return attrs.evolve(project, pieces={**project.pieces, module: tuple(pieces)})


def _replaced(project: Project, module: str, old: Piece, text: str) -> Project:
    return _with(project, module, (old._replace(text=text) if p is old else p for p in project.pieces[module]))


def _at_end(project: Project, module: str, feature: str, line: str) -> Project:
    return _with(project, module, (*project.pieces[module], Piece(feature, line + "\n", END)))


def _by_hand(project: Project, case: str, swap: Swap) -> Project:
    if swap.module == "environment":
        return attrs.evolve(project, environment={**project.environment, swap.old: swap.new})
    piece = next(p for p in project.pieces[swap.module] if p.feature == case and swap.old in p.text)
    return _replaced(project, swap.module, piece, piece.text.replace(swap.old, swap.new, 1))


def _of_feature(project: Project, case: str, r: random.Random) -> Iterator[Edit]:
    """Every edit of a feature's pieces."""
    for swap in project.swaps(case):
        yield Edit("by hand", f"{swap.module}: {swap.old!r} -> {swap.new!r}", _by_hand(project, case, swap), case)
    if case in BY_HAND:
        return
    for module, pieces in project.pieces.items():
        for piece in pieces:
            if piece.feature == case:
                for kind, detail, text in _of_piece(piece.text, r):
                    yield Edit(kind, f"{module}, {detail}", _replaced(project, module, piece, text), case)
                for line in _appended(_Text(piece.text), r):
                    yield Edit("at the end", f"{module}, {line}", _at_end(project, module, case, line), case)


def _of_surroundings(project: Project, case: str, r: random.Random) -> Iterator[Edit]:
    """What another place changes below a program: libraries, torch, the module table, defaults of torch."""
    for line in (*ELSEWHERE, *SETTINGS):
        module = r.choice([m for m in project.pieces if m != "vendor"])
        kind = "elsewhere" if line in ELSEWHERE else "setting"
        yield Edit(kind, f"{module}, {line}", _at_end(project, module, case, line), case)
    for module in project.pieces:
        if module not in ("top", "vendor"):
            yield Edit("renamed", module, attrs.evolve(project, names={module: f"{module}_renamed"}), case)
            text = _REPLACED.format(module=module)
            yield Edit("replaced module", module, _at_end(project, module, case, text), case)


_REPLACED = """\
class _Replaced(types.ModuleType):
    def __getattr__(self, name):
        value = _REPLACED_MODULE.__dict__[name]
        return value * 2.5 if type(value) is float else value


_REPLACED_MODULE = sys.modules[__name__]
sys.modules[__name__] = _Replaced(__name__)
sys.modules["proj"].__dict__["{module}"] = sys.modules[__name__]
"""


def edits_of(project: Project, count: int, r: random.Random) -> list[Edit]:
    """So many edits of a project's features, every feature and every kind alike."""
    found: dict[str, dict[str, list[Edit]]] = {}
    for case in project.cases:
        by_kind = found.setdefault(case, {})
        for edit in (*_of_feature(project, case, r), *_of_surroundings(project, case, r)):
            by_kind.setdefault(edit.kind, []).append(edit)
    chosen = list[Edit]()
    for n in range(count * 3):
        by_kind = found[project.cases[n % len(project.cases)]]
        kinds = [kind for kind, left in by_kind.items() if left]
        if not kinds:
            continue
        left = by_kind[r.choice(kinds)]
        edit = left.pop(r.randrange(len(left)))
        if edit.after != project and edit.after.compiles():
            chosen.append(edit)
        if len(chosen) == count:
            break
    return chosen


# ---------------------------------------------------------------------- edits that change nothing
def _at_the_top(pieces: list[Piece], r: random.Random) -> list[Piece]:
    return [Piece("", "# A comment.\n\n\n", "first"), *pieces]


def _blank_lines(pieces: list[Piece], r: random.Random) -> list[Piece]:
    n = r.randrange(len(pieces))
    places = [m.end() for m in re.finditer(r"\n\n(?=@|def|class)", pieces[n].text)]
    at = r.choice([0, *places])
    text = pieces[n].text
    pieces[n] = pieces[n]._replace(text=text[:at] + "\n\n# A comment between functions.\n\n" + text[at:])
    return pieces


def _unrelated_edited(pieces: list[Piece], r: random.Random) -> list[Piece]:
    new = 'if by:\n        x = x - 3\n    return f"{x}"'
    return [p._replace(text=p.text.replace("return x * by + 2.5", new)) for p in pieces]


def _unrelated_added(pieces: list[Piece], r: random.Random) -> list[Piece]:
    added = "def unrelated_added(x):\n    return [n for n in x]\n\n\nclass UnrelatedAdded:\n    unrelated = 1\n"
    return [*pieces, Piece("", added)]


def _unrelated_gone(pieces: list[Piece], r: random.Random) -> list[Piece]:
    return [p for p in pieces if p.feature]


def _reordered(pieces: list[Piece], r: random.Random) -> list[Piece]:
    """Pieces do not depend on each other; functions without decorators and defaults depend on nothing when they are defined."""
    r.shuffle(pieces)
    return [p._replace(text=_functions_first(p.text)) for p in pieces]


def _functions_first(text: str) -> str:
    t = _Text(text)
    names = [getattr(n, "name", "") for n in t.tree.body]
    free = [
        n for n in t.tree.body
        if isinstance(n, ast.FunctionDef) and not n.decorator_list and not n.args.defaults and not n.args.kw_defaults
        and not any(a.annotation for a in n.args.args) and names.count(n.name) == 1 and n.name != "__getattr__"
    ]  # fmt: skip
    moved = "\n\n".join(t.of(n) for n in reversed(free))
    return moved + "\n\n" + t.replaced(*((n, "pass") for n in free))


_NEUTRAL: Final[dict[str, Callable[[list[Piece], random.Random], list[Piece]]]] = {
    f.__name__.strip("_").replace("_", " "): f
    for f in (_at_the_top, _blank_lines, _unrelated_edited, _unrelated_added, _unrelated_gone, _reordered)
}


def neutral_edits(project: Project, count: int, r: random.Random) -> list[Edit]:
    """The same project again, in another folder, and so many edits of one or of all modules."""
    made = [Edit("moved", "to another folder", attrs.evolve(project, folder="elsewhere/deeper"), neutral=True)]
    for kind in r.sample(list(_NEUTRAL), min(count, len(_NEUTRAL))):
        modules = r.choice([list(project.pieces), [r.choice(list(project.pieces))]])
        after = project
        for m in modules:
            if project.pieces[m]:
                after = _with(after, m, _NEUTRAL[kind](list(project.pieces[m]), r))
        made.append(Edit(kind, ", ".join(modules), after, neutral=True))
    return made
