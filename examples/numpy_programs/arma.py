"""An ARMA(2, 2) model: residuals by recursion, written into a buffer one by one, and their conditional likelihood."""

import numpy as np


def problem(rng, small=True):
    n = 10 if small else 300
    series = np.cumsum(0.3 * rng.standard_normal(n)) + rng.standard_normal(n)
    return np.array([0.5, -0.2, 0.3, 0.1, 0.05, -0.2]), series


def run(coefficients, series):
    ar, ma = coefficients[:2], coefficients[2:4]
    constant, log_sigma = coefficients[4], coefficients[5]
    n = len(series)
    residual = np.zeros(n)
    for t in range(2, n):
        expected = constant + ar[0] * series[t - 1] + ar[1] * series[t - 2]
        expected += ma[0] * residual[t - 1] + ma[1] * residual[t - 2]
        residual[t] = series[t] - expected
    sigma = np.exp(log_sigma)
    return np.sum(residual[2:] ** 2) / (2.0 * sigma**2) / n + log_sigma
