"""Row kernels: each row of the space is walked in one or several passes while it stays in cache.

A pass computes vectors along the row, reduces some of them by the fixed tree of reduction.py, stores some and keeps others in a
scratch for later passes. What a row has one value of (results of reductions, operands that do not change along the row) is a
vector of equal lanes, and the operations between passes run on such vectors once a row. Operands that no single stride leads
through are brought in order, and results back, a block of the row at a time (pack.py).

A kernel with one pass can be split along its rows as well, by the plan's `m`: 0: units are whole rows. Above 0: a unit is a
block of a row of m elements (n is the block's length, the last outer dimension counts blocks), and each unit writes its results
of reductions to temporaries. Below 0: n of those are combined for each row, from left to right, and the row is finished.
Pointers: operands, outputs along the row; with m the temporaries, one for each reduction; outputs of one value a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.kernels.gather import emit_move, status_of
from fxgrad.kernels.loops import I8, I32, I64, PTR, Lanes, Loop, Nest, Row, advance, emit_ops, i64, memory_type, pick
from fxgrad.kernels.pack import emit_pack, words
from fxgrad.kernels.reduction import Combiner, minimum
from fxgrad.kernels.spec import PACK_DIMS, Kernel, Operand, Stage, cost, lanes_of_reduction, reduction_block
from fxgrad.kernels.vector import Vec

__all__ = ["emit_row"]

_BLOCK = 4096  # elements that are packed at a time where nothing is reduced
_SHORT = 4  # operations of a pass that takes less time than its bookkeeping: whole vectors have a loop of their own
_FETCH = 15  # cheap operations that take the time of a vector's way from memory


def emit_row(kernel: Kernel, fn: ir.Function, b: ir.IRBuilder) -> None:
    """Row by row, stage by stage."""
    _Emitter(kernel, fn, b).emit()


def _fetching(kernel: Kernel, operands: int) -> dict[int, list[int]]:
    """In which stage the next row of each operand is fetched into cache: there is time where much is computed.

    A pass over memory would leave the arithmetic of the others idle, and no hardware looks beyond a page. Of a single pass it
    does see the next row coming.
    """
    work = {s: sum(cost(op.prim) for op in stage.ops) for s, stage in enumerate(kernel.stages) if stage.passes}
    out: dict[int, list[int]] = {}
    if len(work) > 1:
        for k in range(operands):
            best = max(work, key=lambda s: work[s])
            out.setdefault(best, []).append(k)
            work[best] -= _FETCH
    return out


class _Emitter:
    """What the stages of one kernel share: `values` by number (None for what exists within a pass only), homes of kept ones."""

    def __init__(self, kernel: Kernel, fn: ir.Function, b: ir.IRBuilder):
        self.kernel, self.b, self.pointers = kernel, b, fn.args[0]
        self.walked = kernel.outputs[: len(kernel.outputs) - len(kernel.results)]
        self.operands = (*kernel.inputs, *self.walked)
        self.packed = [k for k in kernel.packed if k < len(self.operands)]
        self.nest = Nest(b, fn, len(self.operands), kernel.scalars, 2 * PACK_DIMS * len(self.packed))
        self.lanes, self.single = Lanes(b, kernel.lanes, self.nest.plan.literals, kernel.scalars), Lanes(b, 1)
        self.combiners = [Combiner(b, f) for f in kernel.folds]
        self.dtypes = self._dtypes()
        self.fetched = _fetching(kernel, len(self.operands))
        self.origin: ir.Value = i64(0)  # the number of the row's element at which a walk begins
        self.kept = self._scratch([k for s in kernel.stages for k in s.keeps])
        self.block = max([reduction_block(f.dtype) for f in kernel.folds], default=_BLOCK)
        self.ordered = {k: self._room(self.operands[k].dtype) for k in self.packed}  # where blocks of packed operands lie
        self.status = self._status() if kernel.checks else None

    def _dtypes(self) -> list[np.dtype]:
        dtypes = [o.dtype for o in self.kernel.inputs]
        for s in self.kernel.stages:
            dtypes += [op.dtype for op in (*s.before, *s.ops)] + [f.dtype for f in s.folds]
        return dtypes

    def _room(self, dtype: np.dtype) -> ir.Value:
        room = self.b.alloca(I8, size=i64(self.block * dtype.itemsize + 64))
        room.align, room.type = 64, PTR
        return room

    def _status(self) -> ir.Value:
        """Where the kernel says that an index is out of bounds: after the operands, of which a split kernel has others."""
        b, m = self.b, self.nest.plan.m
        temporaries, ends = (i64(len(x)) for x in (self.kernel.folds, self.kernel.results))
        split = b.select(b.icmp_signed(">", m, i64(0)), temporaries, b.add(temporaries, ends))
        return status_of(b, self.pointers, b.add(i64(len(self.operands)), b.select(b.icmp_signed("==", m, i64(0)), ends, split)))

    def _scratch(self, keeps: Sequence[int]) -> dict[int, ir.Value]:
        """Room for one row of each kept value, on the stack: plans keep it small."""
        b = self.b
        if not keeps:
            return {}
        width = max(self.dtypes[k].itemsize for k in keeps)
        # lines a power of two apart would fall on one set of the cache
        pitch = b.and_(b.add(b.mul(self.nest.plan.n, i64(width)), i64(64 + 63)), i64(-64))
        base = b.alloca(I8, size=b.add(b.mul(pitch, i64(len(keeps))), i64(64)))
        base.align, base.type = 64, PTR
        return {k: advance(b, base, b.mul(pitch, i64(slot))) for slot, k in enumerate(keeps)}

    def emit(self) -> None:
        b = self.b
        self.starts = list(self.nest.begin(indexed=True))
        places = dict(enumerate(self.starts))
        for m in self.kernel.moved:
            self.starts[m.operand] = emit_move(b, self.kernel, self.nest.plan, m, self.starts[m.operand], places, self.status)
        self.values: list[Any] = [
            self.lanes.load_splat(p, o.dtype) if o.mode == "splat" else None
            for o, p in zip(self.kernel.inputs, self.starts, strict=False)
        ]
        if self.kernel.splits:
            self._split()
        else:
            for stage in self.kernel.stages:
                self._before(stage)
                if stage.passes:
                    self._spread(stage, self._pass(stage))
            self._finish(i64(0))
        self.nest.end()
        b.ret_void()

    def _before(self, stage: Stage) -> None:
        emit_ops(self.lanes, stage.before, self.values)

    def _spread(self, stage: Stage, totals: Sequence[Vec]) -> None:
        """After a pass: its vectors are gone, its results of reductions are there, in every lane."""
        b = self.b
        self.values += [None] * len(stage.ops)
        self.values += [Vec(b, self.lanes.splat(b.extract_element(t.v, I32(0))), t.dtype) for t in totals]

    def _finish(self, temporaries: ir.Value) -> None:
        """Store what the row has one value of."""
        b, first = self.b, len(self.operands)
        outputs = self.kernel.outputs[len(self.walked) :]
        for j, (x, o) in enumerate(zip(pick(self.lanes, self.values, self.kernel.results), outputs, strict=True)):
            place = b.gep(
                self._pointer(b.add(temporaries, i64(first + j))), [self.nest.loop.i], source_etype=memory_type(o.dtype)
            )
            b.store(b.extract_element(self.lanes.memory(x), I32(0)), place, align=o.dtype.itemsize)

    def _pointer(self, index: ir.Value) -> ir.Value:
        return self.b.load(self.b.gep(self.pointers, [index], source_etype=PTR), typ=PTR)

    # ---- a row in blocks -------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        b, plan = self.b, self.nest.plan
        stage, *rest = self.kernel.stages
        self._before(stage)
        combining, passing, joined, store, finish, done = (
            b.append_basic_block(x) for x in ("combine", "pass", "total", "store_total", "finish", "row_done")
        )
        b.cbranch(b.icmp_signed("<", plan.m, i64(0)), combining, passing)
        b.position_at_end(combining)
        ways = [(self._combined(), b.block)]
        b.branch(joined)
        b.position_at_end(passing)
        ways.append((self._pass(stage, self._length()), b.block))
        b.branch(joined)
        b.position_at_end(joined)
        totals = []
        for f, combine in enumerate(self.combiners):
            phi = b.phi(ways[0][0][f].v.type)
            for way, block in ways:
                phi.add_incoming(way[f].v, block)
            totals.append(Vec(b, phi, combine.dtype))
        b.cbranch(b.icmp_signed(">", plan.m, i64(0)), store, finish)
        b.position_at_end(store)
        for f, x in enumerate(totals):
            b.store(
                b.extract_element(self.single.memory(x), I32(0)), self._temporary(f, self.nest.loop.i), align=x.dtype.itemsize
            )
        b.branch(done)
        b.position_at_end(finish)
        self._spread(stage, totals)
        for s in rest:
            self._before(s)
        self._finish(b.select(b.icmp_signed("<", plan.m, i64(0)), i64(len(totals)), i64(0)))
        b.branch(done)
        b.position_at_end(done)

    def _length(self) -> ir.Value:
        """Elements of this unit: of the row, or of the block, the last of which may be shorter."""
        b, plan = self.b, self.nest.plan
        last = b.select(b.icmp_signed(">", plan.m, i64(0)), b.sub(plan.ndim, i64(1)), i64(0))
        block = b.load(self.nest._index(last), typ=I64)
        left = b.sub(plan.m, b.mul(block, plan.n))
        self.origin = b.select(b.icmp_signed(">", plan.m, i64(0)), b.mul(block, plan.n), i64(0))
        return b.select(b.icmp_signed(">", plan.m, i64(0)), minimum(b, plan.n, left), plan.n)

    def _temporary(self, fold: int, i: ir.Value) -> ir.Value:
        start = self._pointer(i64(len(self.operands) + fold))
        return self.b.gep(start, [i], source_etype=memory_type(self.combiners[fold].dtype))

    def _combined(self) -> list[Vec]:
        b, n = self.b, self.nest.plan.n
        first = b.mul(self.nest.loop.i, n)
        loop = Loop(b, i64(0), n, 1, [c.identity(self.single).v for c in self.combiners])
        totals = []
        for f, (combine, v) in enumerate(zip(self.combiners, loop.carried, strict=True)):
            block = self.single.load_splat(self._temporary(f, b.add(first, loop.i)), combine.dtype)
            totals.append(combine(Vec(b, v, combine.dtype), block).v)
        loop.end(totals)
        return [Vec(b, v, c.dtype) for v, c in zip(loop.carried, self.combiners, strict=True)]

    # ---- a pass ----------------------------------------------------------------------------------------------------------

    def _pass(self, stage: Stage, length: ir.Value | None = None) -> list[Vec]:
        """One walk along the row; the reductions' results, of one lane."""
        b, n = self.b, self.nest.plan.n if length is None else length
        walk = _Walk(self, stage)
        if not stage.folds:
            self._pass_in_blocks(walk, n)
            return []
        combiners = [Combiner(b, f) for f in stage.folds]
        block = reduction_block(stage.folds[0].dtype)
        walk.begin()
        outer = Loop(b, i64(0), n, block, [c.identity(self.single).v for c in combiners])
        stop = minimum(b, b.add(outer.i, i64(block)), n)
        walk.begin_block(outer.i, stop)
        results = _lanes_of_block(walk, combiners, outer.i, stop)
        walk.end_block(outer.i, stop)
        totals = [Vec(b, v, c.dtype) for v, c in zip(outer.carried, combiners, strict=True)]
        outer.end([c(t, c.halves(r)).v for c, t, r in zip(combiners, totals, results, strict=True)])
        return [Vec(b, v, c.dtype) for v, c in zip(outer.carried, combiners, strict=True)]

    def _pass_in_blocks(self, walk: _Walk, n: ir.Value) -> None:
        """A walk that reduces nothing; in blocks where operands have to be brought in order."""
        b = self.b
        walk.begin()
        if not walk.packed:
            loop = Loop(b, i64(0), n, self.lanes.lanes)
            walk.at(loop.i, n)
            loop.end()
            return
        outer = Loop(b, i64(0), n, self.block)
        stop = minimum(b, b.add(outer.i, i64(self.block)), n)
        walk.begin_block(outer.i, stop)
        loop = Loop(b, outer.i, stop, self.lanes.lanes)
        walk.at(loop.i, stop)
        loop.end()
        walk.end_block(outer.i, stop)
        outer.end()


