"""Random numbers as functions of a key, as jax.random has them: the same on every machine and under every transform.

Keys are plain uint32 arrays of two words; `key` makes one from a seed, `split` and `fold_in` make others of it. A key always
gives the same numbers, so use each once. The bits are those of Threefry-2x32 with 20 rounds (kernels/threefry.py).
"""

from fxgrad.random.continuous import (
    beta,
    cauchy,
    chisquare,
    dirichlet,
    exponential,
    gamma,
    gumbel,
    laplace,
    loggamma,
    logistic,
    multivariate_normal,
    t,
    truncated_normal,
)
from fxgrad.random.discrete import bernoulli, binomial, categorical, choice, permutation, poisson
from fxgrad.random.draws import bits, normal, rademacher, randint, uniform
from fxgrad.random.keys import PRNGKey, fold_in, key, key_data, split, wrap_key_data

__all__ = [
    "PRNGKey", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "dirichlet",
    "exponential", "fold_in", "gamma", "gumbel", "key", "key_data", "laplace", "loggamma", "logistic", "multivariate_normal",
    "normal", "permutation", "poisson", "rademacher", "randint", "split", "t", "truncated_normal", "uniform", "wrap_key_data",
]  # fmt: skip
