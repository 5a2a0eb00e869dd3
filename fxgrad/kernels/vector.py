"""The kernel language: fixed-width vectors on which every kernel body is written once.

A body is an ordinary Python function over values of this module. Called with `Vec` arguments it *emits* LLVM vector
instructions (the lanes are spelled out, LLVM only chooses instructions, so the bits do not depend on the CPU); called with
NumPy arrays it *computes*, with the same bits, which is how bodies are tested and debugged without a compiler.

Operators (`+ - * /` on floats, `+ - * & | ^ ~ << >>` on integers, `& | ^ ~` on booleans, comparisons, unary `-`) never mix
dtypes; a Python number beside a value is a constant of that value's dtype. Nothing is contracted: an fma is written `fma`.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from fxgrad.kernels.convert_rule import INT64_MIN, float_to_int

__all__ = [
    "Divisor", "Vec", "absolute", "bitcast", "ceil", "constant", "convert", "copysign", "divide_floor", "divide_int",
    "dtype_of", "equal", "floor", "fma", "llvm_type", "lookup", "maximum", "minimum", "negative", "not_equal", "remainder",
    "remainder_int", "rint", "scale", "scales_at_once", "select", "sqrt", "trunc",
]  # fmt: skip

_FLOAT_SUFFIX = {"float32": "f32", "float64": "f64"}


def llvm_type(dtype: np.dtype) -> ir.Type:
    """LLVM scalar type that holds one element of `dtype` in a register (a boolean is an i1)."""
    if dtype == np.float32:
        return ir.FloatType()
    if dtype == np.float64:
        return ir.DoubleType()
    if dtype == np.bool_:
        return ir.IntType(1)
    if dtype.kind in "iu":
        return ir.IntType(8 * dtype.itemsize)
    raise TypeError(f"the kernel language has no {dtype}")


def _llvm_constant(value: Any, dtype: np.dtype) -> Any:
    """`value` as LLVM expects it; floats travel through their exact binary value."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(value))
    if dtype.kind == "b":
        return int(bool(value))
    return int(value) & ((1 << (8 * dtype.itemsize)) - 1)


