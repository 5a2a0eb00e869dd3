"""Predators and prey (Lotka, Volterra) by Runge-Kutta, many populations at once, fitted to observations."""

import numpy as np


def problem(rng, small=True):
    populations, steps = (3, 6) if small else (2000, 50)
    rates = np.array([1.1, 0.4, 0.1, 0.4])
    start = 1.0 + rng.random((2, populations)) * 5.0
    return rates, start, 5.0 + rng.random((steps, 2, populations))


def slope(state, rates):
    prey, predators = state
    alpha, beta, delta, gamma = rates
    out = np.zeros_like(state)
    out[0] = alpha * prey - beta * prey * predators
    out[1] = delta * prey * predators - gamma * predators
    return out


def step(state, rates, h):
    k1 = slope(state, rates)
    k2 = slope(state + h / 2 * k1, rates)
    k3 = slope(state + h / 2 * k2, rates)
    k4 = slope(state + h * k3, rates)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def run(rates, start, observed):
    state, error = start, 0.0
    for seen in observed:
        state = step(state, rates, 0.05)
        error += np.mean((state - seen) ** 2)
    return error / len(observed)
