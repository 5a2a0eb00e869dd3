"""Distributions of vectors."""

from __future__ import annotations

import math
from typing import Any

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import special as p
from fxgrad.scipy import linalg
from fxgrad.scipy.special.gammas import gammaln
from fxgrad.scipy.special.operands import constant, floats

__all__ = ["dirichlet", "multivariate_normal"]


class _Dirichlet:
    """The Dirichlet distribution, as scipy.stats.dirichlet; x may have the last coordinate left out.

    Example:
        >>> from fxgrad.scipy import stats
        >>> stats.dirichlet.logpdf([0.25, 0.75], [1.0, 1.0])
        np.float64(0.0)
    """

    def logpdf(self, x: Any, alpha: Any) -> Any:
        """Logarithm of the density.

        Arguments:
            x: (n, ...) points of the simplex, coordinates along the first axis as in SciPy; or (n - 1, ...), without the last.
            alpha: (n,) concentrations, above 0.

        Returns:
            (...), -inf where a coordinate is negative.
        """
        x, alpha = fnp.asarray(x), fnp.asarray(alpha)
        if alpha.ndim != 1 or not x.ndim or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
            raise errors.FxValueError(
                f"dirichlet.logpdf takes x (n, ...) and alpha (n,), got {x.shape} and {alpha.shape}",
                why="Coordinates are along the first axis, one for each concentration; the last may be left out.",
                fix="Pass x.T if coordinates are along the last axis.",
            )
        if x.shape[0] < alpha.shape[0]:
            x = fnp.concatenate([x, 1.0 - fnp.sum(x, axis=0, keepdims=True)])
        a, y = floats(fnp.reshape(alpha, (-1,) + (1,) * (x.ndim - 1)), x)
        one = constant(y, 1)
        ok = e.ge(y, constant(y, 0))
        terms = p.xlogy(e.sub(a, one), e.select(ok, y, one))
        log_norm = fnp.sum(gammaln(alpha)) - gammaln(fnp.sum(alpha))
        total = fnp.subtract(fnp.sum(terms, axis=0), log_norm)
        return fnp.where(fnp.all(ok, axis=0), total, -math.inf)

    def pdf(self, x: Any, alpha: Any) -> Any:
        """The density."""
        return fnp.exp(self.logpdf(x, alpha))


class _MultivariateNormal:
    """The multivariate normal distribution, as scipy.stats.multivariate_normal, for positive definite covariances.

    Example:
        >>> from fxgrad.scipy import stats
        >>> stats.multivariate_normal.logpdf([0.0, 0.0])
        np.float64(-1.8378770664093453)
    """

    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """Logarithm of the density.

        Arguments:
            x: (..., n).
            mean: (n,); zeros by default.
            cov: (n, n), symmetric and positive definite; a scalar or a vector is a multiple of the identity or a diagonal.

        Returns:
            (...).
        """
        x = fnp.asarray(x)
        x = x if x.ndim else fnp.reshape(x, (1,))
        n = x.shape[-1]
        centred = x if mean is None else fnp.subtract(x, mean)
        cov = fnp.asarray(cov)
        if cov.ndim < 2:
            variance = fnp.broadcast_to(cov, (n,))
            square = fnp.sum(fnp.divide(centred * centred, variance), axis=-1)
            log_det = fnp.sum(fnp.log(variance))
        else:
            root = linalg.cholesky(cov, lower=True)
            rows = fnp.reshape(centred, (-1, n))
            whitened = fnp.reshape(linalg.solve_triangular(root, rows.T, lower=True).T, centred.shape)
            square = fnp.sum(whitened * whitened, axis=-1)
            log_det = 2.0 * fnp.sum(fnp.log(fnp.diagonal(root)))
        return -0.5 * (square + (n * math.log(2 * math.pi) + log_det))

    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0) -> Any:
        """The density."""
        return fnp.exp(self.logpdf(x, mean, cov))


dirichlet = _Dirichlet()
multivariate_normal = _MultivariateNormal()
