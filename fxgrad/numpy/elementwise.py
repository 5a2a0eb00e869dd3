"""The ufuncs of NumPy: each a line, on primitives of the same loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.numpy.core import as_dtype, broadcast_operands, key_of, operand, resolve, result_type, tensor, ufunc
from fxgrad.numpy.prepared import prepared
from fxgrad.primitives import complex as cx
from fxgrad.primitives import complex_functions as cf
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as sp
from fxgrad.primitives import transcendental as tr
from fxgrad.trace.tracer import Tracer

UFUNCS: dict[str, Callable[..., Any]] = {}
_F16, _F32, _I64, _U64 = (np.dtype(d) for d in (np.float16, np.float32, np.int64, np.uint64))


def _define(name: str, impl: Callable[..., Any], summary: str, *aliases: str, composite: bool = False) -> Callable[..., Any]:
    """The ufunc `name`, also under its other names; `composite` if more than one operation of `impl` rounds."""
    return _enter(ufunc(getattr(np, name), in_single(impl) if composite else impl, summary), name, *aliases)


def _enter(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    for n in names:
        UFUNCS[n] = function
    return function


def in_single(impl: Callable[..., Any]) -> Callable[..., Any]:
    """`impl` with float16 operands computed in float32, as NumPy's own loops do it: one rounding, at the end."""

    def wide(*xs: Any) -> Any:
        if xs[0].dtype != _F16:
            return impl(*xs)
        return e.convert(impl(*[as_dtype(x, _F32) for x in xs]), dtype=_F16)

    return wide


def _by_kind(**impls: Callable[..., Any]) -> Callable[..., Any]:
    """Pick the implementation by the kind of the first operand's dtype; `rest` is the default."""
    return lambda *xs: impls.get(xs[0].dtype.kind, impls["rest"])(*xs)


def _is(x: Any, c: float) -> Any:
    return x.dtype.type(c)


add = _define("add", _by_kind(b=e.or_, rest=e.add), "Sum of two arrays.")
subtract = _define("subtract", e.sub, "Difference of two arrays.")
multiply = _define("multiply", _by_kind(b=e.and_, rest=e.mul), "Product of two arrays.")
divide = _define("divide", e.div, "Quotient of two arrays.", "true_divide")
negative = _define("negative", e.neg, "-x.")
conjugate = _define("conjugate", _by_kind(c=cx.conj, rest=lambda x: x), "The complex conjugate.", "conj")
positive = _define("positive", lambda x: x, "+x.")
absolute = _define(
    "absolute", _by_kind(b=lambda x: x, u=lambda x: x, c=cf.complex_abs, rest=e.abs_), "|x|; its derivative at 0 is 0.", "abs"
)
fabs = _define("fabs", e.abs_, "|x| as a float; its derivative at 0 is 0.")
sign = _define("sign", _by_kind(c=cx.sign, rest=e.sign), "Sign of x; z / |z| of complex numbers.")
remainder = _define("remainder", e.rem, "x - y*floor(x/y), with the sign of y.", "mod")
floor_divide = _define("floor_divide", e.floordiv, "floor(x / y).")


def _fmod(x: Any, y: Any) -> Any:
    """The remainder of the magnitudes with the sign of x; a zero x is its own remainder, and has the slope 1 there."""
    zero = _is(x, 0)
    negative_x = e.lt(x, zero)
    r = e.rem(e.select(negative_x, e.neg(x), x), e.abs_(y))
    return e.select(e.and_(e.eq(x, zero), e.eq(r, zero)), x, e.select(negative_x, e.neg(r), r))


def _fmod_int(x: Any, y: Any) -> Any:
    """The remainder that has the sign of y, moved by y where x has the other sign."""
    zero, r = _is(x, 0), e.rem(x, y)
    return e.select(e.and_(e.ne(r, zero), e.xor(e.lt(r, zero), e.lt(x, zero))), e.sub(r, y), r)


