"""QR by Householder reflections, in place, and least squares by back substitution."""

import numpy as np


def problem(rng, small=True):
    n, m = (7, 3) if small else (128, 16)
    return rng.standard_normal((n, m)), rng.standard_normal(n)


def reflect(a, b):
    """Turns a into its triangular factor and b into the reflected right-hand side."""
    for j in range(a.shape[1]):
        x = a[j:, j].copy()
        x[0] += np.copysign(np.sqrt(np.sum(x**2)), x[0])
        w = x / np.sqrt(np.sum(x**2))
        a[j:, j:] -= 2.0 * np.outer(w, w @ a[j:, j:])
        b[j:] -= 2.0 * w * (w @ b[j:])


def back_substitution(r, b):
    x = np.zeros(r.shape[1])
    for i in reversed(range(len(x))):
        x[i] = (b[i] - r[i, i + 1 :] @ x[i + 1 :]) / r[i, i]
    return x


def run(a, b):
    r, c = a.copy(), b.copy()
    reflect(r, c)
    m = r.shape[1]
    x = back_substitution(r[:m, :m], c[:m])
    return np.sum(x**2) + np.sum(np.cos(x))
