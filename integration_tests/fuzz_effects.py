"""Random programs that change objects, compiled once and called again after changes from outside: state must be eager's.

    uv run python integration_tests/fuzz_effects.py FIRST_SEED COUNT

Prints every program whose result, error or state differs.
"""

from __future__ import annotations

import itertools
import linecache
import random
import sys
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch

import torchjit

__all__ = ["difference"]


class Owner:
    kind: Any = 0


class Slots:
    __slots__ = ("p", "q")


class Table(dict[Any, Any]):
    pass


class Items(list[Any]):
    pass


def _state() -> Any:
    s: Any = Owner()
    s.a, s.b, s.n, s.fl = 1, None, None, 1.5
    s.l, s.d, s.st = [1, 2, 3], {"k": 1, "z": 2}, {1, 2}
    s.dq, s.od, s.dd = deque([1, 2], maxlen=4), OrderedDict(p=1, q=2), defaultdict(int)
    s.o, s.sl, s.sub, s.slist = Owner(), Slots(), Table(k=1), Items([1, 2])
    s.o.v, s.sl.p, s.sub.note = 5, 1, 1
    s.t, s.alias, s.m = torch.ones(2), s.l, torch.nn.Linear(2, 2)
    return s


VALUES: tuple[str, ...] = (
    "None", "1", "2", "0", "'k'", "x", "s.a", "s.b", "s.o", "s.l", "[1]", "{}", "(1,2)", "s.a if type(s.a) is int else 3", "x*2", "s.d.get('k')",
    "len(s.l)", "s.n", "True", "1.5", "s.o.__dict__.get('v')",
)  # fmt: skip
"""What is stored."""
STATEMENTS: tuple[str, ...] = (
    "s.a={v}", "s.b={v}", "s.o.v={v}", "s.o.w={v}", "del s.o.w", "s.l.append({v})", "s.l[0]={v}", "s.l[-1]={v}", "s.l.pop()", "s.l.insert(0,{v})",
    "s.l.clear()", "s.l[1:]=[{v}]", "s.l.reverse()", "s.l=list(s.l)", "s.l=s.l+[{v}]", "s.d['k']={v}", "s.d['n']={v}", "del s.d['k']",
    "s.d.pop('n',None)", "s.d.update(k={v},y=2)", "s.d.setdefault('k',{v})", "s.d.clear()", "s.d={{}}", "s.d=dict(s.d)", "s.d.popitem()",
    "s.d={{**s.d,'e':{v}}}", "s.dq.append({v})", "s.dq.appendleft({v})", "s.dq.popleft()", "s.dq.rotate(1)", "s.dq[0]={v}", "s.dq.extend([{v},{w}])",
    "s.od['p']={v}", "s.od.move_to_end('p')", "s.od.pop('q',None)", "s.od['r']={v}", "s.od.popitem(last=False)", "s.od.move_to_end('q',last=False)",
    "s.dd['c']+=1", "s.dd['u']", "s.dd[{k}]={v}", "s.st.add(3)", "s.st.discard(1)", "s.st|={{5}}", "s.st=s.st-{{2}}", "s.sl.p={v}", "s.sl.q={v}",
    "del s.sl.q", "s.sub['k']={v}", "s.sub.note={v}", "s.sub.pop('k',None)", "s.slist.append({v})", "s.slist[0]={v}", "s.alias.append({v})",
    "s.alias=s.l", "s.a,s.b=s.b,s.a", "s.l,s.alias=s.alias,s.l", "s.l[0],s.l[-1]=s.l[-1],s.l[0]", "s.m.note={v}", "s.m.training={v}",
    "s.m.extra=torch.ones(2)*2", "s.t.add_(1)", "s.t=s.t+1", "s.t=x", "s.t.tag={v}", "s.b=getattr(s.t,'tag',None)", "x=x+1", "s.w=x", "s.o=Owner()",
    "s.o.o=s.o", "s.o2=s.o", "Owner.kind={v}", "s.b=Owner.kind", "setattr(s,'dyn',{v})", "s.b=hasattr(s,'dyn')", "s.__dict__['g']={v}",
    "s.__dict__.pop('g',None)", "s.b=vars(s).get('g')", "G['c']={v}", "H={v}", "s.b=H", "s.b=sorted(s.d,key=str)", "s.b=[*s.l]",
    "s.b=list(s.od.items())", "s.b=[i for i in s.dq]", "x = x + (s.a if type(s.a) in (int,float) else 1)", "x = x * len(s.l)", "x = x + len(s.d)",
    "s.l.sort(key=str)", "s.l.extend(s.dq)", "s.d[{k}]=s.l", "s.l.append(s.d)", "s.t.grad={g}", "s.m.weight.grad={h}", "s.b=s.m.weight.grad is None",
    "try:\n    s.l.remove(2)\nexcept ValueError:\n    s.b='no'", "try:\n    s.d['zz']\nexcept KeyError as e:\n    s.b=str(e)",
    "torchjit.graph_break()", "if s.a:\n    s.b=2", "if s.b is None:\n    s.a=3", "for v in s.l:\n    s.c=v", "s.b=cell(x)",
    "s.b = (lambda q: q)(s.o)", "s.a = id(s.l)==id(s.alias)", "s.l += [{v}]", "s.d |= {{'m':{v}}}", "s.b = s.d.keys() & {{'k'}}", "s.fl = s.fl*2",
    "s.n = s.n or {v}", "s.b = isinstance(s.b, list)",
)  # fmt: skip
"""Lines of a program over the state `s` and a tensor `x`; `{v}` and `{w}` are values, `{k}` a key, `{g}` a gradient."""
CHANGES: tuple[str, ...] = (
    "s.a=7", "s.a=1", "s.b=5", "s.b=None", "s.l.append(9)", "s.l[:]=[1,2,3]", "s.l[0]=4", "s.d['k']=8", "s.d['n']=8", "s.d.pop('k',None)",
    "s.d.clear()", "s.o.v=6", "s.o.w=3", "s.o.__dict__.pop('w',None)", "s.dq.append(5)", "s.dq.clear() or s.dq.extend([1,2])", "s.od['p']=3",
    "s.od.move_to_end('p')", "s.od.pop('q',None)", "s.dd['c']=5", "s.st.add(1)", "s.st.discard(2)", "s.sl.p=9", "s.sl.q=9", "s.sub['k']=4",
    "s.sub.note=4", "s.slist[:]=[3]", "s.alias=[0]", "s.alias=s.l", "s.m.note=5", "s.m.training=False", "s.t=torch.ones(2)*3", "s.t.tag=4",
    "Owner.kind=3", "Owner.kind=0", "s.__dict__['g']=2", "s.__dict__.pop('g',None)", "s.__dict__.pop('dyn',None)", "G['c']=4", "G.clear()",
    "s.o=Owner();s.o.v=1", "s.d={}", "s.l=[5]", "s.fl=2.5", "s.n=4", "s.t.grad=torch.ones_like(s.t)", "s.m.weight.grad=torch.ones(2,2)", "pass",
)  # fmt: skip
"""What happens to the state between calls."""