class _Walk:
    """The body of a pass, at any position of the row."""

    def __init__(self, e: _Emitter, stage: Stage):
        self.e, self.stage = e, stage
        inputs, strides = e.kernel.inputs, e.nest.plan.vector_strides
        refs = [a for op in stage.ops for a in op.args] + [f.arg for f in stage.folds] + [r for r, _ in stage.stores]
        used = sorted({r for r in refs if isinstance(r, int)})
        self.loaded = [r for r in used if r < len(e.values) and e.values[r] is None]
        self.stored = [len(inputs) + o for _, o in stage.stores]
        self.packed = [k for k in e.packed if k in self.loaded or k in self.stored]
        self.strides = strides
        self.divisors = e.lanes.divisors(stage.ops, e.values)
        self.ahead = self._ahead()

    def begin(self) -> None:
        """Before the walk; where operands are packed each block has a beginning of its own."""
        if not self.packed:
            self._operands({})

    def begin_block(self, start: ir.Value, stop: ir.Value) -> None:
        """Bring in order what this block reads."""
        e, b, places = self.e, self.e.b, {}
        for k in self.packed:
            t = memory_type(e.operands[k].dtype)
            places[k] = b.gep(e.ordered[k], [b.neg(start)], source_etype=t)  # position i of the row lies at i - start
            if k in self.loaded:
                self._pack(k, False, start, stop)
        if self.packed:
            self._operands(places)

    def end_block(self, start: ir.Value, stop: ir.Value) -> None:
        """Put in its place what this block has written."""
        for k in self.packed:
            if k in self.stored:
                self._pack(k, True, start, stop)

    def _pack(self, k: int, back: bool, start: ir.Value, stop: ir.Value) -> None:
        e, b = self.e, self.e.b
        place = words(b, e.nest.plan, e.packed.index(k))
        first = b.add(e.origin, start)
        emit_pack(b, e.operands[k].dtype.itemsize, back, e.ordered[k], e.starts[k], place, first, b.sub(stop, start))

    def _operands(self, places: dict[int, ir.Value]) -> None:
        """What is read and written; `places` are those of packed operands."""
        e, stage = self.e, self.stage

        def operand(k: int) -> tuple[Operand, ir.Value, ir.Value]:
            if k in places:
                return e.operands[k]._replace(mode="unit"), places[k], i64(e.operands[k].dtype.itemsize)
            return e.operands[k], e.starts[k], self.strides[k]

        def kept(k: int) -> tuple[Operand, ir.Value, ir.Value]:
            return Operand(e.dtypes[k], "unit"), e.kept[k], i64(e.dtypes[k].itemsize)

        reads = [operand(r) if r < len(e.kernel.inputs) else kept(r) for r in self.loaded]
        writes = [operand(k) for k in self.stored] + [kept(k) for k in stage.keeps]
        self.reads, self.writes = (Row(e.lanes, *(zip(*x, strict=True) if x else ((), (), ()))) for x in (reads, writes))

    def is_short(self) -> bool:
        """Whether a reducing pass does so little that asking for each vector if it is whole would take longer."""
        ops, plain = self.stage.ops, all(o.mode in ("unit", "splat") for o in (*self.reads.operands, *self.writes.operands))
        return plain and not self.ahead and len(ops) <= _SHORT and all(op.prim.cheap for op in ops)

    def _ahead(self) -> list[tuple[ir.Value, np.dtype, int]]:
        """Where the next row begins of those operands that this pass fetches, and whether they are to be written."""
        e, b, plan = self.e, self.e.b, self.e.nest.plan
        moved = {m.operand for m in e.kernel.moved}
        mine = [
            k for k in e.fetched.get(e.kernel.stages.index(self.stage), ()) if e.operands[k].mode == "unit" and k not in moved
        ]
        if not mine:
            return []
        last = b.select(b.icmp_signed(">", plan.ndim, i64(0)), b.sub(plan.ndim, i64(1)), i64(0))
        return [
            (
                advance(b, e.starts[k], plan.at(b.add(b.add(plan.records[k], last), i64(3)))),
                e.operands[k].dtype,
                int(k >= len(e.kernel.inputs)),
            )
            for k in mine
        ]

    def _fetch(self, i: ir.Value) -> None:
        """Ask for what lies at this position of the next row; beyond the last row that is nothing, and does no harm."""
        b = self.e.b
        for start, dtype, write in self.ahead:
            place = b.gep(start, [i], source_etype=memory_type(dtype))
            kind = ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32])
            b.call(b.module.declare_intrinsic("llvm.prefetch.p0", (), kind), [place, I32(write), I32(2), I32(1)])

    def at(self, i: ir.Value, stop: ir.Value) -> tuple[list[Vec], ir.Value]:
        """Do position i: load, compute, store. What the reductions take, and the mask of lanes."""
        e = self.e
        self._fetch(i)
        loaded, full, mask = self.reads.load(i, stop)
        values = self._computed(loaded, None if e.status is None else (mask, e.status))
        self.writes.store(self._written(values), i, full, mask)
        return self._folded(values), mask

    def at_whole(self, i: ir.Value) -> list[Vec]:
        """The same where no lane is beyond the end, of a short pass."""
        values = self._computed(self.reads.load_whole(i), None)
        self.writes.store_whole(self._written(values), i)
        return self._folded(values)

    def _computed(self, loaded: Sequence[Vec], where: tuple[ir.Value, ir.Value] | None) -> list[Any]:
        values = list(self.e.values)
        for r, x in zip(self.loaded, loaded, strict=True):
            values[r] = x
        emit_ops(self.e.lanes, self.stage.ops, values, where, self.divisors)
        return values

    def _written(self, values: list[Any]) -> list[Vec]:
        return pick(self.e.lanes, values, [*(r for r, _ in self.stage.stores), *self.stage.keeps])

    def _folded(self, values: list[Any]) -> list[Vec]:
        return pick(self.e.lanes, values, [f.arg for f in self.stage.folds])


