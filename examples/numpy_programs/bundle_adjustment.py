"""Bundle adjustment: points seen by cameras with rotation, translation, focal length and radial distortion."""

import numpy as np


def problem(rng, small=True):
    cameras, points, seen = (2, 5, 8) if small else (20, 2000, 10000)
    camera = 0.1 * rng.standard_normal((cameras, 9))
    camera[:, 5] += 5.0
    camera[:, 6] += 1.0
    which_camera = rng.integers(0, cameras, seen)
    which_point = rng.integers(0, points, seen)
    return camera, rng.standard_normal((points, 3)), rng.standard_normal((seen, 2)), which_camera, which_point


def rotate(axis, x):
    """Rodrigues' formula, one rotation vector a point."""
    angle = np.sqrt(np.sum(axis**2, axis=1, keepdims=True) + 1e-12)
    unit = axis / angle
    cosine, sine = np.cos(angle), np.sin(angle)
    along = np.sum(unit * x, axis=1, keepdims=True)
    return cosine * x + sine * np.cross(unit, x) + (1.0 - cosine) * along * unit


def run(cameras, points, observed, which_camera, which_point):
    camera = cameras[which_camera]
    placed = rotate(camera[:, :3], points[which_point]) + camera[:, 3:6]
    flat = placed[:, :2] / placed[:, 2:3]
    radius = np.sum(flat**2, axis=1, keepdims=True)
    distortion = 1.0 + camera[:, 7:8] * radius + camera[:, 8:9] * radius**2
    projected = camera[:, 6:7] * distortion * flat
    residual = projected - observed
    return np.sum(np.log1p(np.sum(residual**2, axis=1))) / len(observed)