fmod = _define("fmod", _by_kind(f=_fmod, rest=_fmod_int), "Remainder with the sign of x.", composite=True)


_power = ufunc(np.power, _by_kind(f=tr.pow, c=tr.pow, rest=e.int_pow), "x ** y.")
SMALL_EXPONENT = 64  # squaring beats pow up to here, and stays within a few ulp


@prepared(1)
def _power_by_products(x: Any, n: int, kind: type) -> Any:
    """x ** n, n given as a Python number of that type; None where this is not what NumPy computes."""
    x = operand(x)
    if not hasattr(x, "dtype"):
        return None
    (dtype, _), _ = resolve(np.power, (key_of(x), kind))
    return e.integer_pow(as_dtype(x, dtype), n=n) if dtype.kind in "fc" or (dtype.kind in "iu" and n >= 0) else None


def power(x: Any, y: Any, **kwargs: Any) -> Any:
    """x ** y, elementwise, as numpy.power; a Python integer exponent is taken by repeated multiplication.

    The slope of x**0 is 0 also at x = 0, and so is that of 0**y by y for y >= 0.
    """
    if not kwargs and ((type(y) is int and -SMALL_EXPONENT <= y <= SMALL_EXPONENT) or (type(y) is float and y in (1.0, 2.0))):
        z = _power_by_products(x, int(y), type(y))
        if z is not None:
            return np.array(z) if y == 1 and type(z) is np.ndarray else z  # x**1 is a new array
    if type(y) is int and y < 0 and getattr(operand(x), "dtype", np.dtype(float)).kind in "iu":
        raise ValueError("Integers to negative integer powers are not allowed.")
    return _power(x, y, **kwargs)


UFUNCS["power"] = UFUNCS["pow"] = power


def float_power(x: Any, y: Any) -> Any:
    """x ** y in float64 or complex128, as numpy.float_power."""
    x, y = operand(x), operand(y)
    (dtype, _), _ = resolve(np.float_power, (key_of(x), key_of(y)))
    return power(as_dtype(x, dtype), y)


UFUNCS["float_power"] = float_power
square = _define("square", lambda x: e.integer_pow(x, n=2), "x * x.")


def _reciprocal_int(x: Any) -> Any:
    """1 and -1 are their own, larger ones have 0; 0 has what the conversion of an infinity to the dtype gives in NumPy."""
    at_zero = np.iinfo(x.dtype).min if x.dtype.itemsize >= 4 else 0
    unit = e.eq(x, _is(x, 1)) if x.dtype.kind == "u" else e.or_(e.eq(x, _is(x, 1)), e.eq(x, _is(x, -1)))
    return e.select(unit, x, e.select(e.eq(x, _is(x, 0)), _is(x, at_zero), _is(x, 0)))


reciprocal = _define("reciprocal", _by_kind(f=e.reciprocal, c=e.reciprocal, rest=_reciprocal_int), "1 / x.")
sqrt = _define("sqrt", e.sqrt, "Square root.")
cbrt = _define("cbrt", tr.cbrt, "Cube root.")
exp = _define("exp", tr.exp, "e ** x.")
expm1 = _define("expm1", tr.expm1, "e ** x - 1, accurate near 0.")
log = _define("log", tr.log, "Natural logarithm.")
log1p = _define("log1p", tr.log1p, "log(1 + x), accurate near 0.")
exp2 = _define("exp2", lambda x: tr.pow(_is(x, 2), x), "2 ** x.", composite=True)
log2 = _define("log2", lambda x: _log_base(x, 2), "Base-2 logarithm.", composite=True)
log10 = _define("log10", lambda x: _log_base(x, 10), "Base-10 logarithm.", composite=True)


