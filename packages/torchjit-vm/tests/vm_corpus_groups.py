"""Exception groups: making, splitting, raising in parts, and what `except*` does with them.

C makes and splits groups between two regions, and a frame with `except*` is left to CPython as a whole.
"""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from vm_corpus import N, program


class Own(ExceptionGroup):
    def __new__(cls, message, excs, code=7):
        made = super().__new__(cls, message, excs)
        made.code = code
        return made

    def derive(self, excs):
        return Own(self.message, excs, self.code + 1)


class Valued(Exception):
    def __init__(self, value):
        super().__init__("v")
        self.value = value


def tree(e):
    if isinstance(e, BaseExceptionGroup):
        return type(e).__name__, e.message, [tree(m) for m in e.exceptions], getattr(e, "__notes__", None)
    return type(e).__name__, e.args, None if e.__context__ is None else type(e.__context__).__name__


@program(N(1), breaks=2)
def group_escapes(x):
    raise ExceptionGroup("outer", [ValueError(x), ExceptionGroup("inner", [KeyError("k")])])


@program(N(1), breaks=3)
def group_is_returned(x):
    g = ExceptionGroup("outer", (ValueError(1), TypeError(2)))
    g.add_note("a note")
    return g, g.args, str(g), x


@program(N(1))
def unhandled_part_goes_on(x):
    out = []
    try:
        try:
            raise ExceptionGroup("m", [ValueError(1), ExceptionGroup("n", [KeyError(2), TypeError(3)])])
        except* KeyError as g:
            out.append(tree(g))
        finally:
            out.append("finally")
    except BaseExceptionGroup as g:
        out.append(tree(g))
    return out, x


@program(N(1))
def raised_in_a_clause(x):
    out = []
    try:
        try:
            raise ExceptionGroup("m", [ValueError(1), KeyError(2), OverflowError(3)])
        except* ValueError as g:
            raise RuntimeError("new") from g
        except* KeyError:
            raise
    except BaseExceptionGroup as g:
        out.append(tree(g))
        out.append(type(g.exceptions[0].__cause__).__name__)
    return out


@program(N(1))
def everything_raised_again(x):
    try:
        try:
            raise ExceptionGroup("m", [ValueError(1), KeyError(2)])
        except* ValueError:
            raise
        except* KeyError:
            raise
    except ExceptionGroup as g:
        return tree(g)


@program(N(1))
def group_raised_by_name(x):
    try:
        try:
            raise ExceptionGroup("m", [ValueError(1), KeyError(2)])
        except* ValueError as g:
            raise g
    except ExceptionGroup as g:
        return tree(g)


def again():
    raise


@program(N(1))
def raised_again_below(x):
    try:
        try:
            raise ExceptionGroup("m", [ValueError(1), KeyError(2)])
        except* ValueError:
            again()
    except ExceptionGroup as g:
        return tree(g)


@program(N(1))
def naked_exception(x):
    out = []
    try:
        raise ValueError(3)
    except* TypeError:
        out.append("no")
    except* ValueError as g:
        out.append((tree(g), g.exceptions[0].args))
    try:
        try:
            raise ValueError(4)
        except* TypeError:
            pass
    except ValueError as e:
        out.append(e.args)
    return out, x


@program(N(1))
def naked_exception_raised_again(x):
    try:
        try:
            raise ValueError(3)
        except* ValueError:
            raise
    except BaseException as e:
        return tree(e)


@program(N(1))
def nothing_raised(x):
    out = []
    try:
        out.append(1)
    except* ValueError:
        out.append(2)
    else:
        out.append(3)
    finally:
        out.append(4)
    return out


@program(N(1), breaks=6)
def own_class(x):
    g = Own("m", [ValueError(1), KeyError(2), TypeError(3)])
    g.add_note("kept")
    a, b = g.split((ValueError, KeyError))
    c = g.subgroup(lambda e: isinstance(e, TypeError))
    return tree(a), a.code, tree(b), b.code, tree(c), g.subgroup(OSError), type(g.derive([KeyError(1)])).__name__


@program(N(1))
def wrong_arguments(x):
    out = []
    for make in (
        lambda: ExceptionGroup("m", []),
        lambda: ExceptionGroup(1, [ValueError()]),
        lambda: ExceptionGroup("m", [1]),
        lambda: ExceptionGroup("m", [KeyboardInterrupt()]),
        lambda: ExceptionGroup("m"),
    ):
        try:
            make()
        except (TypeError, ValueError) as e:
            out.append((type(e).__name__, str(e)))
    out.append(type(BaseExceptionGroup("m", [ValueError()])).__name__)
    out.append(type(BaseExceptionGroup("m", [KeyboardInterrupt()])).__name__)
    try:
        try:
            raise ValueError
        except* ExceptionGroup:
            pass
    except TypeError as e:
        out.append(str(e))
    return out


@program(ExceptionGroup("given", [ValueError(1), KeyError(2)]), N(1), breaks=1)
def group_from_outside(g, x):
    a, b = g.split(ValueError)
    return a.message, [type(e).__name__ for e in b.exceptions], g.exceptions[0] is a.exceptions[0], x


@program(N(1))
def in_a_loop(x):
    out = []
    for i in range(3):
        try:
            raise ExceptionGroup(f"m{i}", [ValueError(i), KeyError(i)])
        except* ValueError as g:
            if i == 2:
                out.append("last")
            out.append(x + i)
        except* KeyError:
            out.append(str(i))
    return out


@program(N(3))
def exception_with_a_value(x):
    try:
        raise Valued(x)
    except Valued as e:
        return e.value, e
