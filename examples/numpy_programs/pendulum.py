"""A double pendulum: semi-implicit Euler, the energy drift and the final angles as functions of the start."""

import numpy as np

G = 9.81


def problem(rng, small=True):
    steps = 6 if small else 150
    start = np.array([2.0, 2.5, 0.0, 0.0]) + 0.1 * rng.standard_normal(4)
    return start, np.arange(steps)


def accelerations(a1, a2, w1, w2):
    """Of both arms, which have unit length and mass."""
    d = a1 - a2
    den = 3.0 - np.cos(2.0 * d)
    first = (-3.0 * G * np.sin(a1) - G * np.sin(a1 - 2.0 * a2) - 2.0 * np.sin(d) * (w2**2 + w1**2 * np.cos(d))) / den
    second = (2.0 * np.sin(d) * (2.0 * w1**2 + 2.0 * G * np.cos(a1) + w2**2 * np.cos(d))) / den
    return first, second


def energy(a1, a2, w1, w2):
    kinetic = w1**2 + 0.5 * w2**2 + w1 * w2 * np.cos(a1 - a2)
    return kinetic - 2.0 * G * np.cos(a1) - G * np.cos(a2)


def run(start, steps):
    a1, a2, w1, w2 = start
    h = 0.005
    for _ in steps:
        first, second = accelerations(a1, a2, w1, w2)
        w1 += h * first
        w2 += h * second
        a1 += h * w1
        a2 += h * w2
    return np.sin(a1) + np.cos(a2) + 0.01 * (energy(a1, a2, w1, w2) - energy(*start)) ** 2