def _log_base(x: Any, base: int) -> Any:
    """log(x)/log(base), rounded to the exact exponent where x is a power of the base."""
    if x.dtype.kind == "c":
        y, scale = tr.log(x), cx.real_dtype(x.dtype).type(1 / math.log(base))
        return cx.complex_(e.mul(cx.real(y), scale), e.mul(cx.imag(y), scale))
    y = e.mul(tr.log(x), _is(x, 1 / math.log(base)))
    n = e.round_(y)
    exact = e.and_(e.eq(tr.pow(_is(x, base), n), x), e.lt(e.abs_(e.sub(y, n)), _is(x, 1e-3)))
    # y - (y - n) has the derivative of y and, where exact, the value n
    return e.select(exact, e.add(e.sub(y, _constant(y)), n), y)


def _constant(x: Any) -> Any:
    from fxgrad.primitives.call import stop_gradient

    return stop_gradient(x)


sin = _define("sin", tr.sin, "Sine.")
cos = _define("cos", tr.cos, "Cosine.")
tan = _define("tan", tr.tan, "Tangent.")
arcsin = _define("arcsin", tr.asin, "Inverse sine.", "asin")
arccos = _define("arccos", tr.acos, "Inverse cosine.", "acos")
arctan = _define("arctan", tr.atan, "Inverse tangent.", "atan")
arctan2 = _define("arctan2", tr.atan2, "Angle of the point (x, y).", "atan2")
sinh = _define("sinh", tr.sinh, "Hyperbolic sine.")
cosh = _define("cosh", tr.cosh, "Hyperbolic cosine.")
tanh = _define("tanh", tr.tanh, "Hyperbolic tangent.")


def _asinh(x: Any) -> Any:
    """sign(x) * log1p(|x| + x*x/(1 + sqrt(1 + x*x))), and log|x| + log 2 where the square would overflow."""
    a, one = e.abs_(x), _is(x, 1)
    large = e.gt(a, _is(x, 1e8))
    safe = e.select(large, one, a)
    square_ = e.mul(safe, safe)
    small_value = tr.log1p(e.add(safe, e.div(square_, e.add(one, e.sqrt(e.add(one, square_))))))
    value = e.select(large, e.add(tr.log(e.select(large, a, one)), _is(x, math.log(2))), small_value)
    return e.select(e.lt(x, _is(x, 0)), e.neg(value), e.select(e.eq(x, _is(x, 0)), x, value))


def _acosh(x: Any) -> Any:
    one = _is(x, 1)
    large = e.gt(x, _is(x, 1e8))
    t = e.sub(e.select(large, one, x), one)
    root = e.mul(e.sqrt(t), e.sqrt(e.add(t, _is(x, 2))))  # two roots: that of t*(t + 2) would give large negative x a value
    small_value = tr.log1p(e.add(t, root))
    return e.select(large, e.add(tr.log(e.select(large, x, one)), _is(x, math.log(2))), small_value)


arcsinh = _define("arcsinh", _by_kind(c=cf.asinh, rest=_asinh), "Inverse hyperbolic sine.", "asinh", composite=True)
arccosh = _define("arccosh", _by_kind(c=cf.acosh, rest=_acosh), "Inverse hyperbolic cosine.", "acosh", composite=True)
arctanh = _define(
    "arctanh",
    _by_kind(c=cf.atanh, rest=lambda x: e.mul(_is(x, 0.5), e.sub(tr.log1p(x), tr.log1p(e.neg(x))))),
    "Inverse hyperbolic tangent.",
    "atanh",
    composite=True,
)
hypot = _define("hypot", sp.hypot, "sqrt(x*x + y*y) without overflow.")


def _logaddexp(x: Any, y: Any) -> Any:
    """max + log1p(exp(-|x - y|)); equal operands (infinite ones too) differ by 0, and share the derivative."""
    return e.add(e.maximum(x, y), tr.log1p(tr.exp(e.neg(e.abs_(_gap(x, y))))))


def _gap(x: Any, y: Any) -> Any:
    return e.select(e.eq(x, y), _is(x, 0), e.sub(x, y))


