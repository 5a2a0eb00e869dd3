"""Loop nests around kernel bodies: the pieces that the forms of kernels share.

A kernel is a function `kernel(pointers, plan, lo, hi)`: the operands' data pointers, an int64 array that holds everything about
sizes, and the range of the outermost dimension to work on (rows, or columns when there is one row), so that work can be split.

The plan: `[extent, grain, rows, ndim, n, m, sizes of the ndim outer dimensions..., one record for each operand, words of those
that are packed (pack.py), literals...]`; a record is `[offset, vector stride, loop stride, outer strides...]`, all in bytes; a
literal has eight bytes, its value first. `n` runs along the vectors; `m` is the reduced length of `cols`, and says how a `row`
kernel is split (row.py). The loop stride is that of `cols` along the reduced axis; of an output of `map`, not 0 asks for stores
that bypass the caches. Every plan begins with `extent`, the number of units that lo and hi count, and `grain`, the least number
of units that are worth a thread (0: never split).
Nothing here carries fast-math flags, so LLVM changes no bit of floating point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.ir.types import Lit, short_name
from fxgrad.kernels import language
from fxgrad.kernels.spec import Op, Operand, Ref, Scalar
from fxgrad.kernels.vector import Divisor, Vec, constant, llvm_type

__all__ = ["KERNEL_TYPE", "emit_kernel"]

I1, I8, I32, I64 = (ir.IntType(n) for n in (1, 8, 32, 64))
PTR = ir.PointerType()
KERNEL_TYPE = ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64])
MAX_NDIM = 64
_HEADER = 6
_LIKELY = [1000, 1]
_COPIES = 3  # of a long body in one kernel
_DIVISIONS = ("div", "lin_div")


def memory_type(dtype: np.dtype) -> ir.Type:
    """LLVM type of one element in memory (a boolean is a byte)."""
    return I8 if dtype.kind == "b" else llvm_type(dtype)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def splat_constant(t: ir.Type, lanes: int, values: Any) -> ir.Constant:
    return ir.Constant(ir.VectorType(t, lanes), list(values) if isinstance(values, (list, range)) else [values] * lanes)


class Loop:
    """`for i in range(lo, hi, step)` with values carried from one turn to the next, in `carried` inside and after.

    Without a step, `end` is told the next i.
    """

    def __init__(self, b: ir.IRBuilder, lo: ir.Value, hi: ir.Value, step: int | ir.Value | None, init: Sequence[ir.Value] = ()):
        self.b, self.step = b, i64(step) if isinstance(step, int) else step
        entry = b.block
        self.head, body, self.done = (b.append_basic_block(n) for n in ("head", "body", "done"))
        b.branch(self.head)
        b.position_at_end(self.head)
        self.i = b.phi(I64)
        self.i.add_incoming(lo, entry)
        self.carried = [b.phi(v.type) for v in init]
        for phi, v in zip(self.carried, init, strict=True):
            phi.add_incoming(v, entry)
        b.cbranch(b.icmp_signed("<", self.i, hi), body, self.done)
        b.position_at_end(body)

    def end(self, carried: Sequence[ir.Value] = (), following: ir.Value | None = None) -> None:
        """Close the loop; the builder goes on after it."""
        b = self.b
        if self.step is not None:
            following = b.add(self.i, self.step)
        self.i.add_incoming(following, b.block)
        for phi, v in zip(self.carried, carried, strict=True):
            phi.add_incoming(v, b.block)
        b.branch(self.head)
        b.position_at_end(self.done)


class Plan:
    """Reads the fields of a plan."""

    def __init__(self, b: ir.IRBuilder, address: ir.Value, count: int, scalars: Sequence[np.dtype] = (), words: int = 0):
        self.b, self.address = b, address
        self.extent, self.grain, self.rows, self.ndim, self.n, self.m = (self.at(i64(i)) for i in range(_HEADER))
        width = b.add(self.ndim, i64(3))
        first = b.add(self.ndim, i64(_HEADER))
        self.records = [b.add(first, b.mul(width, i64(k))) for k in range(count)]
        self.vector_strides = [self.at(b.add(r, i64(1))) for r in self.records]
        self.loop_strides = [self.at(b.add(r, i64(2))) for r in self.records]
        self.tail = b.add(first, b.mul(width, i64(count)))  # of so many words, which come before the literals
        self.literals = [self._literal(b.add(self.tail, i64(words + k)), dtype) for k, dtype in enumerate(scalars)]

    def _literal(self, index: ir.Value, dtype: np.dtype) -> ir.Value:
        return self.b.load(self.b.gep(self.address, [index], source_etype=I64), typ=memory_type(dtype), align=8)

    def at(self, index: ir.Value) -> ir.Value:
        """The entry with this index."""
        return self.b.load(self.b.gep(self.address, [index], source_etype=I64), typ=I64)

    def size(self, d: ir.Value) -> ir.Value:
        return self.at(self.b.add(d, i64(_HEADER)))

    def offset(self, k: int) -> ir.Value:
        return self.at(self.records[k])


def advance(b: ir.IRBuilder, pointer: ir.Value, by: ir.Value) -> ir.Value:
    return b.gep(pointer, [by], source_etype=I8)


class Nest:
    """The outer dimensions, walked like an odometer: row by row, with one moving pointer for each operand.

    The rows along the last of them are a run, walked with the pointers in registers. Going to a row, and from one run to the
    next, are functions that all kernels of a module share: they would be most of a small kernel's code.
    """

    def __init__(self, b: ir.IRBuilder, fn: ir.Function, count: int, scalars: Sequence[np.dtype] = (), words: int = 0):
        self.b, self.count = b, count
        pointers, address, lo, hi = fn.args
        self.index = opaque(b.alloca(I64, size=i64(MAX_NDIM)))
        self.slots = opaque(b.alloca(PTR, size=i64(count)))
        self.plan = Plan(b, address, count, scalars, words)
        self.flat = b.icmp_signed("<=", self.plan.rows, i64(1))
        for k in range(count):
            base = b.load(b.gep(pointers, [i64(k)], source_etype=PTR), typ=PTR)
            b.store(advance(b, base, self.plan.offset(k)), self._slot(k))
        self.lo, self.hi = lo, hi

    def split_columns(self) -> tuple[ir.Value, ir.Value]:
        """The range of columns; with more than one row, `lo` and `hi` count rows instead."""
        b = self.b
        columns = b.select(self.flat, self.lo, i64(0)), b.select(self.flat, self.hi, self.plan.n)
        self.lo, self.hi = b.select(self.flat, i64(0), self.lo), b.select(self.flat, self.plan.rows, self.hi)
        return columns

    def begin(self, indexed: bool = False) -> list[ir.Value]:
        """Open the loop over rows, `loop.i` being the row; the operands' pointers in this row.

        `indexed`: the row's index in the last dimension is wanted too.
        """
        b, ndim = self.b, self.plan.ndim
        self._call("nest_seek", _seek, self.lo)
        outer, last = b.icmp_signed(">", ndim, i64(0)), b.sub(ndim, i64(1))
        self.last = self._index(b.select(outer, last, i64(0)))
        self.strides = [self.plan.at(b.add(r, b.add(ndim, i64(2)))) for r in self.plan.records]
        size = b.select(outer, self.plan.size(last), i64(1))
        b.store(b.select(outer, b.load(self.last, typ=I64), i64(0)), self.last)
        self.runs = Loop(b, self.lo, self.hi, None)
        self.start = b.load(self.last, typ=I64)
        left, rest = b.sub(size, self.start), b.sub(self.hi, self.runs.i)
        self.stop = b.add(self.runs.i, b.select(b.icmp_signed("<", left, rest), left, rest))
        self.loop = Loop(b, self.runs.i, self.stop, 1, [b.load(self._slot(k), typ=PTR) for k in range(self.count)])
        if indexed:
            b.store(b.add(self.start, b.sub(self.loop.i, self.runs.i)), self.last)
        return self.loop.carried

    def _slot(self, k: int) -> ir.Value:
        return self.b.gep(self.slots, [i64(k)], source_etype=PTR)

    def _index(self, d: ir.Value) -> ir.Value:
        return self.b.gep(self.index, [d], source_etype=I64)

    def _call(self, name: str, emit: Callable[..., None], value: ir.Value) -> None:
        fn = _shared(self.b.module, name, 5, emit)
        self.b.call(fn, [self.slots, self.index, self.plan.address, i64(self.count), value])

    def end(self) -> None:
        """Step to the next row and close the loop."""
        b = self.b
        self.loop.end([advance(b, p, s) for p, s in zip(self.loop.carried, self.strides, strict=True)])
        with b.if_then(b.icmp_signed("<", self.stop, self.hi)):
            self._call("nest_next", _next, self.start)
        self.runs.end(following=self.stop)


def opaque(pointer: ir.Value) -> ir.Value:
    """A stack address as the untyped pointer it is to LLVM."""
    pointer.type = PTR
    return pointer


def _shared(module: ir.Module, name: str, arity: int, emit: Callable[..., None]) -> ir.Function:
    """A function of three pointers and integers, emitted once in a module."""
    fn = module.globals.get(name)
    if fn is None:
        fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR] * 3 + [I64] * (arity - 3)), name)
        fn.linkage = "internal"
        fn.attributes.add("nounwind")
        fn.attributes.add("noinline")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        emit(b, *fn.args)
    return fn


def _move(b: ir.IRBuilder, slots: ir.Value, plan: Plan, count: ir.Value, d: ir.Value, by: ir.Value) -> None:
    """Every operand's pointer `by` steps along dimension d."""
    width = b.add(plan.ndim, i64(3))
    first = b.add(b.add(plan.ndim, d), i64(_HEADER + 3))
    loop = Loop(b, i64(0), count, 1, [first])
    slot = b.gep(slots, [loop.i], source_etype=PTR)
    stride = plan.at(loop.carried[0])
    b.store(advance(b, b.load(slot, typ=PTR), b.mul(stride, by)), slot)
    loop.end([b.add(loop.carried[0], width)])


