"""The two side tables of a code object: exceptions and source locations.

Source: CPython's Objects/exception_handling_notes.txt and Objects/locations.md (3.11 and later).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchjit_vm.assembly.listing import NO_POSITION, Position

__all__ = ["ExceptionEntry", "decode_exception_table", "encode_exception_table", "encode_locations"]

ExceptionEntry = tuple[int, int, int, int, bool]
"""(start, end, target, depth, lasti); places count code units (2 bytes), end exclusive."""

_ENTRY_START = 0x80
_MORE = 0x40
_PAYLOAD_BITS = 6
_MAX_UNITS = 8  # that one location entry can cover

_ONE_LINE, _NO_COLUMNS, _LONG, _NONE = 10, 13, 14, 15  # kinds of location entries; below 10 are the short ones


def decode_exception_table(table: bytes) -> Iterator[ExceptionEntry]:
    """Entries of a `co_exceptiontable`.

    Raises:
        ValueError: the table ends inside an entry.
    """
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << _PAYLOAD_BITS | byte & _MORE - 1
        if byte & _MORE:
            continue
        numbers.append(value)
        value = 0
        if len(numbers) == 4:
            start, size, target, depth = numbers
            yield start, start + size, target, depth >> 1, bool(depth & 1)
            numbers.clear()
    if numbers or value:
        raise ValueError("the exception table ends inside an entry")


def _put_big_endian(out: bytearray, value: int, mark: int) -> None:
    shift = max(value.bit_length() - 1, 0) // _PAYLOAD_BITS * _PAYLOAD_BITS
    while shift:
        out.append(mark | _MORE | value >> shift & _MORE - 1)
        mark = 0
        shift -= _PAYLOAD_BITS
    out.append(mark | value & _MORE - 1)


def encode_exception_table(entries: Iterable[ExceptionEntry]) -> bytes:
    """The inverse of `decode_exception_table`."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        _put_big_endian(out, start, _ENTRY_START)
        _put_big_endian(out, end - start, 0)
        _put_big_endian(out, target, 0)
        _put_big_endian(out, depth << 1 | lasti, 0)
    return bytes(out)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= _MORE:
        out.append(_MORE | value & _MORE - 1)
        value >>= _PAYLOAD_BITS
    out.append(value)


def _put_signed(out: bytearray, value: int) -> None:
    _put_varint(out, -value << 1 | 1 if value < 0 else value << 1)


def _put_location(out: bytearray, units: int, position: Position, previous_line: int) -> int:
    """Append one entry of at most `_MAX_UNITS` units; returns the line that the next entry counts from."""
    line, end_line, column, end_column = position

    def head(kind: int) -> None:
        out.append(0x80 | kind << 3 | units - 1)

    if line is None:
        head(_NONE)
        return previous_line
    delta = line - previous_line
    if column is None or end_column is None:
        if end_line is None or end_line == line:
            head(_NO_COLUMNS)
            _put_signed(out, delta)
            return line
    elif end_line == line and (form := _on_one_line(delta, column, end_column)) is not None:
        head(form[0])
        out.extend(form[1:])
        return line
    head(_LONG)
    _put_signed(out, delta)
    _put_varint(out, 0 if end_line is None else end_line - line)
    _put_varint(out, 0 if column is None else column + 1)
    _put_varint(out, 0 if end_column is None else end_column + 1)
    return line


def _on_one_line(delta: int, column: int, end_column: int) -> tuple[int, ...] | None:
    """Kind and bytes of an entry of one line, if there is one that it fits."""
    if delta == 0 and column < 80 and 0 <= end_column - column < 16:
        return column >> 3, (column & 7) << 4 | end_column - column
    if 0 <= delta < 3 and column < 128 and end_column < 128:
        return _ONE_LINE + delta, column, end_column
    return None


def encode_locations(runs: Iterable[tuple[int, Position]], first_line: int, *, merge: bool) -> bytes:
    """A `co_linetable`.

    Args:
        runs: (number of code units, position) of consecutive instructions.
        first_line: `co_firstlineno`.
        merge: join neighbours with equal positions first.
    """
    out = bytearray()
    line = first_line
    for units, position in _merged(runs) if merge else runs:
        while units > _MAX_UNITS:
            line = _put_location(out, _MAX_UNITS, position, line)
            units -= _MAX_UNITS
        line = _put_location(out, units, position, line)
    return bytes(out)


def _merged(runs: Iterable[tuple[int, Position]]) -> Iterator[tuple[int, Position]]:
    total, last = 0, NO_POSITION
    for units, position in runs:
        if total and position != last:
            yield total, last
            total = 0
        total, last = total + units, position
    if total:
        yield total, last
