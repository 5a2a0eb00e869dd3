"""k-means by Lloyd's steps, hard assignments, and the distortion as a function of the first centres and the data."""

import numpy as np


def problem(rng, small=True):
    n, d, k = (12, 2, 3) if small else (4000, 8, 16)
    data = rng.standard_normal((n, d)) + 3.0 * rng.integers(0, 3, (n, 1))
    return data, data[:k] + 0.01 * rng.standard_normal((k, d))


def squared_distances(x, c):
    return np.sum(x**2, axis=1)[:, None] - 2.0 * x @ c.T + np.sum(c**2, axis=1)[None, :]


def run(data, centres):
    c = centres.copy()
    for _ in range(5):
        nearest = np.argmin(squared_distances(data, c), axis=1)
        member = (nearest[:, None] == np.arange(len(c))[None, :]).astype(float)
        count = np.sum(member, axis=0)
        c = np.where(count[:, None] > 0, member.T @ data / np.maximum(count, 1.0)[:, None], c)
    return np.mean(np.min(squared_distances(data, c), axis=1))