def _seek(b: ir.IRBuilder, slots: ir.Value, index: ir.Value, address: ir.Value, count: ir.Value, row: ir.Value) -> None:
    """From the first row to this one: its index in every dimension."""
    plan = Plan(b, address, 0)
    with b.if_then(b.icmp_signed("==", row, i64(0))):
        loop = Loop(b, i64(0), plan.ndim, 1)
        b.store(i64(0), b.gep(index, [loop.i], source_etype=I64))
        loop.end()
        b.ret_void()
    loop = Loop(b, i64(0), plan.ndim, 1, [row])
    d = b.sub(b.sub(plan.ndim, i64(1)), loop.i)
    size, rest = plan.size(d), loop.carried[0]
    quotient = b.sdiv(rest, size)
    i = b.sub(rest, b.mul(quotient, size))
    b.store(i, b.gep(index, [d], source_etype=I64))
    _move(b, slots, plan, count, d, i)
    loop.end([quotient])
    b.ret_void()


def _next(b: ir.IRBuilder, slots: ir.Value, index: ir.Value, address: ir.Value, count: ir.Value, start: ir.Value) -> None:
    """From where a run began to where the next one begins, carrying into outer dimensions."""
    plan = Plan(b, address, 0)
    test, step, carry, done = (b.append_basic_block(n) for n in ("test", "step", "carry", "stepped"))
    last, entry = b.sub(plan.ndim, i64(1)), b.block
    b.branch(test)
    b.position_at_end(test)
    d = b.phi(I64)
    d.add_incoming(last, entry)
    b.cbranch(b.icmp_signed(">=", d, i64(0)), step, done)
    b.position_at_end(step)
    place, size, run = b.gep(index, [d], source_etype=I64), plan.size(d), b.icmp_signed("==", d, last)
    before = b.select(run, start, b.load(place, typ=I64))
    after = b.add(before, i64(1))
    wraps = b.or_(run, b.icmp_signed(">=", after, size))
    after = b.select(wraps, i64(0), after)
    b.store(after, place)
    _move(b, slots, plan, count, d, b.sub(after, before))
    b.cbranch(wraps, carry, done)
    b.position_at_end(carry)
    d.add_incoming(b.sub(d, i64(1)), carry)
    b.branch(test)
    b.position_at_end(done)
    b.ret_void()


