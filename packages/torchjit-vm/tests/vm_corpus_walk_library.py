"""A second walk through containers and their subclasses, functools, contextlib, copy, inspect, typing, attributes and exceptions."""

# mypy: ignore-errors
# ruff: noqa

import contextlib
import copy
import functools
import inspect
import io
import operator
import typing
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque

from vm_corpus import N, program


GL = 5


class T:
    n = 0

    def __init__(self, v=None):
        self.v = v

    def __repr__(self):
        return f"T({self.v})"

    def __getattr__(self, k):
        if k.startswith("z"):
            return k
        raise AttributeError(k)


class LD(dict):
    def __missing__(self, k):
        return ("miss", k)

    def __setitem__(self, k, v):
        super().__setitem__(k, ("set", v))

    def update(self, *a, **k):
        for kk, v in dict(*a, **k).items():
            self[kk] = v


class LL(list):
    def append(self, v):
        super().append(("a", v))

    def __getitem__(self, i):
        return ("g", super().__getitem__(i)) if isinstance(i, int) else super().__getitem__(i)


class SS(set):
    def add(self, v):
        super().add((v, v))


class TT(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, a)

    @property
    def first(self):
        return self[0]


class OD(OrderedDict):
    pass


class CC(Counter):
    def top(self):
        return self.most_common(1)


class DD(defaultdict):
    def __missing__(self, k):
        self[k] = r = self.default_factory(k) if self.default_factory else None
        return r


@program(N(1.0), LD(a=1), LL([1]), SS([3]))
def user_containers(x, d, l, s):
    d["b"] = x
    d.update(c=2)
    d.setdefault("q", 7)
    l.append(2)
    l.extend([3])
    l += [4]
    l.insert(0, 9)
    s.add(1)
    s |= {5}
    t = TT(1, x)
    o = OD(a=1)
    o.move_to_end("a")
    c = CC("aab")
    c["z"] += 2
    dd = DD(lambda k: [k])
    dd["k"].append(1)
    n = LD()
    n["i"] = 1
    m = LL()
    m.append(0)
    return (
        d["zz"],
        d["b"],
        d.get("nope"),
        dict(d),
        l[0],
        l[1:],
        list(l),
        sorted(map(str, s)),
        t.first,
        t + (1,),
        type(t + (1,)),
        type(t[:1]),
        o,
        c.top(),
        c - Counter("a"),
        c.total(),
        dd,
        n,
        m,
        len(d),
        "a" in d,
        d == {"a": 1},
        d.pop("a"),
        {**d},
        l.index(4),
        l.count(3),
        reversed(l).__next__(),
        copy.copy(l),
        type(copy.copy(d)),
        list(d.items()),
        l == [1],
        type(l + [1]),
        type(l * 2),
        type(d | {"q": 1}),
        type(s | {1}),
        type(s.copy()),
        type(l.copy()),
    )


@program(N(1.0))
def counters(x):
    c = Counter("abracadabra")
    d = Counter(a=1, b=5)
    e = deque([1, 2, 3], maxlen=3)
    e.append(4)
    e.rotate(1)
    e.extendleft([7])
    o = OrderedDict([("a", 1), ("b", 2)])
    o.popitem(last=False)
    o["c"] = x
    f = defaultdict(list)
    f["k"].append(x)
    f["j"]
    cm = ChainMap({"a": 1}, {"a": 2, "b": x})
    cm["n"] = 4
    ch = cm.new_child({"a": 0})
    return (
        c.most_common(2),
        c + d,
        c & d,
        c | d,
        -d,
        +c,
        list(d.elements()),
        c.subtract(d),
        c,
        e,
        o,
        f,
        cm["a"],
        cm["b"] + 1,
        ch["a"],
        list(ch),
        cm.maps,
        dict(f),
        sum(d.values()),
        c == Counter("abracadabra"),
        d["nope"],
        "nope" in d,
    )


