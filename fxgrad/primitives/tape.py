"""Tapes: what a loop of unknown length keeps of every turn for the way back.

A tape is a value of dtype `tape` that only loops read and write (while_tape writes, tape_scan reads and writes). At run time it
is a list of arrays, chunks of growing capacity, whose leading axis counts the turns; nothing is copied when it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import TAPE, Aval
from fxgrad.primitives.base import Doc, Primitive, register, type_error

FIRST, LARGEST = 16, 1 << 16  # turns in the first chunk; each has twice as many as the one before, up to the largest
_TAPE_AVAL = Aval((), TAPE)


def capacity(chunk: int) -> int:
    """How many turns the chunk of that number holds."""
    return min(FIRST << min(chunk, 32), LARGEST)


class Tape:
    """The values of one variable in every turn. Without chunks it stands for zeros, however many are read.

    It has the attributes of a scalar array of dtype `tape`, since it passes through the same hands as arrays.
    """

    __slots__ = ("chunks", "turns")
    shape: tuple[int, ...] = ()
    dtype = TAPE
    ndim, size, nbytes = 0, 1, 0

    def __init__(self, chunks: Sequence[np.ndarray], turns: int):
        self.chunks, self.turns = list(chunks), turns

    def __getitem__(self, index: Any) -> Tape:
        if index != ():
            raise IndexError("a tape is a scalar")
        return self

    def __repr__(self) -> str:
        return f"<tape of {self.turns} turns>"


NOTHING = Tape([], 0)


def plain(x: Any) -> Any:
    """A tape itself, where it comes as an array of rank 0."""
    return x[()] if not x.shape else x


def chunk_bounds(turns: int) -> Iterator[tuple[int, int]]:
    """The first turn of each chunk, and how many it has."""
    start = chunk = 0
    while start < turns:
        n = min(capacity(chunk), turns - start)
        yield start, n
        start += n
        chunk += 1


def zero_of(aval: Aval) -> Any:
    if aval.dtype == TAPE:
        return NOTHING if not aval.shape else filled(aval.shape)
    return np.zeros(aval.shape, aval.dtype)


def filled(shape: tuple[int, ...]) -> Any:
    """An array of tapes that stand for zeros."""
    out = np.empty(shape, TAPE)
    for i in np.ndindex(shape):
        out[i] = NOTHING
    return out if shape else NOTHING


def each_turn(tapes: Sequence[Tape], avals: Sequence[Aval], turns: int, reverse: bool) -> Iterator[list[Any]]:
    """The values of every turn, forwards or backwards; `avals` are the types of one turn's values."""
    spans = list(enumerate(chunk_bounds(turns)))
    for k, (_, n) in reversed(spans) if reverse else spans:
        rows = [t.chunks[k] if t.chunks else None for t in map(plain, tapes)]
        for i in reversed(range(n)) if reverse else range(n):
            yield [zero_of(a) if row is None else row[i] for row, a in zip(rows, avals, strict=True)]


class Recorder:
    """Writes the tapes of some values, a turn at a time; backwards if the number of turns is given and `reverse`."""

    def __init__(self, avals: Sequence[Aval], turns: int | None = None, reverse: bool = False):
        self.avals = avals
        self.chunks: list[list[np.ndarray]] = [[] for _ in avals]  # of each value
        self.written, self.turns = 0, turns
        self.reverse = reverse
        self.spans: list[tuple[int, int]] = []
        if turns is not None:
            for _ in chunk_bounds(turns):
                self._grow()
        self.places = self._places()

    def _grow(self) -> None:
        k = len(self.spans)
        start = sum(n for _, n in self.spans)
        self.spans.append((start, capacity(k)))
        for chunks, a in zip(self.chunks, self.avals, strict=True):
            chunks.append(np.empty((capacity(k), *a.shape), a.dtype))

    def _places(self) -> Iterator[tuple[int, int]]:
        """Chunk and row of the turns to write."""
        if self.reverse:
            assert self.turns is not None
            for k, (_, n) in reversed(list(enumerate(chunk_bounds(self.turns)))):
                yield from ((k, i) for i in reversed(range(n)))
            return
        k = 0
        while True:
            if k == len(self.spans):
                self._grow()
            yield from ((k, i) for i in range(capacity(k)))
            k += 1

    def append(self, values: Sequence[Any]) -> None:
        k, i = next(self.places)
        for chunks, value in zip(self.chunks, values, strict=True):
            chunks[k][i] = value
        self.written += 1

    def tapes(self) -> list[Tape]:
        return [Tape(chunks, self.written) for chunks in self.chunks]


# ---- operations on whole tapes, which transforms of loops need -------------------------------------------------------