class Lanes:
    """Loads and stores of vectors, the last one of a row masked; the values of literals, read where this is made."""

    def __init__(self, b: ir.IRBuilder, lanes: int, literals: Sequence[ir.Value] = (), scalars: Sequence[np.dtype] = ()):
        self.b, self.lanes = b, lanes
        self.literals = [self.register(self.splat(v), dtype) for v, dtype in zip(literals, scalars, strict=True)]
        self.everything = splat_constant(I1, lanes, 1)
        self.like = Vec(b, self.everything, np.dtype(bool))  # lends constants the builder and the number of lanes

    def vector_type(self, dtype: np.dtype) -> ir.VectorType:
        return ir.VectorType(memory_type(dtype), self.lanes)

    def offsets(self, stride: ir.Value) -> ir.Value:
        """Byte offsets of the lanes of a strided operand."""
        return self.b.mul(self.splat(stride), splat_constant(I64, self.lanes, range(self.lanes)))

    def splat(self, scalar: ir.Value) -> ir.Value:
        """A scalar in every lane."""
        empty = ir.Constant(ir.VectorType(scalar.type, self.lanes), ir.Undefined)
        one = self.b.insert_element(empty, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, empty, splat_constant(I32, self.lanes, 0))

    def mask(self, remaining: ir.Value) -> ir.Value:
        """Lanes below `remaining` (fewer than all)."""
        few = self.splat(self.b.trunc(remaining, I32))
        return self.b.icmp_signed("<", splat_constant(I32, self.lanes, range(self.lanes)), few)

    def _call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        fn = self.b.module.declare_intrinsic(name, (), ir.FunctionType(result, [a.type for a in args]))
        return self.b.call(fn, args)

    def _suffix(self, dtype: np.dtype) -> str:
        return f"v{self.lanes}{ {'f': 'f'}.get(dtype.kind, 'i') }{8 * dtype.itemsize}"

    def register(self, v: ir.Value, dtype: np.dtype) -> Vec:
        """A loaded value as the kernel language holds it."""
        return Vec(self.b, self.b.icmp_unsigned("!=", v, ir.Constant(v.type, None)) if dtype.kind == "b" else v, dtype)

    def memory(self, x: Vec) -> ir.Value:
        """The reverse of `register`."""
        return self.b.zext(x.v, self.vector_type(x.dtype)) if x.dtype.kind == "b" else x.v

    def load(self, pointer: ir.Value, dtype: np.dtype) -> ir.Value:
        return self.b.load(pointer, typ=self.vector_type(dtype), align=dtype.itemsize)

    def load_masked(self, pointer: ir.Value, dtype: np.dtype, mask: ir.Value) -> ir.Value:
        t = self.vector_type(dtype)
        align = ir.Constant(I32, dtype.itemsize)
        return self._call(f"llvm.masked.load.{self._suffix(dtype)}.p0", t, pointer, align, mask, ir.Constant(t, None))

    def _addresses(self, pointer: ir.Value, offsets: ir.Value) -> ir.Value:
        instruction = self.b.gep(pointer, [offsets], source_etype=I8)
        instruction.type = ir.VectorType(PTR, self.lanes)  # llvmlite types a gep by its pointer alone
        return instruction

    def gather(self, pointer: ir.Value, offsets: ir.Value, dtype: np.dtype, mask: ir.Value) -> ir.Value:
        t = self.vector_type(dtype)
        align = ir.Constant(I32, dtype.itemsize)
        name = f"llvm.masked.gather.{self._suffix(dtype)}.v{self.lanes}p0"
        return self._call(name, t, self._addresses(pointer, offsets), align, mask, ir.Constant(t, None))

    def scatter(self, x: Vec, pointer: ir.Value, offsets: ir.Value, mask: ir.Value) -> None:
        align = ir.Constant(I32, x.dtype.itemsize)
        name = f"llvm.masked.scatter.{self._suffix(x.dtype)}.v{self.lanes}p0"
        self._call(name, ir.VoidType(), self.memory(x), self._addresses(pointer, offsets), align, mask)

    def store_streaming(self, v: ir.Value, pointer: ir.Value, dtype: np.dtype, stream: ir.Value) -> None:
        """Store a vector, in pieces of 16 bytes that bypass the caches if `stream` holds (the pointer is then so aligned)."""
        b = self.b
        plain, past, join = (b.append_basic_block(n) for n in ("cached", "streaming", "done"))
        b.cbranch(stream, past, plain)
        b.position_at_end(plain)
        b.store(v, pointer, align=dtype.itemsize)
        b.branch(join)
        b.position_at_end(past)
        piece = 16 // dtype.itemsize
        hint = b.module.add_metadata([I32(1)])
        undefined = ir.Constant(v.type, ir.Undefined)
        for s in range(0, self.lanes, piece):
            part = b.shuffle_vector(v, undefined, splat_constant(I32, piece, range(s, s + piece)))
            b.store(part, b.gep(pointer, [i64(s)], source_etype=memory_type(dtype)), align=16).set_metadata("nontemporal", hint)
        b.branch(join)
        b.position_at_end(join)

    def load_splat(self, pointer: ir.Value, dtype: np.dtype) -> Vec:
        scalar = self.b.load(pointer, typ=memory_type(dtype), align=dtype.itemsize)
        return self.register(self.splat(scalar), dtype)

    def divisors(self, ops: Sequence[Op], values: Sequence[Vec | None]) -> dict[Ref, Divisor]:
        """Those of `values` by which `ops` divide; the builder stands before their loop."""
        refs = sorted({r for op in ops if op.prim.name in _DIVISIONS and isinstance(r := op.args[1], int)})
        known = [(r, values[r]) for r in refs if r < len(values)]
        return {r: Divisor(x) for r, x in known if x is not None}

    def value(self, ref: Ref, values: Sequence[Vec]) -> Vec:
        """An operand of an operation: a literal, or the value with this number."""
        if isinstance(ref, Scalar):
            return self.literals[ref.number]
        return constant(self.like, ref.value, ref.aval.dtype) if isinstance(ref, Lit) else values[ref]