class Vec:
    """A vector value being emitted: `lanes` elements of `dtype` held in one LLVM value."""

    __slots__ = ("b", "dtype", "v")
    __array_ufunc__ = None  # NumPy scalars on the left defer to our operators

    def __init__(self, b: ir.IRBuilder, v: ir.Value, dtype: np.dtype):
        self.b, self.v, self.dtype = b, v, dtype

    @property
    def lanes(self) -> int:
        return self.v.type.count

    def _like(self, other: Any) -> ir.Value:
        if isinstance(other, Vec):
            if other.dtype != self.dtype:
                raise TypeError(f"kernel body mixes {self.dtype} with {other.dtype}")
            return other.v
        return constant(self, other).v

    def _new(self, v: ir.Value) -> Vec:
        return Vec(self.b, v, self.dtype)

    def _arith(self, other: Any, float_op: str, int_op: str | None, swap: bool = False) -> Vec:
        a, c = self.v, self._like(other)
        name = float_op if self.dtype.kind == "f" else int_op
        if not name:
            raise TypeError(f"kernel body applies a float operation to {self.dtype}")
        return self._new(getattr(self.b, name)(c, a) if swap else getattr(self.b, name)(a, c))

    def __add__(self, o: Any) -> Vec:
        return self._arith(o, "fadd", "add")

    def __radd__(self, o: Any) -> Vec:
        return self._arith(o, "fadd", "add", swap=True)

    def __sub__(self, o: Any) -> Vec:
        return self._arith(o, "fsub", "sub")

    def __rsub__(self, o: Any) -> Vec:
        return self._arith(o, "fsub", "sub", swap=True)

    def __mul__(self, o: Any) -> Vec:
        return self._arith(o, "fmul", "mul")

    def __rmul__(self, o: Any) -> Vec:
        return self._arith(o, "fmul", "mul", swap=True)

    def __truediv__(self, o: Any) -> Vec:
        return o.under(self) if isinstance(o, Divisor) else self._arith(o, "fdiv", None)

    def __rtruediv__(self, o: Any) -> Vec:
        return self._arith(o, "fdiv", None, swap=True)

    def __neg__(self) -> Vec:
        return negative(self)

    def _bits(self, other: Any, op: str) -> Vec:
        if self.dtype.kind == "f":
            raise TypeError(f"kernel body applies bit operation {op} to {self.dtype}; bitcast first")
        return self._new(getattr(self.b, op)(self.v, self._like(other)))

    def __and__(self, o: Any) -> Vec:
        return self._bits(o, "and_")

    def __or__(self, o: Any) -> Vec:
        return self._bits(o, "or_")

    def __xor__(self, o: Any) -> Vec:
        return self._bits(o, "xor")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Vec:
        return self._bits(-1 if self.dtype.kind != "b" else True, "xor")

    def __lshift__(self, o: Any) -> Vec:
        return self._bits(o, "shl")

    def __rshift__(self, o: Any) -> Vec:
        return self._bits(o, "ashr" if self.dtype.kind == "i" else "lshr")

    def _compare(self, other: Any, op: str) -> Vec:
        c = self._like(other)
        if self.dtype.kind == "f":
            v = self.b.fcmp_unordered(op, self.v, c) if op == "!=" else self.b.fcmp_ordered(op, self.v, c)
        elif self.dtype.kind == "i":
            v = self.b.icmp_signed(op, self.v, c)
        else:
            v = self.b.icmp_unsigned(op, self.v, c)
        return Vec(self.b, v, np.dtype(np.bool_))

    def __lt__(self, o: Any) -> Vec:
        return self._compare(o, "<")

    def __le__(self, o: Any) -> Vec:
        return self._compare(o, "<=")

    def __gt__(self, o: Any) -> Vec:
        return self._compare(o, ">")

    def __ge__(self, o: Any) -> Vec:
        return self._compare(o, ">=")

    def __eq__(self, o: Any) -> Vec:  # type: ignore[override]
        return self._compare(o, "==")

    def __ne__(self, o: Any) -> Vec:  # type: ignore[override]
        return self._compare(o, "!=")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a kernel body branched on a vector; write select(mask, a, b)")


def dtype_of(x: Any) -> np.dtype:
    """dtype of a kernel value, emitted or computed."""
    return x.dtype


# Divisors and dividends (or zeros) between these powers of two leave every step of a corrected quotient exact or normal.
_TAME = {np.dtype("f4"): (26, 100), np.dtype("f8"): (100, 900)}


class Divisor(Vec):
    """A value known before a loop, equal in all lanes: dividing by it takes products, which round alike.

    Powers of two have an exact reciprocal. By others the quotient is estimated with the rounded reciprocal and corrected twice
    by the remainder, which is exact; the second correction rounds correctly. Lanes outside of `_TAME` are divided.
    Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor" (1990), theorem 6.
    """

    __slots__ = ("exact", "reciprocal", "tame")

    def __init__(self, x: Vec):
        super().__init__(x.b, x.v, x.dtype)
        b, dtype = x.b, x.dtype
        info, word = np.finfo(dtype), ir.IntType(8 * dtype.itemsize)
        largest = 2 * info.maxexp - 1  # the exponent field of inf
        scalar = b.bitcast(b.extract_element(x.v, ir.Constant(ir.IntType(32), 0)), word)
        exponent = b.and_(b.lshr(scalar, word(info.nmant)), word(largest))
        whole = b.icmp_unsigned("==", b.and_(scalar, word((1 << info.nmant) - 1)), word(0))
        self.exact = b.and_(whole, b.icmp_unsigned("<", b.sub(exponent, word(1)), word(largest - 2)))  # its reciprocal is normal
        near = _TAME[dtype][0]
        self.tame = b.icmp_unsigned("<", b.sub(exponent, word(info.maxexp - 1 - near)), word(2 * near))
        self.reciprocal = b.fdiv(constant(x, 1.0).v, x.v)

    def under(self, x: Vec) -> Vec:
        """x divided by this value."""
        b = x.b
        multiply, other, correct, divide, join = (
            b.append_basic_block(n) for n in ("multiply", "inexact", "correct", "divide", "divided")
        )
        b.cbranch(self.exact, multiply, other)
        b.position_at_end(multiply)
        ways = [(b.fmul(x.v, self.reciprocal), multiply)]
        b.branch(join)
        b.position_at_end(other)
        b.cbranch(b.and_(self.tame, _all_tame(x)), correct, divide)
        b.position_at_end(correct)
        ways.append((self._corrected(x).v, correct))
        b.branch(join)
        b.position_at_end(divide)
        ways.append((b.fdiv(x.v, self.v), divide))
        b.branch(join)
        b.position_at_end(join)
        result = b.phi(x.v.type)
        for way in ways:
            result.add_incoming(*way)
        return x._new(result)

    def _corrected(self, x: Vec) -> Vec:
        reciprocal, minus = x._new(self.reciprocal), x._new(x.b.fneg(self.v))
        estimate = quotient = x._new(x.b.fmul(x.v, self.reciprocal))
        for _ in range(2):
            quotient = fma(fma(minus, quotient, x), reciprocal, quotient)
        return copysign(quotient, estimate)  # zeros keep their sign


