"""Spheres seen by marching rays along a distance field; the picture as a function of centres and radii."""

import numpy as np


def problem(rng, small=True):
    size, count = (6, 2) if small else (96, 6)
    centres = rng.uniform(-1.0, 1.0, (count, 3)) + np.array([0.0, 0.0, 4.0])
    return centres, 0.3 + 0.3 * rng.random(count), rng.random((size, size))


def distance(p, centres, radii):
    """A smooth union: minus the log-sum-exp of minus the distances."""
    sharpness = 8.0
    to = np.sqrt(np.sum((p[..., None, :] - centres) ** 2, axis=-1)) - radii
    nearest = np.min(to, axis=-1, keepdims=True)
    return nearest[..., 0] - np.log(np.sum(np.exp(-sharpness * (to - nearest)), axis=-1)) / sharpness


def run(centres, radii, picture):
    size = picture.shape[0]
    axis = np.linspace(-0.5, 0.5, size)
    gx, gy = np.meshgrid(axis, axis)
    rays = np.stack([gx, gy, np.ones_like(gx)], axis=-1)
    rays = rays / np.sqrt(np.sum(rays**2, axis=-1, keepdims=True))
    depth = np.zeros((size, size))
    for _ in range(12):
        depth = depth + distance(depth[..., None] * rays, centres, radii)
    reached = distance(depth[..., None] * rays, centres, radii)
    shade = np.exp(-0.2 * depth) * (0.5 - 0.5 * np.tanh(10.0 * (reached - 0.1)))
    return np.mean((shade - picture) ** 2)
