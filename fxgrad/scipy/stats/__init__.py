"""Log densities and probabilities of distributions, with scipy.stats' names and arguments.

Each is an object with logpdf, pdf (logpmf, pmf), and cdf, sf, ppf, isf where these are simple; shape parameters come after x,
then loc and scale. To draw numbers use fxgrad.random.
"""

from fxgrad.scipy.stats.continuous import beta, cauchy, expon, gamma, laplace, logistic, norm, t, truncnorm, uniform
from fxgrad.scipy.stats.discrete import bernoulli, binom, poisson
from fxgrad.scipy.stats.multivariate import dirichlet, multivariate_normal

__all__ = [
    "bernoulli", "beta", "binom", "cauchy", "dirichlet", "expon", "gamma", "laplace", "logistic", "multivariate_normal", "norm",
    "poisson", "t", "truncnorm", "uniform",
]  # fmt: skip