class Row:
    """Operands along one row of vectors: what does not change with the position is loaded or computed once.

    Indices that move others are no operands of vectors: None stands for them.
    """

    def __init__(self, lanes: Lanes, operands: Sequence[Operand], pointers: Sequence[ir.Value], strides: Sequence[ir.Value]):
        self.lanes, self.operands, self.pointers, self.strides = lanes, operands, pointers, strides
        self.offsets = [
            lanes.offsets(s) if o.mode in ("strided", "indirect") else None for o, s in zip(operands, strides, strict=True)
        ]
        self.splats = [
            lanes.load_splat(p, o.dtype) if o.mode == "splat" else None for o, p in zip(operands, pointers, strict=True)
        ]

    def _at(self, k: int, i: ir.Value) -> ir.Value:
        b, o = self.lanes.b, self.operands[k]
        if o.mode == "unit":
            return b.gep(self.pointers[k], [i], source_etype=memory_type(o.dtype))
        return advance(b, self.pointers[k], b.mul(self.strides[k], i))

    def load(self, i: ir.Value, stop: ir.Value) -> tuple[list[Vec], ir.Value, ir.Value]:
        """The vectors at positions i, i+1, ... below `stop`; also whether none is cut off, and the mask of lanes."""
        b, lanes = self.lanes.b, self.lanes
        remaining = b.sub(stop, i)
        full = b.icmp_signed(">=", remaining, i64(lanes.lanes))
        unit = [k for k, o in enumerate(self.operands) if o.mode == "unit"]
        places = {k: self._at(k, i) for k, o in enumerate(self.operands) if o.mode not in ("splat", "index")}
        whole, part, join = (b.append_basic_block(n) for n in ("whole", "part", "join"))
        b.cbranch(full, whole, part).set_weights(_LIKELY)
        b.position_at_end(whole)
        ways = [([lanes.load(places[k], self.operands[k].dtype) for k in unit], lanes.everything, whole)]
        b.branch(join)
        b.position_at_end(part)
        mask = lanes.mask(remaining)
        ways.append(([lanes.load_masked(places[k], self.operands[k].dtype, mask) for k in unit], mask, part))
        b.branch(join)
        b.position_at_end(join)
        merged = [b.phi(v.type) for v in ways[0][0]]
        mask_phi = b.phi(mask.type)
        for values, m, block in ways:
            mask_phi.add_incoming(m, block)
            for phi, v in zip(merged, values, strict=True):
                phi.add_incoming(v, block)
        loaded = dict(zip(unit, merged, strict=True))
        for k, o in enumerate(self.operands):
            if o.mode == "strided":
                loaded[k] = lanes.gather(places[k], self.offsets[k], o.dtype, mask_phi)
        out: list[Any] = []
        for k, o in enumerate(self.operands):
            if o.mode == "indirect":
                out.append(gather.Address(places[k], self.offsets[k], o.dtype))
            elif o.mode == "index":
                out.append(None)
            else:
                out.append(self.splats[k] if o.mode == "splat" else lanes.register(loaded[k], o.dtype))
        return out, full, mask_phi

    def load_whole(self, i: ir.Value) -> list[Any]:
        """The vectors at position i, none of which is cut off; every operand is `unit`, `splat` or `index`."""
        lanes = self.lanes
        loaded: list[Any] = []
        for k, (o, known) in enumerate(zip(self.operands, self.splats, strict=True)):
            if o.mode == "index":
                loaded.append(None)
                continue
            loaded.append(lanes.register(lanes.load(self._at(k, i), o.dtype), o.dtype) if known is None else known)
        return loaded

    def store_whole(self, values: Sequence[Vec], i: ir.Value) -> None:
        """Write whole vectors at position i; every operand is `unit`."""
        for k, (x, o) in enumerate(zip(values, self.operands, strict=True)):
            self.lanes.b.store(self.lanes.memory(x), self._at(k, i), align=o.dtype.itemsize)

    def store(
        self, values: Sequence[Vec], i: ir.Value, full: ir.Value, mask: ir.Value, streams: Sequence[ir.Value | None] = ()
    ) -> None:
        """Write the vectors at position i; where the flag in `streams` is set, past the caches."""
        b, lanes = self.lanes.b, self.lanes
        unit = []
        for k, (x, o) in enumerate(zip(values, self.operands, strict=True)):
            if o.mode == "unit":
                unit.append((lanes.memory(x), self._at(k, i), o.dtype, streams[k] if streams else None))
            else:
                lanes.scatter(x, self._at(k, i), self.offsets[k], mask)
        if not unit:
            return
        whole, part, join = (b.append_basic_block(n) for n in ("store", "store_part", "stored"))
        b.cbranch(full, whole, part).set_weights(_LIKELY)
        b.position_at_end(whole)
        for v, pointer, dtype, stream in unit:
            if stream is None:
                b.store(v, pointer, align=dtype.itemsize)
            else:
                lanes.store_streaming(v, pointer, dtype, stream)
        b.branch(join)
        b.position_at_end(part)
        for v, pointer, dtype, _ in unit:
            align = ir.Constant(I32, dtype.itemsize)
            lanes._call(f"llvm.masked.store.{lanes._suffix(dtype)}.p0", ir.VoidType(), v, pointer, align, mask)
        b.branch(join)
        b.position_at_end(join)


