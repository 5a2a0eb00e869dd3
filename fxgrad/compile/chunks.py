"""Loops that write or read tapes, chunk by chunk: native code does as many turns as a chunk has room for, Python the rest.

A chunk's loop is a program of the usual primitives, a while_loop that also carries the chunk's arrays, so it is compiled like any
other and writes each turn in place. The chunks grow as `primitives/tape.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.program import Eqn, Program
from fxgrad.ir.types import TAPE, Aval
from fxgrad.primitives.base import zeros
from fxgrad.primitives.bodies import cut
from fxgrad.primitives.elementwise import add, and_, gt, lt, sub
from fxgrad.primitives.shape import dynamic_slice, dynamic_update_slice, reshape
from fxgrad.primitives.tape import Tape, capacity, chunk_bounds, plain
from fxgrad.primitives.while_loop import while_loop
from fxgrad.trace.tracing import bind, build, inline

__all__ = ["in_chunks"]

Run = Callable[[Program, Sequence[Any]], list[Any]]
_COUNT = Aval((), np.dtype(np.int64))
_ONE = np.int64(1)


def in_chunks(eqn: Eqn, run: Run) -> Callable[..., list] | None:
    """A loop with tapes as a function of arrays and tapes; None if it has none, or tapes inside others."""
    make = {"while_tape": _while_tape, "tape_scan": _tape_scan}.get(eqn.prim.name)
    body: Program = eqn.params["body"] if make is not None else Program((), (), ())
    if make is None or any(a.dtype == TAPE for a in (*body.in_avals, *body.out_avals)):
        return None
    return make(eqn.params, run)


def _written(buffers: Sequence[Any], ys: Sequence[Any], place: Any) -> list[Any]:
    out = []
    for b, y in zip(buffers, ys, strict=True):
        row = reshape(y, shape=(1, *b.shape[1:]))
        out.append(dynamic_update_slice(b, row, place, *[np.int64(0)] * (len(b.shape) - 1)))
    return out


def _stacked(avals: Sequence[Aval], size: int) -> list[Aval]:
    return [a.with_shape((size, *a.shape)) for a in avals]


# ---- writing ---------------------------------------------------------------------------------------------------------


def _while_tape(p: dict[str, Any], run: Run) -> Callable[..., list]:
    cond, body = p["cond"], p["body"]
    n_tested, n_fixed = p["cond_consts"], p["body_consts"]
    n = len(body.inputs) - n_fixed

    def loop(*args: Any) -> list[Any]:
        tested, fixed, carry = cut(args, n_tested, n_fixed)
        chunks: list[list[np.ndarray]] = [[] for _ in body.outputs[n:]]
        turns = k = 0
        while True:
            size = capacity(k)
            program = body.memoize(("chunk", cond, size), lambda size=size: _writing(cond, body, n_tested, n_fixed, size))
            done, carry, arrays = cut(run(program, [*tested, *fixed, *carry]), 1, n)
            turns += int(done[0])
            if done[0]:
                for kept, array in zip(chunks, arrays, strict=True):
                    kept.append(np.asarray(array))
            if done[0] < size:
                return [*carry, np.int64(turns), *[Tape(kept, turns) for kept in chunks]]
            k += 1

    return loop


def _writing(cond: Program, body: Program, n_tested: int, n_fixed: int, size: int) -> Program:
    """(*tested, *fixed, *carry) -> (turns done, *carry, *chunks): at most `size` turns."""
    n = len(body.inputs) - n_fixed
    tested, carry = cut(cond.in_avals, n_tested)
    fixed, rows = body.in_avals[:n_fixed], _stacked(body.out_avals[n:], size)
    state = [_COUNT, *carry, *rows]

    def test(*values: Any) -> list[Any]:
        asked, (turn, *rest) = cut(values, n_tested)
        return [and_(lt(turn, np.int64(size)), inline(cond, [*asked, *rest[:n]])[0])]

    def turn(*values: Any) -> list[Any]:
        given, (turn, *rest) = cut(values, n_fixed)
        outs = inline(body, [*given, *rest[:n]])
        return [add(turn, _ONE), *outs[:n], *_written(rest[n:], outs[n:], turn)]

    how = {
        "cond": build([*tested, *state], test, cond.name), "body": build([*fixed, *state], turn, body.name),
        "cond_consts": n_tested, "body_consts": n_fixed,
    }  # fmt: skip

    def chunk(*values: Any) -> list[Any]:
        return bind(
            while_loop, [*values[: n_tested + n_fixed], np.int64(0), *values[n_tested + n_fixed :], *map(zeros, rows)], how
        )

    return build([*tested, *fixed, *carry], chunk, body.name)


# ---- reading ---------------------------------------------------------------------------------------------------------


def _tape_scan(p: dict[str, Any], run: Run) -> Callable[..., list]:
    body, n_fixed, n, reverse = p["body"], p["consts"], p["carry"], p["reverse"]
    slices = body.in_avals[n_fixed + n :]

    def loop(turns: Any, *args: Any) -> list[Any]:
        fixed, carry, tapes = cut(args, n_fixed, n)
        spans = list(enumerate(chunk_bounds(int(turns))))
        chunks: list[list[Any]] = [[None] * len(spans) for _ in body.outputs[n:]]
        for k, (_, count) in reversed(spans) if reverse else spans:
            size = capacity(k)
            rows = [
                t.chunks[k] if t.chunks else np.zeros((size, *a.shape), a.dtype)
                for t, a in zip(map(plain, tapes), slices, strict=True)
            ]
            program = body.memoize(
                ("chunk", n_fixed, n, reverse, size), lambda size=size: _reading(body, n_fixed, n, reverse, size)
            )
            carry, arrays = cut(run(program, [np.int64(count), *fixed, *carry, *rows]), n)
            for kept, array in zip(chunks, arrays, strict=True):
                kept[k] = np.asarray(array)
        return [*carry, *[Tape(kept, int(turns)) for kept in chunks]]

    return loop


def _reading(body: Program, n_fixed: int, n: int, reverse: bool, size: int) -> Program:
    """(turns, *fixed, *carry, *chunks) -> (*carry, *chunks): so many turns, forwards or backwards."""
    fixed, carry, slices = cut(body.in_avals, n_fixed, n)
    read, rows = _stacked(slices, size), _stacked(body.out_avals[n:], size)
    state = [_COUNT, *carry, *rows]

    def turn(*values: Any) -> list[Any]:
        given, xs, (i, *rest) = cut(values, n_fixed, len(read))
        place = sub(i, _ONE) if reverse else i
        rows_now = [
            dynamic_slice(x, place, *[np.int64(0)] * len(a.shape), sizes=(1, *a.shape)) for x, a in zip(xs, slices, strict=True)
        ]
        here = [reshape(x, shape=a.shape) for x, a in zip(rows_now, slices, strict=True)]
        outs = inline(body, [*given, *rest[:n], *here])
        return [place if reverse else add(i, _ONE), *outs[:n], *_written(rest[n:], outs[n:], place)]

    how = {
        "cond": build([_COUNT, *state], lambda stop, i, *_: [gt(i, stop) if reverse else lt(i, stop)], body.name),
        "body": build([*fixed, *read, *state], turn, body.name),
        "cond_consts": 1, "body_consts": n_fixed + len(read),
    }  # fmt: skip

    def chunk(turns: Any, *values: Any) -> list[Any]:
        given, init, xs = cut(values, n_fixed, n)
        first, stop = (turns, np.int64(0)) if reverse else (np.int64(0), turns)
        return bind(while_loop, [stop, *given, *xs, first, *init, *map(zeros, rows)], how)[1:]

    return build([_COUNT, *fixed, *carry, *read], chunk, body.name)
