"""What the random programs of `vm_language_programs` find in their module."""

from __future__ import annotations

__all__ = ["PRELUDE"]

PRELUDE = """
import contextlib, functools, itertools, operator, sys
from collections import Counter, OrderedDict, defaultdict, deque

LOG = []
KEPT = []
G = {"count": 0}
TOTAL = 0

def note(tag, value=None):
    LOG.append((tag, value))
    return value

class Custom(Exception):
    def __init__(self, code, *rest):
        super().__init__("custom", code)
        self.code = code

class Other(Custom, KeyError):
    pass

class Obj:
    kind = "obj"
    made = 0
    def __init__(self, v=1, items=()):
        self.v = v
        self.items = list(items)
        Obj.made += 1
    @property
    def prop(self):
        note("prop")
        return self.v
    @prop.setter
    def prop(self, value):
        note("set prop", value)
        self.v = value
    def method(self, a, *rest, k=2, **kw):
        return note("method", (a, rest, k, sorted(kw)))[0]
    @classmethod
    def build(cls, v):
        return cls(v, [v])
    @staticmethod
    def fixed(a=3):
        return a
    def __len__(self):
        note("len")
        return len(self.items)
    def __bool__(self):
        note("bool")
        return self.v != 0
    def __getitem__(self, key):
        note("getitem", key)
        return self.items[key]
    def __setitem__(self, key, value):
        note("setitem", key)
        self.items[key] = value
    def __delitem__(self, key):
        del self.items[key]
    def __contains__(self, value):
        note("contains", value)
        return value in self.items
    def __iter__(self):
        note("iter")
        for item in self.items:
            yield item
    def __add__(self, other):
        note("add")
        if isinstance(other, Obj):
            return Obj(self.v, self.items + other.items)
        return NotImplemented
    def __radd__(self, other):
        note("radd", type(other).__name__)
        return other
    def __iadd__(self, other):
        if len(self.items) < 20:
            self.items.append(other)
        return self
    def __eq__(self, other):
        note("eq")
        return isinstance(other, Obj) and self.items == other.items
    def __lt__(self, other):
        note("lt")
        return self.v < getattr(other, "v", other)
    def __hash__(self):
        return 7
    def __call__(self, *args, **kw):
        return note("call", len(args) + len(kw))
    def __enter__(self):
        note("enter", self.v)
        return self
    def __exit__(self, kind, value, tb):
        note("exit", kind and kind.__name__)
        return self.v == 3 and kind is not None and issubclass(kind, LookupError)
    def __getattr__(self, name):
        if name.startswith("dyn"):
            return note("getattr", name)
        raise AttributeError(name)
    def __format__(self, spec):
        return f"<{spec}:{self.v}>"
    def __repr__(self):
        return f"Obj({self.v!r})"

class Sub(Obj):
    kind = "sub"
    __match_args__ = ("v", "items")
    def method(self, a, *rest, **kw):
        return super().method(a, *rest, **kw)
    @property
    def prop(self):
        return super().prop

@contextlib.contextmanager
def scope(tag, swallow=()):
    note("in", tag)
    try:
        yield tag
    except swallow as error:
        note("swallowed", type(error).__name__)
    else:
        note("no error")
    finally:
        note("out", tag)

def counting(stop, fail=False):
    got = None
    try:
        for i in range(stop):
            got = yield i if got is None else got
            note("got", got)
        if fail:
            raise Custom(stop)
        return stop
    except (ValueError, LookupError) as error:
        note("gen caught", type(error).__name__)
        yield -1
    finally:
        if not isinstance(sys.exc_info()[1], GeneratorExit):  # when a generator is let go of is not compared
            note("gen done")

def delegating(stop):
    result = yield from counting(stop)
    note("result", result)
    yield result
    yield from [5, 6]

def logged(function):
    @functools.wraps(function)
    def inner(*args, **kw):
        note("before", function.__name__)
        try:
            return function(*args, **kw)
        finally:
            note("after")
    return inner

def keep(generator):
    KEPT.append(generator)
    return generator

def opaque(value=None):
    return value

"""
