"""A model's file in two parts: the message, and what its large tensors hold, read once and to where it stays.

Protobuf would copy each tensor twice more: into the message, and out of it. Only initialisers of the model's own graph
are taken apart, and only where their fields are as exporters write them. All else is left to protobuf, which judges
the message, too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from autosched.runtime.memory import ALIGNMENT, LONE_BYTES, empty_block

if TYPE_CHECKING:
    import onnx

LARGE_BYTES = 1 << 14
WINDOW_BYTES = 1 << 13  # read at a time for tags and lengths
MOST_FIELDS = 1 << 20  # of one file: about a second
# Fields of ModelProto, GraphProto and TensorProto in onnx.proto.
GRAPH, INITIALIZER = 7, 5
DIMS, DATA_TYPE, NAME, RAW_DATA, DOC_STRING, DATA_LOCATION = 1, 2, 8, 9, 12, 14
VARINT, BYTES = 0, 2  # kinds of fields; those of the others have these many bytes
WIDTHS = {1: 8, 5: 4}
# By TensorProto.DataType: types whose elements are whole bytes and NumPy's own.
ITEM_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8}


@dataclass(frozen=True)
class ModelParts:
    """A model as it was read from a file.

    message   the model, without the bytes of some initialisers of its graph
    contents  these, read-only, by position in `message.graph.initializer`
    """

    message: onnx.ModelProto
    contents: Mapping[int, memoryview]

    def whole(self) -> onnx.ModelProto:
        """The model in one message; the bytes are copied into it."""
        for index, data in self.contents.items():
            self.message.graph.initializer[index].raw_data = bytes(data)
        return self.message


class Piece(NamedTuple):
    """Where bytes stand in a file."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Split:
    """A file's message without its large tensors' contents, and where these stand, by position of the initialiser."""

    message: bytes
    pieces: Mapping[int, Piece]


def split_file(file: FileIO, size_bytes: int) -> Split | None:
    """The two parts of a file; None where it has no large tensors, or where protobuf has to say what it is."""
    if sys.byteorder == "big" or size_bytes < LARGE_BYTES:
        return None
    splitter = _Splitter(file, size_bytes)
    try:
        message = splitter.model()
        return Split(b"".join(map(splitter.bytes_of, message)), splitter.pieces) if splitter.pieces else None
    except _UnusualError:
        return None


def read_pieces(file: FileIO, pieces: Mapping[int, Piece]) -> dict[int, memoryview]:
    """The bytes of pieces, each at an address for vectors: large ones in blocks of their own, the others in one.

    Raises EOFError for a file that has become shorter, OSError.
    """
    shared = {index: piece for index, piece in pieces.items() if piece.size_bytes < LONE_BYTES}
    ends = [*accumulate(piece.size_bytes + -piece.size_bytes % ALIGNMENT for piece in shared.values())]
    starts = dict(zip(shared, [0, *ends]))
    block = empty_block(ends[-1] if ends else 0).data
    found = {}
    for index, piece in pieces.items():
        own, start = (block, starts[index]) if index in starts else (empty_block(piece.size_bytes).data, 0)
        place = own[start : start + piece.size_bytes]
        _fill(file, piece.start, place)
        found[index] = place.toreadonly()
    return found


def _fill(file: FileIO, start: int, place: memoryview) -> None:
    file.seek(start)
    while place:
        count = file.readinto(place)
        if not count:
            raise EOFError("the file has become shorter")
        place = place[count:]


class _UnusualError(Exception):
    """What no exporter writes, or no message at all."""


class _Field(NamedTuple):
    """A field of a message: its number and kind, and where it begins, where its value begins, and where it ends."""

    number: int
    kind: int
    start: int
    value: int
    end: int


