"""Gray and Scott's reaction-diffusion on a torus; the pattern's contrast as a function of feed and kill rates."""

import numpy as np


def problem(rng, small=True):
    n, steps = (8, 4) if small else (128, 30)
    u = np.ones((n, n)) - 0.01 * rng.random((n, n))
    v = 0.01 * rng.random((n, n))
    u[n // 3 : 2 * n // 3, n // 3 : 2 * n // 3] = 0.5
    v[n // 3 : 2 * n // 3, n // 3 : 2 * n // 3] = 0.25
    return np.array([0.055, 0.062]), u, v, np.arange(steps)


def laplacian(x):
    return np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1) - 4.0 * x


def run(rates, u, v, steps):
    feed, kill = rates
    u, v = u.copy(), v.copy()
    for _ in steps:
        reaction = u * v * v
        du = 0.16 * laplacian(u) - reaction + feed * (1.0 - u)
        dv = 0.08 * laplacian(v) + reaction - (feed + kill) * v
        u += du
        v += dv
    return np.var(v) + np.mean(u * v)
