"""The pieces of a matrix product: a register block of results, and the packing of panels.

Both are LLVM functions emitted into the module of the kernel that calls them. Which register block is taken depends on the CPU;
an element's bits do not, because every block computes the same chain of fused multiply-adds for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from fxgrad.kernels.loops import I1, I8, I32, I64, PTR, Lanes, Loop, i64, memory_type, splat_constant
from fxgrad.kernels.vector import _target_features

__all__ = [
    "LINE", "Block", "Tile", "at", "concatenate", "helper_function", "internal_function", "masks_are_free", "pack_function",
    "parts_of_batches", "prefetch", "register_block", "smaller", "store_masked", "transpose_quads",
]  # fmt: skip

LINE = 64  # bytes of a line of the cache
_AHEAD = 16  # k by which what is being streamed is asked for in advance
_TOGETHER = 16  # k packed at a time
_TURNED = 32  # bytes of vectors that are transposed: half the code of 64 bytes, and as fast


class Block(NamedTuple):
    """A register block: `rows` rows by `vectors` vectors of `lanes` columns; `few` rows where fewer are left."""

    rows: int
    few: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def register_block(dtype: np.dtype) -> Block:
    """The register block for the CPU that code is generated for; its sums must outlast the latency of an fma."""
    features = _target_features().split(",")
    if "+avx512f" in features:
        return Block(12, 4, 2, 64 // dtype.itemsize)
    if "+avx2" in features:
        return Block(6, 2, 2, 32 // dtype.itemsize)
    return Block(8 if "+neon" in features else 4, 2, 2, 16 // dtype.itemsize)


def masks_are_free() -> bool:
    return "+avx512f" in _target_features().split(",")


def internal_function(module: ir.Module, name: str, t: ir.FunctionType) -> tuple[ir.Function, ir.IRBuilder]:
    """A new function of the module's own, and a builder at its start."""
    fn = ir.Function(module, t, name)
    fn.linkage = "internal"
    for attribute in ("nounwind", "optsize"):
        fn.attributes.add(attribute)
    return fn, ir.IRBuilder(fn.append_basic_block("entry"))


def helper_function(module: ir.Module, name: str, arguments: Sequence[ir.Type]) -> tuple[ir.Function, ir.IRBuilder]:
    """A function that is never inlined, so that its registers are its own."""
    fn, b = internal_function(module, name, ir.FunctionType(ir.VoidType(), arguments))
    fn.attributes.add("noinline")
    return fn, b


def at(b: ir.IRBuilder, pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
    """The pointer moved by `offset` bytes."""
    return b.gep(pointer, [i64(offset) if isinstance(offset, int) else offset], source_etype=I8)


def smaller(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, y), x, y)


def parts_of_batches(b: ir.IRBuilder, lo: ir.Value, hi: ir.Value, units: ir.Value) -> tuple[Loop, ir.Value, ir.Value]:
    """Open the loop over batches of `units` units that lo to hi meet; of each, the first and the last unit but one."""
    loop = Loop(b, b.sdiv(lo, units), b.sdiv(b.add(hi, b.sub(units, i64(1))), units), 1)
    first = b.mul(loop.i, units)
    low, high = b.sub(lo, first), smaller(b, b.sub(hi, first), units)
    return loop, b.select(b.icmp_signed("<", low, i64(0)), i64(0), low), high


