"""Weak references, dicts of them, and single dispatch on methods, which keeps such a dict."""

# mypy: ignore-errors
# ruff: noqa

import functools
import weakref

from vm_corpus import N, program


class K:
    def __init__(self, n=0):
        self.n = n


K1, K2 = K(1), K(2)
WK = weakref.WeakKeyDictionary({K1: 3})
WV = weakref.WeakValueDictionary({"a": K1})


@program(N(1.0))
def wk_new(x):
    d = weakref.WeakKeyDictionary()
    a, b = K(1), K(2)
    d[a] = x
    d[b] = 2
    r = [d[a] + 1, d.get(b), d.get(K1, "no"), a in d, K1 in d, len(d)]
    del d[b]
    try:
        d[b]
    except KeyError as e:
        r.append(type(e).__name__)
    r.append([k.n for k in d])
    r.append([(k.n, v) for k, v in d.items()])
    d.setdefault(b, 7)
    r.append(d.pop(b))
    d.update({K2: 5})
    r.append(sorted(k.n for k in d.keys()))
    return r


@program(N(1.0))
def wk_real(x):
    r = [WK[K1], K1 in WK, K2 in WK, WK.get(K2), len(WK), [k.n for k in WK]]
    WK[K1] = 4
    WK[K2] = x
    r += [WK[K1], WK[K2] + 1, len(WK)]
    del WK[K2]
    WK[K1] = 3
    return r


@program(N(1.0))
def wv(x):
    d = weakref.WeakValueDictionary()
    a = K(5)
    d["k"] = a
    d[3] = K1
    r = [
        d["k"].n,
        d["k"] is a,
        "k" in d,
        "z" in d,
        len(d),
        sorted(map(str, d)),
        [v.n for v in d.values()],
        d.get("q"),
        d.pop(3).n,
    ]
    try:
        d["q"]
    except KeyError as e:
        r.append(str(e))
    return r, WV["a"].n, "b" in WV, x


@program(N(1.0))
def wv_escape(x):
    d = weakref.WeakValueDictionary()
    a = K(5)
    d["k"] = a
    k = weakref.WeakKeyDictionary()
    k[a] = x
    return a, list(d.items()), list(k.items())


@program(N(1.0), breaks=1)
def wk_break(x):
    d = weakref.WeakKeyDictionary()
    a = K(5)
    d[a] = 1
    v = weakref.WeakValueDictionary()
    v["a"] = a
    print("b")
    r = len(d), d[a], v["a"] is a, x
    return r


@program(N(1.0))
def wr_errors(x):
    out = []
    for v in (3, "s", [], (), None, {}):
        try:
            weakref.ref(v)
        except TypeError as e:
            out.append(str(e))
    r = weakref.ref(K1)
    return out, r() is K1, r == weakref.ref(K1), x


class R(weakref.ref):
    __slots__ = ("tag",)

    def __new__(cls, o, cb=None, tag=0):
        s = super().__new__(cls, o, cb)
        s.tag = tag
        return s

    def __init__(self, o, cb=None, tag=0):
        super().__init__(o, cb)


@program(N(1.0))
def wr_sub(x):
    r = R(K1, tag=4)
    a = K(9)
    q = R(a, None, tag=[x])
    return r().n, r.tag, q().n, q.tag, isinstance(r, weakref.ref)


class SDM:
    @functools.singledispatchmethod
    def f(self, v):
        return "o"

    @f.register
    def _(self, v: int):
        return "i"

    @f.register(list)
    def _(self, v):
        return "l", v


@program(N(1.0))
def sdm(x):
    s = SDM()
    return s.f(1), s.f("s"), s.f([x]), s.f(True), x


class Attribute:
    def __getattr__(self, name):
        if name == "raised":
            raise AttributeError("by hand")
        return ("asked", name)

    @property
    def missing(self):
        return self.__dict__["nothing"] if False else object().gone

    @property
    def chained(self):
        raise AttributeError("first")

    @property
    def other(self):
        raise KeyError("k")


@program(N(1.0))
def property_falls_back_to_getattr(x):
    a = Attribute()
    out = [a.missing, a.chained, getattr(a, "chained"), hasattr(a, "raised"), [v.missing for v in (a,)]]
    for name in ("other", "raised"):
        try:
            getattr(a, name)
        except Exception as error:
            out.append((type(error).__name__, str(error), getattr(error, "name", None)))
    return out, x


class Held:
    pass


@program(N(2.0), [], breaks=2)
def held_by_variables_that_nothing_reads(x, log):
    objects = [Held()]
    inside = ({"k": {Held()}},)
    method = Held().__init__
    references = weakref.ref(objects[0]), weakref.ref(next(iter(inside[0]["k"]))), weakref.ref(method.__self__)
    print("break")
    log.append([r() is None for r in references])
    print("break")
    return log, [r() is None for r in references], x + 1


@program(N(2.0), {}, breaks=None)
def held_by_a_suspended_generator(x, table):
    def items():
        held = Held()
        table["reference"] = weakref.ref(held)
        yield 1
        yield 2

    suspended = items()
    next(suspended)
    print("break")
    return table.pop("reference")() is None, x + 1