def _lanes_of_block(walk: _Walk, combiners: Sequence[Combiner], start: ir.Value, stop: ir.Value) -> list[Vec]:
    """A block's lanes, combined down to one register for each reduction.

    The body is emitted once; the registers rotate, so that each vector meets the one that is its turn. The number of turns
    is rounded up to whole rotations, the vectors beyond the end being identities. A short body is emitted once for each
    register besides, for the rotations that are whole.
    """
    lanes = walk.e.lanes
    b = lanes.b
    count = lanes_of_reduction(combiners[0].dtype) // lanes.lanes
    turn = i64(count * lanes.lanes)
    registers = [x.v for x in [c.identity(lanes) for c in combiners] for _ in range(count)]
    if walk.is_short():
        whole = b.add(start, b.mul(b.sdiv(b.sub(stop, start), turn), turn))
        loop = Loop(b, start, whole, count * lanes.lanes, registers)
        turns = [walk.at_whole(b.add(loop.i, i64(j * lanes.lanes))) for j in range(count)]
        following = [
            combine(Vec(b, loop.carried[k * count + j], combine.dtype), values[k]).v
            for k, combine in enumerate(combiners)
            for j, values in enumerate(turns)
        ]
        loop.end(following)
        start, registers = whole, loop.carried
    registers = _rotated(walk, combiners, count, start, stop, registers)
    results = []
    for k, combine in enumerate(combiners):
        lines = [Vec(b, v, combine.dtype) for v in registers[k * count : (k + 1) * count]]
        while len(lines) > 1:
            half = len(lines) // 2
            lines = [combine(x, y) for x, y in zip(lines[:half], lines[half:], strict=True)]
        results.append(lines[0])
    return results


def _rotated(
    walk: _Walk, combiners: Sequence[Combiner], count: int, start: ir.Value, stop: ir.Value, registers: Sequence[ir.Value]
) -> list[ir.Value]:
    """The registers after the vectors from `start` on, the last of which may be cut off."""
    lanes = walk.e.lanes
    b, turn = lanes.b, i64(count * lanes.lanes)
    turns = b.mul(b.sdiv(b.add(b.sub(stop, start), b.sub(turn, i64(1))), turn), turn)
    loop = Loop(b, start, b.add(start, turns), lanes.lanes, registers)
    values, mask = walk.at(loop.i, stop)
    following: list[ir.Value] = []
    for k, (combine, x) in enumerate(zip(combiners, values, strict=True)):
        first, *others = loop.carried[k * count : (k + 1) * count]
        kept = Vec(b, b.select(mask, x.v, combine.identity(lanes).v), combine.dtype)
        following += [*others, combine(Vec(b, first, combine.dtype), kept).v]
    loop.end(following)
    return loop.carried
