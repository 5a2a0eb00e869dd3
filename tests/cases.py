"""One table of operation cases; every generic test reads it.

A case is a function of arrays written with primitives (or with the NumPy function that leads to them), the shapes to try, the
domain to draw from, and an oracle in plain NumPy. Domains keep away from kinks and poles, so that central differences apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special
import scipy.stats

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax
from fxgrad.primitives import dot, elementwise, index, reduce, shape
from fxgrad.primitives import random as draws
from tests import complex_cases
from tests import random_reference as ref

Shape = tuple[int, ...]
BROADCAST_PAIRS: list[tuple[Shape, Shape]] = [
    ((), ()),
    ((3,), ()),
    ((), (3,)),
    ((3,), (3,)),
    ((3,), (1,)),
    ((1,), (3,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 3), (2, 1)),
    ((2, 1), (1, 3)),
    ((2, 1, 4), (3, 1)),
    ((1, 1), (2, 3)),
    ((0,), (0,)),
    ((0, 3), (1, 3)),
    ((2, 0), (1,)),
    ((2, 3), (2, 3)),
]
UNARY_SHAPES: list[tuple[Shape, ...]] = [((),), ((3,),), ((2, 3),), ((0,),), ((2, 0, 3),), ((17,),), ((2, 1, 5),)]


@dataclass(frozen=True)
class Case:
    """An operation to test: `f` on float arrays of each of `shapes`, drawn from `domains`; `fixed` builds extra operands."""

    name: str
    f: Callable[..., Any]
    oracle: Callable[..., Any] | None
    shapes: Sequence[tuple[Shape, ...]]
    domains: Sequence[tuple[float, float]]
    smooth: bool = True  # has a second derivative to compare
    differentiable: bool = True
    dtypes: Sequence[str] = ("float64", "float32")
    rtol: float = 0.0  # value tolerance against the oracle, in units of eps; 0: the default of 4
    distinct: bool = False  # elements are spaced, so that ties and order changes stay out of reach of differences
    extra: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def arrays(self, shapes: tuple[Shape, ...], dtype: str = "float64", seed: int = 0) -> list[np.ndarray]:
        """The arguments: deterministic draws from the domains."""
        rng = np.random.default_rng([seed, *map(ord, self.name), len(shapes)])
        out = []
        for s, (low, high) in zip(shapes, self.domains, strict=True):
            n = int(np.prod(s))
            if self.distinct:
                x = low + (high - low) * (rng.permutation(n) + 0.5) / max(n, 1)
            else:
                x = rng.uniform(low, high, n)
            out.append(x.reshape(s).astype(dtype))
        return out


def _unary(name: str, f: Callable, oracle: Callable, low: float, high: float, **more: Any) -> Case:
    return Case(name, f, oracle, UNARY_SHAPES, [(low, high)], **more)


def _binary(name: str, f: Callable, oracle: Callable, *domains: tuple[float, float], **more: Any) -> Case:
    return Case(name, f, oracle, BROADCAST_PAIRS, domains, **more)


def _along(name: str, f: Callable, oracle: Callable, domain: tuple[float, float] = (-2.0, 2.0), **more: Any) -> Case:
    """A reduction or scan over the last axis, the first, and (where f takes a tuple) all axes: see `axes` in f."""
    return Case(name, f, oracle, [((3,),), ((2, 3),), ((2, 3, 4),), ((70,),), ((2, 1),)], [domain], **more)


def _scan_oracle(x: np.ndarray) -> np.ndarray:
    c, ys = np.zeros_like(x[0]), []
    for y in x:
        c, z = c * x.dtype.type(0.5) + np.sin(y), c * y
        ys.append(z)
    return np.stack(ys)


def _cond_oracle(x: np.ndarray) -> np.ndarray:
    return np.sin(x) if x[0] > 0 else x * x


def _while(x: Any) -> Any:
    """x**8, the test a value that depends on nothing traced."""
    return fx.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * c[0], c[1] + 1), (x, 0))[0]


def _while_oracle(x: np.ndarray) -> np.ndarray:
    return ((x * x) * (x * x)) * ((x * x) * (x * x))


def _tape_in_branch(x: Any) -> Any:
    return fx.cond(x[0] > 0, _while, lambda y: y, x)


def _tapes(x: Any) -> Any:
    """What transforms do with tapes, one after the other: here by hand, so that the laws see each."""
    from fxgrad.primitives import tape
    from fxgrad.primitives.control import tape_scan, while_tape

    test = fx.parse_ir("program p(c: f64[3], i: i64[]) { t: bool[] = lt i 2:i64 return t }")
    body = fx.parse_ir(
        "program p(c: f64[3], i: i64[]) { s: f64[3] = sin c d: f64[3] = add c c j: i64[] = add i 1:i64 return d, j, s }"
    )
    _, _, turns, sines = while_tape(x, np.int64(0), cond=test, body=body, cond_consts=0, body_consts=0)
    twice = tape.tape_total(tape.tape_batch(sines, repeats=2, axis=0), repeats=2, axis=0)
    thrice = tape.tape_batch(tape.tape_add(twice, sines), repeats=2, axis=0)
    add_up = fx.parse_ir(
        "program p(c: f64[3], s: f64[3], t: f64[2,3]) "
        "{ u: f64[3] = sum[axes=(0,)] t v: f64[3] = add u s w: f64[3] = add c v x: f64[3] = sub w s y: f64[3] = sub x s "
        "return y }"
    )
    return tape_scan(turns, fnp.zeros_like(x), sines, thrice, body=add_up, consts=0, carry=1, reverse=False)


E = elementwise
SPECIAL, KEY, F64 = fx.scipy.special, ref.KEY, ("float64",)
CASES: list[Case] = [
    # ---- elementwise, unary
    _unary("neg", fnp.negative, np.negative, -3, 3),
    _unary("abs", fnp.absolute, np.absolute, 0.3, 3),
    _unary("sign", fnp.sign, np.sign, 0.3, 3),
    _unary("exp", fnp.exp, np.exp, -3, 3),
    _unary("expm1", fnp.expm1, np.expm1, -2, 2),
    _unary("log", fnp.log, np.log, 0.2, 5),
    _unary("log1p", fnp.log1p, np.log1p, -0.6, 4),
    _unary("sqrt", fnp.sqrt, np.sqrt, 0.2, 5),
    _unary("rsqrt", lax.rsqrt, lambda x: 1 / np.sqrt(x), 0.2, 5),
    _unary("cbrt", fnp.cbrt, np.cbrt, 0.2, 5),
    _unary("sin", fnp.sin, np.sin, -4, 4),
    _unary("cos", fnp.cos, np.cos, -4, 4),
    _unary("tan", fnp.tan, np.tan, -1.2, 1.2),
    _unary("asin", fnp.arcsin, np.arcsin, -0.9, 0.9),
    _unary("acos", fnp.arccos, np.arccos, -0.9, 0.9),
    _unary("atan", fnp.arctan, np.arctan, -4, 4),
    _unary("sinh", fnp.sinh, np.sinh, -3, 3),
    _unary("cosh", fnp.cosh, np.cosh, -3, 3),
    _unary("tanh", fnp.tanh, np.tanh, -3, 3),
    _unary("logistic", lax.logistic, scipy.special.expit, -4, 4),
    _unary("erf", fx.scipy.special.erf, scipy.special.erf, -2, 2),
    _unary("erfc", fx.scipy.special.erfc, scipy.special.erfc, -2, 2),
    _unary("floor", fnp.floor, np.floor, 0.1, 0.9),
    _unary("ceil", fnp.ceil, np.ceil, 0.1, 0.9),
    _unary("round", fnp.rint, np.rint, 0.6, 1.4),
    _unary("isfinite", fnp.isfinite, np.isfinite, -1, 1, differentiable=False),
    _unary("not", lambda x: fnp.logical_not(x > 0.0), lambda x: ~(x > 0.0), -1, 1, differentiable=False),
    _unary(
        "invert_int",
        lambda x: fnp.invert((x * 10).astype(np.int32)),
        lambda x: ~(x * 10).astype(np.int32),
        -1,
        1,
        differentiable=False,
    ),
    _unary(
        "convert",
        lambda x: x.astype(np.float32) if hasattr(x, "astype") else np.float32(x),
        lambda x: x.astype(np.float32),
        -3,
        3,
        dtypes=("float32",),
    ),
    _unary(
        "convert_int", lambda x: fnp.astype(x * 100, np.int64), lambda x: (x * 100).astype(np.int64), -3, 3, differentiable=False
    ),
    _unary("integer_pow", lambda x: fnp.power(x, 3), lambda x: x**3, 0.3, 2),
    _unary("integer_pow_negative", lambda x: fnp.power(x, -2), lambda x: x**-2.0, 0.3, 2),
    _unary("integer_pow_zero", lambda x: fnp.power(x, 0), lambda x: x**0, 0.3, 2),
    _unary("arcsinh", fnp.arcsinh, np.arcsinh, -3, 3),
    _unary("arccosh", fnp.arccosh, np.arccosh, 1.2, 5, rtol=32),
    _unary("arctanh", fnp.arctanh, np.arctanh, -0.8, 0.8, rtol=32),
    _unary("log2", fnp.log2, np.log2, 0.2, 5, rtol=16),
    _unary("log10", fnp.log10, np.log10, 0.2, 5, rtol=16),
    _unary("exp2", fnp.exp2, np.exp2, -3, 3),
    _unary("square", fnp.square, np.square, -3, 3),
    _unary("reciprocal", fnp.reciprocal, np.reciprocal, 0.3, 3),
    _unary("trunc", fnp.trunc, np.trunc, 0.1, 0.9),
    _unary("name", lambda x: fx.checkpoint_name(x, "x") * 1.0, lambda x: x, -1, 1),
    # ---- elementwise, binary
    _binary("add", fnp.add, np.add, (-2, 2), (-2, 2)),
    _binary("sub", fnp.subtract, np.subtract, (-2, 2), (-2, 2)),
    _binary("mul", fnp.multiply, np.multiply, (-2, 2), (-2, 2)),
    _binary("div", fnp.divide, np.divide, (-2, 2), (0.4, 2)),
    _binary("pow", fnp.power, np.power, (0.3, 2), (-2, 2)),
    _binary("rem", fnp.remainder, np.remainder, (0.1, 0.9), (1.2, 2)),
    _binary("rem_negative", fnp.remainder, np.remainder, (-0.9, -0.1), (1.2, 2)),
    _binary("fmod", fnp.fmod, np.fmod, (-0.9, -0.1), (1.2, 2)),
    _binary("floor_divide", fnp.floor_divide, np.floor_divide, (3.2, 3.8), (1.3, 1.5)),
    _binary("maximum", fnp.maximum, np.maximum, (0, 1), (2, 3)),
    _binary("minimum", fnp.minimum, np.minimum, (0, 1), (2, 3)),
    _binary("atan2", fnp.arctan2, np.arctan2, (0.5, 2), (-2, -0.5)),
    _binary("hypot", fnp.hypot, np.hypot, (0.5, 2), (-2, -0.5)),
    _binary("logaddexp", fnp.logaddexp, np.logaddexp, (-3, 3), (-3, 3)),
    _binary("eq", fnp.equal, np.equal, (0, 1), (0, 1), differentiable=False),
    _binary("ne", fnp.not_equal, np.not_equal, (0, 1), (0, 1), differentiable=False),
    _binary("lt", fnp.less, np.less, (0, 1), (0, 1), differentiable=False),
    _binary("le", fnp.less_equal, np.less_equal, (0, 1), (0, 1), differentiable=False),
    _binary("gt", fnp.greater, np.greater, (0, 1), (0, 1), differentiable=False),
    _binary("ge", fnp.greater_equal, np.greater_equal, (0, 1), (0, 1), differentiable=False),
    _binary(
        "and", lambda x, y: fnp.logical_and(x > 0, y > 0), lambda x, y: (x > 0) & (y > 0), (-1, 1), (-1, 1), differentiable=False
    ),
    _binary(
        "or", lambda x, y: fnp.logical_or(x > 0, y > 0), lambda x, y: (x > 0) | (y > 0), (-1, 1), (-1, 1), differentiable=False
    ),
    _binary(
        "xor", lambda x, y: fnp.logical_xor(x > 0, y > 0), lambda x, y: (x > 0) ^ (y > 0), (-1, 1), (-1, 1), differentiable=False
    ),
    _binary("select", lambda x, y: fnp.where(x > y, x * x, y), lambda x, y: np.where(x > y, x * x, y), (0, 1), (2, 3)),
    _binary("clip", lambda x, y: fnp.clip(x, -0.5, y), lambda x, y: np.clip(x, -0.5, y), (-0.4, 0.4), (0.6, 1)),
    _binary("clip_low", lambda x, y: fnp.clip(x, y, 5.0), lambda x, y: np.clip(x, y, 5.0), (-1, -0.5), (0.6, 1)),
    _binary("int_ops", lambda x, y: _int_ops(fnp, x, y), lambda x, y: _int_ops(np, x, y), (-9, 9), (1, 5), differentiable=False),
    _binary("lin_mul", lambda x, y: E.lin_mul(*fnp.broadcast_arrays(x, y)), np.multiply, (0.5, 2), (-2, 2)),
    _binary("lin_div", lambda x, y: E.lin_div(*fnp.broadcast_arrays(x, y)), np.divide, (0.5, 2), (0.5, 2)),
    _binary("xlogy", fx.scipy.special.xlogy, scipy.special.xlogy, (-2, 2), (0.4, 2)),
    _binary("xlog1py", fx.scipy.special.xlog1py, scipy.special.xlog1py, (-2, 2), (-0.5, 2)),
    # ---- special functions
    _unary("erfinv", SPECIAL.erfinv, scipy.special.erfinv, -0.9, 0.9),
    _unary("erfcinv", SPECIAL.erfcinv, scipy.special.erfcinv, 0.1, 1.9),
    _unary("ndtri", SPECIAL.ndtri, scipy.special.ndtri, 0.05, 0.95, rtol=8),
    _unary("erfcx", SPECIAL.erfcx, scipy.special.erfcx, -2, 4, rtol=8),
    _unary("ndtr", SPECIAL.ndtr, scipy.special.ndtr, -3, 3, rtol=8),
    _unary("log_ndtr", SPECIAL.log_ndtr, scipy.special.log_ndtr, -3, 3, rtol=16),
    _unary("logit", SPECIAL.logit, scipy.special.logit, 0.1, 0.9, rtol=8),
    _unary("exprel", SPECIAL.exprel, scipy.special.exprel, -2, 2),
    _unary("entr", SPECIAL.entr, scipy.special.entr, 0.2, 2),
    _unary("gammaln", SPECIAL.gammaln, scipy.special.gammaln, 0.3, 12, rtol=8),
    _unary("gamma", SPECIAL.gamma, scipy.special.gamma, 0.5, 5, rtol=8, dtypes=F64),
    _unary("digamma", SPECIAL.digamma, scipy.special.digamma, 0.5, 12, rtol=8, dtypes=F64),
    _unary("trigamma", lambda x: SPECIAL.polygamma(1, x), lambda x: scipy.special.polygamma(1, x), 0.6, 9, rtol=16, dtypes=F64),
    _unary("i0", SPECIAL.i0, scipy.special.i0, -4, 4, rtol=8),
    _unary("i1", SPECIAL.i1, scipy.special.i1, -4, 4, rtol=8, dtypes=F64),
    _unary("i0e", SPECIAL.i0e, scipy.special.i0e, 0.5, 12, rtol=8, dtypes=F64),
    _unary("i1e", SPECIAL.i1e, scipy.special.i1e, 0.5, 12, rtol=8, dtypes=F64),
    _unary(
        "gammainc_by_x", lambda x: SPECIAL.gammainc(2.5, x), lambda x: scipy.special.gammainc(2.5, x), 0.5, 8, rtol=16, dtypes=F64
    ),
    _unary(
        "betainc_by_x",
        lambda x: SPECIAL.betainc(2.5, 1.5, x),
        lambda x: scipy.special.betainc(2.5, 1.5, x),
        0.1,
        0.9,
        rtol=16,
        dtypes=F64,
    ),
    _binary("betaln", SPECIAL.betaln, scipy.special.betaln, (0.5, 12), (0.5, 12), rtol=16),
    _binary("beta", SPECIAL.beta, scipy.special.beta, (0.5, 5), (0.5, 5), rtol=16, dtypes=F64),
    _binary("zeta", SPECIAL.zeta, scipy.special.zeta, (1.5, 4), (0.6, 3), rtol=8, dtypes=F64),
    _binary("poch", SPECIAL.poch, scipy.special.poch, (0.5, 4), (0.5, 3), rtol=32, dtypes=F64),
    _binary("rel_entr", SPECIAL.rel_entr, scipy.special.rel_entr, (0.2, 2), (0.4, 2), rtol=8),
    _binary("gammainc", SPECIAL.gammainc, scipy.special.gammainc, (0.8, 6), (0.5, 8), rtol=32, dtypes=F64, smooth=False),
    _binary("gammaincc", SPECIAL.gammaincc, scipy.special.gammaincc, (0.8, 6), (0.5, 8), rtol=32, dtypes=F64, smooth=False),
    _binary(
        "gamma_draw_slope",
        lambda a, x: draws.gamma_draw_slope(*fnp.broadcast_arrays(a, x)),
        lambda a, x: -_by_shape(a, x) / scipy.stats.gamma.pdf(x, a),
        (1, 9),
        (1, 9),
        rtol=3e7,
        dtypes=("float64",),
        differentiable=False,
    ),
    # ---- random numbers: a fixed key, times the operand
    _unary("uniform", lambda x: x * fx.random.uniform(KEY, x.shape), lambda x: x * ref.uniform(x.shape), 1, 2, dtypes=F64),
    _unary(
        "normal",
        lambda x: x * fx.random.normal(KEY, x.shape),
        lambda x: x * ref.normal_of(ref.bits64(x.shape)),
        1,
        2,
        dtypes=F64,
        rtol=16,
    ),
    _unary(
        "exponential",
        lambda x: x * fx.random.exponential(KEY, x.shape),
        lambda x: -x * np.log(ref.open_uniform(ref.bits64(x.shape))),
        1,
        2,
        dtypes=F64,
    ),
    _unary(
        "randint",
        lambda x: fx.random.randint(KEY, x.shape, 3, 103),
        lambda x: 3 + ref.randint(x.shape, 100),
        1,
        2,
        differentiable=False,
    ),
    _unary(
        "gamma_draw",
        lambda a: draws.gamma_draw(*KEY, fnp.reshape(fnp.arange(a.size, dtype=np.uint32), a.shape), a),
        ref.gamma,
        1,
        9,
        dtypes=F64,
        rtol=64,
        differentiable=False,
    ),
    _unary("poisson", lambda x: fx.random.poisson(KEY, x), ref.poisson, 0, 9, differentiable=False, dtypes=F64),
    _unary(
        "binomial",
        lambda x: fx.random.binomial(KEY, 12, x),
        lambda x: ref.binomial(12, x),
        0,
        0.49,
        differentiable=False,
        dtypes=F64,
    ),
    # ---- reductions
    _along("sum", lambda x: fnp.sum(x, axis=-1), lambda x: np.sum(x, axis=-1), rtol=64),
    _along("sum_first", lambda x: fnp.sum(x, axis=0), lambda x: np.sum(x, axis=0), rtol=64),
    _along("sum_all", lambda x: fnp.sum(x), lambda x: np.sum(x), rtol=64),
    _along("prod", lambda x: fnp.prod(x, axis=0), lambda x: np.prod(x, axis=0), (0.8, 1.2), rtol=128),
    _along("prod_all", lambda x: fnp.prod(x), lambda x: np.prod(x), (0.8, 1.2), rtol=128),
    _along("max", lambda x: fnp.max(x, axis=-1), lambda x: np.max(x, axis=-1), distinct=True),
    _along("min", lambda x: fnp.min(x, axis=0), lambda x: np.min(x, axis=0), distinct=True),
    _along("max_all", lambda x: fnp.max(x), lambda x: np.max(x), distinct=True),
    _along("argmax", lambda x: fnp.argmax(x, axis=-1), lambda x: np.argmax(x, axis=-1), differentiable=False),
    _along("argmin", lambda x: fnp.argmin(x, axis=0), lambda x: np.argmin(x, axis=0), differentiable=False),
    _along("any", lambda x: fnp.any(x > 1, axis=0), lambda x: np.any(x > 1, axis=0), differentiable=False),
    _along("all", lambda x: fnp.all(x > -1, axis=-1), lambda x: np.all(x > -1, axis=-1), differentiable=False),
    _along("cumsum", lambda x: fnp.cumsum(x, axis=-1), lambda x: np.cumsum(x, axis=-1), rtol=64),
    _along("cumprod", lambda x: fnp.cumprod(x, axis=0), lambda x: np.cumprod(x, axis=0), (0.8, 1.2), rtol=128),
    _along(
        "linear_recurrence",
        lambda x: reduce.linear_recurrence(x, fnp.cos(x), axis=x.ndim - 1, reverse=False),
        lambda x: _recurrence(x, np.cos(x)),
        rtol=64,
    ),
    _along(
        "linear_recurrence_reverse",
        lambda x: reduce.linear_recurrence(x, fnp.cos(x), axis=x.ndim - 1, reverse=True),
        lambda x: _recurrence(x[..., ::-1], np.cos(x[..., ::-1]))[..., ::-1],
        rtol=64,
    ),
    _along("logsumexp", lambda x: fx.scipy.special.logsumexp(x, axis=-1), lambda x: scipy.special.logsumexp(x, axis=-1), rtol=64),
    _along("mean", lambda x: fnp.mean(x, axis=0), lambda x: np.mean(x, axis=0), rtol=64),
    _along("std", lambda x: fnp.std(x * x + x), lambda x: np.std(x * x + x), rtol=128),
    _along("softmax", lambda x: fx.scipy.special.softmax(x, axis=-1), lambda x: scipy.special.softmax(x, axis=-1), rtol=64),
    # ---- shapes
    _along("broadcast", lambda x: fnp.broadcast_to(x, (2, *x.shape)), lambda x: np.broadcast_to(x, (2, *x.shape))),
    _along("reshape", lambda x: fnp.reshape(x, (-1,)), lambda x: np.reshape(x, (-1,))),
    _along("transpose", lambda x: fnp.transpose(x), lambda x: np.transpose(x)),
    _along("reverse", lambda x: fnp.flip(x, 0), lambda x: np.flip(x, 0)),
    _along("slice", lambda x: x[1::2], lambda x: x[1::2]),
    _along("slice_negative", lambda x: x[::-2, None], lambda x: x[::-2, None]),
    _along("pad", lambda x: fnp.pad(x, 2, constant_values=1.5), lambda x: np.pad(x, 2, constant_values=1.5)),
    _along(
        "pad_interior",
        lambda x: shape.pad(x, x.dtype.type(2), low=(1,) * x.ndim, high=(0,) * x.ndim, interior=(2,) * x.ndim),
        lambda x: _pad_interior(x),
    ),
    _along("concatenate", lambda x: fnp.concatenate([x, x * x, x], axis=-1), lambda x: np.concatenate([x, x * x, x], axis=-1)),
    _along("iota", lambda x: x * fnp.arange(x.shape[-1], dtype=x.dtype), lambda x: x * np.arange(x.shape[-1], dtype=x.dtype)),
    _along(
        "dynamic_slice",
        lambda x: lax.dynamic_slice(x, (np.int64(1),) * x.ndim, tuple(max(1, n - 1) for n in x.shape)),
        lambda x: _window(x),
    ),
    _along(
        "dynamic_update_slice",
        lambda x: lax.dynamic_update_slice(x, x[:1] * 2.0, (np.int64(1),) + (np.int64(0),) * (x.ndim - 1)),
        lambda x: _updated(x),
    ),
    _along("update_slice", lambda x: _every_other(x * x), lambda x: _every_other(x * x)),
    _along("sort", lambda x: fnp.sort(x, axis=-1), lambda x: np.sort(x, axis=-1), distinct=True),
    _along(
        "argsort",
        lambda x: fnp.argsort(x, axis=0),
        lambda x: np.argsort(x, axis=0, kind="stable"),
        differentiable=False,
        distinct=True,
    ),
    Case(
        "searchsorted",
        lambda table, x: fnp.searchsorted(fnp.cumsum(fnp.absolute(table)), x),
        lambda table, x: np.searchsorted(np.cumsum(np.abs(table)), x),
        [((5,), ()), ((5,), (3,)), ((3,), (2, 3)), ((4,), (0,)), ((1,), (2,))],
        [(0.5, 1), (-1, 6)],
        differentiable=False,
        distinct=True,
    ),
    _along(
        "searchsorted_right",
        lambda x: fnp.searchsorted(np.arange(3.0).astype(x.dtype), x, side="right"),
        lambda x: np.searchsorted(np.arange(3.0), x, side="right"),
        differentiable=False,
    ),
    # ---- floats and integers down to their bits
    _binary("nextafter", fnp.nextafter, np.nextafter, (-2, 2), (-2, 2)),
    _unary("spacing", fnp.spacing, np.spacing, 0.6, 0.9),
    _unary("exponent", lambda x: fnp.frexp(x)[1], lambda x: np.frexp(x)[1], 0.1, 9, differentiable=False),
    _unary("mantissa", lambda x: fnp.frexp(x)[0], lambda x: np.frexp(x)[0], 1.1, 1.9),
    _unary("ldexp", lambda x: fnp.ldexp(x, 3), lambda x: np.ldexp(x, 3), -2, 2),
    _unary(
        "gcd", lambda x: fnp.gcd((x * 9).astype(int), 12), lambda x: np.gcd((x * 9).astype(int), 12), -5, 5, differentiable=False
    ),
    _unary(
        "lcm", lambda x: fnp.lcm((x * 9).astype(int), 12), lambda x: np.lcm((x * 9).astype(int), 12), -5, 5, differentiable=False
    ),
    _unary(
        "within",
        lambda x: fnp.unravel_index(x.astype(int), (2, 3))[1],
        lambda x: np.unravel_index(x.astype(int), (2, 3))[1],
        0,
        5.9,
        differentiable=False,
    ),
    # ---- indexing
    _along(
        "gather", lambda x: x[np.array([[0, -1], [0, 1 - x.shape[0]]])], lambda x: x[np.array([[0, -1], [0, 1 - x.shape[0]]])]
    ),
    _along("take", lambda x: fnp.take(x, np.array([0, 0, -1]), axis=-1), lambda x: np.take(x, np.array([0, 0, -1]), axis=-1)),
    _along(
        "scatter_set",
        lambda x: index.scatter(x, fnp.concatenate([x[:1], fnp.multiply(x[:1], 3.0)]), np.array([0, 0]), axes=(0,), mode="set"),
        lambda x: _scattered(x, "set"),
    ),
    _along(
        "scatter_add",
        lambda x: index.scatter(fnp.zeros_like(x), fnp.concatenate([x[:1], x[:1]]), np.array([0, 0]), axes=(0,), mode="add"),
        lambda x: _scattered(x, "add"),
    ),
    # ---- products
    Case(
        "matmul",
        fnp.matmul,
        np.matmul,
        [
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 2)),
            ((2, 3), (3, 4)),
            ((2, 2, 3), (3, 4)),
            ((2, 1, 3), (2, 3, 4)),
            ((0, 3), (3, 2)),
            ((2, 0), (0, 2)),
        ],
        [(-1, 1), (-1, 1)],
        rtol=64,
    ),
    Case(
        "dot_general",
        lambda x, y: dot.dot(x, y, contract=((1, 3), (0, 2)), batch=((0,), (3,)), strong=None),
        lambda x, y: np.einsum("abcd,bfda->acf", x, y),
        [((2, 3, 4, 2), (3, 2, 2, 2))],
        [(-1, 1), (-1, 1)],
        rtol=64,
    ),
    Case(
        "einsum",
        lambda x, y: fnp.einsum("ij,kj->ik", x, y),
        lambda x, y: np.einsum("ij,kj->ik", x, y),
        [((2, 3), (4, 3))],
        [(-1, 1), (-1, 1)],
        rtol=64,
    ),
    # ---- calls
    _along("jit_call", fx.jit(lambda x: fnp.sin(x) * x), lambda x: np.sin(x) * x, rtol=16),
    _along("checkpoint", fx.checkpoint(lambda x: fnp.sin(fnp.sin(x))), lambda x: np.sin(np.sin(x)), rtol=16),
    # ---- control flow
    _along(
        "scan",
        lambda x: fx.scan(lambda c, y: (c * 0.5 + fnp.sin(y), c * y), fnp.zeros_like(x[0]), x)[1],
        _scan_oracle,
        rtol=16,
        extra={"leading": True},
    ),
    Case(
        "cond", lambda x: fx.cond(x[0] > 0, fnp.sin, lambda y: y * y, x), _cond_oracle, [((3,),), ((2,),)], [(0.2, 2.0)], rtol=16
    ),
    Case("while_loop", _while, _while_oracle, [((3,),), ((2, 3),), ((0,),)], [(0.5, 1.2)], rtol=64),
    Case("tapes", _tapes, lambda x: 5 * (np.sin(x) + np.sin(2 * x)), [((3,),)], [(0.5, 1.2)], dtypes=("float64",), rtol=64),
    Case("no_tape", _tape_in_branch, _while_oracle, [((3,),)], [(0.5, 1.2)], rtol=64),
    _along("stop_gradient", lambda x: x * fx.stop_gradient(x * 0 + 2.0), lambda x: x * 2.0),
]


def _int_ops(np_: Any, x: Any, y: Any) -> Any:
    a, b = (np_.asarray(v).astype(np.int64) if np_ is np else fnp.astype(v, np.int64) for v in (x, y))
    return (
        np_.floor_divide(a, b)
        + np_.remainder(a, b) * 3
        + np_.left_shift(a, 2)
        + np_.right_shift(a, 1)
        + np_.power(a, np_.absolute(b))
    )


def _by_shape(a: np.ndarray, x: np.ndarray, h: float = 1e-4) -> np.ndarray:
    """The derivative of gammainc by its first argument, by differences."""

    def at(k: int) -> np.ndarray:
        return scipy.special.gammainc(a + k * h, x)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)


def _recurrence(b: np.ndarray, a: np.ndarray) -> np.ndarray:
    h, out = np.zeros(b.shape[:-1]), np.empty(b.shape)
    for i in range(b.shape[-1]):
        h = a[..., i] * h + b[..., i]
        out[..., i] = h
    return out


def _pad_interior(x: np.ndarray) -> np.ndarray:
    out = np.full([1 + n + 2 * (n - 1) for n in x.shape], 2.0)
    out[tuple(slice(1, None, 3) for _ in x.shape)] = x
    return out


def _window(x: np.ndarray) -> np.ndarray:
    sizes = [max(1, n - 1) for n in x.shape]
    starts = [min(1, n - m) for n, m in zip(x.shape, sizes, strict=True)]
    return x[tuple(slice(s, s + m) for s, m in zip(starts, sizes, strict=True))]


def _every_other(y: Any) -> Any:
    y[1::2] = y[:-1:2] * 3.0
    return y


def _updated(x: np.ndarray) -> np.ndarray:
    out = x.copy()
    start = min(1, x.shape[0] - 1)
    out[start : start + 1] = x[:1] * 2.0
    return out


def _scattered(x: np.ndarray, mode: str) -> np.ndarray:
    out = x.copy() if mode == "set" else np.zeros_like(x)
    out[0] = 3.0 * x[0] if mode == "set" else 2.0 * x[0]
    return out


def _custom() -> list[Case]:
    @fx.custom_jvp
    def scaled(x: Any) -> Any:
        return fnp.sin(x)

    scaled.defjvps(lambda t, y, x: t * fnp.cos(x))

    @fx.custom_vjp
    def pulled(x: Any) -> Any:
        return fnp.sin(x)

    pulled.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: (g * fnp.cos(x),))
    return [
        _along("custom_jvp_call", scaled, np.sin, rtol=16),
        _along("custom_vjp_call", pulled, np.sin, rtol=16, extra={"reverse_only": True}),
    ]


CASES += _custom()
CASES += [
    Case(name, f, oracle, **{"shapes": complex_cases.PAIRS, "domains": complex_cases.DOMAIN} | options)
    for name, f, oracle, options in complex_cases.entries()
]

from tests.conv_cases import CONV  # noqa: E402  (its cases are made of Case)
from tests.linalg_cases import LINALG  # noqa: E402

CASES += LINALG + CONV
