"""Options by Monte Carlo: an Asian call on simulated paths, and its sensitivities to spot, volatility and rate."""

import numpy as np


def problem(rng, small=True):
    paths, days = (8, 5) if small else (20000, 32)
    market = np.array([100.0, 0.2, 0.05])
    return market, rng.standard_normal((paths, days))


def run(market, shocks):
    spot, volatility, rate = market
    days = shocks.shape[1]
    dt = 1.0 / days
    drift = (rate - 0.5 * volatility**2) * dt
    log_path = np.cumsum(drift + volatility * np.sqrt(dt) * shocks, axis=1)
    path = spot * np.exp(log_path)
    payoff = np.maximum(np.mean(path, axis=1) - 100.0, 0.0)
    return np.exp(-rate) * np.mean(payoff)