def _all_tame(x: Vec) -> ir.Value:
    """Whether each lane is 0 or of a size that `Divisor` corrects."""
    b, info, far = x.b, np.finfo(x.dtype), _TAME[x.dtype][1]
    word = ir.IntType(8 * x.dtype.itemsize)

    def every(n: int) -> ir.Value:
        return ir.Constant(ir.VectorType(word, x.lanes), [word(n)] * x.lanes)

    twice = b.shl(b.bitcast(x.v, ir.VectorType(word, x.lanes)), every(1))  # without the sign
    least = (info.maxexp - 1 - far) << (info.nmant + 1)
    outside = b.icmp_unsigned(">=", b.sub(twice, every(least)), every((2 * far) << (info.nmant + 1)))
    wild = b.bitcast(b.and_(outside, b.icmp_unsigned("!=", twice, every(0))), ir.IntType(x.lanes))
    return b.icmp_unsigned("==", wild, wild.type(0))


def constant(like: Any, value: Any, dtype: Any = None) -> Any:
    """`value` in every lane, of `dtype` (default: the dtype of `like`)."""
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    if not isinstance(like, Vec):
        if isinstance(value, numbers.Integral) and dtype.kind in "iu":
            value = np.array(int(value) & ((1 << (8 * dtype.itemsize)) - 1), f"u{dtype.itemsize}").view(dtype)
        with np.errstate(over="ignore"):
            return np.full(np.shape(like), value, dtype)
    scalar = _llvm_constant(value, dtype)
    return Vec(like.b, ir.Constant(ir.VectorType(llvm_type(dtype), like.lanes), [scalar] * like.lanes), dtype)


def _intrinsic(name: str, *args: Vec) -> Vec:
    """Call the overloaded LLVM intrinsic `name`, declared with the function type of these vectors."""
    a = args[0]
    suffix = _FLOAT_SUFFIX.get(a.dtype.name, f"i{8 * a.dtype.itemsize}")
    fn = a.b.module.declare_intrinsic(f"llvm.{name}.v{a.lanes}{suffix}", (), ir.FunctionType(a.v.type, [a.v.type] * len(args)))
    return Vec(a.b, a.b.call(fn, [x.v for x in args]), a.dtype)


def _unary(name: str, compute: Callable) -> Callable:
    def op(x: Any) -> Any:
        return _intrinsic(name, x) if isinstance(x, Vec) else compute(x)

    op.__name__ = name
    op.__doc__ = f"LLVM's `{name}` of every lane, exactly rounded."
    return op


sqrt = _unary("sqrt", np.sqrt)
rint = _unary("rint", np.rint)
floor = _unary("floor", np.floor)
ceil = _unary("ceil", np.ceil)
trunc = _unary("trunc", np.trunc)


