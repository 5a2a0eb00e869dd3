"""LU factorisation by loops, without pivoting, and the logarithm of the determinant from it."""

import numpy as np


def problem(rng, small=True):
    n = 5 if small else 32
    a = rng.standard_normal((n, n)) + n * np.eye(n)
    return (a,)


def factor(a):
    n = a.shape[0]
    lower, upper = np.eye(n), a.copy()
    for k in range(n - 1):
        lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
        upper[k + 1 :, k:] -= np.outer(lower[k + 1 :, k], upper[k, k:])
        upper[k + 1 :, k] = 0.0
    return lower, upper


def run(a):
    lower, upper = factor(a)
    return np.sum(np.log(np.abs(np.diag(upper)))) + 0.01 * np.sum(lower**2)
