"""Which methods C code asks subclasses and objects for, which it passes by, and what it says where there is none."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

import copy
import enum
import functools
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from typing import Generic, NamedTuple, TypedDict, TypeVar

from vm_corpus import N, program


def errs(*fs):
    r = []
    for i, f in enumerate(fs):
        try:
            v = f()
            r.append((i, v if not hasattr(v, "__next__") else type(v).__name__))
        except Exception as e:
            r.append((i, type(e).__name__, str(e)))
    return r


class KeptList(list):
    """One that exists before the call."""

    def __iter__(self):
        yield from ("own", *list.__iter__(self))


class KeptSet(set):
    def __iter__(self):
        return iter(["own"])


class OtherItems(tuple):
    def __iter__(self):
        return iter((9, 8))


class OtherRecord(NamedTuple("OtherRecord", [("a", int), ("b", int)])):
    def __iter__(self):
        return iter((self.b, self.a))


class OtherList(list):
    def __iter__(self):
        return iter((9, 8))


class OtherDeque(deque):
    def __iter__(self):
        return iter((9, 8))


class OtherText(str):
    def __iter__(self):
        return iter("yx")


class NoItems(tuple):
    __iter__ = None


class OtherErrors(tuple):
    def __iter__(self):
        return iter([ValueError])


def taken(v):
    """By what asks for its iterator: statements, calls, functions of C."""

    def pair():
        a, b = v
        return a, b

    def ends():
        a, *_, c = v
        return a, c

    return errs(
        pair, ends, lambda: (lambda *a: a)(*v), lambda: ([*v], (*v,), {*v}), lambda: (tuple(v), list(v)), lambda: [i for i in v],
        lambda: (list(zip(v, v)), list(map(str, v)), list(enumerate(v)), max(v)), lambda: [0] + [*v], lambda: dict([v]), lambda: ",".join(map(str, v)),
        lambda: (lambda l: l.extend(v) or l)([0]), lambda: dict.fromkeys(v), lambda: bytes(v), lambda: next(iter(v)),
    )  # fmt: skip


def passed_by(v):
    """By what looks at the items themselves."""
    return errs(
        lambda: len(v), lambda: v[0], lambda: v[:1], lambda: list(reversed(v)), lambda: hash(v) == hash((1, 2)), lambda: "%s %s" % v, lambda: f"{v}",
        lambda: (v == (1, 2), v in {(1, 2): 0}, 9 in v, 1 in v), lambda: v.index(1), lambda: isinstance(1, v), lambda: [0] + v, lambda: (0,) + v, lambda: v * 2,
    )  # fmt: skip


@program(N(2.0), OtherItems((1, 2)), OtherRecord(1, 2))
def tuples_with_an_iterator_of_their_own(x, kept, record):
    return [f(v) for f in (taken, passed_by) for v in (kept, record, OtherItems((1, 2)), OtherRecord(1, 2))], x


@program(N(2.0), OtherList([1, 2]), OtherText("ab"), breaks=None)
def lists_and_texts_with_an_iterator_of_their_own(x, kept, text):
    return [f(v) for f in (taken, passed_by) for v in (kept, OtherList([1, 2]))], taken(text), list(reversed(text)), x


@program(N(2.0), OtherDeque([1, 2]), breaks=None)
def deques_with_an_iterator_of_their_own(x, kept):
    a, b = kept
    return a, b, [*kept], list(reversed(kept)), kept[0], repr(kept), x


NO_ITEMS = NoItems((1, 2))


@program(N(2.0))
def a_tuple_that_refuses_to_be_iterated(x):
    return taken(NO_ITEMS)[:6], taken(NoItems((1, 2)))[:6], len(NO_ITEMS), NO_ITEMS[0], x


@program(N(2.0), OtherErrors((TypeError, KeyError)))
def what_is_caught_are_the_items_themselves(x, kept):
    caught = []
    for classes in (kept, OtherErrors((KeyError,)), (kept, OSError)):
        try:
            raise KeyError("a")
        except classes as error:
            caught.append(type(error).__name__)
    return caught, x


@program(N(2.0), OtherRecord(1, 2), OtherList([1, 2]), breaks=None)
def copies_of_what_has_an_iterator_of_its_own(x, record, kept):
    return copy.copy(kept), copy.deepcopy(kept), copy.copy(record), copy.copy(OtherItems((1, 2))), x


@program(N(2.0), KeptSet([3, 4]))
def a_set_with_an_iterator_of_its_own_is_written_back(x, s):
    s.add(5)
    s.discard(3)
    return set.__len__(s), 3 in s, x


@program(N(2.0), KeptList([1, 2]), KeptSet([3]), breaks=1)
def kept_subclasses(x, l, s):
    print("break")
    l.append(x)
    s.add(4)
    return list(l), l[0], len(l), sorted(s), set.__len__(s), 3 in s, "own" in l


@program(N(2.0), breaks=1)
def list_subclass(x):
    class L(list):
        def __init__(s, *a, z=0):
            super().__init__(a)
            s.z = z

        def __eq__(s, o):
            return "eq"

        def __iadd__(s, o):
            s.z += 1
            return list.__iadd__(s, o)

        def __iter__(s):
            yield from ("i", *list.__iter__(s))

        def __bool__(s):
            return False

    l = L(1, 2, z=5)
    l += [x]
    return errs(
        lambda: l != 3,
        lambda: l == 3,
        lambda: "i" in l,
        lambda: 2 in l[:2],
        lambda: l.index(2),
        lambda: l[:2].count(1),
        lambda: (list(l), [*l], (*l,), tuple(l)),
        lambda: bool(l),
        lambda: (l + [4]).__class__.__name__,
        lambda: l.extend(L(7)) or l[-2:],
        lambda: sorted(L("b", "a")),
        lambda: "x".join(L("a", "b")),
        lambda: list.__len__(l),
        lambda: l[0:1],
    )


@program(N(2.0))
def dict_subclass(x):
    class D(dict):
        def keys(s):
            return ["fake"]

        def __getitem__(s, k):
            return "F" if k == "fake" else dict.__getitem__(s, k)

    class Own(D):
        def __iter__(s):
            return iter(["a"])

    d, o = D(a=1, b=x), Own(a=1)
    return errs(
        lambda: dict(d),
        lambda: {**d},
        lambda: (lambda **k: k)(**d),
        lambda: dict.keys(d),
        lambda: list(d),
        lambda: list(dict.items(d)),
        lambda: dict(o),
        lambda: {**o},
        lambda: {"z": 1, **o},
        lambda: dict.values(o),
    )


@program(N(2.0))
def set_subclass(x):
    class S(set):
        def __or__(s, o):
            return "or"

        def __and__(s, o):
            return "and"

        def __le__(s, o):
            return "le"

        def __iter__(s):
            return iter(["it"])

        def __len__(s):
            return 99

        def __contains__(s, v):
            return True

        def __eq__(s, o):
            return "eq"

        __hash__ = None

    s = S([1, 2])

    def in_place():
        t = s
        t |= {9}
        return t is s, sorted(set(s))

    return errs(
        lambda: s | {1},
        lambda: {1} | s,
        lambda: s & {1},
        lambda: s <= {1},
        lambda: s < {1},
        lambda: s == {1},
        lambda: s != {1, 2},
        lambda: s.union([3]),
        lambda: s.intersection([1]),
        lambda: s.issubset([1, 2, 3]),
        lambda: sorted(set(s)),
        lambda: frozenset(s),
        lambda: list(s),
        lambda: {*s},
        lambda: {1, 5}.union(s),
        lambda: (len(s), 7 in s, set.__contains__(s, 7)),
        lambda: ({1} & {True}, {True} & {1}, {1.0, 2} & {1, 2, 3}, {1, 2, 3}.intersection([1.0])),
        in_place,
    )


@program(N(2.0))
def atom_subclasses(x):
    class I(int):
        def __index__(s):
            return 1

        def __repr__(s):
            return f"I{int(s)}"

    class St(str):
        def __eq__(s, o):
            return str.__eq__(s, o) or o == "any"

        __hash__ = str.__hash__

    class Index:
        def __index__(s):
            return 2

    class E(enum.IntEnum):
        A = 1

    i, s = I(5), St("ab")
    return errs(
        lambda: (repr(i), f"{i}", str(i), "%s" % i),
        lambda: (int(i), type(float(i)).__name__, x * int(i)),
        lambda: ([10, 20][E.A], "ab"[E.A], range(E.A), [1, 2, 3][: E.A], [0] * E.A),
        lambda: (float(Index()), complex(Index()), [1, 2, 3][Index()]),
        lambda: ({s: 1}["ab"], {"ab": 1}[s], s == "any", s != "any"),
        lambda: (hash(UserString("hey")) == hash("hey"), {UserString("a"): 1}["a"]),
    )


@program(N(2.0))
def texts_of_containers(x):
    class S(set): ...

    class D(dict): ...

    class L(list): ...

    class Q(deque): ...

    class OD(OrderedDict): ...

    class DD(defaultdict): ...

    l = L([1])
    l.append(l)
    q = Q([1])
    q.append(q)
    d = D()
    d["d"] = d
    dd = DD(int)
    dd["d"] = dd
    everything = [
        set(), frozenset([1]), S(), S([1]), D(a=1), Q([1], 3), Q(), deque([1, 2]), OD(a=1), OrderedDict(), OrderedDict(a=1),
        defaultdict(list, {1: [2]}), DD(None, {1: 2}), Counter("aab"), {1: 2}.keys(), {1: 2}.values(), {1: {2}}.items(),
        [{1}, deque("a"), OrderedDict(b=2)], (OrderedDict(),), slice(1, 2), l, q, d, dd, ChainMap({"a": 1}), UserList([1]),
        UserDict(a=1), types.MappingProxyType({1: 2}),
    ]  # fmt: skip
    return (
        [repr(v) for v in everything],
        [str(v) for v in everything],
        [f"{v}" for v in everything],
        "%s %r" % (deque([1]), OrderedDict(a=1)),
        "{} {!r}".format(deque([1], 2), defaultdict(int)),
        ascii(["é", deque("é")]),
        x + 1,
    )


@program(N(2.0), [1, 2, 3])
def wording(x, l):
    class R: ...

    def store(where, value):
        l[where] = value

    def unpack(v):
        a, b = v

    q = deque([1, 2])
    return errs(
        lambda: store(slice(1, 2), 5),
        lambda: store(slice(None, None, 2), 5),
        lambda: store(slice(None, None, 2), [1]),
        lambda: unpack(R()),
        lambda: unpack(5),
        lambda: [*R()],
        lambda: print(*R()),
        lambda: "a" + R(),
        lambda: [1] + R(),
        lambda: R() + 1,
        lambda: q[5],
        lambda: q[1:2],
        lambda: q["a"],
        lambda: slice(1).indices(-1),
        lambda: sorted([1], reverse="a"),
        lambda: min(1, 2, default=3),
        lambda: sum([1], "a"),
        lambda: sum([], b""),
        lambda: issubclass(int, 1),
        lambda: super(R, l),
        lambda: isinstance(1, list[int]),
        lambda: isinstance(1, [int]),
        lambda: 1 in 5,
    ) + [l, x + 1]


@program(N(2.0))
def metaclass_checks(x):
    log = []

    class Meta(type):
        def __subclasscheck__(c, o):
            log.append("sub")
            return True

        def __instancecheck__(c, o):
            log.append("inst")
            return o == 5

    class A(metaclass=Meta):
        def __new__(c):
            return [x]

        def __init__(c):
            log.append("never")

    def matched(v):
        match v:
            case A():
                return "A"
        return "no"

    r = [A(), issubclass(int, A), isinstance(5, A), isinstance(6, A), matched(5), matched("z")]
    A.stored = 1
    return r, A.stored, log


@program(N(2.0), breaks=1)
def own_getattribute(x):
    class P:
        def __init__(s, v):
            s.v = v

        def __getattribute__(s, n):
            return "hk" if n == "hooked" else super().__getattribute__(n)

    class Q(P):
        @property
        def w(s):
            return super().v

    p, q = P(x), Q(x)
    print("break")
    return errs(lambda: p.hooked, lambda: q.v, lambda: q.w, lambda: super(P, q).v, lambda: vars(p))


@program(N(2.0), breaks=None)
def enums_by_number(x):
    class F(enum.Flag):
        A = enum.auto()
        B = enum.auto()
        C = A | B

    class E(enum.Enum):
        P = enum.auto()
        Q = enum.auto()
        ALSO = P

    class TD(TypedDict):
        a: int

    class G(Generic[TypeVar("T")]):
        def __init__(s, v):
            s.v = v

    return F.C.value, F.A in F.C, list(F.C) == [F.A, F.B], E.Q.value, E.ALSO is E.P, TD(a=1), G[int](x).v is x


@program(N(2.0))
def thrown_contexts(x):
    seen = []

    def chain(e):
        found = []
        while e is not None:
            found.append(repr(e))
            e = e.__context__
        return found

    def gen():
        try:
            yield 1
        except ValueError as e:
            seen.append(chain(e))
            yield 2
            raise KeyError("inside")

    def stops():
        raise StopIteration(3)
        yield

    def left():
        try:
            yield
        except GeneratorExit as e:
            seen.append(chain(e))
            raise

    try:
        raise LookupError("outer")
    except LookupError:
        g = gen()
        next(g)
        seen.append(g.throw(ValueError("thrown")))
        try:
            next(g)
        except KeyError as e:
            seen.append(chain(e))
        c = left()
        next(c)
        c.close()
    try:
        next(stops())
    except RuntimeError as e:
        seen.append((chain(e), repr(e.__cause__)))
    return seen, x + 1


@program(N(2.0), breaks=None)  # as many as this Python has fields
def fields_of_exceptions(x):
    class Own(KeyError):
        def __init__(s, a, *, k):
            super().__init__(a)
            s.k = k

    made = [
        OSError(2, "no", "f"),
        FileNotFoundError(2, "no", "f", None, "g"),
        OSError("x"),
        PermissionError(13, "p"),
        SyntaxError("m", ("f", 1, 2, "t")),
        UnicodeDecodeError("utf8", b"ab", 0, 1, "bad"),
        ImportError("m", name="n"),
        KeyError("a"),
        KeyError("a", "b"),
        StopIteration(x),
        SystemExit(3),
        Own(x, k=5),
        ExceptionGroup("g", [ValueError(1), OSError(3, "z")]),
    ]
    before = [(type(e).__name__, str(e)) for e in made[:9]] + [repr(e) for e in (*made[:9], made[-1])]
    print("break")
    after = [(type(e).__name__, str(e), e.args) for e in made[:9]] + [repr(e) for e in (*made[:9], made[-1])]
    return before, after, made[0].filename, made[4].lineno, made[9].value is x, made[11].k, made[12].exceptions


@program(N(2.0))
def wrong_fields_of_exceptions(x):
    def store(name, value):
        e = ValueError(1)
        setattr(e, name, value)
        return getattr(e, name)

    return x + 1, errs(
        lambda: store("args", 5),
        lambda: store("args", [2, 3]),
        lambda: store("__cause__", 5),
        lambda: store("__context__", ValueError),
        lambda: store("__traceback__", 5),
        lambda: store("__traceback__", None),
        lambda: OSError(2, "no").errno,
        lambda: UnicodeDecodeError(),
    )


@program(N(2.0), breaks=1)
def dict_entries_below_descriptors(x):
    log = []

    class Data:
        def __get__(s, i, t):
            log.append("get")
            return 5

        def __set__(s, i, v):
            log.append("set")

    class P:
        d = Data()

        @property
        def v(s):
            return s._v

        @v.setter
        def v(s, n):
            log.append(n)

    p = P()
    p._v = x
    p.__dict__["v"] = 9
    p.__dict__["d"] = 10
    print("break")
    return p.v is x, vars(p), log


@program(N(2.0))
def bounded_deques(x):
    q = deque([1, 2], 3)
    q += [3, 4]
    r = deque([1, 2], 3)
    r *= 2
    return q, r, x + 1


class Hidden:
    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, value):
        self._v = value


@program(N(2.0), Hidden())
def dict_entries_of_kept_objects(x, o):
    o._v = x
    o.__dict__["v"] = 9
    o.__dict__["gone"] = 1
    del o.__dict__["gone"]
    return o.v is x, vars(o)


@program(N(2.0), breaks=1)
def break_inside_a_cached_function(x):
    log = []

    @functools.lru_cache
    def twice(n):
        print(n)
        log.append(n)
        return n * 2

    return twice(3), twice(3), log, x + 1


@program(N(2.0), breaks=1)
def cycles_through_tuples(x):
    t = ([x],)
    t[0].append(t)
    q = deque([1], 3)
    q.append(q)
    d = {"t": (1,)}
    d["t"] = (d, [d])
    p = functools.partial(len, [])
    p.args[0].append(p)
    print("break")
    return t[0][1] is t, q[1] is q, d["t"][1][0] is d, p.args[0][0] is p, t[0][0] is x


@program(N(1.0), breaks=0)
def called_by_their_call_method(x):
    def f(a, b=2):
        return a + b

    return f.__call__(x), f.__call__(a=x, b=1), complex(imag=1.0), complex(real=2), x + 1
