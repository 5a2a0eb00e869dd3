"""Column kernels: the vectors run along a kept axis, and each lane reduces its own column.

Tiles of columns are walked in one or several passes over the reduced axis, some rows side by side, each in order. The L
partial results of a column (reduction.py) lie in a scratch; what a column has one value of lies in a line of the tile's width.
Several passes are for what is in cache: a tile narrow enough to stay there reads memory too slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.kernels.gather import emit_move, status_of
from fxgrad.kernels.loops import I8, PTR, Lanes, Loop, Nest, Row, advance, emit_ops, i64, memory_type, pick
from fxgrad.kernels.matmul_tile import prefetch
from fxgrad.kernels.pack import walked_to
from fxgrad.kernels.reduction import Combiner, minimum
from fxgrad.kernels.spec import PACK_DIMS, Kernel, Op, Operand, Stage, lanes_of_reduction, reduction_block
from fxgrad.kernels.vector import Vec

__all__ = ["emit_cols"]

_SCRATCH = 256 * 1024  # bytes of partial results: in L2, since memory pages like long rows (measured)
_STREAMS = 8  # runs of memory walked at a time: hardware follows some tens of them
_AHEAD = 512  # bytes of rows by which operands are asked for in advance, beside one row
_COLUMN = 128  # bytes of the partial results of one column, at most


def emit_cols(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Tiles of columns; for each, stage by stage."""
    nest = Nest(b, fn, len(kernel.operands), kernel.scalars, 2 * PACK_DIMS * len(kernel.packed))
    lanes = Lanes(b, kernel.lanes, nest.plan.literals, kernel.scalars)
    lo, hi = nest.split_columns()
    tile = _Tile(kernel, lanes, nest, status_of(b, fn.args[0], i64(len(kernel.operands))) if kernel.checks else None)
    pointers = nest.begin()
    loop = Loop(b, lo, hi, tile.step)
    stop = minimum(b, b.add(loop.i, i64(tile.step)), hi)
    shifted = [advance(b, p, b.mul(s, loop.i)) for p, s in zip(pointers, nest.plan.vector_strides, strict=True)]
    tile.emit(shifted, b.sub(stop, loop.i))
    loop.end()
    nest.end()
    b.ret_void()


class Scratch:
    """`lines` lines of the tile's width, one after the other."""

    def __init__(self, lanes: Lanes, dtype: np.dtype, base: ir.Value):
        self.lanes, self.dtype, self.base = lanes, dtype, base

    def at(self, i: ir.Value, line: ir.Value | None = None, pitch: ir.Value | None = None) -> ir.Value:
        b = self.lanes.b
        place = i if line is None else b.add(b.mul(line, pitch), i)
        return b.gep(self.base, [place], source_etype=memory_type(self.dtype))

    def load(self, *place: Any) -> Vec:
        return self.lanes.register(self.lanes.load(self.at(*place), self.dtype), self.dtype)

    def store(self, x: Vec, *place: Any) -> None:
        self.lanes.b.store(self.lanes.memory(x), self.at(*place), align=self.dtype.itemsize)


