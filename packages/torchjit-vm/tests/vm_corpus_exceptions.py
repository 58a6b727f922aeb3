"""Exceptions, with statements, and effects when an exception leaves the region."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import collections
import contextlib
import traceback

from vm_corpus import N, program


class Custom(Exception):
    code = 1

    def __init__(self, message, detail=None):
        super().__init__(message)
        self.detail = detail

    def __str__(self):
        return f"custom {self.args[0]}"


class Keyed(KeyError):
    pass


class NoInit(ValueError):
    def describe(self):
        return self.args


@program(N(1))
def try_forms(x):
    out = []
    try:
        out.append(1)
    except ValueError:
        out.append("no")
    else:
        out.append("else")
    finally:
        out.append("finally")
    try:
        try:
            raise Custom("a", detail=x)
        except KeyError:
            out.append("no")
        finally:
            out.append("inner finally")
    except Custom as e:
        out.append((str(e), e.detail, e.code, e.args))
    try:
        raise Keyed("k")
    except (IndexError, LookupError) as e:
        out.append((str(e), repr(e), isinstance(e, KeyError)))
    return out


@program(N(1))
def return_in_finally(x):
    def f(n):
        try:
            if n == 0:
                return "try"
            if n == 1:
                raise ValueError
            return "late"
        except ValueError:
            return "except"
        finally:
            if n == 2:
                return "finally"

    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        return i

    return [f(0), f(1), f(2)], g(), x


@program(N(1))
def nested_raises(x):
    out = []
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise ValueError("outer") from e
    except ValueError as e:
        out.append((str(e), type(e.__cause__).__name__, e.__suppress_context__))
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise ValueError("second")
    except ValueError as e:
        out.append((type(e.__context__).__name__, e.__cause__))
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise ValueError("third") from None
    except ValueError as e:
        out.append((e.__suppress_context__, e.__cause__))
    return out


@program(N(1))
def reraise(x):
    out = []

    def f():
        try:
            raise Custom("again")
        except Custom:
            out.append("first")
            raise

    try:
        f()
    except Custom as e:
        out.append(str(e))
    try:
        raise
    except RuntimeError as e:
        out.append(str(e))
    return out


@program(N(1))
def exception_variables(x):
    try:
        raise ValueError("v")
    except ValueError as e:
        kept = e
    try:
        e
    except NameError as err:
        message = str(err)
    return kept, message, kept.args, NoInit(1, 2).describe()


# `OSError` picks its subclass.
@program(N(1), breaks=1)
def raise_classes_and_instances(x):
    out = []
    for thing in (
        ValueError,
        ValueError("a", 1),
        KeyError("k"),
        StopIteration(5),
        OSError(2, "no"),
        SystemExit(3),
        AssertionError(),
        NotImplementedError("n"),
    ):
        try:
            raise thing
        except BaseException as e:
            out.append((type(e).__name__, str(e), e.args))
    return out


@program(N(1))
def raise_wrong_things(x):
    out = []
    for thing in (5, int, None, "s"):
        try:
            raise thing
        except TypeError as e:
            out.append(str(e))
    try:
        raise ValueError from 5
    except TypeError as e:
        out.append(str(e))
    try:
        try:
            raise ValueError
        except "no":
            pass
    except TypeError as e:
        out.append(str(e))
    return out


@program([1], N(1))
def uncaught_custom(items, x):
    items.append(x)
    try:
        raise Custom("left", detail=[x])
    finally:
        items.append("finally")


@program([1])
def uncaught_chained(items):
    try:
        items[5]
    except IndexError as e:
        items.append("handled")
        raise Custom("chained") from e


@program([1], {"a": 1})
def uncaught_in_callee(items, table):
    def inner(n):
        table["n"] = n
        if n == 2:
            raise LookupError(n)
        items.append(n)

    for i in range(5):
        inner(i)


@program(N(1))
def attribute_errors(x):
    out = []
    for f in (
        lambda: (3).nope,
        lambda: [].nope,
        lambda: None.nope,
        lambda: Custom.nope,
        lambda: Custom("a").nope,
        lambda: setattr(3, "a", 1),
        lambda: delattr(Custom("a"), "zz"),
        lambda: contextlib.nope,
        lambda: (lambda: 1).nope,
        lambda: x.nope,
    ):
        try:
            f()
        except AttributeError as e:
            out.append(str(e))
    return out


@program(N(1))
def exception_groups(x):
    out = []
    try:
        raise ExceptionGroup("many", [ValueError(1), KeyError("k"), TypeError("t")])
    except* ValueError as g:
        out.append(("value", [str(e) for e in g.exceptions]))
    except* (KeyError, TypeError) as g:
        out.append(("others", len(g.exceptions)))
    return out, x


@program(N(1))
def exception_group_of_plain(x):
    out = []
    try:
        raise ValueError("alone")
    except* ValueError as g:
        out.append((type(g).__name__, str(g.exceptions[0])))
    return out


@program(N(1))
def exception_group_rest(x):
    try:
        try:
            raise ExceptionGroup("many", [ValueError(1), KeyError("k")])
        except* ValueError:
            pass
    except ExceptionGroup as g:
        return g.message, [type(e).__name__ for e in g.exceptions]


@program(N(1), breaks=4)
def exception_group_methods(x):
    g = ExceptionGroup("m", [ValueError(1), ExceptionGroup("n", [KeyError(2)])])
    a, b = g.split(ValueError)
    return a.exceptions[0].args, type(b.exceptions[0]).__name__, g.subgroup(KeyError).message


class Manager:
    def __init__(self, log, swallow=(), name="m"):
        self.log, self.swallow, self.name = log, swallow, name

    def __enter__(self):
        self.log.append((self.name, "enter"))
        return self

    def __exit__(self, kind, value, tb):
        self.log.append((self.name, kind and kind.__name__, None if value is None else str(value)))
        return isinstance(value, self.swallow)


@program(N(1), [])
def with_statements(x, log):
    with Manager(log) as m:
        log.append(m.name)
    with Manager(log, (ValueError,), "outer"), Manager(log, (), "inner"):
        raise ValueError("swallowed")
    try:
        with Manager(log, (), "through"):
            raise KeyError("k")
    except KeyError:
        log.append("caught")

    def f():
        with Manager(log, (), "ret"):
            return x

    for i in range(2):
        with Manager(log, (), i):
            if i == 0:
                continue
            break
    return f(), log


@program(N(1), [])
def with_errors(x, log):
    class_ = object()
    out = []
    for thing in (5, class_, [1]):
        try:
            with thing:
                pass
        except TypeError as e:
            out.append(str(e))

    def g():
        with Manager(log):
            raise ValueError("a")

    try:
        g()
    except ValueError as e:
        out.append(str(e))
    return out, log


class BadExit:
    def __enter__(self):
        raise ValueError("enter")

    def __exit__(self, *a):
        raise KeyError("exit")


class BadExit2(BadExit):
    def __enter__(self):
        return 1


@program(N(1))
def failing_managers(x):
    out = []
    try:
        with BadExit():
            pass
    except ValueError as e:
        out.append(str(e))
    try:
        with BadExit2():
            raise ValueError("body")
    except KeyError as e:
        out.append((str(e), str(e.__context__)))
    return out


@program(N(1), [])
def generator_managers(x, log):
    @contextlib.contextmanager
    def scope(name, swallow=None):
        log.append(("in", name))
        try:
            yield name
        except Exception as e:
            log.append(("error", type(e).__name__))
            if swallow is None or not isinstance(e, swallow):
                raise
        finally:
            log.append(("out", name))

    with scope("a") as a, scope("b"):
        log.append(a)
    with scope("c", KeyError):
        {}["z"]
    try:
        with scope("d"):
            raise ValueError(3)
    except ValueError as e:
        log.append(str(e))
    return log


@program([], N(1))
def uncaught_through_managers(log, x):
    with Manager(log, (KeyError,), "a"):
        with Manager(log, (), "b"):
            log.append(x)
            raise ValueError("out")


STATE = {"depth": 0, "value": "initial"}


class Temporarily:
    def __init__(self, **values):
        self.values = values

    def __enter__(self):
        self.before = {k: STATE[k] for k in self.values}
        STATE.update(self.values)

    def __exit__(self, *a):
        STATE.update(self.before)


@program(N(1))
def global_state_managers(x):
    with Temporarily(value="changed", depth=1):
        inside = STATE["value"]
        x = x * 2
    return inside, STATE["value"], x


@program(N(1))
def exceptions_as_control_flow(x):
    def parse(v):
        try:
            return int(v)
        except ValueError:
            try:
                return float(v)
            except ValueError:
                return None

    return [parse(v) for v in ("1", "2.5", "q")], x


@program(N(1))
def add_note_and_traceback(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        e.add_note("note")
        return e.__notes__, x


@program(N(1), breaks=None)
def traceback_of_caught(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        return e.__traceback__ is not None, x


@program(N(1), breaks=None)
def format_exception(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        return traceback.format_exception_only(e), x


@program(N(1))
def loop_with_exceptions(x):
    out = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                raise KeyError(i)
            out.append(i)
        except KeyError as e:
            out.append(e.args)
            break
        finally:
            out.append("f")
    else:
        out.append("else")
    return out


@program(N(1))
def recursion_error_free(x):
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    return depth(60), x


@program({"k": N(1)})
def finally_effects_with_uncaught(d):
    try:
        d["k"] = d["k"] + 1
        raise RuntimeError("boom")
    finally:
        d["cleanup"] = True


@program(N(1))
def exception_equality_and_identity(x):
    e = ValueError("a")
    try:
        raise e
    except ValueError as caught:
        same = caught is e
    return same, e == ValueError("a"), e.args == ("a",), [e] == [e]


@program(N(1))
def keyboard_interrupt_passes(x):
    try:
        try:
            raise KeyboardInterrupt
        except Exception:
            return "wrong"
    except BaseException as e:
        return type(e).__name__


@program(N(1), [])
def exit_stack_errors(x, log):
    with contextlib.suppress(ZeroDivisionError):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, 1)
            stack.push(lambda *exc: log.append(exc[0].__name__))
            1 / 0
    return log


def _untagged():
    pass


@program(N(1))
def errors_tell_the_missing_name(x):
    class Empty:
        __slots__ = ()

    found = []
    for act in (
        lambda: x.shape.no,
        lambda: Empty().gone,
        lambda: _untagged.tag,
        lambda: collections.nothing,
        lambda: not_there,
        lambda: Empty.gone,
    ):
        try:
            act()
        except (AttributeError, NameError) as error:
            found.append((error.name, str(error)))
    return x, found