def opaque(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    """The same pointer; LLVM cannot tell how it came about, and so does not rewrite the addressing of a loop."""
    return b.call(ir.InlineAsm(ir.FunctionType(PTR, [PTR]), "", "=r,0"), [pointer])


class Tile:
    """Emits one register block: `rows` by `vectors` sums over k, kept in registers."""

    def __init__(self, b: ir.IRBuilder, dtype: np.dtype, rows: int, vectors: int, lanes: int):
        self.b, self.dtype, self.rows, self.vectors = b, dtype, rows, vectors
        self.lanes = Lanes(b, lanes)
        self.masks: list[ir.Value | None] = [None] * vectors

    def mask(self, columns: ir.Value) -> None:
        """Leave out the columns from `columns` on."""
        n = self.lanes.lanes
        self.masks = [self.lanes.mask(self.b.sub(columns, i64(j * n))) for j in range(self.vectors)]

    def place(self, pointer: ir.Value, j: int) -> ir.Value:
        return at(self.b, pointer, j * self.lanes.lanes * self.dtype.itemsize)

    def load(self, pointer: ir.Value, j: int) -> ir.Value:
        mask, place = self.masks[j], self.place(pointer, j)
        return self.lanes.load(place, self.dtype) if mask is None else self.lanes.load_masked(place, self.dtype, mask)

    def store(self, value: ir.Value, pointer: ir.Value, j: int) -> None:
        mask, place = self.masks[j], self.place(pointer, j)
        if mask is None:
            self.b.store(value, place, align=self.dtype.itemsize)
        else:
            store_masked(self.lanes, value, place, self.dtype, mask)

    def multiply_add(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x*y + z, rounded once."""
        if self.dtype.kind != "f":
            return self.b.add(self.b.mul(x, y), z)
        return self.lanes._call(f"llvm.fma.{self.lanes._suffix(self.dtype)}", z.type, x, y, z)

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.fadd(x, y) if self.dtype.kind == "f" else self.b.add(x, y)

    def step(self, sums: Sequence[ir.Value], a: Sequence[ir.Value], a_row: ir.Value, y: ir.Value) -> list[ir.Value]:
        """One k: every row's element of the first operand times the vectors of the second; rows share pointers in groups."""
        right, group = [self.load(y, j) for j in range(self.vectors)], self.rows // len(a)
        result = []
        for i in range(self.rows):
            place = at(self.b, a[i // group], self.b.mul(a_row, i64(i % group))) if i % group else a[i // group]
            x = self.lanes.load_splat(place, self.dtype).v
            result += [self.multiply_add(x, r, sums[i * self.vectors + j]) for j, r in enumerate(right)]
        return result

    def sum(self, a: Sequence[ir.Value], a_row: ir.Value, a_k: ir.Value, y: ir.Value, y_k: ir.Value, length: ir.Value) -> list:
        """The chains over one block of k."""
        b, n = self.b, len(a)
        zero = ir.Constant(self.lanes.vector_type(self.dtype), None)
        a_ahead, y_ahead = (b.mul(stride, i64(_AHEAD)) for stride in (a_k, y_k))
        loop = Loop(b, i64(0), length, 1, [*a, y] + [zero] * (self.rows * self.vectors))
        places, y, sums = loop.carried[:n], loop.carried[n], loop.carried[n + 1 :]
        prefetch(b, at(b, places[0], a_ahead))
        for j in range(self.vectors):
            prefetch(b, self.place(at(b, y, y_ahead), j))
        sums = self.step(sums, places, a_row, y)
        loop.end([*(opaque(b, at(b, p, a_k)) for p in places), at(b, y, y_k), *sums])
        return loop.carried[n + 1 :]

    def write(self, sums: Sequence[ir.Value], rows: Sequence[ir.Value], first: ir.Value) -> None:
        """Store the sums, or add them to what is there; rows may coincide, since all is read before anything is written."""
        b, n = self.b, self.vectors
        only, more, done = (b.append_basic_block(name) for name in ("only", "more", "done"))
        b.cbranch(first, only, more)
        for block, fresh in ((only, True), (more, False)):
            b.position_at_end(block)
            values = sums if fresh else [self.add(self.load(rows[i // n], i % n), s) for i, s in enumerate(sums)]
            for i, s in enumerate(values):
                self.store(s, rows[i // n], i % n)
            b.branch(done)
        b.position_at_end(done)


def store_masked(lanes: Lanes, value: ir.Value, place: ir.Value, dtype: np.dtype, mask: ir.Value) -> None:
    align = ir.Constant(I32, dtype.itemsize)
    lanes._call(f"llvm.masked.store.{lanes._suffix(dtype)}.p0", ir.VoidType(), value, place, align, mask)


def prefetch(b: ir.IRBuilder, place: ir.Value) -> None:
    """Ask for a line that will be read; the address need not exist."""
    fn = b.module.declare_intrinsic("llvm.prefetch.p0", (), ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32]))
    b.call(fn, [place, *(ir.Constant(I32, n) for n in (0, 3, 1))])


# ---- packing -------------------------------------------------------------------------------------------------------------


def transpose(b: ir.IRBuilder, rows: Sequence[ir.Value], size: int) -> list[ir.Value]:
    """The columns of a square of vectors; `size` is that of an element in bytes.

    First squares within the 16-byte parts of the vectors are transposed, then the parts: both steps are cheap on x86.
    """
    rows, quad = list(rows), 16 // size
    return _transpose_parts(b, transpose_quads(b, rows, quad), quad)


def transpose_quads(b: ir.IRBuilder, rows: Sequence[ir.Value], quad: int) -> list[ir.Value]:
    """Every `quad` rows in a row: the squares within their 16-byte parts transposed."""
    n, chunk = rows[0].type.count, 1
    rows = list(rows)
    while chunk < quad:
        pairs = [(i, i + chunk) for i in range(len(rows)) if not i & chunk]
        rows = [_shuffle(b, rows[i], rows[j], _interleave(n, quad, chunk, h)) for i, j in pairs for h in (0, 1)]
        chunk *= 2
    return rows


def _interleave(n: int, quad: int, chunk: int, high: int) -> list[int]:
    """Within each 16-byte part: chunks from the low or the high half, in turns from the first and from the second vector."""
    starts = range(high * quad // 2, (high + 1) * quad // 2, chunk)
    return [q + v + s + i for q in range(0, n, quad) for s in starts for v in (0, n) for i in range(chunk)]


def _transpose_parts(b: ir.IRBuilder, rows: Sequence[ir.Value], quad: int) -> list[ir.Value]:
    """Of every group of rows `quad` apart, the 16-byte parts transposed."""
    n = len(rows)
    parts = n // quad
    columns: list[Any] = [None] * n
    for j in range(quad):
        group = rows[j::quad]
        if parts == 2:
            group = _pair(b, group[0], group[1], quad, ((0,), (1,)))
        elif parts == 4:
            low, high = (_pair(b, group[g], group[g + 1], quad, ((0, 1), (2, 3))) for g in (0, 2))
            group = [v for x, y in zip(low, high, strict=True) for v in _pair(b, x, y, quad, ((0, 2), (1, 3)))]
        columns[j::quad] = group
    return columns


def _pair(b: ir.IRBuilder, x: ir.Value, y: ir.Value, quad: int, chosen: Sequence[Sequence[int]]) -> list[ir.Value]:
    """For each choice, those parts of x followed by those of y."""
    n = x.type.count
    return [_shuffle(b, x, y, [v + part * quad + i for v in (0, n) for part in c for i in range(quad)]) for c in chosen]


def _shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value, places: Iterable[int]) -> ir.Value:
    lanes = list(places)
    return b.shuffle_vector(x, y, splat_constant(I32, len(lanes), lanes))


def concatenate(b: ir.IRBuilder, parts: Sequence[ir.Value]) -> ir.Value:
    """Vectors of equal length, end to end."""
    while len(parts) > 1:
        n = 2 * parts[0].type.count
        parts = [_shuffle(b, x, y, range(n)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def pack_function(module: ir.Module, dtype: np.dtype) -> ir.Function:
    """pack_all(source, line, k, lines, length, target, width): all panels of `width` lines, one after the other.

    In a panel, target[k, i] = source[i, k] for k < length and i < width; those beyond the last of `lines` may be anything. Where
    the elements of one k lie side by side, a few k of all panels are packed at a time, so that memory is read in its order.
    """
    name = f"fx_product_pack_{dtype.name}"
    if name in module.globals:
        return module.globals[name]
    pack = _emit_pack(module, f"{name}_one", dtype)
    fn, b = helper_function(module, name, [PTR, I64, I64, I64, I64, PTR, I64])
    source, line, k, lines, length, target, width = fn.args
    size = i64(dtype.itemsize)
    step = b.select(b.icmp_signed("==", line, size), i64(_TOGETHER), length)
    turns = Loop(b, i64(0), b.sdiv(b.add(length, b.sub(step, i64(1))), step), 1)
    start = b.mul(turns.i, step)
    count = smaller(b, step, b.sub(length, start))
    panels = b.sdiv(b.add(lines, b.sub(width, i64(1))), width)
    places = [at(b, source, b.mul(start, k)), at(b, target, b.mul(start, b.mul(width, size)))]
    loop = Loop(b, i64(0), panels, 1, places)
    x, y = loop.carried
    b.call(pack, [x, line, k, smaller(b, width, b.sub(lines, b.mul(loop.i, width))), count, y, width])
    loop.end([at(b, x, b.mul(width, line)), at(b, y, b.mul(length, b.mul(width, size)))])
    turns.end()
    b.ret_void()
    return fn


def _emit_pack(module: ir.Module, name: str, dtype: np.dtype) -> ir.Function:
    """The packing of one panel."""
    fn, b = helper_function(module, name, [PTR, I64, I64, I64, I64, PTR, I64])
    _, line, k, *_ = fn.args
    size = i64(dtype.itemsize)
    ways = [b.append_basic_block(n) for n in ("copy", "turn", "gather")]
    other = b.append_basic_block("other")
    b.cbranch(b.icmp_signed("==", line, size), ways[0], other)
    b.position_at_end(other)
    b.cbranch(b.icmp_signed("==", k, size), ways[1], ways[2])
    whole = register_block(dtype).lanes
    lanes = whole, min(whole, _TURNED // dtype.itemsize), 1
    for block, emit, n in zip(ways, (_pack_lines, _pack_turned, _pack_any), lanes, strict=True):
        b.position_at_end(block)
        emit(b, fn, dtype, Lanes(b, n))
        b.ret_void()
    return fn


def _pack_lines(b: ir.IRBuilder, fn: ir.Function, dtype: np.dtype, lanes: Lanes) -> None:
    """The elements of one k lie side by side."""
    source, _, k, lines, length, target, width = fn.args
    size = i64(dtype.itemsize)
    pitch = b.mul(width, size)
    groups = Loop(b, i64(0), lines, lanes.lanes)
    there, here = lanes.mask(b.sub(lines, groups.i)), lanes.mask(b.sub(width, groups.i))
    offset = b.mul(groups.i, size)
    loop = Loop(b, i64(0), length, 1, [at(b, source, offset), at(b, target, offset)])
    x, y = loop.carried
    prefetch(b, at(b, x, b.mul(k, i64(_TOGETHER))))
    store_masked(lanes, lanes.load_masked(x, dtype, there), y, dtype, here)
    loop.end([at(b, x, k), at(b, y, pitch)])
    groups.end()


def _pack_turned(b: ir.IRBuilder, fn: ir.Function, dtype: np.dtype, lanes: Lanes) -> None:
    """The elements of one line lie side by side: squares of vectors are transposed."""
    source, line, _, lines, length, target, width = fn.args
    n, size = lanes.lanes, i64(dtype.itemsize)
    pitch, last = b.mul(width, size), b.sub(lines, i64(1))
    groups = Loop(b, i64(0), lines, n)
    here, nothing = lanes.mask(b.sub(width, groups.i)), splat_constant(I1, n, 0)
    starts = [at(b, source, b.mul(smaller(b, b.add(groups.i, i64(i)), last), line)) for i in range(n)]
    loop = Loop(b, i64(0), length, n, [at(b, target, b.mul(groups.i, size))])
    left, offset, y = b.sub(length, loop.i), b.mul(loop.i, size), loop.carried[0]
    there = lanes.mask(left)
    rows = [lanes.load_masked(at(b, x, offset), dtype, there) for x in starts]
    for i, column in enumerate(transpose(b, rows, dtype.itemsize)):
        store_masked(lanes, column, y, dtype, b.select(b.icmp_signed("<", i64(i), left), here, nothing))
        y = at(b, y, pitch)
    loop.end([y])
    groups.end()


def _pack_any(b: ir.IRBuilder, fn: ir.Function, dtype: np.dtype, lanes: Lanes) -> None:
    source, line, k, lines, length, target, width = fn.args
    t, size = memory_type(dtype), dtype.itemsize
    outer = Loop(b, i64(0), length, 1, [source, target])
    x, y = outer.carried
    inner = Loop(b, i64(0), lines, 1, [x, y])
    b.store(b.load(inner.carried[0], typ=t, align=size), inner.carried[1], align=size)
    inner.end([at(b, inner.carried[0], line), at(b, inner.carried[1], size)])
    outer.end([at(b, x, k), at(b, y, b.mul(width, i64(size)))])