class _Tile:
    """One tile of columns; what does not depend on which one is made once."""

    def __init__(self, kernel: Kernel, lanes: Lanes, nest: Nest, status: ir.Value | None):
        self.kernel, self.lanes, self.nest, self.b, self.status = kernel, lanes, nest, lanes.b, status
        self.moved = {m.operand: m for m in kernel.moved}  # each row of them begins where its index leads
        self.operands = [_across(o) for o in kernel.operands]
        self.dims = {k: int(kernel.operands[k].mode.split()[-1]) for k in kernel.packed}  # of walks along the reduced axes
        self.dtypes = [o.dtype for o in kernel.inputs]
        for s in kernel.stages:
            self.dtypes += [op.dtype for op in (*s.before, *s.ops)] + [f.dtype for f in s.folds]
        passes = [s for s in kernel.stages if s.passes]
        slots = max(1, *(len(s.folds) for s in passes))
        single = self._single()
        width = _SCRATCH // _COLUMN // max(slots, len(single) // 8)
        self.step = width
        self.partials = [self._room((_COLUMN + 8) * (width + 2 * lanes.lanes)) for _ in range(slots)]
        self.lines = {k: Scratch(lanes, self.dtypes[k], self._room(8 * (width + lanes.lanes))) for k in single}

    def _single(self) -> list[int]:
        """Numbers of the values a column has one of."""
        out: list[int] = []
        k = len(self.kernel.inputs)
        for s in self.kernel.stages:
            out += range(k, k + len(s.before))
            k += len(s.before) + len(s.ops)
            out += range(k, k + len(s.folds))
            k += len(s.folds)
        return out

    def _room(self, size: int) -> ir.Value:
        room = self.b.alloca(I8, size=i64(size))
        room.align, room.type = 64, PTR
        return room

    def emit(self, pointers: list[ir.Value], columns: ir.Value) -> None:
        b, lanes = self.b, self.lanes.lanes
        self.pointers, self.columns = pointers, columns
        vectors = b.udiv(b.add(columns, i64(2 * lanes - 1)), i64(lanes))  # one to spare:
        self.pitch = b.mul(vectors, i64(lanes))  # lines a power of two apart would fall on one set of the cache
        self.count = len(self.kernel.inputs)  # values so far
        for stage in self.kernel.stages:
            self._before(stage)
            if stage.passes:
                self._pass(stage)
        self._finish()

    def _each_vector(self) -> Loop:
        return Loop(self.b, i64(0), self.columns, self.lanes.lanes)

    def _values(self, refs: Iterable[Any], i: ir.Value, reads: Row, which: list[int]) -> tuple[list[Any], ir.Value, ir.Value]:
        """The values known so far that `refs` name, at vector i; the operands `which` come from `reads`."""
        loaded, full, mask = reads.load(i, self.columns)
        values: list[Any] = [None] * self.count
        for k, x in zip(which, loaded, strict=True):
            values[k] = x
        for k in {r for r in refs if isinstance(r, int) and len(self.kernel.inputs) <= r < self.count}:
            values[k] = self.lines[k].load(i)
        return values, full, mask

    def _reads(self, refs: Iterable[Any], row: ir.Value | None) -> tuple[Row, list[int]]:
        """The operands that `refs` name, in a row of the tile (None: the first)."""
        which = sorted({r for r in refs if isinstance(r, int) and r < len(self.kernel.inputs)})
        return self._row(which, row), which

    def _row(self, which: list[int], row: ir.Value | None) -> Row:
        plan = self.nest.plan
        moved = [
            self.pointers[k] if row is None else advance(self.b, self.pointers[k], self.b.mul(plan.loop_strides[k], row))
            for k in which
        ]
        return Row(self.lanes, [self.operands[k] for k in which], moved, [plan.vector_strides[k] for k in which])

    # ---- what a column has one value of --------------------------------------------------------------------------------------

    def _before(self, stage: Stage) -> None:
        if stage.before:
            refs = _args(stage.before)
            reads, which = self._reads(refs, None)
            loop = self._each_vector()
            values, _, _ = self._values(refs, loop.i, reads, which)
            emit_ops(self.lanes, stage.before, values)
            for k in range(self.count, len(values)):
                self.lines[k].store(values[k], loop.i)
            loop.end()
        self.count += len(stage.before)

    def _finish(self) -> None:
        results = self.kernel.results
        if not results:
            return
        reads, which = self._reads(results, None)
        total = len(self.kernel.operands)
        writes = self._row(list(range(total - len(results), total)), None)
        loop = self._each_vector()
        values, full, mask = self._values(results, loop.i, reads, which)
        writes.store(pick(self.lanes, values, results), loop.i, full, mask)
        loop.end()

    # ---- a pass ----------------------------------------------------------------------------------------------------------------

    def _pass(self, stage: Stage) -> None:
        b, n = self.b, self.nest.plan.m
        first = self.count + len(stage.ops)
        if not stage.folds:
            self._rows(stage, i64(0), n, [], [])
        else:
            combiners = [Combiner(b, f) for f in stage.folds]
            partials = [Scratch(self.lanes, f.dtype, p) for f, p in zip(stage.folds, self.partials, strict=False)]
            totals = [self.lines[first + k] for k in range(len(stage.folds))]
            loop = self._each_vector()
            for combine, total in zip(combiners, totals, strict=True):
                total.store(combine.identity(self.lanes), loop.i)
            loop.end()
            block = reduction_block(stage.folds[0].dtype)
            blocks = Loop(b, i64(0), n, block)
            stop = minimum(b, b.add(blocks.i, i64(block)), n)
            self._rows(stage, blocks.i, stop, combiners, partials)
            used = minimum(b, b.sub(stop, blocks.i), i64(lanes_of_reduction(stage.folds[0].dtype)))
            self._combine_lanes(combiners, partials, used)
            loop = self._each_vector()
            for combine, total, partial in zip(combiners, totals, partials, strict=True):
                total.store(combine(total.load(loop.i), partial.load(loop.i)), loop.i)
            loop.end()
            blocks.end()
        self.count = first + len(stage.folds)

    def _rows(self, stage: Stage, start: ir.Value, stop: ir.Value, combiners: list[Combiner], partials: list[Scratch]) -> None:
        """Rows of the tile; element r of each column goes into line (r - start) mod L.

        A line is taken from the scratch for several of its rows at a time, L apart; for fewer where a row has many operands, for
        one where it is stored: rows L apart often agree modulo 4096, and then each load waits for the store before it.
        """
        b = self.b
        wide = max([o.dtype.itemsize for o in self.kernel.inputs], default=1)
        further = b.add(b.udiv(i64(_AHEAD), b.mul(self.columns, i64(wide))), i64(1))
        self.ahead = [b.mul(stride, further) for stride in self.nest.plan.loop_strides]
        count = lanes_of_reduction(combiners[0].dtype) if combiners else 1
        refs, walked = self._walked(stage)
        together = count * (1 if stage.stores else max(1, _STREAMS // max(1, len(walked))))
        fixed = [k for k in walked if k not in self.moved and k not in self.dims]
        steps = [b.mul(self.nest.plan.loop_strides[k], i64(count)) for k in fixed]
        groups = Loop(b, start, stop, together)
        end = minimum(b, b.add(groups.i, i64(together)), stop)
        fresh = b.icmp_signed("==", groups.i, start)
        lines = Loop(b, i64(0), minimum(b, i64(count), b.sub(end, groups.i)), 1)
        first = b.add(groups.i, lines.i)
        starts = [self._at_row(k, first) for k in fixed]
        inner = self._each_vector()
        held = []
        for combine, partial in zip(combiners, partials, strict=True):
            before, nothing = partial.load(inner.i, lines.i, self.pitch), combine.identity(self.lanes)
            held.append(b.select(fresh, nothing.v, before.v))
        rows = Loop(b, first, end, count, [*held, *starts])
        sums, places = rows.carried[: len(held)], rows.carried[len(held) :]
        found = dict(zip(fixed, places, strict=True))
        args = self._at(stage, refs, {k: found[k] if k in found else self._led(k, rows.i) for k in walked}, inner.i)
        pairs = list(zip(combiners, args, sums, strict=True))
        following = [advance(b, place, step) for place, step in zip(places, steps, strict=True)]
        rows.end([combine(Vec(b, v, combine.dtype), x).v for combine, x, v in pairs] + following)
        for (combine, _, v), partial in zip(pairs, partials, strict=True):
            partial.store(Vec(b, v, combine.dtype), inner.i, lines.i, self.pitch)
        inner.end()
        lines.end()
        groups.end()

    def _at_row(self, k: int, row: ir.Value) -> ir.Value:
        return advance(self.b, self.pointers[k], self.b.mul(self.nest.plan.loop_strides[k], row))

    def _led(self, k: int, row: ir.Value) -> ir.Value:
        """Where a row begins of an operand that is moved, or walked."""
        if k in self.dims:
            number = self.kernel.packed.index(k)
            return advance(self.b, self.pointers[k], walked_to(self.b, self.nest.plan, number, self.dims[k], row))
        m = self.moved[k]
        indices = {i: self._at_row(i, row) for i, _, _ in m.indices}
        return emit_move(self.b, self.kernel, self.nest.plan, m, self._at_row(k, row), indices, self.status)

    def _walked(self, stage: Stage) -> tuple[list[Any], list[int]]:
        """What a pass refers to, and the operands among it and those it writes."""
        refs = [*_args(stage.ops), *(f.arg for f in stage.folds), *(r for r, _ in stage.stores)]
        count = len(self.kernel.inputs)
        return refs, sorted({r for r in refs if isinstance(r, int) and r < count} | {count + o for _, o in stage.stores})

    def _at(self, stage: Stage, refs: list[Any], places: dict[int, ir.Value], i: ir.Value) -> list[Vec]:
        """A vector of a row, whose operands begin at `places`: load, compute, store; what is to be reduced."""
        b, operands, plan = self.b, self.operands, self.nest.plan

        def row(which: list[int]) -> Row:
            strides = [plan.vector_strides[k] for k in which]
            return Row(self.lanes, [operands[k] for k in which], [places[k] for k in which], strides)

        which = [k for k in places if k < len(self.kernel.inputs)]
        for k in which:
            if operands[k].mode == "unit" and k not in self.moved and k not in self.dims:
                place = b.gep(places[k], [i], source_etype=memory_type(operands[k].dtype))
                prefetch(b, advance(b, place, self.ahead[k]))
        values, full, mask = self._values(refs, i, row(which), which)
        emit_ops(self.lanes, stage.ops, values)
        writes = row([len(self.kernel.inputs) + o for _, o in stage.stores])
        writes.store(pick(self.lanes, values, [x for x, _ in stage.stores]), i, full, mask)
        return pick(self.lanes, values, [f.arg for f in stage.folds])

    def _combine_lanes(self, combiners: list[Combiner], partials: list[Scratch], used: ir.Value) -> None:
        """By halves; lines not used hold nothing and would change nothing."""
        b, half = self.b, lanes_of_reduction(combiners[0].dtype) // 2
        while half:
            lines = Loop(b, i64(0), minimum(b, b.sub(used, i64(half)), i64(half)), 1)
            inner = self._each_vector()
            for combine, partial in zip(combiners, partials, strict=True):
                x = partial.load(inner.i, lines.i, self.pitch)
                y = partial.load(inner.i, b.add(lines.i, i64(half)), self.pitch)
                partial.store(combine(x, y), inner.i, lines.i, self.pitch)
            inner.end()
            lines.end()
            used = minimum(b, used, i64(half))
            half //= 2


def _across(o: Operand) -> Operand:
    """An operand as it lies along the vectors."""
    return o._replace(mode=o.mode.split()[0])


def _args(ops: Iterable[Op]) -> list[Any]:
    return [a for op in ops for a in op.args]