def emit_ops(
    lanes: Lanes,
    ops: Sequence[Op],
    values: list[Vec],
    where: tuple[ir.Value, ir.Value] | None = None,
    divisors: Mapping[Ref, Divisor] = MappingProxyType({}),
) -> None:
    """Emit the operations in order, appending each one's value.

    `where` has, for those that read at computed places, the mask of lanes and the place of the status; `divisors` the values
    that were known before the loop.

    A long body that is needed often is called: compile time stays linear in the calls.
    """
    uses = Counter((op.prim.name, op.params, op.dtype) for op in ops)
    for op in ops:
        if gather.is_gather(op):
            assert where is not None
            values.append(gather.emit_gather(lanes, op, values, *where))
            continue
        args = [lanes.value(a, values) for a in op.args]
        if op.prim.name in _DIVISIONS:
            if isinstance(op.args[1], Scalar):
                with lanes.b.goto_entry_block():
                    args[1] = Divisor(args[1])
            args[1] = divisors.get(op.args[1], args[1])
        few = op.prim.cheap or uses[op.prim.name, op.params, op.dtype] <= _COPIES
        values.append(_body(op, args) if few else _call_body(op, args))


def _body(op: Op, args: Sequence[Vec]) -> Vec:
    assert op.prim.body is not None
    result = op.prim.body(language, *args, **dict(op.params))
    if result.dtype != op.dtype:
        raise TypeError(f"the body of '{op.prim.name}' gives {result.dtype}, its type rule says {op.dtype}")
    return result


