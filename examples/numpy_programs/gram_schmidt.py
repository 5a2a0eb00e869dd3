"""Modified Gram-Schmidt: an orthonormal basis column by column, then how a vector lies in it."""

import numpy as np


def problem(rng, small=True):
    n, m = (6, 4) if small else (256, 32)
    return rng.standard_normal((n, m)), rng.standard_normal(n)


def orthonormal(a):
    q = a.copy()
    for j in range(q.shape[1]):
        q[:, j] /= np.sqrt(np.sum(q[:, j] ** 2))
        for k in range(j + 1, q.shape[1]):
            q[:, k] -= (q[:, j] @ q[:, k]) * q[:, j]
    return q


def run(a, v):
    q = orthonormal(a)
    c = q.T @ v
    weights = np.arange(1.0, len(c) + 1)
    return np.sum(weights * c**2)