def _logaddexp2(x: Any, y: Any) -> Any:
    """The same in base 2, so that what is exact there stays so."""
    gap = e.abs_(_gap(x, y))
    return e.add(e.maximum(x, y), e.mul(tr.log1p(tr.pow(_is(x, 2), e.neg(gap))), _is(x, 1 / math.log(2))))


logaddexp = _define("logaddexp", _logaddexp, "log(exp(x) + exp(y)) without overflow.", composite=True)
logaddexp2 = _define("logaddexp2", _logaddexp2, "log2(2**x + 2**y) without overflow.", composite=True)
deg2rad = _define("deg2rad", lambda x: e.mul(x, _is(x, math.pi / 180)), "Degrees to radians.", "radians", composite=True)
rad2deg = _define("rad2deg", lambda x: e.mul(x, _is(x, 180 / math.pi)), "Radians to degrees.", "degrees", composite=True)


def _extreme(pick: Callable[..., Any], first: Callable[..., Any]) -> Callable[..., Any]:
    """Complex numbers are ordered by their real, then by their imaginary parts; one with a NaN wins, the left one first."""
    return _by_kind(c=lambda x, y: e.select(e.or_(first(x, y), e.ne(x, x)), x, y), rest=pick)


maximum = _define("maximum", _extreme(e.maximum, e.ge), "The larger; NaN if either is; a tie shares the derivative.")
minimum = _define("minimum", _extreme(e.minimum, e.le), "The smaller; NaN if either is; a tie shares the derivative.")


def _ignoring_nan(pick: Callable[..., Any]) -> Callable[..., Any]:
    def impl(x: Any, y: Any) -> Any:
        if x.dtype.kind not in "fc":
            return pick(x, y)
        return e.select(e.ne(y, y), x, e.select(e.ne(x, x), y, pick(x, y)))

    return impl


fmax = _define("fmax", _ignoring_nan(_extreme(e.maximum, e.ge)), "The larger, ignoring NaN.")
fmin = _define("fmin", _ignoring_nan(_extreme(e.minimum, e.le)), "The smaller, ignoring NaN.")
floor = _define("floor", _by_kind(f=e.floor, rest=lambda x: x), "Largest integer <= x.")
ceil = _define("ceil", _by_kind(f=e.ceil, rest=lambda x: x), "Smallest integer >= x.")
rint = _define("rint", _by_kind(c=lambda x: _each(e.round_, x), rest=e.round_), "Nearest integer, ties to even.")
trunc = _define("trunc", _by_kind(f=lambda x: _copysign(e.floor(e.abs_(x)), x), rest=lambda x: x), "x without its fraction.")


def _each(f: Callable[..., Any], z: Any) -> Any:
    """f of either part of a complex number."""
    return cx.complex_(f(cx.real(z)), f(cx.imag(z)))


def _negative_sign(x: Any) -> Any:
    """True where the sign bit is set, also of -0.0."""
    return e.or_(e.lt(x, _is(x, 0)), e.and_(e.eq(x, _is(x, 0)), e.lt(e.div(_is(x, 1), x), _is(x, 0))))


def _copysign(x: Any, y: Any) -> Any:
    magnitude = e.select(_negative_sign(x), e.neg(x), x)
    return e.select(_negative_sign(y), e.neg(magnitude), magnitude)


copysign = _define("copysign", _copysign, "|x| with the sign of y.")
signbit = _define("signbit", _negative_sign, "True where the sign bit is set.")


def _heaviside(x: Any, y: Any) -> Any:
    step = e.select(e.gt(x, _is(x, 0)), _is(x, 1), _is(x, 0))
    return e.select(e.eq(x, _is(x, 0)), y, e.select(e.ne(x, x), x, step))


heaviside = _define("heaviside", _heaviside, "0, y, 1 for x below, at, above 0.")


def _false(x: Any) -> Any:
    return e.ne(x, x)


