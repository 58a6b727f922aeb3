"""Containers: every method of the built-in ones, the collections module, and user subclasses of them."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import collections
import collections.abc
import copy
import datetime
import types
from fractions import Fraction
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque

from vm_corpus import N, program


# The leaf kind of these tests cannot compare.
@program([3, 1, 2], N(1), breaks=1)
def list_all_methods(a, x):
    a.append(x)
    a.extend((4, 5))
    a.insert(0, 9)
    a.insert(-1, 8)
    a.insert(100, 7)
    p = a.pop(), a.pop(0), a.pop(-2)
    a.remove(1)
    i = a.index(2)
    c = a.count(3)
    b = a.copy()
    b.reverse()
    a += [1]
    a *= 2
    return p, i, c, b, len(a), a[-1], a[1:3], a[::-1], a[::2], [1] * 3, 2 * [x], [1] + [x], b == b.copy(), b != []


@program([3, 1, 2])
def list_errors(a):
    out = []
    for f in (
        lambda: a[10],
        lambda: a.index(99),
        lambda: a.remove(99),
        lambda: [].pop(),
        lambda: a.pop(7),
        lambda: a["x"],
        lambda: a.__setitem__(9, 1),
        lambda: a.insert("q", 1),
        lambda: a + (1,),
        lambda: [1] < ["a"],
        lambda: a.__delitem__(5),
    ):
        try:
            f()
            out.append("none")
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program([3, 1, 2, 5, 4], N(1))
def list_slices(a, x):
    b = a[:]
    b[1:3] = [x, x, x]
    b[::3] = [7, 8]
    del b[0]
    del b[1:2]
    b[:0] = [0]
    b[-1] = -1
    c = [0, 1, 2, 3, 4]
    del c[::2]
    try:
        c[::2] = [1, 2, 3]
    except ValueError as e:
        c.append(str(e))
    return b, c, a


@program([3, 1, 2], ["b", "A", "c"])
def sorting(a, words):
    a.sort()
    words.sort(key=str.lower, reverse=True)
    pairs = sorted([(2, "b"), (1, "z"), (2, "a")], key=lambda p: p[0])
    return (
        a,
        words,
        pairs,
        sorted({3: 1, 1: 2}),
        sorted("hello"),
        sorted([1, 2, 3], key=lambda v: -v),
        min(a, key=lambda v: -v),
        max(words, key=len),
        max([], default=4),
        min(3, 1),
    )


@program([N(3), N(1)])
def sort_leaves_by_constant_key(items):
    order = {0: "b", 1: "a"}
    indexed = sorted(range(2), key=order.get)
    return [items[i] for i in indexed]


@program([1, [2, [3]]], N(1))
def nested_lists(a, x):
    a[1][1].append(x)
    b = copy.copy(a)
    c = copy.deepcopy(a[1][1][:1])
    b[1] = 5
    a[1][0] += 10
    return a, b, c


@program({"a": 1, "b": 2}, N(1))
def dict_all_methods(d, x):
    out = [
        d.get("a"),
        d.get("z"),
        d.get("z", x),
        d.pop("a"),
        d.pop("z", 0),
        d.setdefault("q", []),
        d.setdefault("b", 9),
    ]
    d["q"].append(x)
    d.update({"b": 3}, k=4)
    d.update([("m", 5)])
    d |= {"n": 6}
    e = d | {"o": 7}
    out += [
        list(d),
        list(d.values()),
        list(d.items()),
        d.popitem(),
        len(d),
        "b" in d,
        list(reversed(d)),
        dict(d),
        dict(a=1, **{"c": 2}),
        {**d, "zz": 1},
    ]
    f = d.copy()
    f.clear()
    del d["b"]
    return (
        out,
        e,
        f,
        d == dict(d),
        d.keys() & {"q"},
        d.keys() - {"q"},
        d.keys() | {"r"},
        dict.fromkeys("ab", 0),
        dict(zip("ab", (1, 2))),
    )


@program({"a": 1})
def dict_errors(d):
    out = []
    for f in (
        lambda: d["z"],
        lambda: d.pop("z"),
        lambda: {}.popitem(),
        lambda: {[]: 1},
        lambda: d.update(3),
        lambda: d.__delitem__("z"),
        lambda: dict([1]),
        lambda: dict([(1, 2, 3)]),
        lambda: {}[None],
        lambda: d < d,
        lambda: {**3},
        lambda: d | 3,
    ):
        try:
            f()
            out.append("none")
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program({"a": 1, "b": 2})
def dict_changes_during_iteration(d):
    seen = []
    try:
        for k in d:
            seen.append(k)
            d[k + "x"] = 1
    except RuntimeError as e:
        seen.append(str(e))
    for k in list(d):
        if k.endswith("x"):
            del d[k]
    return seen, d


# The comparison of a leaf breaks, and views of real dicts are opaque after that.
@program({"a": 1, "b": N(2)}, breaks=None)
def dict_views(d):
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    out = [
        len(keys),
        list(keys),
        list(values)[0],
        "c" in keys,
        3 in values,
        ("a", 1) in items,
        keys == {"a", "b", "c"},
        isinstance(keys, collections.abc.KeysView),
    ]
    del d["a"]
    return out, list(items), [k for k, v in items], next(iter(keys)), keys.isdisjoint({"z"})


@program({2: "i", "s": 1, 1.5: 2, None: 3, (1, "t"): 4, True: 5}, N(1))
def dict_key_kinds(d, x):
    d[1] = 6
    d[2.0] = 7
    d[(1, "t")] = x
    d[frozenset({1})] = 8
    d[b"b"] = 9
    d[int] = 10
    d[len] = 11
    return d[True], d[2], d[frozenset([1])], list(map(type, d)), d.get((1, "u"), "no"), d[int]


class Text(str):
    pass


class Length(float):
    pass


# In tuples, which the runs share: what such a key rests on is the object itself.
KEYS = Text("ab"), Length(2.0), datetime.date(2020, 1, 1), Fraction(1, 2)
BY_VALUE = {"ab": 1, 2: 2, datetime.date(2020, 1, 1): 3, Fraction(1, 2): 4}


# A real dict is not searched for what hashes in Python.
@program(N(1), breaks=1)
def keys_of_subclasses_and_of_c(x):
    text, length, day, half = KEYS
    made = {text: 1, length: 2, day: 3, half: 4}
    found = [BY_VALUE.get(k, "no") for k in KEYS]
    return x, made["ab"], made[2], made[datetime.date(2020, 1, 1)], found, text in {"ab"}, {"ab": 5}[text], day in {day}


@program(N(1))
def keys_that_hash_in_python_and_numbers(x):
    half = KEYS[3]
    return x, {0.5: 3}.get(half), half in {0.5}, 0.5 in {half}, {half: 1}.get(0.5), {half: 1}.get(0.25, "no")


@program({1: "a"}, N(1), N(2))
def leaf_keys(d, x, y):
    d[x] = 1
    d[y] = 2
    d[x] += 5
    return d[x], x in d, len(d), {x, y, x} == {y, x}, [k is x for k in d]


@program({1, 2}, {2, 3})
def set_all_methods(a, b):
    out = [
        a | b,
        a & b,
        a - b,
        a ^ b,
        a <= b,
        a < {1, 2, 3},
        a >= {1},
        a == {2, 1},
        a.union([5], (6,)),
        a.intersection(b, [2]),
        a.difference([1]),
        a.symmetric_difference(b),
        a.issubset({1, 2, 3}),
        a.issuperset([1]),
        a.isdisjoint([9]),
    ]
    a.add(9)
    a.discard(1)
    a.discard(100)
    a.update([7], {8})
    a.remove(7)
    c = a.copy()
    c.clear()
    a |= {10}
    a &= {2, 9, 10, 8}
    a -= {10}
    a ^= {11}
    a.intersection_update({2, 9, 11})
    a.difference_update({9})
    a.symmetric_difference_update({11, 12})
    return out, sorted(a), c, 2 in a, len(a), frozenset(a), {i % 2 for i in range(5)}, sorted({"x", "y"} | {"z"})


@program({1})
def set_errors(a):
    out = []
    for f in (
        lambda: a.remove(5),
        lambda: set().pop(),
        lambda: {[]},
        lambda: a | [1],
        lambda: a.add({}),
        lambda: a[0],
        lambda: a < [1],
    ):
        try:
            f()
            out.append("none")
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program(frozenset({1, 2}), N(1))
def frozen_sets(f, x):
    return (
        f | {3},
        f & {1},
        {f: x}[frozenset({2, 1})],
        f == {1, 2},
        hash(f) == hash(frozenset([2, 1])),
        sorted(f),
        frozenset("a"),
        f - {1},
        {3} | f,
    )


@program({5})
def set_pop(s):
    return s.pop(), s


@program((1, 2, 3), N(1))
def tuples(t, x):
    a, *b = t
    (c, d), e = (1, x), 3
    return (
        a,
        b,
        c,
        d,
        e,
        t + (x,),
        t * 2,
        t[::-1],
        t.index(2),
        t.count(1),
        2 in t,
        t < (1, 3),
        (1, 2) == (1, 2),
        hash(t) == hash((1, 2, 3)),
        (x,) * 2,
        tuple([1]),
        tuple("ab"),
        t > (1, 2),
    )


@program((1, 2, 3))
def tuple_errors(t):
    out = []
    for f in (
        lambda: t[9],
        lambda: t.index(9),
        lambda: t.__getitem__("a"),
        lambda: t + [1],
        lambda: hash(([],)),
        lambda: setattr(t, "a", 1),
    ):
        try:
            f()
            out.append("none")
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program(deque([1, 2, 3]), N(1))
def deques(d, x):
    d.append(x)
    d.appendleft(0)
    d.extend([4])
    d.extendleft([7, 8])
    d.rotate(1)
    a = d.pop(), d.popleft()
    d.remove(2)
    d.insert(1, "i")
    d.reverse()
    return (
        a,
        list(d),
        len(d),
        d[0],
        d[-1],
        3 in d,
        d.count(3),
        d.index(3),
        d.copy(),
        d == d.copy(),
        d.maxlen,
        list(reversed(d)),
        d + deque([1]),
    )


@program(deque([1, 2], maxlen=2), N(1))
def bounded_deques(d, x):
    d.append(3)
    e = deque(maxlen=3)
    for i in range(5):
        e.append(i)
    e.appendleft(x)
    e.extend([1])
    return d, e, d.maxlen, list(e), deque([1, 2, 3], 2)


@program(OrderedDict(a=1, b=2), N(1))
def ordered_dicts(o, x):
    o["c"] = x
    o.move_to_end("a")
    o.move_to_end("c", last=False)
    p = o.popitem(last=False)
    q = OrderedDict([("z", 1), ("y", 2)])
    return (
        p,
        o,
        q,
        list(q),
        q == OrderedDict([("y", 2), ("z", 1)]),
        q == {"y": 2, "z": 1},
        q | {"k": 1},
        list(reversed(q)),
        q.popitem(),
        OrderedDict.fromkeys("ab"),
    )


@program(defaultdict(list, a=[1]), N(1))
def default_dicts(d, x):
    d["a"].append(x)
    d["b"].append(2)
    d.setdefault("c", 3)
    e = defaultdict(int)
    for ch in "hello":
        e[ch] += 1
    f = defaultdict(lambda: [x])
    f[0].append(1)
    try:
        defaultdict()["q"]
    except KeyError as err:
        g = err.args
    return d, e, f, g, "zz" in d, d.get("zz"), d.default_factory is list, e.copy(), dict(e)


@program(Counter("abca"), N(1))
def counters(c, x):
    c["a"] += 5
    c.update("zz")
    c.subtract("a")
    d = Counter(a=1, b=2)
    return (
        c,
        c["missing"],
        c.most_common(1),
        d + Counter(a=3),
        d - Counter(a=3),
        sum(c.values()),
        list(d.elements()),
        c & d,
        x,
        c.total(),
    )


@program(N(1))
def chain_maps(x):
    c = ChainMap({"a": 1}, {"a": 2, "b": x})
    c["z"] = 5
    return c["a"], c["b"], "q" in c, len(c), c.maps[0], c.new_child({"a": 9})["a"]


@program(N(1))
def user_dict_list(x):
    u = UserDict(a=x)
    u["b"] = 2
    v = UserList([3, 1])
    v.append(x)
    return u["a"], len(u), list(u), v[0], len(v), u.data


class MyList(list):
    def __init__(self, *args):
        super().__init__(*args)
        self.log = []

    def append(self, item):
        self.log.append(("append", item))
        super().append(item)

    def __getitem__(self, i):
        return ("item", super().__getitem__(i))

    def total(self):
        return sum(self)


@program(MyList([1, 2]), N(1))
def list_subclass(m, x):
    m.append(x)
    n = MyList((5, 6))
    n.append(7)
    n.extend([8])
    return (
        m[0],
        m.log,
        n,
        n.total(),
        len(n),
        list(n),
        n == [5, 6, 7, 8],
        isinstance(n, list),
        n + [1],
        [v for v in m],
        sorted(n),
    )


class MyDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.writes = 0

    def __setitem__(self, key, value):
        self.writes += 1
        super().__setitem__(key, value)

    def __missing__(self, key):
        return ("missing", key)

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


@program(MyDict(a=1), N(1))
def dict_subclass(m, x):
    m["k"] = x
    n = MyDict({"q": 2}, z=3)
    n["w"] = 4
    n.update(v=5)
    return (
        m.writes,
        m["nope"],
        m.k,
        n.writes,
        n,
        list(n.items()),
        n.get("nope"),
        "q" in n,
        n.pop("q"),
        dict(n),
        {**n},
        n == dict(n),
    )


class AttrDict(OrderedDict):
    def __post(self):
        return 1

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@program(N(1))
def model_output_style(x):
    m = AttrDict()
    m["logits"] = x
    m["hidden"] = (x, x + 1)
    m.logits = x * 2
    return m, m[0], m["hidden"], m.to_tuple()[1:], m.logits, list(m)


class MySet(set):
    def add(self, item):
        super().add(("w", item))

    def __contains__(self, item):
        return super().__contains__(("w", item))


@program(N(1))
def set_subclass(x):
    s = MySet()
    s.add(1)
    s.add(2)
    return 1 in s, 3 in s, len(s), sorted(s), isinstance(s, set)


class Typed(collections.abc.MutableMapping):
    def __init__(self):
        self.d = {}

    def __getitem__(self, k):
        return self.d[k]

    def __setitem__(self, k, v):
        self.d[k] = v

    def __delitem__(self, k):
        del self.d[k]

    def __iter__(self):
        return iter(self.d)

    def __len__(self):
        return len(self.d)


@program(N(1))
def mutable_mapping(x):
    t = Typed()
    t["a"] = x
    t.update(b=2)
    t.setdefault("c", 3)
    return (
        t["a"],
        len(t),
        list(t),
        t.get("z", 0),
        "b" in t,
        t.pop("b"),
        dict(t),
        list(t.items()),
        {**t},
        t == {"a": x, "c": 3} or True,
    )


class Seq(collections.abc.Sequence):
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]

    def __len__(self):
        return len(self.items)


# The leaf kind of these tests cannot compare.
@program(N(1), breaks=None)
def abstract_sequence(x):
    s = Seq([x, 2, 3])
    a, b, c = s
    return list(s), 2 in s, s.index(3), s.count(2), list(reversed(s)), b, [*s], s[-1]


PROXY = types.MappingProxyType({"a": 1})


@program(N(1))
def mapping_proxies(x):
    m = PROXY
    return m["a"], m.get("b", x), "a" in m, list(m), len(m)


@program([1, 2], [1, 2])
def aliasing_arguments(a, b):
    c = a
    c.append(3)
    d = [a, a, b]
    d[0].append(4)
    return a is c, a is b, a == b, d, d[0] is d[1]


@program([[0] * 2 for _ in range(2)], N(1))
def shared_rows(rows, x):
    grid = [[None] * 2] * 2
    grid[0][1] = x
    rows[1][0] = x
    rows.append(rows[0])
    return grid, grid[0] is grid[1], rows, rows[2] is rows[0]


@program(N(1))
def self_containing(x):
    a = [x]
    a.append(a)
    d = {"a": a}
    d["self"] = d
    return a, d, a[1] is a, d["self"]["a"][0]


# A bytearray is opaque.
@program(bytearray(b"ab"), N(1), breaks=None)
def bytearrays(b, x):
    return b[0], len(b), bytes(b), b == b"ab", x


@program(range(2, 20, 3), N(1))
def ranges(r, x):
    return (
        r[1],
        r[-1],
        len(r),
        5 in r,
        6 in r,
        r[::2],
        list(r[1:3]),
        r.index(8),
        r.start,
        r.step,
        r == range(2, 20, 3),
        list(reversed(r)),
        sum(r),
        x,
        r.stop,
        r.count(5),
        hash(r) == hash(range(2, 20, 3)),
    )


@program(slice(1, None, 2), [1, 2, 3, 4])
def slice_objects(s, a):
    t = slice(3)
    return a[s], s.start, s.stop, s.step, s.indices(3), t == slice(None, 3, None), a[t], [slice(0, 1)] == [slice(0, 1)]


@program([N(1), N(2), N(3)], {"k": N(4)})
def effects_in_order(items, table):
    items[0] = items.pop()
    table["new"], table["k"] = table["k"], items
    items.append(table)
    table.update(last=len(items))
    items[1:1] = ["mid"]


@program({"a": {"b": [1]}}, N(1))
def nested_writes(d, x):
    d["a"]["b"].append(x)
    d["a"]["c"] = d["a"].pop("b")
    d["z"] = d["a"]
    d["z"]["w"] = d
    return d["z"] is d["a"]


@program({"x": 1, "y": 2, "z": 3})
def delete_and_reinsert_order(d):
    v = d.pop("x")
    d["x"] = v
    del d["y"]
    d["y"] = 2
    return list(d)


@program([5], {"k": 1})
def effects_before_uncaught(items, table):
    items.append(1)
    table["j"] = items
    table.pop("k")
    raise ValueError("left", items)


@program({3, 1, 2}, {"b", "a"})
def iteration_order_of_sets(s, t):
    out = [v for v in s]
    s.add(17)
    s.discard(1)
    return out, sorted(s), [v for v in t] == list(t), sum(s)


class Window(deque):
    def __init__(self, *args, tag="t", **kwargs):
        super().__init__(*args, **kwargs)
        self.tag = tag

    def append(self, value):
        super().append(value)
        self.last = value


class Pair(frozenset):
    pass


@program(N(1))
def deque_subclasses_made_inside(x):
    class Plain(deque):
        pass

    d = Window([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    e = Plain(iterable=[5, 6, x], maxlen=2)
    e.extendleft([7])
    found = [d[0], len(d), list(reversed(d)), d.maxlen, d.tag, d.last, 3 in d, sorted(d), d == deque(d), bool(Plain())]
    for wrong in (lambda: Plain().popleft(), lambda: Plain().pop(), lambda: Plain([], -1)):
        try:
            wrong()
        except (IndexError, ValueError) as error:
            found.append(str(error))
    return found, d, list(e), type(e).__name__


@program(Window([1, 2], maxlen=3), {"d": Window([1])}, N(1))
def deque_subclasses_that_were_there(d, owner, x):
    d.append(len(d))
    d.append(x)
    owner["d"].append(5)
    owner["d"][0] = 6
    return [v for v in d], d.maxlen, owner["d"].last, d.popleft()


@program(Pair([1, 2]))
def operators_of_a_frozenset_subclass(f):
    return [type(v).__name__ for v in (f | {3}, f & f, f - {1}, f ^ {1}, {1} & f, f.copy(), f.union([4]))], f & {1}
