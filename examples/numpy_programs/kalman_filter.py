"""A Kalman filter that tracks position and velocity, and the likelihood of its innovations."""

import numpy as np


def problem(rng, small=True):
    steps = 6 if small else 100
    noise = np.array([0.1, 0.5])
    seen = np.cumsum(rng.standard_normal(steps)) + 0.3 * rng.standard_normal(steps)
    return noise, seen


def run(noise, seen):
    process, measurement = noise
    dt = 1.0
    f = np.array([[1.0, dt], [0.0, 1.0]])
    q = process * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    state, covariance = np.zeros(2), 10.0 * np.eye(2)
    loss = 0.0
    for z in seen:
        state = f @ state
        covariance = f @ covariance @ f.T + q
        innovation = z - state[0]
        variance = covariance[0, 0] + measurement
        gain = covariance[:, 0] / variance
        state = state + gain * innovation
        covariance = covariance - np.outer(gain, covariance[0, :])
        loss += 0.5 * (np.log(variance) + innovation**2 / variance)
    return loss / len(seen)
