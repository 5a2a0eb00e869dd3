"""A chain of springs that stiffen when stretched (Fermi, Pasta, Ulam, Tsingou), by leapfrog steps in place."""

import numpy as np


def problem(rng, small=True):
    n, steps = (8, 6) if small else (2048, 60)
    displacement = np.sin(np.pi * np.arange(1, n + 1) / (n + 1)) + 0.01 * rng.standard_normal(n)
    return displacement, np.array([0.25]), np.arange(steps)


def force(q, alpha):
    stretched = np.zeros(len(q) + 2)
    stretched[1:-1] = q
    spring = stretched[1:] - stretched[:-1]
    tension = spring + alpha * spring**2
    return tension[1:] - tension[:-1]


def run(displacement, alpha, steps):
    dt = 0.05
    q = displacement.copy()
    p = np.zeros(len(q))
    p += 0.5 * dt * force(q, alpha)
    for _ in steps:
        q += dt * p
        p += dt * force(q, alpha)
    mode = np.sin(np.pi * np.arange(1, len(q) + 1) / (len(q) + 1))
    return np.sum(mode * q) ** 2 / len(q) + 0.5 * np.sum(p**2)