_MEMBERS = ("p", "q")
_files = itertools.count()


def _describe(value: Any, seen: dict[int, int]) -> Any:
    """Content and aliasing as comparable data."""
    if isinstance(value, int | float | str | bool | type | None):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    members: Any = getattr(value, "__dict__", {})
    if isinstance(value, Slots):
        members = {name: getattr(value, name) for name in _MEMBERS if hasattr(value, name)}
    inside = [(name, _describe(content, seen)) for name, content in members.items()]
    content: Any = None
    if isinstance(value, torch.Tensor):
        content = value.detach().tolist(), value.requires_grad, _describe(value.grad, seen)
    elif isinstance(value, dict):
        content = [(_describe(k, seen), _describe(v, seen)) for k, v in value.items()]
    elif isinstance(value, set | frozenset):
        content = sorted(map(repr, value))
    elif isinstance(value, list | tuple | deque):
        content = [_describe(item, seen) for item in value]
    return type(value).__name__, content, inside


def _program(r: random.Random) -> str:
    lines: list[str] = []
    for _ in range(r.randint(2, 6)):
        text = r.choice(STATEMENTS).format(
            v=r.choice(VALUES),
            w=r.choice(VALUES),
            k=r.choice(["'k'", "'c'", "3"]),
            g=r.choice(["None", "s.t * 2", "torch.ones_like(s.t)"]),
            h=r.choice(["None", "torch.ones(2, 2)", "s.m.weight * 2"]),
        )
        for chance, head in ((0.2, "if s.a:"), (0.1, "with torch.no_grad():")):
            if r.random() < chance:
                text = head + "\n    " + text.replace("\n", "\n    ")
        lines += text.split("\n")
    body = "\n".join("    " + line for line in lines)
    return f"def f(s, x):\n    global H\n{body}\n    return x + 1\n"


def _run(source: str, changes: list[str], compiled: bool) -> list[Any]:
    filename = f"/effects/{next(_files)}.py"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    names: dict[str, Any] = {"torch": torch, "torchjit": torchjit, "Owner": Owner, "G": {"c": 0}, "H": None}
    exec(compile(source, filename, "exec"), names)
    function = torchjit.compile(names["f"], backend="eager") if compiled else names["f"]
    Owner.kind = 0
    names["s"], found = _state(), []
    for change in changes:
        result: Any
        try:
            result = function(names["s"], torch.ones(2)).tolist()
        except Exception as error:
            result = type(error).__name__, str(error)
        found.append((result, [_describe(o, {}) for o in (names["s"], names["G"], names["H"], Owner.kind)]))
        try:
            exec(change, names)
        except Exception as error:  # the program has made something else of what it changes
            found.append(type(error).__name__)
    return found


def difference(seed: int) -> str | None:
    """A program and its changes, if the compiled one does something else than Python; it is told by the seed."""
    r = random.Random(seed)
    source = _program(r)
    changes = [r.choice(CHANGES) for _ in range(5)]
    torch.manual_seed(0)
    want = _run(source, changes, compiled=False)
    torch.manual_seed(0)
    got = _run(source, changes, compiled=True)
    at = next((i for i, (a, b) in enumerate(zip(want, got, strict=True)) if a != b), None)
    return None if at is None else f"{source}{changes}\nat {at}:\nwant {want[at]}\ngot  {got[at]}"


def main() -> int:
    """Status 1 if something differs."""
    first, count = map(int, sys.argv[1:])
    differing = 0
    for seed in range(first, first + count):
        torchjit.reset()
        found = difference(seed)
        if found is not None:
            differing += 1
            print(f"=== seed {seed}\n{found}", flush=True)
    print(f"{count} programs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