def absolute(x: Any) -> Any:
    """|x|; for the most negative integer, itself."""
    if not isinstance(x, Vec):
        return np.absolute(x)
    if x.dtype.kind == "f":
        return _intrinsic("fabs", x)
    return x if x.dtype.kind != "i" else select(x < 0, -x, x)


def negative(x: Any) -> Any:
    """-x; flips the sign bit of a float (also of zeros and NaNs)."""
    if not isinstance(x, Vec):
        return np.negative(x)
    return Vec(x.b, x.b.fneg(x.v) if x.dtype.kind == "f" else x.b.neg(x.v), x.dtype)


def copysign(x: Any, sign: Any) -> Any:
    """|x| with the sign bit of `sign`."""
    return _intrinsic("copysign", x, sign) if isinstance(x, Vec) else np.copysign(x, sign)


def select(mask: Any, a: Any, b: Any) -> Any:
    """a where mask is true, else b; one of a and b may be a Python number."""
    if not isinstance(mask, Vec):
        like = a if isinstance(a, (np.ndarray, np.generic)) else b
        return np.where(mask, np.asarray(a, like.dtype), np.asarray(b, like.dtype))
    like = a if isinstance(a, Vec) else b
    av, bv = like._like(a), like._like(b)
    return Vec(mask.b, mask.b.select(mask.v, av, bv), like.dtype)


def any_lane(mask: Any) -> Any:
    """Whether the mask is true in some lane: a scalar LLVM i1, or a bool."""
    if not isinstance(mask, Vec):
        return bool(np.any(mask))
    b = mask.b
    fn = b.module.declare_intrinsic(f"llvm.vector.reduce.or.v{mask.lanes}i1", (), ir.FunctionType(ir.IntType(1), [mask.v.type]))
    return b.call(fn, [mask.v])


