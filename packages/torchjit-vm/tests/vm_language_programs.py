"""Random programs of most statements that Python has: a seed is a program, whose outer objects and notes tell what it did in which order."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from vm_language_features import FEATURES, NUMBERS, STATEMENTS, VALUES
from vm_language_prelude import PRELUDE

__all__ = ["write"]

HEAD = "    i0, i1, i2 = n, 2, 5\n    l0 = [3, 1, 2]\n    d0 = {'a': 1, 'b': n}\n    s0 = {1, 2}\n    t0 = 'text'\n    y = x + 1\n    f0 = lambda v=1, *r: v\n    g0 = counting(3)\n"
EXCEPTIONS = (
    "ValueError",
    "KeyError",
    "IndexError",
    "TypeError",
    "Custom",
    "Other",
    "ZeroDivisionError",
    "StopIteration",
    "RuntimeError",
)
CAUGHT = (
    *EXCEPTIONS,
    "Exception",
    "LookupError",
    "(KeyError, ValueError)",
    "ArithmeticError",
    "Exception",
    "BaseException",
)


class Scope:
    """Names of one function, by what they hold."""

    def __init__(self, outer: Scope | None = None, generator: bool = False) -> None:
        self.outer, self.generator = outer, generator
        self.ints: list[str] = ["i0", "i1", "i2"] if outer is None else list(outer.ints)
        self.functions: list[str] = ["f0"] if outer is None else list(outer.functions)
        self.generators: list[str] = ["g0"] if outer is None else list(outer.generators)
        self.objects: list[str] = ["o"] if outer is None else list(outer.objects)
        self.own: list[str] = list(self.ints) if outer is None else []
        self.loop = False
        self.handler = False


class Writer:
    """Writes one program; `size` bounds its statements."""

    def __init__(self, seed: int, size: int = 22) -> None:
        self.random = random.Random(seed)
        self.wide = seed % 2 == 1
        """Half of the programs have the templates of `vm_language_features` as well."""
        self.lines: list[str] = []
        self.left = size
        self.names = 0
        self.scope = Scope()

    # Choosing.

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def template(self, text: str) -> str:
        """Random parts for the `$` letters."""

        def part(found: re.Match[str]) -> str:
            parts: dict[str, Callable[[], str]] = {
                "i": lambda: self.int_(1), "c": self.cond, "l": lambda: self.list_(1), "k": self.key, "t": lambda: self.pick("t0", "'12'", "'tax'", "o.kind"),
                "x": self.leaf, "o": lambda: self.pick(*self.scope.objects), "a": lambda: self.any_(1), "s": self.iterable, "d": lambda: self.pick("d", "d0"),
                "v": lambda: "b0", "e": lambda: self.pick(*EXCEPTIONS[:5], "ZeroDivisionError"),
            }  # fmt: skip
            made = parts[found[1]]()
            return self.safe(made) if "f'" in text else made

        return re.sub(r"\$([a-z])\b", part, text)

    # Expressions.

    def int_(self, depth: int = 2) -> str:
        s = self.scope
        if self.wide and depth > 0 and self.chance(0.25):
            return self.template(self.random.choice(NUMBERS))
        simple = (self.pick(*s.ints), self.pick(*s.ints), str(self.random.randrange(-1, 5)), "n")
        if depth <= 0:
            return self.pick(*simple)
        a, b = self.int_(depth - 1), self.int_(depth - 2)
        return self.pick(
            *simple, f"len({self.list_(depth - 1)})", f"{self.list_(0)}[{b}]", f"d['{self.pick('a', 'b', 'z')}']", f"{self.pick(*s.objects)}.v",
            f"{self.pick(*s.objects)}.prop", f"({a} + {b})", f"({a} * {b})", f"({a} // {b})", f"({a} % {b})", f"({a} - {b})", f"(-{a})", f"(~{a} & 7)",
            f"({a} if {self.cond(depth - 1)} else {b})", f"sum({self.ints(depth - 1)})", f"max({a}, {b})", f"min({self.ints(depth - 1)}, default={b})",
            f"note('v', {a})", f"d.get({self.key()}, {a})", f"next({self.pick(*s.generators)})", f"next({self.pick(*s.generators)}, {a})",
            f"({self.pick(*s.ints)} := {a})" if not s.outer else a, f"{self.pick(*s.functions)}({a})", f"{self.pick(*s.functions)}(*[{a}, {b}])",
            f"{self.pick(*s.objects)}.method({a}, {b}, k={b}, **{{'z': 1}})", f"{self.pick(*s.objects)}[{a}]", f"{self.pick(*s.objects)}(*l0, a={b})",
            f"ord({self.text(depth - 1)}[0])", f"int({self.text(0)})", f"opaque({a})", f"{self.pick(*s.objects)}.fixed()", f"(lambda q, w={b}: q + w)({a})",
            f"functools.reduce(operator.add, {self.ints(depth - 1)}, {a})", f"({a} and {b})", f"({a} or {b})", f"bool({self.cond(depth - 1)})",
            f"divmod({a}, {b})[{self.pick('0', '1')}]", f"l.pop({self.pick('', '0', '-1')})", f"d.pop({self.key()}, {b})", f"d.setdefault({self.key()}, {a})",
            f"l.index({a})", f"({self.ints(0)}).count({a})", f"hash({a})", f"getattr(o, {self.pick(chr(39) + 'v' + chr(39), repr('nope'))}, {a})", "TOTAL",
            "Obj.made", f"(1 if {self.pick(*s.objects)} is o else {a})", f"int(isinstance({self.any_(depth - 1)}, {self.pick('int', 'list', 'Obj', '(str, dict)')}))",
        )  # fmt: skip

    def leaf(self, depth: int = 1) -> str:
        if depth <= 0:
            return self.pick("x", "y")
        return self.pick(
            "x", "y", f"(x + {self.int_(depth - 1)})", f"(y * {self.leaf(depth - 1)})", "y.double()", f"({self.int_(0)} - x)",
            f"(x if {self.cond(0)} else y)",
        )  # fmt: skip

    def cond(self, depth: int = 1) -> str:
        a, b, c = self.int_(depth - 1), self.int_(depth - 1), self.int_(0)
        return self.pick(
            f"{a} < {b}", f"{a} <= {b} < {c}", f"{a} != {b} == {c}", f"{a} in {self.list_(0)}", f"{self.key()} in d", f"not {self.list_(0)}", f"{a}",
            f"{a} > {b} and {b}", f"{a} == 2 or {c} > 1", f"{a} not in s0", "o is not None", f"{self.pick(*self.scope.objects)} == o", f"{a} in o",
            "l0 == l", f"any(q > {a} for q in {self.ints(0)})", f"all({self.ints(0)})", f"hasattr(o, {self.pick(repr('v'), repr('w'), repr('dyn'))})",
            f"{self.pick(*self.scope.objects)}", f"0 < note('c', {a}) < note('e', {b})", f"o < {a}",
        )  # fmt: skip

    def ints(self, depth: int = 1) -> str:
        """A list of numbers."""
        a, b = self.int_(depth - 1), self.int_(depth - 1)
        return self.pick(
            f"[{a}, {b}]",
            "l0",
            f"[q for q in range(3) if q != {a}]",
            f"[{a}] * 2",
            f"list(range({self.random.randrange(4)}))",
            "l0[1:]",
        )

    def list_(self, depth: int = 1) -> str:
        if depth <= 0:
            return self.pick("l", "l0", "l0", "o.items", "[]")
        a, b = self.int_(depth - 1), self.int_(0)
        return self.pick(
            "l", "l0", "o.items", f"[{a}, {b}]", f"[*{self.list_(0)}, {a}]", f"{self.list_(0)}[{self.pick('1:', '::-1', ':-1', '::2')}]",
            f"sorted({self.ints(0)}, key=lambda q: (q % 2, -q))", f"list({self.iterable()})", f"{self.list_(0)} + {self.list_(0)}", "list(d)",
            f"[q * {b} for q in {self.ints(0)} if q != {a}]", f"[(q, w) for q in {self.ints(0)} for w in 'ab'[:q]]", f"list(map(lambda q: q + {b}, {self.ints(0)}))",
            f"list(zip({self.iterable()}, {self.iterable()}))", "[*d.values()]", f"list(itertools.islice({self.iterable()}, 2))", f"[note('e', q) for q in {self.ints(0)}]",
            "[(lambda: q) for q in range(2)]", f"list(filter(None, {self.ints(0)}))", f"[w for w in [{a}] if (i := w) or True]",
        )  # fmt: skip

    def iterable(self) -> str:
        s = self.scope
        return self.pick(
            "l", "l0", "list(d)", "d.items()", "range(2)", "enumerate(l0)", "zip(l0, 'ab')", self.pick(*s.generators), self.pick(*s.objects), "reversed(l0)",
            "counting(2)", "delegating(2)", "counting(2, True)", f"(q + {self.int_(0)} for q in l0)", "iter(l)", "t0", "sorted(s0)", "map(note, 'ab')",
            "itertools.chain(l0, [9])", "itertools.count(i0)" if False else "deque(l0)", "itertools.product('a', l0)", "dict.fromkeys(l0)", "iter(l0.copy)" if False else "()",
            "itertools.zip_longest(l0, 'a')", "itertools.accumulate(l0)", "itertools.pairwise(l0)", "itertools.takewhile(lambda q: q != 2, l0)",
        )  # fmt: skip

    def key(self) -> str:
        return self.pick("'a'", "'b'", "'c'", "t0", "i0", "(1, n)")

    def text(self, depth: int = 1) -> str:
        if depth <= 0:
            return self.pick("t0", "'12'", "'q'", "'ab'")
        a = self.int_(depth - 1)
        return self.pick(
            "t0", f"f'{{{self.safe(a)}}}'", f"f'{{{self.safe(a)}!r:>4}}|{{t0:{{i1}}}}'", f"str({a})", "','.join(map(str, l0))", "t0.upper()", "f'{o:spec}'",
            f"'%s-%d' % (t0, {a})", f"repr({self.list_(0)})", "t0 + 'x'", f"t0[{a}:]", f"'{{}} {{k}}'.format({a}, k=t0)", "o.kind", "type(o).__name__",
            "t0.replace('t', 'a')", "repr(d)", f"t0 * {self.int_(0)}", "repr(o)", "str(s0)",
        )  # fmt: skip

    @staticmethod
    def safe(text: str) -> str:
        """Of an expression inside an f-string: without what 3.11 does not allow there."""
        return "i0" if any(c in text for c in "'\":{}!\\=") else text

    def any_(self, depth: int = 1) -> str:
        s = self.scope
        if self.wide and depth > 0 and self.chance(0.5):
            return self.template(self.random.choice(VALUES))
        return self.pick(
            self.int_(depth), self.int_(depth), self.list_(depth), self.text(depth), self.leaf(depth), "None", "l", "d", "s0", self.pick(*s.objects),
            f"({self.int_(0)}, {self.text(0)})", f"{{{self.key()}: {self.int_(0)}}}", f"{{**d, {self.key()}: {self.int_(0)}}}", "[l, l]", self.pick(*s.functions),
            f"Obj({self.int_(0)}, {self.list_(0)})", f"Sub(v={self.int_(0)})", f"{{q: {self.int_(0)} for q in {self.ints(0)}}}", f"{{q % 2 for q in {self.ints(0)}}}",
            "s0 | {7}", "s0 & {1, 2}", "Counter(l0)", "o.method", "o.dyn", f"slice({self.int_(0)})", "Obj.build(4)", "type(o)", f"x if {self.cond(0)} else None",
        )  # fmt: skip

    # Statements.

    def block(self, depth: int, least: int = 1) -> None:
        before = len(self.lines)
        for _ in range(self.random.randrange(least, 4)):
            if self.left <= 0:
                break
            self.statement(depth)
        if len(self.lines) == before:
            self.add(depth, "pass")

    def statement(self, depth: int) -> None:
        self.left -= 1
        if self.wide and self.chance(0.5):
            for line in self.template(self.random.choice(STATEMENTS)).split("\n"):
                self.add(depth, line)
            return
        kinds = (
            ["assign"] * 5
            + ["effect"] * 6
            + ["raise", "leave", "unpack", "unpack", "augment", "augment", "delete", "generator"]
        )
        if depth < 5:
            kinds += [
                "if",
                "if",
                "for",
                "for",
                "try",
                "try",
                "try",
                "try",
                "with",
                "with",
                "while",
                "match",
                "match",
                "def",
                "def",
                "generator_def",
                "class",
            ]
        getattr(self, "write_" + self.random.choice(kinds))(depth)

    def store(self, name: str) -> str:
        return name if name in self.scope.own or self.scope.outer is None else "w0"

    def write_assign(self, depth: int) -> None:
        target = self.random.choice(
            ["int"] * 5
            + [
                "leaf",
                "leaf",
                "l0",
                "t0",
                "d",
                "d",
                "attr",
                "attr",
                "item",
                "slice",
                "oitem",
                "prop",
                "multi",
                "class",
                "s0",
                "G",
                "d0",
                "TOTAL",
            ]
        )
        own = self.scope.outer is None
        if target == "int":
            self.add(depth, f"{self.pick(*self.scope.own) if self.scope.own else 'w0'} = {self.int_(3)}")
        elif target == "leaf" and own:
            self.add(depth, f"{self.pick('x', 'y')} = {self.leaf(2)}")
        elif target == "l0" and own:
            self.add(depth, f"l0 = {self.ints(2)}")
        elif target == "s0" and own:
            self.add(
                depth,
                f"s0 = {self.pick('set(l0)', 's0 | {4}', 's0 - {1}', '{*s0, i0}', '{q for q in l0}', 's0 ^ {1}')}",
            )
        elif target == "t0" and own:
            self.add(depth, f"t0 = {self.text(2)}")
        elif target == "d0" and own:
            self.add(
                depth,
                f"d0 = {self.pick('dict(d)', '{**d, **d0}', 'd | d0', '{k: v for k, v in d.items()}', 'dict(a=i0)', 'OrderedDict(d)')}",
            )
        elif target == "attr":
            self.add(
                depth,
                f"{self.pick(*self.scope.objects)}.{self.pick('v', 'w', 'items')} = {self.pick(self.int_(2), self.int_(1), self.list_(1), self.leaf())}",
            )
        elif target == "item":
            self.add(depth, f"{self.list_(0)}[{self.int_(1)}] = {self.any_(1)}")
        elif target == "slice":
            self.add(depth, f"l[{self.pick(':1', '1:', '::2', ':', '5:')}] = {self.list_(1)}")
        elif target == "oitem":
            self.add(depth, f"{self.pick(*self.scope.objects)}[{self.int_(1)}] = {self.any_(1)}")
        elif target == "prop":
            self.add(depth, f"{self.pick(*self.scope.objects)}.prop = {self.int_(2)}")
        elif target == "multi":
            self.add(depth, f"{self.pick('o.v', 'd[i0]', 'l[0]')} = {self.pick('o.w', 'd[t0]', 'w0')} = {self.any_(1)}")
        elif target == "class":
            self.add(
                depth,
                f"{self.pick('Obj', 'Sub', 'type(o)')}.{self.pick('kind', 'extra')} = {self.pick(self.int_(1), self.text(1))}",
            )
        elif target == "G":
            self.add(depth, f"G[{self.key()}] = {self.any_(1)}")
        elif target == "TOTAL" and own:
            self.add(depth, f"TOTAL = {self.int_(2)}")
        else:
            self.add(depth, f"d[{self.key()}] = {self.any_(2)}")

    def write_augment(self, depth: int) -> None:
        own = self.scope.outer is None
        options = [
            f"d[{self.key()}] += {self.int_(2)}",
            f"o.v += {self.int_(2)}",
            f"l[{self.int_(1)}] *= {self.int_(1)}",
            "G['count'] += 1",
            f"o.items += {self.list_(1)}",
        ]
        if self.scope.own:
            options.append(f"{self.pick(*self.scope.own)} {self.pick('+', '-', '*', '//', '|', '<<')}= {self.int_(2)}")
        if own:
            options += [
                f"l0 += itertools.islice({self.iterable()}, 4)",
                "t0 += 'z'",
                f"y += {self.leaf()}",
                "s0 |= {8}",
                f"x *= {self.int_(0)}",
                "TOTAL += 1",
                "d0 |= {'n': n}",
                "l0 *= 2",
            ]
        self.add(depth, self.random.choice(options))

    def write_effect(self, depth: int) -> None:
        v = self.any_(2)
        self.add(
            depth,
            self.pick(
                f"l.append({v})", f"note('s', {v})", f"note('s', {v})", f"l.insert({self.int_(1)}, {v})", f"l.extend(itertools.islice({self.iterable()}, 4))", f"d.update({{{self.key()}: {v}}})",
                f"d.update(k={v})", "d.clear()", "l.reverse()", "l0.sort()", "l0.sort(key=lambda q: -q)", f"s0.add({self.int_(1)})", f"s0.discard({self.int_(1)})",
                f"s0.remove({self.int_(1)})", "l.clear()", f"o.items.append({v})", f"print({self.int_(2)}, {self.text()}, sep='-')", f"setattr(o, 'w', {v})",
                f"opaque({v})", "d.popitem()", f"o.method(*{self.list_(0)}, **d0)", f"note('s', {self.leaf()})", f"l.remove({self.int_(1)})",
                f"assert {self.cond()}, {self.text()}", f"o += {self.int_(1)}" if self.scope.outer is None else "pass", "note('t', sorted(d0.items(), key=str))",
                f"list({self.iterable()})", f"note('u', [*{self.iterable()}])", f"note('g', {self.list_(2)})", "note('vars', sorted(vars(o)))",
                f"logged({self.pick(*self.scope.functions)})({self.int_(1)})", f"{self.pick(*self.scope.functions)}()", f"{self.pick(*self.scope.functions)}(1, 2, 3)",
                "note('x', x is y)", "d['self'] = d", f"note('cmp', {self.cond(2)})", f"if y > {self.int_(0)}: note('leaf')",
            ),
        )  # fmt: skip

    def write_generator(self, depth: int) -> None:
        g = self.pick(*self.scope.generators)
        self.add(
            depth,
            self.pick(
                f"note('next', next({g}))", f"note('send', {g}.send({self.int_(1)}))", f"note('throw', {g}.throw({self.pick(*EXCEPTIONS)}))", f"{g}.close()",
                f"note('rest', list({g}))", f"l.append({g})", f"G['g'] = {g}", f"a0, *b0 = {g}; note('ab', (a0, b0))", f"note('in', {self.int_(1)} in {g})",
                f"o.gen = {g}", f"note('next', next({g}, None))", f"g0 = {self.pick('counting(3)', 'delegating(2)', '(q for q in l)', 'counting(2, True)')}" if self.scope.outer is None else "pass",
            ),
        )  # fmt: skip

    def write_raise(self, depth: int) -> None:
        kind = self.pick(*EXCEPTIONS)
        text = self.pick(
            f"raise {kind}({self.int_(1)})",
            f"raise {kind}({self.text()})",
            f"raise Custom({self.int_(1)}) from KeyError('k')",
            "raise ValueError from None",
        )
        if self.scope.handler and self.chance(0.5):
            text = self.pick("raise", "raise", f"raise {kind}('again') from error" if kind != "Custom" else "raise")
        self.add(depth, text if self.chance(0.25) else f"if {self.cond()}: {text}")

    def write_leave(self, depth: int) -> None:
        options = [f"return {self.any_(1)}"]
        if self.scope.generator:
            options = [
                f"yield {self.any_(1)}",
                f"w0 = yield {self.int_(1)}",
                f"yield from {self.iterable()}",
                "return w0",
            ]
        if self.scope.loop:
            options += ["break", "continue", "break", "continue"]
        text = self.random.choice(options)
        self.add(depth, text if text.startswith(("yield", "w0")) else f"if {self.cond()}: {text}")

    def write_unpack(self, depth: int) -> None:
        own = self.scope.own or ["w0"]
        a, b = self.pick(*own), self.pick(*own)
        self.add(
            depth,
            self.pick(
                f"{a}, {b} = {self.list_(1)}", f"{a}, *rest = {self.iterable()}; note('rest', rest)", f"({a}, [{b}, *_]), w0 = ({self.int_(1)}, {self.list_(1)}), {self.int_(1)}",
                f"{a}, {b} = {b}, {a}", f"*_, {a} = {self.iterable()}", f"l[0], d['u'] = {self.int_(1)}, {self.int_(1)}", f"o.v, (o.w, *l[:1]) = 1, {self.list_(1)}",
                f"[{a}, {b}] = {self.int_(1)}, {self.int_(2)}", f"{a}, {b} = {self.iterable()}", f"for {a}, w0 in enumerate({self.list_(0)}): pass",
            ),
        )  # fmt: skip

    def write_delete(self, depth: int) -> None:
        target = self.pick("l[0]", f"d[{self.key()}]", "o.w", "o[0]", "l[1:]", "G['count']", "l[::2]", "o.v")
        if self.scope.own and self.scope.outer is None and self.chance(0.15):
            target = self.pick(*self.scope.own)
        self.add(depth, f"del {target}")

    def write_if(self, depth: int) -> None:
        self.add(depth, f"if {self.cond(2)}:")
        self.block(depth + 1)
        if self.chance(0.3):
            self.add(depth, f"elif {self.cond()}:")
            self.block(depth + 1)
        if self.chance(0.4):
            self.add(depth, "else:")
            self.block(depth + 1)

    def looped(self, depth: int) -> None:
        before, self.scope.loop = self.scope.loop, True
        self.block(depth)
        self.scope.loop = before

    def write_for(self, depth: int) -> None:
        target = self.pick(self.pick(*self.scope.own) if self.scope.own else "w0", "w0", self.fresh("v"))
        self.add(depth, f"for {target} in {self.iterable()}:")
        self.add(depth + 1, "if len(l) > 9 or len(l0) > 20: break")
        self.looped(depth + 1)
        if self.chance(0.25):
            self.add(depth, "else:")
            self.block(depth + 1)

    def write_while(self, depth: int) -> None:
        name = self.fresh("c")
        self.add(depth, f"{name} = {self.random.randrange(1, 4)}")
        self.add(depth, f"while {name}{self.pick('', '', ' and ' + self.cond())}:")
        self.add(depth + 1, f"{name} -= 1")
        self.looped(depth + 1)
        if self.chance(0.25):
            self.add(depth, "else:")
            self.block(depth + 1)

    def write_try(self, depth: int) -> None:
        self.add(depth, "try:")
        self.block(depth + 1)
        if self.chance(0.5):
            self.add(
                depth + 1,
                self.pick(
                    "d['zz']",
                    "[][n]",
                    "int('q')",
                    "1 // 0",
                    "o.nope",
                    "note(None)()",
                    "raise Other(3)",
                    "raise Custom(1, 2)",
                    "next(iter(()))",
                    "None + n",
                    "undefined_name",
                ),
            )
        form = self.random.randrange(10)
        if form == 0:
            self.add(depth, "finally:")
            self.block(depth + 1)
            return
        star = "*" if form == 1 else ""
        before, loop, self.scope.handler = self.scope.handler, self.scope.loop, True
        outer = self.scope.generator
        for _ in range(self.random.randrange(1, 3)):
            self.add(depth, f"except{star} {self.pick(*CAUGHT)} as error:")
            self.add(
                depth + 1, "note('caught', (type(error), error.args, type(error.__context__), type(error.__cause__)))"
            )
            if star:
                self.add(depth + 1, f"note('in group', {self.int_(1)})")
            else:
                self.block(depth + 1)
        self.scope.handler, self.scope.loop, self.scope.generator = before, loop, outer
        if self.chance(0.25):
            self.add(depth, "else:")
            self.block(depth + 1)
        if self.chance(0.35):
            self.add(depth, "finally:")
            self.block(depth + 1)

    def write_with(self, depth: int) -> None:
        manager = self.pick(
            "scope(1)",
            "scope(2, LookupError)",
            "scope(3, (ValueError, ZeroDivisionError))",
            "Obj(3)",
            "Obj(2)",
            "o",
            "contextlib.suppress(LookupError)",
            "contextlib.nullcontext(4)",
            f"contextlib.closing({self.pick(*self.scope.generators)})",
            "contextlib.ExitStack()",
        )
        second = self.pick("", "", ", scope(5) as w0", ", Obj(i0)")
        self.add(depth, f"with {manager} as entered{second}:")
        if "ExitStack" in manager:
            self.add(
                depth + 1,
                self.pick(
                    "entered.callback(note, 'callback')",
                    "entered.enter_context(scope(6))",
                    "entered.push(lambda *e: note('pushed', e[0]))",
                ),
            )
        self.block(depth + 1)

    def write_match(self, depth: int) -> None:
        self.add(depth, f"match {self.any_(2)}:")
        captured = self.pick(*self.scope.own) if self.scope.own else "w0"
        cases = [
            f"case int() as {captured} if {captured} > 1", f"case [{captured}, *rest]", "case {'a': w0, **rest}", "case Obj(v=w0)", "case Sub(w0, [])", "case str() | None",
            "case (1 | 2 | 3) as w0", "case [_, (w0, 'ab')]", "case 0", "case {'b': 1}", "case []", f"case w0 if {self.cond()}", "case list(w0)", "case bool()", "case 'ab'",
        ]  # fmt: skip
        for case in self.random.sample(cases, self.random.randrange(1, 4)):
            self.add(depth + 1, case + ":")
            self.add(depth + 2, f"note('case', {case!r})")
            self.block(depth + 2)
        if self.chance(0.5):
            self.add(depth + 1, "case _:")
            self.block(depth + 2)

    def function(self, depth: int, head: str, generator: bool) -> None:
        """The body of a function below `head`; its parameter `p` is a number."""
        self.add(depth, head)
        outer, self.scope = self.scope, Scope(self.scope, generator)
        self.scope.ints = [*outer.ints, "p"]
        self.scope.own = ["p"]
        mine = (
            []
            if outer.outer is not None or not outer.own
            else self.random.sample(outer.own, 1 if self.chance(0.5) else 0)
        )
        if mine:
            self.add(depth + 1, f"nonlocal {mine[0]}")
            self.scope.own = ["p", *mine]
        self.add(depth + 1, "w0 = 1")
        self.block(depth + 1)
        if generator:
            self.add(depth + 1, f"yield {self.int_(1)}")
        self.add(depth + 1, f"return {self.any_(1)}" if self.chance(0.4) else f"return {self.int_(2)}")
        self.scope = outer

    def write_def(self, depth: int) -> None:
        if self.scope.outer is not None and self.scope.outer.outer is not None:
            return self.write_effect(depth)
        name = self.fresh("f")
        if self.chance(0.25):
            self.add(depth, "@logged")
        parameters = self.pick(
            "p=1",
            "p=2, *args, k=3, **kw",
            "p=i0, *args",
            "p, /, b=2, *args",
            "*args, p=3, **kw",
            "p=0, *a",
            f"p={self.int_(1)}, *a",
        )
        self.function(depth, f"def {name}({parameters}):", generator=False)
        if depth == 1 or self.chance(0.3):
            self.add(depth, f"note('{name}', {name}({self.int_(1)}))")
        if depth == 1:
            self.scope.functions.append(name)
        return None

    def write_generator_def(self, depth: int) -> None:
        if self.scope.outer is not None and self.scope.outer.outer is not None:
            return self.write_generator(depth)
        name, made = self.fresh("gf"), self.fresh("g")
        before = len(self.lines)
        self.function(depth, f"def {name}(p=2):", generator=True)
        blocks = any(line.lstrip().startswith(("try", "with")) for line in self.lines[before:])
        called = f"{name}({self.int_(1)})"
        self.add(depth, f"{made} = keep({called})" if blocks else f"{made} = {called}")
        if depth == 1:
            self.scope.generators.append(made)
        else:
            self.add(
                depth,
                self.pick(
                    f"note('all', list({made}))",
                    f"note('one', next({made}))",
                    f"for w0 in {made}: note('w', w0)",
                    f"G['made'] = {made}",
                ),
            )
        return None

    def write_class(self, depth: int) -> None:
        if self.scope.outer is not None:
            return self.write_effect(depth)
        name, made = self.fresh("C"), self.fresh("o")
        self.add(depth, f"class {name}({self.pick('Obj', 'Sub', 'Obj')}):")
        self.add(depth + 1, f"size = {self.int_(1)}")
        for _ in range(self.random.randrange(1, 3)):
            head = self.pick(
                "def __getitem__(self, p):", "def method(self, p=1, *a, **kw):", "def __call__(self, p=1, *a, **kw):", "def __eq__(self, p):", "def __len__(self, p=1):",
                "def __enter__(self, p=1):", "def __exit__(self, p=1, *a):", "def __contains__(self, p):", "def __add__(self, p):", "def __getattr__(self, p):", "def __bool__(self, p=1):",
            )  # fmt: skip
            own, self.scope.own = self.scope.own, []
            self.function(depth + 1, head, generator=False)
            self.scope.own = own
        self.add(depth, f"{made} = {name}({self.int_(1)}, {self.list_(0)})")
        if depth == 1:
            self.scope.objects.append(made)
        else:
            self.add(depth, f"note('made', {made}.method({self.int_(1)}))")
        return None

    def source(self) -> str:
        self.block(1, 3)
        while self.left > 0:
            self.block(1)
        body = "\n".join(self.lines)
        return f"{PRELUDE}{FEATURES if self.wide else ''}def program(x, n, l, d, o):\n    global TOTAL, TOTAL_2\n    w0 = 0\n{HEAD}{body}\n    return x, y, i0, i1, i2, l0, d0, s0, t0, w0\n"


def write(seed: int, size: int = 22) -> str:
    """The program of a seed: `program(x, n, l, d, o)`, and `LOG`, `G`, `TOTAL` and the classes that it changes."""
    return Writer(seed, size).source()
