"""Shallow water in a basin with walls: heights at cells, velocities at faces, updated in place (Sadourny's staggering)."""

import numpy as np

GRAVITY, DEPTH = 9.81, 1.0


def problem(rng, small=True):
    n, steps = (10, 5) if small else (192, 30)
    y, x = np.mgrid[0:n, 0:n] / n
    height = 0.1 * np.exp(-60.0 * ((x - 0.4) ** 2 + (y - 0.5) ** 2)) + 0.001 * rng.standard_normal((n, n))
    floor = 0.2 * rng.random((n, n))
    return height, floor, np.arange(steps)


def run(height, floor, steps):
    n = height.shape[0]
    dx = 1.0 / n
    dt = 0.3 * dx / np.sqrt(GRAVITY * DEPTH)
    h = height.copy()
    u = np.zeros((n, n + 1))  # walls at both ends stay at rest
    v = np.zeros((n + 1, n))
    depth = DEPTH - floor
    across = 0.5 * (depth[:, 1:] + depth[:, :-1])
    down = 0.5 * (depth[1:, :] + depth[:-1, :])
    for _ in steps:
        u[:, 1:-1] -= dt / dx * GRAVITY * (h[:, 1:] - h[:, :-1])
        v[1:-1, :] -= dt / dx * GRAVITY * (h[1:, :] - h[:-1, :])
        flow_x = np.zeros((n, n + 1))
        flow_y = np.zeros((n + 1, n))
        flow_x[:, 1:-1] = across * u[:, 1:-1]
        flow_y[1:-1, :] = down * v[1:-1, :]
        h -= dt / dx * (flow_x[:, 1:] - flow_x[:, :-1] + flow_y[1:, :] - flow_y[:-1, :])
    energy = 0.5 * GRAVITY * np.sum(h**2) + 0.5 * DEPTH * (np.sum(u**2) + np.sum(v**2))
    return energy + np.sum(h[n // 2, :] ** 2)