class _Splitter:
    """Walks through the tags and lengths of a file. Its methods raise _UnusualError."""

    def __init__(self, file: FileIO, size_bytes: int):
        self.file, self.size_bytes = file, size_bytes
        self.window, self.window_start = b"", 0
        self.fields_left = MOST_FIELDS
        self.initializers = 0
        self.pieces: dict[int, Piece] = {}

    def model(self) -> list[bytes | Piece]:
        """The file's message without large contents, as bytes and pieces of the file."""
        return self.rewritten(Piece(0, self.size_bytes), GRAPH, self.graph)

    def graph(self, message: Piece) -> list[bytes | Piece]:
        return self.rewritten(message, INITIALIZER, self.tensor)

    def rewritten(
        self, message: Piece, number: int, inside: Callable[[Piece], list[bytes | Piece] | None]
    ) -> list[bytes | Piece]:
        """A message with other contents of the fields of one number; `inside` gives None for those that stay."""
        parts: list[bytes | Piece] = []
        for field in self.fields(message):
            if field.number == number and field.kind != BYTES:
                raise _UnusualError
            new = inside(Piece(field.value, field.end)) if field.number == number else None
            if new is not None:
                size = sum(p.size_bytes if isinstance(p, Piece) else len(p) for p in new)
                parts += [_varint(number << 3 | BYTES) + _varint(size), *new]
            elif parts and isinstance(last := parts[-1], Piece) and last.end == field.start:
                parts[-1] = Piece(last.start, field.end)
            else:
                parts.append(Piece(field.start, field.end))
        return parts

    def tensor(self, message: Piece) -> list[bytes | Piece] | None:
        """An initialiser without its bytes, which are noted; None where they are few or not as they should be."""
        index = self.initializers
        self.initializers += 1
        if message.size_bytes < LARGE_BYTES:
            return None
        dims: list[int] = []
        found: dict[int, _Field] = {}
        for field in self.fields(message):
            if field.number == DIMS and len(dims) < 64:
                dims += self.numbers(field)
            elif field.number in (DATA_TYPE, NAME, RAW_DATA, DOC_STRING, DATA_LOCATION) and field.number not in found:
                found[field.number] = field
            else:
                return None
        if not {DATA_TYPE, RAW_DATA} <= found.keys() or found[RAW_DATA].kind != BYTES:
            return None
        raw = Piece(found[RAW_DATA].value, found[RAW_DATA].end)
        (kind,) = self.numbers(found[DATA_TYPE])
        is_here = DATA_LOCATION not in found or self.numbers(found[DATA_LOCATION]) == [0]
        if raw.size_bytes < LARGE_BYTES or not is_here or math.prod(dims) * ITEM_BYTES.get(kind, 0) != raw.size_bytes:
            return None
        self.pieces[index] = raw
        return [Piece(message.start, found[RAW_DATA].start), Piece(raw.end, message.end)]

    def numbers(self, field: _Field) -> list[int]:
        """The numbers of a field, one or several that are packed."""
        if field.kind == VARINT:
            return [self.varint(field.value, field.end)[0]]
        if field.kind != BYTES or field.end - field.value > 64:
            raise _UnusualError
        found, at = [], field.value
        while at < field.end:
            number, at = self.varint(at, field.end)
            found.append(number)
        return found

    def fields(self, message: Piece) -> Iterator[_Field]:
        """The fields of a message in order."""
        at = message.start
        while at < message.end:
            self.fields_left -= 1
            tag, value = self.varint(at, message.end)
            number, kind = tag >> 3, tag & 7
            if kind == VARINT:
                _, end = self.varint(value, message.end)
            elif kind == BYTES:
                size, value = self.varint(value, message.end)
                end = value + size
            elif kind in WIDTHS:
                end = value + WIDTHS[kind]
            else:
                raise _UnusualError
            if end > message.end or not 0 < number < 1 << 29 or self.fields_left < 0:
                raise _UnusualError
            yield _Field(number, kind, at, value, end)
            at = end

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """(the number that stands somewhere, where it ends)."""
        first = at - self.window_start
        if not 0 <= first <= len(self.window) - 10:
            self.window, self.window_start, first = self.bytes_of(Piece(at, at + WINDOW_BYTES)), at, 0
        number = 0
        for i, byte in enumerate(self.window[first : min(first + 10, end - self.window_start)]):
            number |= (byte & 127) << 7 * i
            if byte < 128:
                return number, at + i + 1
        raise _UnusualError

    def bytes_of(self, part: bytes | Piece) -> bytes:
        """A part of the new message; fewer bytes at the end of the file."""
        if isinstance(part, bytes):
            return part
        self.file.seek(part.start)
        return self.file.read(part.size_bytes) or b""


def _varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