def _call_body(op: Op, args: Sequence[Vec]) -> Vec:
    """Call a body as a function of its own, emitted once in a module."""
    b = args[0].b
    types = "_".join(f"{short_name(a.dtype)}" for a in args)
    name = "_".join([op.prim.name, *(f"{k}{v}" for k, v in op.params), types, f"x{args[0].lanes}"])
    fn = b.module.globals.get(name)
    if fn is None:
        result = ir.VectorType(llvm_type(op.dtype), args[0].lanes)
        fn = ir.Function(b.module, ir.FunctionType(result, [a.v.type for a in args]), name)
        fn.linkage, fn.calling_convention = "internal", "fastcc"
        fn.attributes.add("nounwind")
        fn.attributes.add("optsize")
        inner = ir.IRBuilder(fn.append_basic_block("entry"))
        inner.ret(_body(op, [Vec(inner, v, a.dtype) for v, a in zip(fn.args, args, strict=True)]).v)
    return Vec(b, b.call(fn, [a.v for a in args], cconv="fastcc"), op.dtype)


def pick(lanes: Lanes, values: Sequence[Vec], refs: Sequence[Ref]) -> list[Vec]:
    return [lanes.value(r, values) for r in refs]


def kernel_function(module: ir.Module, name: str) -> ir.Function:
    """An internal function of a module with the signature of kernels."""
    fn = ir.Function(module, KERNEL_TYPE, name)
    fn.linkage = "internal"
    fn.attributes.add("nounwind")
    fn.attributes.add("optsize")  # no unrolling beside the lanes spelled out: a third less to compile, nothing slower
    return fn


def emit_kernel(kernel: Any, module: ir.Module, name: str) -> ir.Function:
    """Add the kernel to an LLVM module as an internal function."""
    if hasattr(kernel, "emit"):
        return kernel.emit(module, name)
    from fxgrad.kernels import cols, map, row, scatter

    fn = kernel_function(module, name)
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    forms = {"row": row.emit_row, "cols": cols.emit_cols, "put": scatter.emit_scatter, "add": scatter.emit_scatter}
    forms.get(kernel.form, map.emit_map)(kernel, fn, b)
    return fn


from fxgrad.kernels import gather  # noqa: E402  (it needs what is above)
