"""Jacobi iteration for Poisson's equation on a square, and the error against a target field.

The right-hand side is the unknown of the inverse problem: its gradient says which sources explain the target.
"""

import numpy as np


def problem(rng, small=True):
    n = 12 if small else 128
    source = rng.standard_normal((n, n))
    target = 0.1 * rng.standard_normal((n, n))
    return source, target


def solve(source, sweeps):
    n = source.shape[0]
    h = 1.0 / (n - 1)
    u = np.zeros((n, n))
    for _ in range(sweeps):
        new = np.zeros((n, n))
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + h * h * source[1:-1, 1:-1])
        u = new
    return u


def run(source, target):
    u = solve(source, sweeps=20)
    difference = u - target
    return np.sum(difference[1:-1, 1:-1] ** 2)
