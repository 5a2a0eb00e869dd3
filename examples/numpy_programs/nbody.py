"""Bodies that attract each other: velocity Verlet with softened gravity, all pairs at once."""

import numpy as np


def problem(rng, small=True):
    n, steps = (4, 4) if small else (96, 20)
    return rng.standard_normal((n, 3)), 0.1 * rng.standard_normal((n, 3)), 0.5 + rng.random(n), np.arange(steps)


def acceleration(position, mass):
    apart = position[None, :, :] - position[:, None, :]
    squared = np.sum(apart**2, axis=-1) + 0.05
    strength = mass[None, :] / (squared * np.sqrt(squared))
    return np.sum(strength[:, :, None] * apart, axis=1)


def run(position, velocity, mass, steps):
    dt = 0.01
    x, v = position.copy(), velocity.copy()
    a = acceleration(x, mass)
    for _ in steps:
        v += 0.5 * dt * a
        x += dt * v
        a = acceleration(x, mass)
        v += 0.5 * dt * a
    centre = np.sum(mass[:, None] * x, axis=0) / np.sum(mass)
    return 0.5 * np.sum(mass * np.sum(v**2, axis=1)) + np.sum(centre**2) + 0.1 * np.sum(x**2)
