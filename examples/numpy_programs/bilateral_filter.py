"""A bilateral filter: weights by distance in the picture and in brightness, summed over a window of shifts."""

import numpy as np


def problem(rng, small=True):
    n = 10 if small else 256
    return rng.random((n, n)), np.array([1.5, 0.3]), rng.random((n, n))


def run(image, widths, wanted):
    n, radius = image.shape[0], 2
    near, alike = widths
    padded = np.pad(image, radius, mode="edge")
    total, weight = np.zeros((n, n)), np.zeros((n, n))
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            shifted = padded[radius + dy : radius + dy + n, radius + dx : radius + dx + n]
            w = np.exp(-(dx * dx + dy * dy) / (2 * near**2) - (shifted - image) ** 2 / (2 * alike**2))
            total += w * shifted
            weight += w
    return np.mean((total / weight - wanted) ** 2)
