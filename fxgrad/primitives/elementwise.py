"""Elementwise primitives: one statement each.

Every rule of differentiation multiplies through `lin_mul` or `lin_div`, in which a zero tangent annihilates whatever it meets
(0 * inf = 0): the strong zero. That is what keeps branches not taken from poisoning a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.ir.types import Aval
from fxgrad.primitives.base import (
    Doc,
    Linear,
    Primitive,
    add_tangents,
    batch_elementwise,
    elementwise,
    elementwise_shape,
    is_float,
    kernel_dtypes,
    register,
    type_error,
)

NUMBERS = "fciu"
REALS = "fiub"
ANY = "fciub"
_BOOL = np.dtype(np.bool_)

CONVENTION = "docs/design.md, conventions"
DLMF = "DLMF {}"  # NIST Digital Library of Mathematical Functions, section of the derivative formula

# ---- linear in each operand ------------------------------------------------------------------------------------------


def _same_dtype_typ(name: str, operands: str) -> Any:
    def typ(*avals: Aval, **params: Any) -> list[Aval]:
        if len({a.dtype for a in avals}) != 1:
            raise type_error(name, avals, "Operands of an elementwise primitive have one dtype; convert first.")
        if avals[0].dtype.kind not in operands:
            raise type_error(name, avals, f"It takes dtypes of kind {' '.join(operands)}; convert first.")
        return [Aval(elementwise_shape(name, avals), avals[0].dtype)]

    return typ


def _linear_all(name: str, body: Any, numpy: Any, doc: Doc, tangent: Any, transpose: Any) -> Primitive:
    """An operation linear in all operands together: add, sub, neg."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        return [prim(*primals)], [tangent(*tangents)]

    def transposed(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
        return transpose(cts[0], inputs)

    prim = Primitive(
        name,
        "map",
        _same_dtype_typ(name, NUMBERS),
        doc,
        jvp=jvp,
        transpose=transposed,
        batch=batch_elementwise(lambda: prim),
        body=body,
        numpy=numpy,
    )
    return register(prim)


neg = _linear_all(
    "neg",
    lambda k, x: -x,
    np.negative,
    Doc("-x", "-g"),
    tangent=lambda t: neg(t),
    transpose=lambda g, xs: [neg(g)],
)
add = _linear_all(
    "add",
    lambda k, x, y: x + y,
    np.add,
    Doc("x + y", "g, g"),
    tangent=lambda s, t: add_tangents([s, t]),
    transpose=lambda g, xs: [g, g],
)
sub = _linear_all(
    "sub",
    lambda k, x, y: x - y,
    np.subtract,
    Doc("x - y", "g, -g"),
    tangent=lambda s, t: s if t is None else neg(t) if s is None else sub(s, t),
    transpose=lambda g, xs: [g, neg(g)],
)


def _strong(name: str, body: Any, doc: Doc, by_second: Any) -> Primitive:
    """lin_mul, lin_div: linear in the first operand, where 0 stays +0 whatever the second is."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
        (x, r), (tx, tr) = primals, tangents
        return [prim(x, r)], [add_tangents([tx if tx is None else prim(tx, r), tr if tr is None else by_second(tr, x, r)])]

    def transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
        return [prim(cts[0], inputs[1]), None]

    prim = Primitive(
        name,
        "map",
        _same_dtype_typ(name, "fc"),
        doc,
        jvp=jvp,
        transpose=transpose,
        batch=batch_elementwise(lambda: prim),
        body=body,
        supports=kernel_dtypes,
    )
    return register(prim)


lin_mul = _strong(
    "lin_mul",
    lambda k, t, r: k.select(t == 0, k.constant(t, 0), t * r),
    Doc("t * r, and 0 where t = 0", "lin_mul(g, r)", "strong zero, docs/design.md"),
    by_second=lambda tr, t, r: lin_mul(tr, t),
)
lin_div = _strong(
    "lin_div",
    lambda k, t, r: k.select(t == 0, k.constant(t, 0), t / r),
    Doc("t / r, and 0 where t = 0", "lin_div(g, r)", "strong zero, docs/design.md"),
    by_second=lambda tr, t, r: neg(lin_div(lin_mul(tr, lin_div(t, r)), r)),
)


def _convert_typ(x: Aval, *, dtype: np.dtype) -> list[Aval]:
    return [x.with_dtype(dtype)]


def _convert_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dtype: np.dtype) -> tuple[list, list]:
    t = tangents[0]
    return [convert(primals[0], dtype=dtype)], [convert(t, dtype=dtype) if t is not None and is_float(dtype) else None]


def _convert_numpy(x: Any, *, dtype: np.dtype) -> Any:
    """Float to integer goes by the kernel language's own rule, which C leaves undefined."""
    x = np.asarray(x)
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    if x.dtype.kind == "f" and dtype.kind in "iu":
        from fxgrad.kernels.convert_rule import float_to_int

        return float_to_int(x, dtype)
    return x.astype(dtype)


convert = register(
    Primitive(
        "convert",
        "map",
        _convert_typ,
        Doc("x in another dtype", "g in the dtype of x"),
        jvp=_convert_jvp,
        transpose=lambda cts, inputs, *, dtype: [convert(cts[0], dtype=inputs[0].aval.dtype)],
        batch=batch_elementwise(lambda: convert),
        body=lambda k, x, *, dtype: k.convert(x, dtype),
        numpy=_convert_numpy,
    )
)


def _select_typ(mask: Aval, a: Aval, b: Aval) -> list[Aval]:
    if mask.dtype != _BOOL or a.dtype != b.dtype:
        raise type_error("select", (mask, a, b), "It takes a boolean mask and two operands of one dtype.")
    return [Aval(elementwise_shape("select", (mask, a, b)), a.dtype)]


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    mask, a, b = primals
    y, (_, ta, tb) = select(mask, a, b), tangents
    if ta is None and tb is None:
        return [y], [None]
    zero = np.zeros((), y.dtype)[()]
    return [y], [select(mask, zero if ta is None else ta, zero if tb is None else tb)]


def _select_transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
    g, zero = cts[0], np.zeros((), cts[0].dtype)[()]
    return [None, select(inputs[0], g, zero), select(inputs[0], zero, g)]


select = register(
    Primitive(
        "select",
        "map",
        _select_typ,
        Doc("a where mask, else b", "g where mask, else 0; 0 where mask, else g"),
        jvp=_select_jvp,
        transpose=_select_transpose,
        batch=batch_elementwise(lambda: select),
        body=lambda k, m, a, b: k.select(m, a, b),
        numpy=lambda m, a, b: np.where(m, a, b),
    )
)

# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _factor_transpose(strong: Callable[..., Any]) -> Callable[..., list]:
    """For user-written linear code (custom_jvp rules): t * r or r * t, t / r, transposed as the strong product."""

    def rule(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
        x, y = inputs
        if isinstance(x, Linear):
            return [strong(cts[0], y), None]
        return [None, strong(cts[0], x)]

    return rule


mul = elementwise(
    "mul",
    lambda k, x, y: x * y,
    Doc("x * y", "g*y, g*x", "product rule"),
    partials=(lambda z, x, y: y, lambda z, x, y: x),
    numpy=np.multiply,
    operands=NUMBERS,
    supports=kernel_dtypes,
    transpose=_factor_transpose(lambda g, r: lin_mul(g, r)),
)


def _div_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    (x, y), (tx, ty) = primals, tangents
    z = div(x, y)
    by_x = None if tx is None else lin_div(tx, y)
    by_y = None if ty is None else neg(lin_div(lin_mul(ty, z), y))
    return [z], [add_tangents([by_x, by_y])]


div = register(
    Primitive(
        "div",
        "map",
        _same_dtype_typ("div", "fc"),
        Doc("x / y", "g/y, -g*(x/y)/y", "quotient rule"),
        jvp=_div_jvp,
        transpose=_factor_transpose(lambda g, r: lin_div(g, r)),
        batch=batch_elementwise(lambda: div),
        body=lambda k, x, y: x / y,
        numpy=np.true_divide,
    )
)


def _rem_body(k: Any, x: Any, y: Any) -> Any:
    return k.remainder(x, y) if x.dtype.kind == "f" else k.remainder_int(x, y)


rem = elementwise(
    "rem",
    _rem_body,
    Doc("x - y*floor(x/y), the sign of y (NumPy's remainder)", "g, -g*floor(x/y)", "x - n*y with n constant between jumps"),
    partials=(lambda z, x, y: ones_like(z), lambda z, x, y: neg(floor(div(x, y)))),
    numpy=np.remainder,
    operands="fiu",
    supports=kernel_dtypes,
    cheap=False,
)
floordiv = elementwise(
    "floordiv",
    lambda k, x, y: k.divide_floor(x, y) if x.dtype.kind == "f" else k.divide_int(x, y),
    Doc("floor(x / y), of the exact quotient; x // 0 is 0 for integers, x / 0 for floats", "0"),
    partials=None,
    numpy=np.floor_divide,
    operands="fiu",
    supports=kernel_dtypes,
    cheap=False,
)


def ones_like(x: Any) -> Any:
    return np.ones((), x.dtype)[()]


def _int_power(x: Any, n: int, one: Any) -> Any:
    """x**n for n >= 0 by squaring, the same products in every mode."""
    result = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if n:
            x = x * x
    return one if result is None else result


def _integer_pow_body(k: Any, x: Any, *, n: int) -> Any:
    y = _int_power(x, abs(n), k.constant(x, 1))
    return y if n >= 0 else k.constant(x, 1) / y


def _integer_pow_numpy(x: Any, *, n: int) -> Any:
    y = _int_power(np.asarray(x), abs(n), np.ones_like(x))
    return y if n >= 0 else np.ones_like(y) / y


integer_pow = elementwise(
    "integer_pow",
    _integer_pow_body,
    Doc("x ** n, n a fixed integer, by repeated squaring", "g*n*x**(n-1)", DLMF.format("4.7.ii")),
    partials=(lambda y, x, *, n: _integer_pow_slope(x, n),),
    numpy=_integer_pow_numpy,
    operands=NUMBERS,
    supports=kernel_dtypes,
)


def _integer_pow_slope(x: Any, n: int) -> Any:
    if n == 0:
        return np.zeros((), x.dtype)[()]
    factor = x.dtype.type(n)
    return factor if n == 1 else mul(factor, x if n == 2 else integer_pow(x, n=n - 1))


def _absolute_slope(y: Any, x: Any) -> Any:
    return sign(x)


abs_ = elementwise(
    "abs",
    lambda k, x: k.absolute(x),
    Doc("|x|", "g*sign(x); 0 at 0", CONVENTION),
    partials=(_absolute_slope,),
    numpy=np.absolute,
    operands="fiu",
    supports=kernel_dtypes,
)
sign = elementwise(
    "sign",
    lambda k, x: k.select(x > 0, k.constant(x, 1), k.select(x < 0, k.constant(x, -1), k.select(x == 0, k.constant(x, 0), x))),
    Doc("-1, 0, 1, or NaN", "0"),
    partials=None,
    numpy=np.sign,
    operands="fiu",
    supports=kernel_dtypes,
)


def _share(by: Callable[[Any, Any], Any]) -> Any:
    """Slopes of max and min: 1 for the operand taken, half for both in a tie."""

    def slope(z: Any, mine: Any, other: Any) -> Any:
        one, half, none = (z.dtype.type(c) for c in (1, 0.5, 0))
        return select(or_(by(mine, other), ne(mine, mine)), one, select(eq(mine, other), half, none))

    return (lambda z, x, y: slope(z, x, y)), (lambda z, x, y: slope(z, y, x))


maximum = elementwise(
    "maximum",
    lambda k, x, y: k.maximum(x, y),
    Doc("the larger; NaN if either is", "g to the larger, g/2 to each of a tie", CONVENTION),
    partials=_share(lambda a, b: gt(a, b)),
    operands=REALS,
    supports=kernel_dtypes,
)
minimum = elementwise(
    "minimum",
    lambda k, x, y: k.minimum(x, y),
    Doc("the smaller; NaN if either is", "g to the smaller, g/2 to each of a tie", CONVENTION),
    partials=_share(lambda a, b: lt(a, b)),
    operands=REALS,
    supports=kernel_dtypes,
)
clip = elementwise(
    "clip",
    lambda k, x, lo, hi: k.minimum(k.maximum(x, lo), hi),
    Doc("min(max(x, lo), hi)", "g where lo <= x <= hi, else 0; to the bounds where they are taken", CONVENTION),
    partials=(
        lambda y, x, lo, hi: _indicator(and_(ge(x, lo), le(x, hi)), y),
        lambda y, x, lo, hi: _indicator(and_(lt(x, lo), lt(lo, hi)), y),
        lambda y, x, lo, hi: _indicator(or_(and_(gt(x, hi), le(lo, hi)), ge(lo, hi)), y),
    ),
    operands=REALS,
    supports=kernel_dtypes,
)


def _indicator(mask: Any, like: Any) -> Any:
    """1 where the mask holds, else 0, in the dtype of `like`."""
    return convert(mask, dtype=like.dtype)


sqrt = elementwise(
    "sqrt",
    lambda k, x: k.sqrt(x),
    Doc("square root", "g/(2*y); inf at 0", DLMF.format("4.7.ii")),
    partials=(lambda y, x: div(y.dtype.type(0.5), y),),
    numpy=np.sqrt,
    operands="fc",
)


def reciprocal(x: Any) -> Any:
    return div(x.dtype.type(1), x)


# ---- rounding and predicates: no derivative --------------------------------------------------------------------------

floor = elementwise("floor", lambda k, x: k.floor(x), Doc("largest integer <= x", "0"), partials=None, numpy=np.floor)
ceil = elementwise("ceil", lambda k, x: k.ceil(x), Doc("smallest integer >= x", "0"), partials=None, numpy=np.ceil)
round_ = elementwise("round", lambda k, x: k.rint(x), Doc("nearest integer, ties to even", "0"), partials=None, numpy=np.rint)
isfinite = elementwise(
    "isfinite",
    lambda k, x: k.absolute(x) < float("inf"),
    Doc("neither infinite nor NaN", "0"),
    partials=None,
    numpy=np.isfinite,
    result="bool",
)


def _compare(name: str, body: Any, numpy: Any, sign_: str) -> Primitive:
    return elementwise(
        name, body, Doc(f"x {sign_} y", "0"), partials=None, numpy=numpy, result="bool", operands=ANY, supports=kernel_dtypes
    )


eq = _compare("eq", lambda k, x, y: k.equal(x, y), np.equal, "==")
ne = _compare("ne", lambda k, x, y: k.not_equal(x, y), np.not_equal, "!=")
lt = _compare("lt", lambda k, x, y: x < y, np.less, "<")
le = _compare("le", lambda k, x, y: x <= y, np.less_equal, "<=")
gt = _compare("gt", lambda k, x, y: x > y, np.greater, ">")
ge = _compare("ge", lambda k, x, y: x >= y, np.greater_equal, ">=")


def _logic(name: str, body: Any, numpy: Any, forward: str) -> Primitive:
    return elementwise(
        name, body, Doc(forward, "none (not differentiable)"), partials=None, numpy=numpy, operands="biu", supports=kernel_dtypes
    )


not_ = _logic("not", lambda k, x: ~x, np.invert, "bitwise (logical) not")
and_ = _logic("and", lambda k, x, y: x & y, np.bitwise_and, "bitwise (logical) and")
or_ = _logic("or", lambda k, x, y: x | y, np.bitwise_or, "bitwise (logical) or")
xor = _logic("xor", lambda k, x, y: x ^ y, np.bitwise_xor, "bitwise (logical) exclusive or")


def _shift(name: str, body: Any, numpy: Any, forward: str) -> Primitive:
    return elementwise(
        name, body, Doc(forward, "none (integers)"), partials=None, numpy=numpy, operands="iu", supports=lambda avals: False
    )


shift_left = _shift("shift_left", None, np.left_shift, "x * 2**y, bits shifted left")
shift_right = _shift("shift_right", None, np.right_shift, "floor(x / 2**y), bits shifted right")
int_pow = _shift("int_pow", None, np.power, "x ** y of integers, wrapping")
