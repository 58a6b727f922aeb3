"""Immutable values of the standard library made inside: paths, dates, texts of JSON, packed bytes."""

# mypy: ignore-errors

import base64
import binascii
import datetime
import json
import os
import pathlib
import struct
import zlib

from vm_corpus import N, program

HERE = pathlib.Path("/tmp/x")


class Saver:
    def __init__(self):
        self.folder = pathlib.Path("out")


SAVER = Saver()  # no argument: paths keep caches, which the comparison would see


@program(N(2.0))
def paths(x):
    saver = SAVER
    p = pathlib.Path("a") / "b" / f"{3}.pt"
    q, r = HERE / "c", pathlib.PurePosixPath("/a", "b")
    try:
        p.relative_to("zz")
    except ValueError as error:
        said = type(error)
    saver.last = saver.folder / "a.pt"
    texts = str(p), f"{q}", repr(p), r.joinpath("d", "e").as_posix(), os.fspath(r), os.path.join(q, "z"), p.as_posix()
    parts = p.name, p.suffix, p.stem, p.parts
    made = [str(found) for found in (p.parent, p.with_suffix(".x"), "z" / p, p.with_name("n"), q.relative_to("/"))]
    kinds = isinstance(p, os.PathLike), isinstance(p, pathlib.PurePath), type(p).__name__, p.is_absolute(), bool(p)
    same = q == HERE / "c", {q: 1}[HERE / "c"], p < q, hash(p) == hash(pathlib.Path("a/b/3.pt")), saver.last.name
    return x, texts, parts, made, kinds, same, said


@program(N(2.0), breaks=1)
def a_path_that_asks_for_a_file(x):
    p = pathlib.Path("a") / "nope"
    y = x + 2
    return y + (2 if p.exists() else 3), p.name


@program(N(2.0))
def dates(x):
    d, t = datetime.date(2020, 1, 2), datetime.timedelta(days=3, hours=2)
    e = datetime.datetime(2020, 1, 1, 12) + t
    said = []
    for wrong in (lambda: datetime.date(2020, 13, 1), lambda: d + 1, lambda: datetime.date.fromisoformat("x")):
        try:
            wrong()
        except (ValueError, TypeError) as error:
            said.append(str(error))
    spans = t.total_seconds(), str(t), t / 2, t * 2, -t, abs(-t), t // datetime.timedelta(hours=1), t.days
    moments = (
        e.year,
        e - datetime.datetime(2020, 1, 1),
        e.replace(hour=1),
        e.date(),
        datetime.date.fromisoformat("2020-02-03"),
    )
    orders = d < datetime.date(2021, 1, 1), sorted([datetime.date(2021, 1, 1), d]), max(d, e.date()), {d: 1}
    return (
        x + t.days,
        spans,
        moments,
        orders,
        said,
        d.isoformat(),
        (d + t).weekday(),
        f"{d}",
        repr(d),
        isinstance(e, datetime.date),
    )


STARTED = [datetime.datetime(2020, 1, 1)]


@program(N(2.0), breaks=None)
def a_date_from_outside(x):
    later = STARTED[0] + datetime.timedelta(days=x.shape[0] if hasattr(x, "shape") else 1)
    return x, later > STARTED[0]


@program(N(2.0))
def json_texts(x):
    c = json.loads('{"a": [1, 2.5, null], "b": {"c": true}}')
    c["a"].append(4)
    c["n"] = {"z": 1}
    try:
        json.loads("{")
    except json.JSONDecodeError as error:
        said = str(error), error.pos, error.doc
    try:
        json.dumps({"a": {1, 2}})
    except TypeError as error:
        said = *said, str(error)
    texts = (
        json.dumps(c),
        json.dumps({"b": [True, None], "a": (1, 2)}, indent=2, sort_keys=True),
        json.dumps(float("nan")),
    )
    return x + c["a"][1], c, texts, said, json.loads(json.dumps("é"))


@program(N(2.0))
def packed(x):
    a, b = struct.unpack("<hh", struct.pack("<hh", 3, 4))
    try:
        struct.pack("h", 100000)
    except struct.error as error:
        said = str(error)
    coded = base64.b64encode(b"abc"), base64.b64decode("YWJj"), base64.urlsafe_b64encode(b"\xff\xfe").decode()
    return x + a + b, struct.calcsize("<if"), zlib.crc32(b"abc"), binascii.hexlify(b"ab"), coded, said


@program(N(2.0))
def class_methods_that_make_numbers(x):
    return (
        x,
        int.from_bytes(b"\x01\x02", "big"),
        float.fromhex("0x1p3"),
        bytes.fromhex("00ff"),
        (5).to_bytes(2, "little"),
    )