@program(N(1.0), breaks=1)
def functools_all(x):
    r = []

    class C:
        @functools.cached_property
        def cp(self):
            r.append("cp")
            return 3

        @functools.singledispatchmethod
        @classmethod
        def sd(cls, v):
            return "o"

        @sd.register
        @classmethod
        def _(cls, v: int):
            return "i"

        pm = functools.partialmethod(lambda self, a, *, k=0: (a, k), k=5)

    c = C()

    @functools.wraps(functools_all)
    def w(*a):
        "inner"
        return a

    p = functools.partial(w, 1, 2)
    q = functools.partial(p, 3)

    @functools.total_ordering
    class V:
        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            return s.v == o.v

        def __lt__(s, o):
            return s.v < o.v

    return (
        c.cp,
        c.cp,
        C.sd(1),
        C.sd("a"),
        c.pm(1),
        q(4),
        p.args,
        p.func is w,
        w.__name__,
        w.__wrapped__ is functools_all,
        functools.reduce(operator.mul, [1, 2, 3], 2),
        V(1) <= V(2),
        V(3) >= V(4),
        sorted([3, 1], key=functools.cmp_to_key(lambda a, b: b - a)),
        r,
        x,
    )


@program(N(1.0), breaks=1)
def contextlibs(x):
    log = []

    @contextlib.contextmanager
    def cm(n, swallow=False):
        log.append(("in", n))
        try:
            yield n
        except ValueError as e:
            log.append(("exc", n, str(e)))
            if not swallow:
                raise
        else:
            log.append(("ok", n))
        finally:
            log.append(("out", n))

    @cm("deco")
    def decorated(v):
        return v

    with cm(1) as a, cm(2, True) as b:
        raise ValueError("v")
    with contextlib.ExitStack() as st:
        st.enter_context(cm(3))
        st.callback(log.append, "cb")
        st.push(lambda *e: log.append(e[0]))
        k = st.pop_all()
    k.close()
    with contextlib.suppress(KeyError):
        {}["q"]
    with contextlib.nullcontext(5) as n:
        pass

    class Cl:
        def close(self):
            log.append("closed")

    with contextlib.closing(Cl()):
        pass
    with contextlib.redirect_stdout(io.StringIO()) as out:
        pass

    class D(contextlib.ContextDecorator):
        def __enter__(self):
            log.append("D")
            return self

        def __exit__(self, *e):
            log.append("/D")
            return False

    @D()
    def f():
        return 8

    return decorated(4), n, f(), log, x


@program(N(1.0), breaks=1)
def copies(x):
    t = T([1, {"a": x}])
    t.me = t
    a = copy.copy(t)
    b = copy.deepcopy(t)

    class Cp:
        def __init__(s):
            s.v = 1

        def __copy__(s):
            return "copied"

        def __deepcopy__(s, memo):
            return ("deep", len(memo) >= 0)

    class Rd:
        def __init__(s, v):
            s.v = v

        def __reduce__(s):
            return (Rd, (s.v + 1,))

    class GS:
        def __init__(s):
            s.a, s.b = 1, 2

        def __getstate__(s):
            return {"a": s.a}

        def __setstate__(s, st):
            s.a = st["a"] * 10

    l = [1, [2]]
    l.append(l)
    m = copy.deepcopy(l)
    return (
        a.v is t.v,
        b.v is t.v,
        b.me is b,
        b.v[1]["a"],
        copy.copy(Cp()),
        copy.deepcopy([Cp()]),
        copy.copy(Rd(1)).v,
        copy.copy(GS()).a,
        m[2] is m,
        copy.deepcopy({(1, 2): {3}}),
        copy.copy((1,)),
        copy.deepcopy(deque([[1]], 3)),
        copy.copy(OrderedDict(a=1)),
    )


@program(N(1.0), breaks=2)
def inspects(x):
    def f(a, b: int = 2, *c, d, e=3, **g) -> str:
        "doc"

    s = inspect.signature(f)
    ba = s.bind(1, d=4)
    ba.apply_defaults()
    return (
        str(s),
        list(s.parameters),
        s.parameters["b"].default,
        s.parameters["d"].kind.name,
        s.return_annotation,
        ba.arguments,
        ba.args,
        ba.kwargs,
        inspect.isfunction(f),
        inspect.isclass(T),
        inspect.ismethod(T().__repr__),
        inspect.getdoc(f),
        f.__annotations__,
        inspect.isgeneratorfunction(f),
        callable(f),
        inspect.getmodule(T) and 1,
        inspect.getfullargspec(f).args,
        x,
    )


