"""Logistic regression: a few steps of gradient descent written out, then the loss that is left.

The gradient by the step size and the penalty differentiates through the training itself.
"""

import numpy as np


def problem(rng, small=True):
    n, d, steps = (12, 3, 4) if small else (2000, 32, 30)
    x = rng.standard_normal((n, d))
    y = (x @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0).astype(float)
    settings = np.array([0.5, 0.1])
    return settings, x, y, np.arange(steps)


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def run(settings, x, y, steps):
    rate, penalty = settings
    n, d = x.shape
    half = n // 2
    train, rest = x[:half], x[half:]
    w = np.zeros(d)
    for _ in steps:
        p = sigmoid(train @ w)
        w = w - rate * (train.T @ (p - y[:half]) / half + penalty * w)
    z = rest @ w
    return np.mean(np.logaddexp(0.0, z) - y[half:] * z)