def cond_block(mask: Any, compute: Callable[[], tuple], fallback: tuple) -> tuple:
    """select(mask, new, old) for the pairs of compute() and `fallback`, running `compute` only if some lane needs it.

    It is for rare and costly cases. What a lane gets does not depend on the other lanes, so neither do the bits.
    """
    if not isinstance(mask, Vec):
        return tuple(select(mask, n, o) for n, o in zip(compute(), fallback, strict=True)) if any_lane(mask) else fallback
    b = mask.b
    before, rare, after = b.block, b.append_basic_block("rare"), b.append_basic_block("rare_done")
    b.cbranch(any_lane(mask), rare, after).set_weights([1, 1000])
    b.position_at_end(rare)
    merged = [select(mask, n, o) for n, o in zip(compute(), fallback, strict=True)]
    rare = b.block  # compute may itself have opened blocks
    b.branch(after)
    b.position_at_end(after)
    results = []
    for new, old in zip(merged, fallback, strict=True):
        phi = b.phi(old.v.type)
        phi.add_incoming(new.v, rare)
        phi.add_incoming(old.v, before)
        results.append(Vec(b, phi, old.dtype))
    return tuple(results)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a*b + c with one rounding. Python numbers become constants."""
    like = next(x for x in (a, b, c) if isinstance(x, (Vec, np.ndarray, np.generic)))
    if isinstance(like, Vec):
        return _intrinsic("fma", *(Vec(like.b, like._like(x), like.dtype) for x in (a, b, c)))
    return _fma_numpy(*(np.asarray(x, like.dtype) for x in (a, b, c)))


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _odd_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64 rounded to odd (Boldo and Melquiond, 2008), so that a second rounding is innocuous."""
    s, e = _two_sum(a, b)
    bits = s.view(np.int64)
    inexact = (e != 0) & ((bits & 1) == 0) & np.isfinite(s)
    away = (e > 0) == (s > 0)
    return np.where(inexact, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def _fma_numpy(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """A correctly rounded fma in NumPy, away from overflow and underflow of the partial results in float64."""
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            product = a.astype(np.float64) * b.astype(np.float64)  # exact: 48 bits
            return np.asarray(_odd_add(np.asarray(product), np.asarray(c, np.float64))).astype(np.float32)
        a, b, c = np.broadcast_arrays(a, b, c)
        split = 134217729.0
        ah = a * split - (a * split - a)
        bh = b * split - (b * split - b)
        al, bl = a - ah, b - bh
        p = a * b
        e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
        s, t = _two_sum(p, c)
        fused = s + _odd_add(np.asarray(t), np.asarray(e))
        naive = p + c
        return np.where(np.isfinite(fused), fused, naive)


def bitcast(x: Any, dtype: Any) -> Any:
    """The same bits read as `dtype` of equal size."""
    dtype = np.dtype(dtype)
    if not isinstance(x, Vec):
        return np.asarray(x).view(dtype)
    return Vec(x.b, x.b.bitcast(x.v, ir.VectorType(llvm_type(dtype), x.lanes)), dtype)


def convert(x: Any, dtype: Any) -> Any:
    """Value conversion as NumPy's `astype` does it.

    Float to integer truncates to int64; NaN and what does not fit there become the smallest int64, as x86's 64-bit instruction
    has it. Narrower types take the low bits of that. C leaves all of it undefined, and compilers convert to narrow types by
    narrower instructions, whose answers are others: so this is a rule of our own, the same everywhere.
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if not isinstance(x, Vec):
        return _convert_numpy(np.asarray(x), dtype)
    b, target = x.b, ir.VectorType(llvm_type(dtype), x.lanes)
    source, to = x.dtype.kind, dtype.kind
    if to == "b":
        return x != 0
    if source == "f" and to == "f":
        return Vec(b, (b.fpext if dtype.itemsize > x.dtype.itemsize else b.fptrunc)(x.v, target), dtype)
    if source == "f":
        return _float_to_int(x, dtype)
    if to == "f":
        return Vec(b, (b.sitofp if source == "i" else b.uitofp)(x.v, target), dtype)
    width = {"b": 1}.get(source, 8 * x.dtype.itemsize)
    if width < 8 * dtype.itemsize:
        return Vec(b, (b.sext if source == "i" else b.zext)(x.v, target), dtype)
    if width > 8 * dtype.itemsize:
        return Vec(b, b.trunc(x.v, target), dtype)
    return Vec(b, x.v, dtype)


def _float_to_int(x: Vec, dtype: np.dtype) -> Vec:
    """Truncation with every out-of-range case spelled out (LLVM's own conversion is poison there)."""
    b = x.b
    if dtype == np.uint64:  # the upper half of uint64 lies outside int64
        high = x >= 2.0**63
        low = _float_to_int(select(high, x - 2.0**63, x), np.dtype(np.int64))
        return bitcast(select(high & (x < 2.0**64), low ^ INT64_MIN, low), np.uint64)
    inside = (x >= -(2.0**63)) & (x < 2.0**63)
    safe = select(inside, x, 0.0)
    wide = Vec(b, b.fptosi(safe.v, ir.VectorType(ir.IntType(64), x.lanes)), np.dtype(np.int64))
    wide = select(inside, wide, INT64_MIN)
    return wide if dtype == np.int64 else convert(wide, dtype)


def _convert_numpy(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if x.dtype.kind == "f" and dtype.kind in "iu":
        return float_to_int(x, dtype)
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(dtype)


def lookup(table: Sequence[float], index: Any) -> Any:
    """table[index] as the float that is as wide as the integer `index`, taken modulo the length of the table, a power of two.

    AVX-512 permutes a table of up to 32 float32 or 16 float64 in one instruction, AVX2 one of 8 float32; longer ones need a few,
    and selections. Other CPUs load from memory.
    """
    dtype = np.dtype(f"f{index.dtype.itemsize}")
    index = index & (len(table) - 1)
    if not isinstance(index, Vec):
        return np.array(table, dtype)[index]
    features = _target_features().split(",")
    if "+avx512f" in features:
        lanes, reach = 64 // dtype.itemsize, 128 // dtype.itemsize
    elif "+avx2" in features and dtype.itemsize == 4:
        lanes, reach = 8, 8
    else:
        return _gather(table, index, dtype)
    table = tuple(table) * (lanes // len(table) or 1)

    def permuted(part: Sequence[float]) -> Vec:
        half = len(part) // 2
        if len(part) <= reach:
            return _permute(part, index, dtype, lanes)
        return select((index & half) != 0, permuted(part[half:]), permuted(part[:half]))

    return permuted(table) if len(table) <= 4 * reach else _gather(table, index, dtype)


def scales_at_once(x: Any) -> bool:
    """Whether the CPU has an instruction for `scale` of vectors like this one."""
    return isinstance(x, Vec) and x.lanes * x.dtype.itemsize == 64 and "+avx512f" in _target_features().split(",")


def scale(x: Vec, k: Vec) -> Vec:
    """x * 2**k for an integral k, rounded once, where `scales_at_once` tells that there is an instruction for it."""
    b, kind = x.b, "s" if x.dtype.itemsize == 4 else "d"
    everything = ir.Constant(ir.IntType(x.lanes), -1)
    args = [x.v, k.v, ir.Constant(x.v.type, ir.Undefined), everything, ir.Constant(ir.IntType(32), 4)]  # 4: the mode in force
    name = f"llvm.x86.avx512.mask.scalef.p{kind}.512"
    return x._new(b.call(b.module.declare_intrinsic(name, (), ir.FunctionType(x.v.type, [a.type for a in args])), args))


def _target_features() -> str:
    """LLVM's list of the features of the CPU that numba generates code for."""
    from numba.core.registry import cpu_target

    return cpu_target.target_context.codegen().magic_tuple()[2]


def _shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value, places: Sequence[int]) -> ir.Value:
    i32 = ir.IntType(32)
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(i32, len(places)), list(places)))


def _permute(table: Sequence[float], index: Vec, dtype: np.dtype, width: int) -> Vec:
    """The lookup by permutes of one or two registers, `width` lanes at a time."""
    b, lanes, t = index.b, index.lanes, ir.VectorType(llvm_type(dtype), width)
    values = [_llvm_constant(x, dtype) for x in table]
    first_register, *second = (ir.Constant(t, values[i : i + width]) for i in range(0, len(values), width))
    kind = "s" if dtype.itemsize == 4 else "d"
    if width * dtype.itemsize == 32:
        name = "llvm.x86.avx2.permps"
    else:
        name = f"llvm.x86.avx512.vpermi2var.p{kind}.512" if second else f"llvm.x86.avx512.permvar.{kind}f.512"
    parts = []
    for first in range(0, max(lanes, width), width):
        part = index.v if lanes == width else _shuffle(b, index.v, index.v, [min(first + i, lanes - 1) for i in range(width)])
        args = [first_register, part, *second]
        fn = b.module.declare_intrinsic(name, (), ir.FunctionType(t, [a.type for a in args]))
        parts.append(b.call(fn, args))
    while len(parts) > 1:
        size = 2 * parts[0].type.count
        parts = [_shuffle(b, x, y, range(size)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    v = parts[0] if lanes >= width else _shuffle(b, parts[0], parts[0], range(lanes))
    return Vec(b, v, dtype)


def _gather(table: Sequence[float], index: Vec, dtype: np.dtype) -> Vec:
    """The lookup by loads from a constant array."""
    b, lanes, element = index.b, index.lanes, llvm_type(dtype)
    name = f"table_{dtype.name}_{hashlib.sha256(np.array(table, dtype).tobytes()).hexdigest()[:24]}"
    array = b.module.globals.get(name)
    if array is None:
        t = ir.ArrayType(element, len(table))
        array = ir.GlobalVariable(b.module, t, name)
        array.linkage, array.global_constant, array.unnamed_addr = "internal", True, True
        array.align = dtype.itemsize
        array.initializer = ir.Constant(t, [_llvm_constant(x, dtype) for x in table])
    i32, t, addresses = ir.IntType(32), ir.VectorType(element, lanes), ir.VectorType(ir.PointerType(), lanes)
    places = b.gep(b.bitcast(array, ir.PointerType()), [index.v], source_etype=element)
    places.type = addresses  # llvmlite types a gep by its pointer alone
    args = [
        places,
        ir.Constant(i32, dtype.itemsize),
        ir.Constant(ir.VectorType(ir.IntType(1), lanes), [1] * lanes),
        ir.Constant(t, None),
    ]
    name = f"llvm.masked.gather.v{lanes}{_FLOAT_SUFFIX[dtype.name]}.v{lanes}p0"
    return Vec(b, b.call(b.module.declare_intrinsic(name, (), ir.FunctionType(t, [a.type for a in args])), args), dtype)


def equal(a: Any, b: Any) -> Any:
    """a == b, lane by lane."""
    return a == b


def not_equal(a: Any, b: Any) -> Any:
    """a != b, lane by lane; true where either is NaN."""
    return a != b


def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if either is NaN; of equal values the first, so -0.0 and 0.0 keep their order."""
    if a.dtype.kind == "b":
        return a | b
    taken = a >= b
    return select(taken | (a != a) if a.dtype.kind == "f" else taken, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if either is NaN; of equal values the first."""
    if a.dtype.kind == "b":
        return a & b
    taken = a <= b
    return select(taken | (a != a) if a.dtype.kind == "f" else taken, a, b)


def remainder(a: Any, b: Any) -> Any:
    """Floating-point remainder with the sign of b, exact: fmod (C99 7.12.10.1) moved into b's half-open range."""
    if not isinstance(a, Vec):
        with np.errstate(all="ignore"):
            return np.remainder(a, b)
    m = Vec(a.b, a.b.frem(a.v, b.v), a.dtype)
    moved = select((b < 0) ^ (m < 0), m + b, m)
    return select(m == 0, copysign(constant(a, 0), b), moved)


def divide_floor(a: Any, b: Any) -> Any:
    """Floor of a floating-point quotient through the exact remainder, operation by operation as NumPy's npy_divmod."""
    if not isinstance(a, Vec):
        with np.errstate(all="ignore"):
            return np.floor_divide(a, b)
    m = Vec(a.b, a.b.frem(a.v, b.v), a.dtype)
    direct, quotient = a / b, (a - m) / b
    quotient = select(not_equal(m, constant(m, 0)) & ((b < 0) ^ (m < 0)), quotient - 1, quotient)
    whole = floor(quotient)
    whole = select(quotient - whole > 0.5, whole + 1, whole)
    whole = select(quotient == 0, copysign(constant(a, 0), direct), whole)
    return select(b == 0, direct, whole)


def divide_int(a: Any, b: Any) -> Any:
    """Floor division of integers; x // 0 is 0 and the smallest integer by -1 is itself, as NumPy answers."""
    if not isinstance(a, Vec):
        with np.errstate(all="ignore"):
            return np.floor_divide(a, b)
    quotient, remainder = _divmod_trunc(a, b)
    if a.dtype.kind == "i":
        quotient = quotient - convert((remainder != 0) & ((remainder < 0) ^ (b < 0)), a.dtype)
    return select(b == 0, constant(a, 0), quotient)


def remainder_int(a: Any, b: Any) -> Any:
    """Integer remainder with the sign of b; x % 0 is 0, as NumPy answers."""
    if not isinstance(a, Vec):
        with np.errstate(all="ignore"):
            return np.remainder(a, b)
    _, remainder = _divmod_trunc(a, b)
    if a.dtype.kind == "i":
        remainder = select((remainder != 0) & ((remainder < 0) ^ (b < 0)), remainder + b, remainder)
    return select(b == 0, constant(a, 0), remainder)


def _divmod_trunc(a: Vec, b: Vec) -> tuple[Vec, Vec]:
    """Quotient and remainder rounded towards zero, with the divisors that trap replaced by 1."""
    safe = select(b == 0, constant(b, 1), b)
    if a.dtype.kind == "u":
        return a._new(a.b.udiv(a.v, safe.v)), a._new(a.b.urem(a.v, safe.v))
    minus = safe == -1
    safe = select(minus, constant(b, 1), safe)
    quotient, remainder = a._new(a.b.sdiv(a.v, safe.v)), a._new(a.b.srem(a.v, safe.v))
    return select(minus, -a, quotient), select(minus, constant(a, 0), remainder)
