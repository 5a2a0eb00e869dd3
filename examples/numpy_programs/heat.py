"""The heat equation on a rod: explicit steps in place, fixed ends, conductivity that varies along the rod."""

import numpy as np


def problem(rng, small=True):
    n, steps = (16, 10) if small else (4096, 60)
    conductivity = 0.5 + rng.random(n - 1)
    initial = np.sin(np.linspace(0.0, 3.0, n)) + 0.1 * rng.standard_normal(n)
    times = np.zeros(steps)
    return conductivity, initial, times


def run(conductivity, initial, times):
    u = initial.copy()
    dt = 0.2
    for _ in range(len(times)):
        flux = conductivity * (u[1:] - u[:-1])
        u[1:-1] += dt * (flux[1:] - flux[:-1])
    return np.mean(u**2) + np.sum(u[::4]) / len(u)
