"""The ufuncs of NumPy: each a line, on primitives of the same loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad.numpy.core import as_dtype, broadcast_operands, key_of, operand, resolve, ufunc
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import transcendental as tr

UFUNCS: dict[str, Callable[..., Any]] = {}


def _define(name: str, impl: Callable[..., Any], summary: str, *aliases: str) -> Callable[..., Any]:
    function = ufunc(getattr(np, name), impl, summary)
    for n in (name, *aliases):
        UFUNCS[n] = function
    return function


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
positive = _define("positive", lambda x: x, "+x.")
absolute = _define(
    "absolute", _by_kind(b=lambda x: x, u=lambda x: x, rest=e.abs_), "|x|; its derivative at 0 is 0.", "abs", "fabs"
)
sign = _define("sign", e.sign, "Sign of x.")
remainder = _define("remainder", e.rem, "x - y*floor(x/y), with the sign of y.", "mod")


def _floor_divide_float(x: Any, y: Any) -> Any:
    """(x - rem)/y is an integer up to rounding, which `round` removes; division by zero keeps x/y."""
    whole = e.round_(e.div(e.sub(x, e.rem(x, y)), y))
    direct = e.div(x, y)
    return e.select(e.or_(e.eq(y, _is(y, 0)), e.not_(e.isfinite(direct))), e.floor(direct), whole)


floor_divide = _define("floor_divide", _by_kind(f=_floor_divide_float, rest=e.floordiv), "floor(x / y).")


def _fmod(x: Any, y: Any) -> Any:
    r = e.rem(e.abs_(x), e.abs_(y))
    return e.select(e.lt(x, _is(x, 0)), e.neg(r), r)


fmod = _define("fmod", _fmod, "Remainder with the sign of x.")


_power = ufunc(np.power, _by_kind(f=tr.pow, rest=e.int_pow), "x ** y.")
SMALL_EXPONENT = 64  # squaring beats pow up to here, and stays within a few ulp


def power(x: Any, y: Any, **kwargs: Any) -> Any:
    """x ** y, elementwise, as numpy.power; a Python integer exponent is taken by repeated multiplication.

    The slope of x**0 is 0 also at x = 0, and so is that of 0**y by y for y >= 0.
    """
    if (
        not kwargs
        and type(y) in (int, float)
        and float(y).is_integer()
        and (abs(y) <= SMALL_EXPONENT if type(y) is int else y in (1.0, 2.0))
    ):
        x = operand(x)
        if hasattr(x, "dtype"):
            (dtype, _), _ = resolve(np.power, (key_of(x), type(y)))
            if dtype.kind == "f" or (dtype.kind in "iu" and y >= 0):
                return e.integer_pow(as_dtype(x, dtype), n=int(y))
    if type(y) is int and y < 0 and getattr(operand(x), "dtype", np.dtype(float)).kind in "iu":
        raise ValueError("Integers to negative integer powers are not allowed.")
    return _power(x, y, **kwargs)


UFUNCS["power"] = UFUNCS["pow"] = power


def float_power(x: Any, y: Any) -> Any:
    """x ** y in float64, as numpy.float_power."""
    return power(as_dtype(operand(x), np.dtype(np.float64)), y)


UFUNCS["float_power"] = float_power
square = _define("square", lambda x: e.integer_pow(x, n=2), "x * x.")
reciprocal = _define("reciprocal", _by_kind(f=e.reciprocal, rest=lambda x: e.floordiv(_is(x, 1), x)), "1 / x.")
sqrt = _define("sqrt", e.sqrt, "Square root.")
cbrt = _define("cbrt", tr.cbrt, "Cube root.")
exp = _define("exp", tr.exp, "e ** x.")
expm1 = _define("expm1", tr.expm1, "e ** x - 1, accurate near 0.")
log = _define("log", tr.log, "Natural logarithm.")
log1p = _define("log1p", tr.log1p, "log(1 + x), accurate near 0.")
exp2 = _define("exp2", lambda x: tr.pow(_is(x, 2), x), "2 ** x.")
log2 = _define("log2", lambda x: _log_base(x, 2), "Base-2 logarithm.")
log10 = _define("log10", lambda x: _log_base(x, 10), "Base-10 logarithm.")


def _log_base(x: Any, base: int) -> Any:
    """log(x)/log(base), rounded to the exact exponent where x is a power of the base."""
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


arcsinh = _define("arcsinh", _asinh, "Inverse hyperbolic sine.", "asinh")
arccosh = _define("arccosh", _acosh, "Inverse hyperbolic cosine.", "acosh")
arctanh = _define(
    "arctanh", lambda x: e.mul(_is(x, 0.5), e.sub(tr.log1p(x), tr.log1p(e.neg(x)))), "Inverse hyperbolic tangent.", "atanh"
)


def _hypot(x: Any, y: Any) -> Any:
    """Scaled by the larger, so that squares neither overflow nor vanish; slope 0 at the origin, inf beats NaN."""
    x, y = e.abs_(x), e.abs_(y)
    large = _constant(e.maximum(x, y))
    usable = e.and_(e.isfinite(large), e.gt(large, _is(x, 0)))
    scale = e.select(usable, large, _is(x, 1))
    u, v = e.div(x, scale), e.div(y, scale)
    square_ = e.select(usable, e.add(e.mul(u, u), e.mul(v, v)), _is(x, 1))
    inf = _is(x, math.inf)
    infinite = e.or_(e.eq(x, inf), e.eq(y, inf))
    return e.select(
        infinite, inf, e.select(usable, e.mul(scale, e.sqrt(square_)), e.add(e.mul(_constant(x), _is(x, 1)), _constant(y)))
    )


hypot = _define("hypot", _hypot, "sqrt(x*x + y*y) without overflow.")


def _logaddexp(x: Any, y: Any) -> Any:
    """max + log1p(exp(-|x - y|)); equal operands (infinite ones too) differ by 0, and share the derivative."""
    return e.add(e.maximum(x, y), _softplus_gap(x, y))


def _softplus_gap(x: Any, y: Any) -> Any:
    gap = e.select(e.eq(x, y), _is(x, 0), e.sub(x, y))
    return tr.log1p(tr.exp(e.neg(e.abs_(gap))))


logaddexp = _define("logaddexp", _logaddexp, "log(exp(x) + exp(y)) without overflow.")
logaddexp2 = _define(
    "logaddexp2",
    lambda x, y: e.mul(_logaddexp(e.mul(x, _is(x, math.log(2))), e.mul(y, _is(y, math.log(2)))), _is(x, 1 / math.log(2))),
    "log2(2**x + 2**y) without overflow.",
)
deg2rad = _define("deg2rad", lambda x: e.mul(x, _is(x, math.pi / 180)), "Degrees to radians.", "radians")
rad2deg = _define("rad2deg", lambda x: e.mul(x, _is(x, 180 / math.pi)), "Radians to degrees.", "degrees")
maximum = _define("maximum", e.maximum, "The larger; NaN if either is; a tie shares the derivative.")
minimum = _define("minimum", e.minimum, "The smaller; NaN if either is; a tie shares the derivative.")


def _ignoring_nan(pick: Callable[..., Any]) -> Callable[..., Any]:
    def impl(x: Any, y: Any) -> Any:
        if x.dtype.kind != "f":
            return pick(x, y)
        return e.select(e.ne(y, y), x, e.select(e.ne(x, x), y, pick(x, y)))

    return impl


fmax = _define("fmax", _ignoring_nan(e.maximum), "The larger, ignoring NaN.")
fmin = _define("fmin", _ignoring_nan(e.minimum), "The smaller, ignoring NaN.")
floor = _define("floor", _by_kind(f=e.floor, rest=lambda x: x), "Largest integer <= x.")
ceil = _define("ceil", _by_kind(f=e.ceil, rest=lambda x: x), "Smallest integer >= x.")
rint = _define("rint", e.round_, "Nearest integer, ties to even.")
trunc = _define("trunc", _by_kind(f=lambda x: _copysign(e.floor(e.abs_(x)), x), rest=lambda x: x), "x without its fraction.")


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


isnan = _define("isnan", _false, "True where x is NaN.")
isfinite = _define("isfinite", _by_kind(f=e.isfinite, rest=lambda x: e.eq(x, x)), "True where x is neither infinite nor NaN.")
isinf = _define("isinf", _by_kind(f=lambda x: e.eq(e.abs_(x), _is(x, math.inf)), rest=_false), "True where x is infinite.")
equal = _define("equal", e.eq, "x == y.")
not_equal = _define("not_equal", e.ne, "x != y.")
less = _define("less", e.lt, "x < y.")
less_equal = _define("less_equal", e.le, "x <= y.")
greater = _define("greater", e.gt, "x > y.")
greater_equal = _define("greater_equal", e.ge, "x >= y.")


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
    condition, x, y = operand(condition), operand(x), operand(y)
    from fxgrad.numpy.core import result_type

    dtype = result_type(x, y)
    mask = np.bool_(condition) if type(condition) in (bool, int, float) else truth(condition)
    operands = broadcast_operands([mask, as_dtype(x, dtype), as_dtype(y, dtype)])
    return e.select(*operands)


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """a limited to [a_min, a_max], as numpy.clip; slope 1 on the closed interval."""
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    a = operand(a)
    if low is None and high is None:
        return a
    bounds = [operand(b) for b in (low, high) if b is not None]
    from fxgrad.numpy.core import result_type

    dtype = result_type(a, *bounds)
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
    """NaN and infinities replaced by numbers, as numpy.nan_to_num."""
    x = operand(x)
    if not hasattr(x, "dtype") or x.dtype.kind != "f":
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
    if a.dtype.kind != "f":
        return a
    if decimals == 0:
        return rint(a)
    scale = a.dtype.type(10.0 ** builtins_abs(decimals))
    return divide(rint(multiply(a, scale)), scale) if decimals > 0 else multiply(rint(divide(a, scale)), scale)


builtins_abs = int.__abs__
around = round