def _mapped(f: Callable[..., Any], *tapes: Tape) -> Tape:
    """f of the chunks, in which the elements of inner tapes are tapes."""
    first = tapes[0]

    def of_chunk(*chunks: Any) -> np.ndarray:
        if chunks[0].dtype != TAPE:
            return f(*chunks)
        out = np.empty_like(chunks[0])
        for i in np.ndindex(first_shape(chunks[0], first.turns)):
            out[i] = _mapped(f, *[c[i] for c in chunks])
        return out

    return Tape([of_chunk(*chunks) for chunks in zip(*[t.chunks for t in tapes], strict=True)], first.turns)


def first_shape(chunk: np.ndarray, turns: int) -> tuple[int, ...]:
    return (min(turns, chunk.shape[0]), *chunk.shape[1:])


def _tapes_typ(name: str) -> Callable[..., list[Aval]]:
    def typ(*tapes: Aval, **params: Any) -> list[Aval]:
        if any(t.dtype != TAPE or t is not tapes[0] for t in tapes):
            raise type_error(name, tapes, "It takes tapes.")
        return [tapes[0]]

    return typ


def _each(x: Any, f: Callable[[Tape], Tape]) -> Any:
    """f of a tape, or of every tape of an array."""
    x = plain(x)
    if type(x) is Tape:
        return f(x)
    out = np.empty_like(x)
    for i in np.ndindex(x.shape):
        out[i] = f(x[i])
    return out


def _add_numpy(a: Any, b: Any) -> Any:
    a, b = plain(a), plain(b)
    if type(a) is not Tape:
        out = np.empty_like(a)
        for i in np.ndindex(a.shape):
            out[i] = _add_numpy(a[i], b[i])
        return out
    if not a.chunks or not b.chunks:
        return b if not a.chunks else a
    return _mapped(np.add, a, b)


def _add_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    a, b = tangents
    return [tape_add(*primals)], [a if b is None else b if a is None else tape_add(a, b)]


def _add_batch(size: int, args: Sequence[Any], batched: Sequence[bool]) -> tuple[list, list[bool]]:
    full = [a if b else tape_batch(a, repeats=size, axis=0) for a, b in zip(args, batched, strict=True)]
    return [tape_add(*full)], [True]


tape_add = register(
    Primitive(
        "tape_add",
        "host",
        _tapes_typ("tape_add"),
        Doc("two tapes added turn by turn", "g; g"),
        jvp=_add_jvp,
        transpose=lambda cts, inputs: [cts[0], cts[0]],
        batch=_add_batch,
        numpy=_add_numpy,
    )
)


def _linear(name: str, doc: Doc, numpy: Callable, transpose: Callable[[], Primitive]) -> Primitive:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list, list]:
        return [prim(primals[0], **params)], [prim(tangents[0], **params)]

    def batch(size: int, args: Sequence[Any], batched: Sequence[bool], **params: Any) -> tuple[list, list[bool]]:
        return [prim(args[0], **{**params, "axis": params["axis"] + 1})], [True]

    prim = Primitive(
        name,
        "host",
        _tapes_typ(name),
        doc,
        jvp=jvp,
        batch=batch,
        transpose=lambda cts, inputs, **params: [transpose()(cts[0], **params)],
        numpy=numpy,
    )
    return register(prim)


def _batch_numpy(x: Any, *, repeats: int, axis: int) -> Any:
    def widened(chunk: np.ndarray) -> np.ndarray:
        shape = list(chunk.shape)
        shape.insert(axis + 1, repeats)
        return np.broadcast_to(np.expand_dims(chunk, axis + 1), shape)

    return _each(x, lambda tape: _mapped(widened, tape))


def _total_numpy(x: Any, *, repeats: int, axis: int) -> Any:
    from fxgrad.primitives.reduce import sum_
    from fxgrad.runtime.eager import evaluate

    return _each(x, lambda tape: _mapped(lambda chunk: evaluate(sum_, [chunk], {"axes": (axis + 1,)})[0], tape))


tape_batch = _linear(
    "tape_batch", Doc("a tape whose values are repeated along a new axis", "g summed along it"), _batch_numpy, lambda: tape_total
)
tape_total = _linear(
    "tape_total", Doc("a tape whose values are summed along an axis", "g repeated along it"), _total_numpy, lambda: tape_batch
)

no_tape = register(
    Primitive(
        "no_tape",
        "host",
        lambda *, shape: [Aval(shape, TAPE)],
        Doc("tapes that stand for zeros", "none: it has no operand"),
        jvp=lambda primals, tangents, **params: ([no_tape(**params)], [None]),
        batch=lambda size, args, batched, **params: ([no_tape(**params)], [False]),
        numpy=lambda *, shape: filled(shape),
    )
)
