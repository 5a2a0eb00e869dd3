"""The log-likelihood of a mixture of Gaussians with full covariances given by their Cholesky factors."""

import numpy as np


def problem(rng, small=True):
    n, d, k = (10, 2, 3) if small else (4000, 4, 8)
    means = rng.standard_normal((k, d))
    factors = 0.2 * rng.standard_normal((k, d, d))
    logits = rng.standard_normal(k)
    data = rng.standard_normal((n, d)) + 2.0 * rng.integers(0, 2, (n, 1))
    return means, factors, logits, data


def log_sum_exp(x, axis):
    peak = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(peak, axis) + np.log(np.sum(np.exp(x - peak), axis=axis))


def run(means, factors, logits, data):
    n, d = data.shape
    lower = np.tril(factors, -1)
    log_diagonal = np.diagonal(factors, axis1=1, axis2=2)
    log_weights = logits - log_sum_exp(logits, 0)
    score = np.zeros((n, len(means)))
    for j in range(len(means)):
        centred = data - means[j]
        root = lower[j] + np.diag(np.exp(log_diagonal[j]))
        white = centred @ root
        score[:, j] = log_weights[j] - 0.5 * np.sum(white**2, axis=1) + np.sum(log_diagonal[j])
    likelihood = log_sum_exp(score, 1) - 0.5 * d * np.log(2.0 * np.pi)
    wishart = 0.5 * np.sum(np.exp(2.0 * log_diagonal)) + 0.5 * np.sum(lower**2)
    return -np.mean(likelihood) + 0.01 * wishart
