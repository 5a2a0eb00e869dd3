"""Seismic inversion in small: a wave through a medium of unknown speed, recorded at the surface."""

import numpy as np


def problem(rng, small=True):
    n, steps = (10, 6) if small else (128, 40)
    speed = 0.8 + 0.2 * rng.random((n, n))
    return speed, rng.standard_normal((steps, n))


def run(speed, record):
    n, steps = speed.shape[0], record.shape[0]
    courant = (0.5 * speed) ** 2
    now, before = np.zeros((n, n)), np.zeros((n, n))
    misfit = 0.0
    for t in range(steps):
        after = np.zeros((n, n))
        curvature = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * now[1:-1, 1:-1]
        after[1:-1, 1:-1] = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + courant[1:-1, 1:-1] * curvature
        after[n // 2, n // 2] += np.exp(-0.1 * (t - 5.0) ** 2)
        before, now = now, after
        misfit += np.mean((now[1, :] - record[t]) ** 2)
    return misfit / steps