@program(N(1.0), breaks=None)
def typings(x):
    TV = typing.TypeVar("TV")

    class G(typing.Generic[TV]):
        def __init__(s, v: TV):
            s.v = v

    class Pr(typing.Protocol):
        def __repr__(self): ...

    @typing.overload
    def o(a: int): ...
    def o(a):
        return a

    g = G[int](3)
    return (
        g.v,
        typing.cast(int, x) + 1,
        typing.get_origin(list[int]),
        typing.get_args(dict[str, int]),
        list[int] == list[int],
        typing.Optional[int],
        int | None,
        o(3),
        isinstance(3, int | str),
        typing.TYPE_CHECKING,
        G.__parameters__ is not None,
    )


@program(N(1.0))
def gsd(x):
    t = T(1)
    out = []
    setattr(t, "w", x)
    delattr(t, "v")
    for n in ("v", "w", "zz", "y"):
        out.append((hasattr(t, n), getattr(t, n, "D") if n != "w" else 0))
    try:
        t.y
    except AttributeError as e:
        out.append((str(e), e.name, e.obj is t))
    try:
        del t.nope
    except AttributeError as e:
        out.append(str(e))
    T.n = 5
    out.append(t.n)
    T.n = 0
    try:
        object().a = 1
    except AttributeError as e:
        out.append(str(e))
    return (
        out,
        vars(t).keys(),
        type(t) is T,
        type("X", (T,), {"k": 1})().k,
        id(t) == id(t),
        isinstance(t, (int, T)),
        issubclass(bool, int),
        t.__class__,
        t.__dict__ is vars(t),
        type(t).__mro__[1],
        repr([t, (t,), {"k": t}]),
    )


@program(N(1.0))
def exceptions_all(x):
    log = []

    class E(Exception):
        def __init__(s, a, b=2):
            super().__init__(a)
            s.b = b

        def __str__(s):
            return f"E{s.args}{s.b}"

    def f(k):
        try:
            if k == 0:
                return "ret"
            if k == 1:
                raise E("x", b=3)
            if k == 2:
                {}["k"]
            if k == 3:
                1 / 0
            if k == 4:
                raise ValueError from KeyError("c")
            if k == 5:
                assert False, "msg"
            if k == 6:
                [][1]
            if k == 7:
                int("q")
            if k == 8:
                None.foo
            if k == 9:
                raise E
            if k == 10:
                raise StopIteration(3)
            if k == 11:
                undefined_name
        except (E, KeyError) as e:
            log.append(("c", type(e).__name__, str(e), getattr(e, "b", None)))
            raise RuntimeError("wrap") from e
        except ZeroDivisionError:
            log.append("zde")
        else:
            log.append("else")
        finally:
            log.append("fin")

    out = []
    for k in range(12):
        try:
            out.append(f(k))
        except Exception as e:
            out.append(
                (
                    type(e).__name__,
                    str(e),
                    type(e.__cause__).__name__,
                    type(e.__context__).__name__,
                    e.__suppress_context__,
                )
            )
    e = ValueError("n")
    e.add_note("note1")
    try:
        raise e
    except ValueError as err:
        out.append((err.__notes__, err.with_traceback(None) is err))
    try:
        try:
            raise KeyError(1)
        finally:
            raise ValueError(2)
    except ValueError as v:
        out.append(repr(v.__context__))
    for i in range(3):
        try:
            continue
        finally:
            out.append(i)

    def g():
        try:
            return 1
        finally:
            return 2

    def h():
        for i in range(3):
            try:
                raise ValueError
            except ValueError:
                break
            finally:
                out.append("f")
        return i

    return out, log, g(), h(), x