def _finite_parts(z: Any) -> Any:
    return e.and_(e.isfinite(cx.real(z)), e.isfinite(cx.imag(z)))


def _infinite(x: Any) -> Any:
    return e.eq(e.abs_(x), _is(x, math.inf))


isnan = _define("isnan", _false, "True where x is NaN.")
isfinite = _define(
    "isfinite", _by_kind(f=e.isfinite, c=_finite_parts, rest=lambda x: e.eq(x, x)), "True where x is neither infinite nor NaN."
)
isinf = _define(
    "isinf",
    _by_kind(f=_infinite, c=lambda z: e.or_(_infinite(cx.real(z)), _infinite(cx.imag(z))), rest=_false),
    "True where x is infinite.",
)


def _compare(name: str, prim: Callable[..., Any], summary: str) -> Callable[..., Any]:
    """Integers are compared by value: uint64 with int64, and with Python integers that the array's dtype does not hold."""
    fn = getattr(np, name)

    def impl(x: Any, y: Any) -> Any:
        if x.dtype == y.dtype:
            return prim(x, y)
        if x.dtype == _U64:  # the one mixed loop of NumPy: with int64
            return e.select(e.lt(y, _is(y, 0)), fn(1, 0), prim(x, as_dtype(y, _U64)))
        return e.select(e.lt(x, _is(x, 0)), fn(0, 1), prim(as_dtype(x, _U64), y))

    plain = ufunc(fn, impl, summary)

    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 2 and not kwargs:
            x, y = (_integer(operand(a)) for a in args)
            if type(y) is int and _outside(y, x):
                return everywhere(x, fn(0, 1 if y > 0 else -1))
            if type(x) is int and _outside(x, y):
                return everywhere(y, fn(1 if x > 0 else -1, 0))
            args = x, y
        return plain(*args, **kwargs)

    def everywhere(x: Any, answer: Any) -> Any:
        """The one answer for every element of x."""
        return answer if type(x) is int else e.eq(x, x) if answer else e.ne(x, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = plain.__doc__
    return _enter(function, name)


def _integer(x: Any) -> Any:
    """A traced Python integer as the int64 it is: its value, which is not known, may lie outside the other operand's dtype."""
    return Tracer(x._trace, x._var) if type(x) is Tracer and x.weak and x._var.aval.dtype == _I64 else x


def _outside(n: int, x: Any) -> bool:
    """Whether the integers that x is made of do not include n."""
    kind = key_of(x)
    if kind is int:
        kind = _I64
    elif type(kind) is type or kind.kind not in "biu":
        return False
    info = np.iinfo(_I64 if kind.kind == "b" else kind)
    return not info.min <= n <= info.max


equal = _compare("equal", e.eq, "x == y.")
not_equal = _compare("not_equal", e.ne, "x != y.")
less = _compare("less", e.lt, "x < y.")
less_equal = _compare("less_equal", e.le, "x <= y.")
greater = _compare("greater", e.gt, "x > y.")
greater_equal = _compare("greater_equal", e.ge, "x >= y.")


def truth(x: Any) -> Any:
    return x if x.dtype.kind == "b" else e.ne(x, _is(x, 0))


logical_and = _define("logical_and", lambda x, y: e.and_(truth(x), truth(y)), "Truth of x and y.")
logical_or = _define("logical_or", lambda x, y: e.or_(truth(x), truth(y)), "Truth of x or y.")
logical_xor = _define("logical_xor", lambda x, y: e.xor(truth(x), truth(y)), "Truth of exactly one of x and y.")
logical_not = _define("logical_not", lambda x: e.not_(truth(x)), "Untruth of x.")
bitwise_and = _define("bitwise_and", e.and_, "Bits of x and y.")
bitwise_or = _define("bitwise_or", e.or_, "Bits of x or y.")
bitwise_xor = _define("bitwise_xor", e.xor, "Bits of exactly one of x and y.")
invert = _define("invert", e.not_, "Bits of x inverted.", "bitwise_not", "bitwise_invert")
left_shift = _define("left_shift", e.shift_left, "Bits of x moved left.", "bitwise_left_shift")
right_shift = _define("right_shift", e.shift_right, "Bits of x moved right.", "bitwise_right_shift")


def divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """(floor(x / y), x mod y), as numpy.divmod."""
    return floor_divide(x, y), remainder(x, y)


UFUNCS["divmod"] = divmod


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where condition holds, else y, as numpy.where; the branch not taken contributes no derivative, not even NaN.

    With the condition alone, the indices of its true elements: as np.nonzero, possible outside jit only.
    """
    if x is None and y is None:
        from fxgrad.numpy.selection import nonzero

        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    x, y = operand(x), operand(y)
    dtype = result_type(x, y)
    return _where(operand(condition), *[v if hasattr(v, "dtype") else as_dtype(v, dtype) for v in (x, y)])


@prepared(3)
def _where(condition: Any, x: Any, y: Any) -> Any:
    dtype = result_type(x, y)
    mask = np.bool_(condition) if type(condition) in (bool, int, float) else truth(condition)
    return e.select(*broadcast_operands([mask, as_dtype(x, dtype), as_dtype(y, dtype)]))


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """a limited to [a_min, a_max], as numpy.clip; slope 1 on the closed interval."""
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    a = operand(a)
    if low is None and high is None:
        return a
    bounds = [operand(b) for b in (low, high) if b is not None]
    dtype = result_type(a, *bounds)
    if dtype.kind == "c":  # in their lexicographic order
        lifted = a if low is None else maximum(a, low)
        return lifted if high is None else minimum(lifted, high)
    typed = broadcast_operands([as_dtype(x, dtype) for x in (a, *bounds)])
    if len(bounds) == 1:
        extreme = (
            dtype.type(math.inf if low is not None else -math.inf)
            if dtype.kind == "f"
            else np.iinfo(dtype).max
            if low is not None
            else np.iinfo(dtype).min
        )
        typed = [typed[0], typed[1], dtype.type(extreme)] if low is not None else [typed[0], dtype.type(extreme), typed[1]]
    return e.clip(*typed)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN and infinities replaced by numbers, of complex numbers in either part, as numpy.nan_to_num."""
    x = tensor(x)
    if x.dtype.kind == "c":
        return _each(lambda part: nan_to_num(part, copy, nan, posinf, neginf), x)
    if x.dtype.kind != "f":
        return x
    info = np.finfo(x.dtype)
    x = where(isnan(x), as_dtype(operand(nan), x.dtype), x)
    x = where(equal(x, math.inf), as_dtype(operand(info.max if posinf is None else posinf), x.dtype), x)
    return where(equal(x, -math.inf), as_dtype(operand(info.min if neginf is None else neginf), x.dtype), x)


def round(a: Any, decimals: int = 0) -> Any:
    """a rounded to `decimals` places, ties to even, as numpy.round."""
    a = operand(a)
    if not hasattr(a, "dtype"):
        a = np.asarray(a)[()]
    if a.dtype.kind == "c":
        return cx.complex_(round(cx.real(tensor(a)), decimals), round(cx.imag(tensor(a)), decimals))
    if a.dtype.kind in "iu" and decimals < 0:  # by way of float64, as NumPy does it
        return as_dtype(round(as_dtype(a, np.dtype(np.float64)), decimals), a.dtype)
    if decimals == 0 and a.dtype.kind in "fb":
        return rint(a)
    if a.dtype.kind != "f":
        return a
    scale = a.dtype.type(10.0 ** builtins_abs(decimals))
    return divide(rint(multiply(a, scale)), scale) if decimals > 0 else multiply(rint(divide(a, scale)), scale)


builtins_abs = int.__abs__
around = round
