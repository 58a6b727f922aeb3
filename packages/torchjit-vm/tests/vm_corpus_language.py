"""More of the language: functions and their fields, metaclasses, operators, enumerations, patterns, texts, errors of C."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import enum
import inspect
import itertools
import math
import operator
from collections import OrderedDict, deque

from vm_corpus import N, program

Num = N


def errs(*fs):
    r = []
    for f in fs:
        try:
            v = f()
            r.append(v if not hasattr(v, "__next__") else type(v).__name__)
        except Exception as e:
            r.append((type(e).__name__, str(e)))
    return r


@program(N(2.0), breaks=2)
def signature_escapes(x):
    def g(a, b=x, *c, d=[1], **e): ...

    s = inspect.signature(g)
    return s, s.parameters["b"].default is x, str(inspect.signature(lambda q, r=1: q)), s.parameters["d"].default


@program(N(2.0))
def class_features(x):
    class M(type):
        reg = {}

        def __new__(m, n, b, d):
            c = super().__new__(m, n, b, d)
            m.reg[n] = c
            return c

        @property
        def mp(c):
            return "mp" + c.__name__

        def __call__(c, *a, **k):
            if "_inst" not in c.__dict__:
                c._inst = super().__call__(*a, **k)
            return c._inst

        def __lt__(c, o):
            return c.__name__ < o.__name__

        def __or__(c, o):
            return (c.__name__, o)

        def __repr__(c):
            return "<M " + c.__name__ + ">"

        def __hash__(c):
            return 5

        def __eq__(c, o):
            return c is o

        def __setattr__(c, n, v):
            super().__setattr__(n, v)

        def __dir__(c):
            return ["dd"]

        def __bool__(c):
            return False

    class A(metaclass=M):
        def __init__(self, v=0):
            self.v = v

    class B(A):
        x: int = 1
        y: "str"

        class Inner:
            z = 5

        def m(self):
            return __class__

        f = lambda self: (self.v, super().__init__)[0]
        locals()["dyn"] = 3
        vals = [i for i in range(3)]
        if True:
            cond = "yes"

        def __init_subclass__(cls, **k):
            cls.k = k

        def __class_getitem__(cls, i):
            return i

        def __new__(cls, *a):
            o = object.__new__(cls)
            o.n = len(a)
            return o

    class C(B, q=1):
        __slots__ = ("s",)

    a = A(x)
    a2 = A(5)
    b = B(7)
    return (
        a is a2,
        a.v,
        A.mp,
        sorted(M.reg),
        A < B,
        repr(A),
        hash(A),
        {A: 1}[A],
        bool(A),
        B.Inner.z,
        b.m() is B,
        b.f(),
        B.dyn,
        B.vals,
        B.cond,
        C.k,
        b.n,
        B.__annotations__,
        A | 3,
        errs(
            lambda: C().zz,
            lambda: type("Z", (A, int, B), {}),
            lambda: type("Q", (bool,), {}),
            lambda: object.__new__(5),
            lambda: object(1),
            lambda: B.nope,
            lambda: b.nope,
            lambda: super(A, 5),
            lambda: A.mp2,
        ),
        C.__mro__[1] is B,
    )


@program(N(2.0), breaks=2)
def f_kwdefaults(x):
    def g(a, *, b=1, c=2):
        return a + b, c

    r = [g(x)]
    g.__kwdefaults__ = {"b": 5, "c": 7}
    r.append(g(x))
    g.__kwdefaults__["c"] = 9
    r.append(g(x))
    g.__defaults__ = (x,)
    r.append(g())
    return r, g


def existing(a, b=1, *, c=3):
    return a, b, c


@program(N(2.0), breaks=None)
def f_existing_kwdefaults(x):
    try:
        existing.__defaults__ = (10,)
        existing.__kwdefaults__ = {"c": x}
        return existing(x)
    finally:
        existing.__defaults__ = (1,)
        existing.__kwdefaults__ = {"c": 3}


@program(N(2.0), breaks=1)
def f_signature(x):
    def g(a, /, b: int = 2, *args, c, d=x, **kw) -> None: ...

    s = inspect.signature(g)
    b = s.bind(1, 2, 3, c=x, z=4)
    b.apply_defaults()
    return (
        list(s.parameters),
        [str(q.kind) for q in s.parameters.values()],
        b.args,
        b.kwargs,
        s.return_annotation,
        inspect.Parameter.empty is s.parameters["a"].default,
        dict(b.arguments),
    )


@program(N(2.0))
def f_sig_errors(x):
    def g(a, b, *, c):
        return a

    r = []
    for args, kw in [
        ((), {}),
        ((1,), {}),
        ((1, 2, 3), {"c": 1}),
        ((1, 2), {}),
        ((1, 2), {"c": 1, "d": 2}),
        ((1,), {"a": 1}),
    ]:
        try:
            g(*args, **kw)
        except TypeError as e:
            r.append(str(e))
    return r, x + 1


@program(N(2.0))
def c_inside(x):
    class Meta(type):
        def __new__(m, n, b, ns, **kw):
            c = super().__new__(m, n, b, ns)
            c.kw = kw
            return c

        def __init__(c, n, b, ns, **kw):
            super().__init__(n, b, ns)

        def __call__(c, *a):
            o = super().__call__(*a)
            o.made = True
            return o

        @classmethod
        def __prepare__(m, n, b, **kw):
            return {"prep": 1}

        def __len__(c):
            return 7

        def __getattr__(c, n):
            return "meta:" + n

        def __iter__(c):
            return iter([1, 2])

        def __contains__(c, v):
            return v == 3

        def __getitem__(c, v):
            return ("item", v)

        def __instancecheck__(c, o):
            return o == 5

        def __subclasscheck__(c, o):
            return o is int

    class A(metaclass=Meta, opt=3):
        def __init__(self, v):
            self.v = v

        def __class_getitem__(cls, k):
            return ("cg", k)

    a = A(x)
    return (
        len(A),
        A.nope,
        list(A),
        3 in A,
        A[1],
        isinstance(5, A),
        isinstance(a, A),
        issubclass(int, A),
        A.prep,
        a.made,
        a.v,
        A.kw,
        a,
    )


@program(N(2.0), breaks=None)
def c_operators(x):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return V(self.v + o.v) if isinstance(o, V) else NotImplemented

        def __radd__(self, o):
            return ("radd", o)

        def __iadd__(self, o):
            self.v += 1
            return self

        def __matmul__(self, o):
            return "mm"

        def __neg__(self):
            return V(-self.v)

        def __pos__(self):
            return "pos"

        def __invert__(self):
            return "inv"

        def __abs__(self):
            return "abs"

        def __bool__(self):
            return False

        def __len__(self):
            return 3

        def __eq__(self, o):
            return isinstance(o, V) and self.v == o.v

        def __hash__(self):
            return 42

        def __lt__(self, o):
            return self.v < o.v

        def __call__(self, *a, **k):
            return a, k

        def __contains__(self, k):
            return k == 1

        def __getitem__(self, k):
            return k

        def __setitem__(self, k, v):
            self.v = (k, v)

        def __delitem__(self, k):
            self.v = ("del", k)

        def __int__(self):
            return 8

        def __float__(self):
            return 8.5

        def __index__(self):
            return 1

        def __complex__(self):
            return 1j

        def __round__(self, n=None):
            return ("round", n)

        def __trunc__(self):
            return "trunc"

        def __floor__(self):
            return "floor"

        def __ceil__(self):
            return "ceil"

        def __divmod__(self, o):
            return "dm"

        def __rdivmod__(self, o):
            return "rdm"

        def __pow__(self, o, m=None):
            return ("pow", o, m)

        def __rpow__(self, o):
            return ("rpow", o)

        def __format__(self, s):
            return "<" + s + ">"

        def __repr__(self):
            return "V!"

        def __bytes__(self):
            return b"zz"

        def __reversed__(self):
            return iter([3])

        def __iter__(self):
            return iter([1, 2])

        def __length_hint__(self):
            return 9

        def __missing__(self, k):
            return 0

    v, w = V(1), V(2)
    r = [
        v + w,
        3 + v,
        v @ w,
        -v,
        +v,
        ~v,
        abs(v),
        bool(v),
        len(v),
        v == w,
        v != w,
        hash(v),
        v < w,
        w > v,
        v(1, a=x),
        1 in v,
        v[2:3],
        v[1, ...],
        int(v),
        float(v),
        [5, 6][v],
        complex(v),
        round(v),
        round(v, 2),
        math.trunc(v),
        math.floor(v),
        math.ceil(v),
        divmod(v, 1),
        divmod(1, v),
        v**2,
        pow(v, 2, 3),
        2**v,
        f"{v:>3}",
        f"{v!r:>4}",
        str(v),
        bytes(v),
        list(reversed(v)),
        list(v),
        operator.length_hint(v),
        not v,
        bin(v),
        hex(v),
        oct(v),
        range(v),
        "ab" * v,
    ]
    v += 1
    v[3] = x
    r.append(v.v)
    del v["k"]
    r.append(v.v)
    try:
        v + 1
    except TypeError as e:
        r.append(str(e))
    try:
        v >= 1
    except TypeError as e:
        r.append(str(e))
    try:
        v - 1
    except TypeError as e:
        r.append(str(e))
    return r


class Col(enum.Enum):
    R = 1
    G = 2
    ALIAS = 1

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def _missing_(cls, v):
        return cls.R if v == "r" else None


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = enum.auto()
    AB = A | B


class In(enum.IntEnum):
    X = 1
    Y = 2


class Sx(enum.StrEnum):
    P = enum.auto()
    Q = "qq"


@program(N(2.0), breaks=None)
def c_enum(x):
    r = [
        Col.R,
        Col(2),
        Col["G"],
        Col("r"),
        Col.ALIAS is Col.R,
        list(Col),
        len(Col),
        Col.R.low,
        Col.R in Col,
        Col.R == 1,
        In.X == 1,
        In.X + In.Y,
        In.X < In.Y,
        Fl.A | Fl.B,
        Fl.AB & Fl.A,
        ~Fl.A,
        Fl.A in Fl.AB,
        bool(Fl(0)),
        Fl(3),
        Fl.AB.value,
        Sx.P,
        Sx.Q + "x",
        f"{Sx.P}",
        f"{In.X}",
        str(Col.R),
        repr(Fl.AB),
        Col.__members__["ALIAS"],
        hash(Col.R) == hash(Col.R),
        {Col.R: x}[Col(1)],
        [m.name for m in Fl],
        list(Fl.AB),
        Col.R is not Col.G,
    ]
    try:
        Col(99)
    except ValueError as e:
        r.append(str(e))
    try:
        Col.R = 3
    except AttributeError as e:
        r.append(type(e))

    class Loc(enum.Enum):
        A = x
        B = (1, 2)

        def d(self):
            return self.value

    r.append((Loc.A.d(), Loc.B.value, Loc((1, 2)).name))
    E2 = enum.Enum("E2", "U V")
    r.append((E2.U.value, E2(2).name))
    return r


@program(N(2.0), breaks=None)
def i_itertools(x):
    I = itertools
    a, b, c = I.tee(iter([1, 2, 3]), 3)
    next(a)
    next(a)
    next(b)
    r = [list(a), list(b), list(c)]
    g = I.groupby("aabbc")
    k1, g1 = next(g)
    next(g1)
    k2, g2 = next(g)
    r.append((k1, list(g1), k2, list(g2)))
    r.append([(k, [*v]) for k, v in I.groupby([1, 3, 2, 4], key=lambda v: v % 2)])
    cy = I.cycle([1, x])
    r.append([next(cy) for _ in range(3)])
    ch = I.chain([1], I.chain.from_iterable([[2], "ab"]))
    next(ch)
    r.append(list(ch))
    s = I.islice(range(10), 2, 8, 3)
    next(s)
    r.append(list(s))
    rp = I.repeat(x, 3)
    next(rp)
    r.append((list(rp), list(I.repeat(1, 0))))
    if hasattr(I, "batched"):
        r.append(list(I.batched("abcde", 2)))
    r.append(list(I.accumulate([3, 1, 2], max)))
    r.append(list(I.accumulate([x, 1, 2])))
    r.append(list(I.accumulate([], initial=x)))
    z = I.zip_longest([1, 2], [x], fillvalue=0)
    next(z)
    r.append(list(z))
    r.append(list(I.starmap(pow, [(2, 3), (3, 2)])))
    r.append(list(I.takewhile(lambda v: v < 3, I.count(1))))
    r.append(list(I.product("ab", [1, x], repeat=1)))
    r.append(list(I.permutations([1, 2, 3]))[3])
    r.append(list(I.compress("abc", [1, 0, x is x])))
    try:
        list(I.islice([1], -1))
    except ValueError as e:
        r.append(str(e))
    co = I.count(1.5, 0.5)
    r.append([next(co), next(co)])
    r.append(repr(I.count(3)))
    r.append(list(I.pairwise([1, x, 3])))
    r.append(list(I.filterfalse(None, [0, 1, 2])))
    r.append(list(I.dropwhile(bool, [1, 0, 1])))
    return r


@program(N(2.0), breaks=None)
def i_math_err(x):
    r = []
    for f in (
        lambda: math.sqrt(-1),
        lambda: math.log(0),
        lambda: 1 / 0,
        lambda: 1 % 0,
        lambda: 0**-1,
        lambda: math.factorial(-1),
        lambda: int("zz"),
        lambda: float("q"),
        lambda: int(math.inf),
        lambda: int(math.nan),
        lambda: 2.0**10000,
        lambda: [1] + (1,),
        lambda: "a" + 1,
        lambda: 1 + "a",
        lambda: None + 1,
        lambda: {} < {},
        lambda: 1 < "a",
        lambda: len(5),
        lambda: abs("a"),
        lambda: -"a",
        lambda: "%d" % "a",
        lambda: "%s %s" % (1,),
        lambda: "{} {}".format(1),
        lambda: "{a}".format(b=1),
        lambda: chr(-1),
        lambda: ord("ab"),
        lambda: round("a"),
        lambda: max([]),
        lambda: sum(["a"]),
        lambda: sorted([1, "a"]),
        lambda: hash([]),
        lambda: int(),
        lambda: isinstance(1, 5),
        lambda: issubclass(1, int),
        lambda: getattr(1, "zz"),
        lambda: (1).zz,
        lambda: object().zz,
        lambda: None.zz,
        lambda: setattr(1, "a", 1),
        lambda: (1)(),
        lambda: (1)[0],
        lambda: "a"["b"],
        lambda: [1][1.0],
        lambda: range(1.0),
        lambda: "a".join([1]),
        lambda: b"a" + "a",
        lambda: "abc".index("z"),
        lambda: [1, 2][5:]["a"],
        lambda: slice(1, 2).indices("a"),
        lambda: type("X", (5,), {}),
        lambda: super().x,
        lambda: iter(None),
        lambda: float([]),
        lambda: int([]),
        lambda: bytes([300]),
        lambda: dict(1),
        lambda: set([[]]),
        lambda: pow(2, 3, 0),
        lambda: (1, 2) < [1],
        lambda: format(1, "zz"),
        lambda: {1, 2}[0],
        lambda: divmod(1, 0),
        lambda: "x".encode("nope"),
        lambda: b"\xff".decode(),
        lambda: __import__("no_such_mod_x"),
    ):
        try:
            r.append(f())
        except Exception as e:
            r.append((type(e), str(e), e.args))
    return r, x + 1


@program(N(2.0))
def e_chain(x):
    r = []
    try:
        try:
            raise KeyError(1)
        except KeyError as e:
            raise ValueError(x) from e
    except ValueError as e:
        r.append((repr(e.__cause__), e.__suppress_context__, e.__context__ is e.__cause__))
    try:
        try:
            raise KeyError(1)
        except KeyError:
            {}["q"]
    except KeyError as e:
        r.append((e.args, repr(e.__context__), e.__cause__))
    try:
        try:
            raise KeyError(1)
        finally:
            raise TypeError("t") from None
    except TypeError as e:
        r.append((repr(e.__context__), e.__suppress_context__))
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise
    except ArithmeticError as e:
        r.append((repr(e), e.__context__))

    def f():
        try:
            return "try"
        finally:
            return "fin"

    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        else:
            return "else"
        return i

    r += [f(), g(), sys.exc_info()]
    try:
        raise ValueError("a", 1)
    except (KeyError, ValueError) as e:
        e.add_note("note")
        r.append((e.args, e.__notes__, str(e), sys.exc_info()[1] is e, sys.exc_info()[0]))
        del e
    try:
        e
    except UnboundLocalError as z:
        r.append(str(z))
    try:
        raise ValueError
    except ValueError as q:
        r.append((q.args, q.with_traceback(None) is q))
    else:
        r.append("no")
    try:
        raise 5
    except TypeError as q:
        r.append(str(q))
    try:
        raise ValueError from 5
    except TypeError as q:
        r.append((str(q), q.__cause__))
    try:
        raise
    except RuntimeError as q:
        r.append(str(q))
    try:
        try:
            1
        except 5:
            1
        else:
            raise KeyError
    except KeyError:
        r.append("ok")
    try:
        try:
            raise KeyError
        except 5:
            1
    except TypeError as q:
        r.append((str(q), repr(q.__context__)))

    class My(Exception):
        def __init__(self, a, *, code=1):
            super().__init__(a)
            self.code = code

        def __str__(self):
            return f"My<{self.code}>"

    try:
        raise My(x, code=7)
    except My as m:
        r.append((str(m), m.args, m.code, f"{m}"))
    e1 = ValueError("e1")
    try:
        raise e1
    except ValueError as q:
        r.append((q is e1, q.__traceback__ is not None))
    return r


@program(N(2.0))
def s_fstr_obj(x):
    class F:
        def __format__(self, s):
            return f"F({s})"

        def __str__(self):
            return "str"

        def __repr__(self):
            return "repr"

    class G:
        def __str__(self):
            return 5

    o = F()
    r = [
        f"{o}",
        f"{o:abc}",
        f"{o!r}",
        f"{o!s:>5}",
        str(o),
        repr([o]),
        "%s %r" % (o, o),
        "{} {!r}".format(o, o),
        f"{[o]}",
        f"{ {'a': o} }",
        f"{(1, o)}",
        format(o),
        format(o, "z"),
    ]
    try:
        str(G())
    except TypeError as e:
        r.append(str(e))
    return r, x + 1


@program(N(2.0), {"type": "a", "v": [1, 2, 3], "k": {"z": 1}}, breaks=None)
def m_match(x, d):
    class P:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def m(v):
        match v:
            case 0 | 1:
                return "01"
            case int(n) if n > 100:
                return ("big", n)
            case int() | float():
                return "num"
            case "a" as s:
                return s
            case str():
                return "str"
            case []:
                return "empty"
            case [1, *rest]:
                return ("one", rest)
            case (a, b, *_) if a == b:
                return "pair"
            case {"type": "a", "v": [first, *_], **rest}:
                return (first, rest)
            case {"x": {"y": y}}:
                return y
            case {}:
                return "map"
            case P(a=1, b=q):
                return ("P1", q)
            case P(p, [q, _]):
                return ("P", p, q)
            case None | True | False:
                return "single"
            case math.pi:
                return "pi"
            case _:
                return "dflt"

    r = [
        m(v)
        for v in (
            1,
            500,
            3,
            2.5,
            "a",
            "zz",
            [],
            [1, 2, 3],
            (4, 4, 5),
            [7],
            d,
            {"x": {"y": 2}},
            {},
            P(1, x),
            P(2, [3, 4]),
            P(3, 3),
            None,
            object,
            {1},
            x,
            range(3),
            deque([1, 2]),
            b"ab",
            OrderedDict(type="a", v=[9]),
        )
    ]

    class Bad:
        __match_args__ = ["a"]

    try:
        match Bad():
            case Bad(1):
                pass
    except TypeError as e:
        r.append(str(e))
    try:
        match 1:
            case int(1, 2):
                pass
    except TypeError as e:
        r.append(str(e))
    return r
