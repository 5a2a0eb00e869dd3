"""Cholesky's factorisation by loops over columns, and a Gaussian log-likelihood by forward substitution."""

import numpy as np


def problem(rng, small=True):
    n = 5 if small else 32
    x = rng.standard_normal((n, 3))
    y = rng.standard_normal(n)
    return x, y


def factor(a):
    n = len(a)
    lower = np.zeros_like(a)
    for j in range(n):
        row = lower[j, :j]
        lower[j, j] = np.sqrt(a[j, j] - np.sum(row**2))
        lower[j + 1 :, j] = (a[j + 1 :, j] - lower[j + 1 :, :j] @ row) / lower[j, j]
    return lower


def forward_substitution(lower, b):
    z = np.zeros_like(b)
    for i in range(len(b)):
        z[i] = (b[i] - lower[i, :i] @ z[:i]) / lower[i, i]
    return z


def run(x, y):
    distances = np.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)
    kernel = np.exp(-0.5 * distances) + 0.1 * np.eye(len(x))
    lower = factor(kernel)
    z = forward_substitution(lower, y)
    return 0.5 * np.sum(z**2) + np.sum(np.log(np.diag(lower)))
