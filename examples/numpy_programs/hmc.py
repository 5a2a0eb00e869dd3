"""Hamiltonian Monte Carlo with its gradient written by hand, differentiated with respect to the step size and the start."""

import numpy as np


def problem(rng, small=True):
    d, chains, steps = (2, 3, 4) if small else (16, 200, 20)
    root = rng.standard_normal((d, d))
    precision = root @ root.T / d + np.eye(d)
    start = rng.standard_normal((chains, d))
    return start, precision, rng.standard_normal((chains, d)), np.arange(steps)


def potential(x, precision):
    return 0.5 * np.sum((x @ precision) * x, axis=-1) + np.sum(np.log(np.cosh(x)), axis=-1)


def slope(x, precision):
    return x @ precision + np.tanh(x)


def run(start, precision, momentum, steps):
    step = 0.05
    x, p = start.copy(), momentum.copy()
    p -= 0.5 * step * slope(x, precision)
    for _ in steps[:-1]:
        x += step * p
        p -= step * slope(x, precision)
    x += step * p
    p -= 0.5 * step * slope(x, precision)
    before = potential(start, precision) + 0.5 * np.sum(momentum**2, axis=-1)
    after = potential(x, precision) + 0.5 * np.sum(p**2, axis=-1)
    acceptance = np.minimum(1.0, np.exp(before - after))
    return np.mean(acceptance) + np.mean(np.sum((x - start) ** 2, axis=-1))
