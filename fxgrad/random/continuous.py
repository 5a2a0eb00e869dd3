"""Continuous distributions: by inversion where the quantile function is simple, else through gamma and normal numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.numpy import elementwise as ew
from fxgrad.numpy.core import as_dtype, broadcast_to_shape, operand, static_shape, tensor
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import random as p
from fxgrad.primitives import reduce as r
from fxgrad.primitives import special as sp
from fxgrad.primitives import transcendental as tr
from fxgrad.random.compiled import compiled
from fxgrad.random.counters import counters
from fxgrad.random.draws import float_dtype, open_unit, param, raw, shape_for
from fxgrad.random.keys import as_key, split, words

__all__ = [
    "beta", "cauchy", "chisquare", "dirichlet", "exponential", "gamma", "gumbel", "laplace", "loggamma", "logistic",
    "multivariate_normal", "t", "truncated_normal",
]  # fmt: skip

_F16, _F32 = np.dtype(np.float16), np.dtype(np.float32)
Shape = tuple[int, ...]


def _c(x: Any, value: float) -> Any:
    return x.dtype.type(value)


# ---- without parameters ----------------------------------------------------------------------------------------------------


def _signed(bits: Any) -> tuple[Any, Any]:
    """Whether the lowest bit is set, and a number in (0, 1) from the others."""
    one = bits.dtype.type(1)
    return e.ne(e.and_(bits, one), bits.dtype.type(0)), open_unit(e.or_(bits, one))


def _exponential(bits: Any) -> Any:
    return e.neg(tr.log(open_unit(bits)))


def _gumbel(bits: Any) -> Any:
    """-log(E) of an exponential number that is fine near 0, where the upper tail comes from."""
    return e.neg(tr.log(e.neg(tr.log1p(e.neg(open_unit(bits))))))


def _laplace(bits: Any) -> Any:
    negative, u = _signed(bits)
    size = e.neg(tr.log(u))
    return e.select(negative, e.neg(size), size)


def _logistic(bits: Any) -> Any:
    """log(u/(1 - u)), from the nearer end."""
    negative, u = _signed(bits)
    v = e.mul(_c(u, 0.5), u)
    size = e.sub(tr.log1p(e.neg(v)), tr.log(v))
    return e.select(negative, e.neg(size), size)


def _cauchy(bits: Any) -> Any:
    """cot(pi u) for u below 1/2."""
    negative, u = _signed(bits)
    size = e.div(_c(u, 1), tr.tan(e.mul(_c(u, math.pi / 2), u)))
    return e.select(negative, e.neg(size), size)


def _plain(name: str, then: Callable[[Any], Any], summary: str, example: str) -> Callable[..., Any]:
    """A distribution without parameters."""

    def impl(key: Any, shape: Shape, dtype: np.dtype) -> Any:
        return raw(key, shape, dtype, then)

    def draw(key: Any, shape: Any = (), dtype: Any = float) -> Any:
        return compiled(impl, static_shape(shape), float_dtype(dtype, name))(as_key(key))

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"""{summary}

    Arguments:
        key: a key.
        shape: of the result.
        dtype: a floating-point dtype.

    Example:
        >>> import fxgrad as fx
        >>> {example}
        True
    """
    return draw


def _median(name: str, expected: float) -> str:
    return f"bool(abs(float(sorted(fx.random.{name}(fx.random.key(0), (4001,)))[2000]) - {expected}) < 0.1)"


exponential = _plain(
    "exponential", _exponential, "Numbers of the exponential distribution with rate 1.", _median("exponential", 0.693)
)
gumbel = _plain("gumbel", _gumbel, "Numbers of the standard Gumbel distribution, -log(-log(u)).", _median("gumbel", 0.3665))
laplace = _plain("laplace", _laplace, "Numbers of the standard Laplace distribution.", _median("laplace", 0))
logistic = _plain("logistic", _logistic, "Numbers of the standard logistic distribution.", _median("logistic", 0))
cauchy = _plain("cauchy", _cauchy, "Numbers of the standard Cauchy distribution.", _median("cauchy", 0))

# ---- gamma and what is made of it ------------------------------------------------------------------------------------------


def _log_gamma_draw(key: Any, a: Any, shape: Shape) -> Any:
    """The logarithm of a gamma draw: of shape a, or for a < 1 of shape a + 1 times u**(1/a), so that small ones do not vanish."""
    one = _c(a, 1)
    first, second = split(key)
    k0, k1 = words(first, shape)
    small = e.lt(a, one)
    drawn = p.gamma_draw(k0, k1, counters(shape), e.select(small, e.add(a, one), a))
    u = raw(second, shape, a.dtype, open_unit)
    boost = e.div(tr.log(u), e.select(small, a, one))
    return e.add(tr.log(drawn), e.select(small, boost, _c(a, 0)))


def _gamma_impl(key: Any, a: Any, shape: Shape, dtype: np.dtype, log: bool) -> Any:
    y = _log_gamma_draw(key, broadcast_to_shape(tensor(a), shape), shape)
    return as_dtype(y if log else tr.exp(y), dtype)


def _gamma(key: Any, a: Any, shape: Any, dtype: Any, log: bool) -> Any:
    d = float_dtype(dtype, "loggamma" if log else "gamma")
    return compiled(_gamma_impl, shape_for("gamma", shape, a), d, log)(as_key(key), param(a, d))


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Numbers of the gamma distribution with shape a and scale 1, differentiable in a.

    Arguments:
        key: a key.
        a: shape parameter, above 0 (NaN elsewhere).
        shape: of the result; by default that of a.
        dtype: a floating-point dtype.

    Marsaglia and Tsang's rejection method (2000); the derivative is that of the draw at constant probability (Figurnov, Mohamed
    and Mnih, "Implicit reparameterization gradients", 2018).

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.gamma(fx.random.key(0), 3.0, (4000,))
        >>> bool(abs(x.mean() - 3) < 0.1)
        True
    """
    return _gamma(key, a, shape, dtype, False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Logarithms of numbers of the gamma distribution: for small a, whose numbers are too small for floats.

    Example:
        >>> import fxgrad as fx
        >>> bool(fx.random.loggamma(fx.random.key(0), 1e-4) < -100)
        True
    """
    return _gamma(key, a, shape, dtype, True)


def _beta_impl(key: Any, a: Any, b: Any, shape: Shape, dtype: np.dtype) -> Any:
    first, second = split(key)
    u = _log_gamma_draw(first, broadcast_to_shape(tensor(a), shape), shape)
    v = _log_gamma_draw(second, broadcast_to_shape(tensor(b), shape), shape)
    return as_dtype(tr.logistic(e.sub(u, v)), dtype)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Numbers of the beta distribution, differentiable in a and b, which are above 0.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.beta(fx.random.key(0), 2.0, 6.0, (4000,))
        >>> bool(abs(x.mean() - 0.25) < 0.02)
        True
    """
    d = float_dtype(dtype, "beta")
    return compiled(_beta_impl, shape_for("beta", shape, a, b), d)(as_key(key), param(a, d), param(b, d))


def _dirichlet_impl(key: Any, alpha: Any, shape: Shape, dtype: np.dtype) -> Any:
    y = _log_gamma_draw(key, broadcast_to_shape(tensor(alpha), shape), shape)
    axes = (len(shape) - 1,)
    return as_dtype(tr.exp(e.sub(y, r.spread(r.logsumexp(y, axes=axes), shape, axes))), dtype)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Points of a simplex by the Dirichlet distribution, differentiable in alpha.

    Arguments:
        key: a key.
        alpha: concentrations, above 0, along the last axis.
        shape: of the result without its last axis; by default that of alpha without its.
        dtype: a floating-point dtype.

    Example:
        >>> import fxgrad as fx, numpy as np
        >>> x = fx.random.dirichlet(fx.random.key(0), np.ones(3), (5,))
        >>> x.shape, bool(np.allclose(x.sum(-1), 1))
        ((5, 3), True)
    """
    d = float_dtype(dtype, "dirichlet")
    alpha = param(tensor(alpha), d)
    if not np.ndim(alpha):
        raise errors.FxValueError(
            "fx.random.dirichlet takes an array of concentrations, got a scalar",
            why="A point of the simplex has as many coordinates as there are concentrations.",
            fix="Pass alpha * np.ones(n).",
        )
    full = None if shape is None else (*static_shape(shape), alpha.shape[-1])
    return compiled(_dirichlet_impl, shape_for("dirichlet", full, alpha), d)(as_key(key), alpha)


def _chisquare_impl(key: Any, df: Any, shape: Shape, dtype: np.dtype) -> Any:
    df = broadcast_to_shape(tensor(df), shape)
    return as_dtype(e.mul(_c(df, 2), tr.exp(_log_gamma_draw(key, e.mul(_c(df, 0.5), df), shape))), dtype)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Numbers of the chi-square distribution, differentiable in df.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.chisquare(fx.random.key(0), 5.0, (4000,))
        >>> bool(abs(x.mean() - 5) < 0.2)
        True
    """
    d = float_dtype(dtype, "chisquare")
    return compiled(_chisquare_impl, shape_for("chisquare", shape, df), d)(as_key(key), param(df, d))


def _t_impl(key: Any, df: Any, shape: Shape, dtype: np.dtype) -> Any:
    first, second = split(key)
    df = broadcast_to_shape(tensor(df), shape)
    half = e.mul(_c(df, 0.5), df)
    z = raw(first, shape, df.dtype, p.normal_of_bits)
    log_scale = e.mul(_c(df, 0.5), e.sub(tr.log(half), _log_gamma_draw(second, half, shape)))
    return as_dtype(e.mul(z, tr.exp(log_scale)), dtype)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Numbers of Student's t distribution, differentiable in df.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.t(fx.random.key(0), 9.0, (4000,))
        >>> bool(abs(x.var() - 9 / 7) < 0.2)
        True
    """
    d = float_dtype(dtype, "t")
    return compiled(_t_impl, shape_for("t", shape, df), d)(as_key(key), param(df, d))


# ---- truncated and multivariate normal -------------------------------------------------------------------------------------


def _truncated_impl(key: Any, lower: Any, upper: Any, shape: Shape, dtype: np.dtype) -> Any:
    """Inversion between the probabilities of the bounds, in the tail that both are nearer to, where those are precise."""
    lower, upper = (broadcast_to_shape(tensor(x), shape) for x in (lower, upper))
    flip = e.gt(e.add(lower, upper), _c(lower, 0))
    a, b = e.select(flip, e.neg(upper), lower), e.select(flip, e.neg(lower), upper)
    root, half = _c(a, -math.sqrt(0.5)), _c(a, 0.5)
    low, high = (e.mul(half, tr.erfc(e.mul(root, x))) for x in (a, b))
    u = raw(key, shape, lower.dtype, open_unit)
    x = sp.ndtri(e.add(low, e.mul(u, e.sub(high, low))))
    x = e.select(flip, e.neg(x), x)
    return as_dtype(e.clip(x, lower, upper), dtype)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Standard normal numbers between two bounds, by inversion; differentiable in the bounds.

    Arguments:
        key: a key.
        lower, upper: the bounds, lower < upper; infinities are allowed. Beyond 37 on one side (float64; 13 in float32) there is
            no probability left in floats, and the bound is answered.
        shape: of the result; by default that of the bounds.
        dtype: a floating-point dtype.

    Example:
        >>> import fxgrad as fx
        >>> x = fx.random.truncated_normal(fx.random.key(0), 1.0, 2.0, (1000,))
        >>> bool((x >= 1).all() and (x <= 2).all())
        True
    """
    d = float_dtype(dtype, "truncated_normal")
    shape = shape_for("truncated_normal", shape, lower, upper)
    return compiled(_truncated_impl, shape, d)(as_key(key), param(lower, d), param(upper, d))


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = float) -> Any:
    """Normal vectors of a mean and a covariance, differentiable in both: mean + L z with cov = L L'.

    Arguments:
        key: a key.
        mean: (..., n).
        cov: (..., n, n), symmetric and positive definite.
        shape: of the result without its last axis; by default that of mean and cov together.
        dtype: float32 or float64.

    Example:
        >>> import fxgrad as fx, numpy as np
        >>> x = fx.random.multivariate_normal(fx.random.key(0), np.zeros(2), np.array([[2.0, 1.0], [1.0, 2.0]]), (4000,))
        >>> bool(abs(np.cov(x.T) - np.array([[2, 1], [1, 2]])).max() < 0.2)
        True
    """
    from fxgrad.numpy.linalg import matmul
    from fxgrad.random.draws import normal
    from fxgrad.scipy import linalg

    d = float_dtype(dtype, "multivariate_normal")
    mean, cov = as_dtype(tensor(operand(mean)), d), as_dtype(tensor(operand(cov)), d)
    n = mean.shape[-1] if mean.ndim else 0
    if not mean.ndim or cov.shape[-2:] != (n, n):
        raise errors.FxValueError(
            f"fx.random.multivariate_normal takes a mean (..., n) and a covariance (..., n, n), got {mean.shape} and {cov.shape}",
            why="The covariance has a row and a column for each component of the mean.",
            fix="Pass np.diag(variances) for independent components.",
        )
    batch = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    shape = batch if shape is None else static_shape(shape)
    z = normal(key, (*shape, n), d)
    root = linalg.cholesky(cov, lower=True)
    return ew.add(mean, matmul(root, z[..., None])[..., 0])
