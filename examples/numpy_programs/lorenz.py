"""Lorenz's system by Runge-Kutta steps; the loss asks the orbit to pass through given points."""

import numpy as np


def problem(rng, small=True):
    steps = 8 if small else 200
    state = np.array([1.0, 1.0, 1.0]) + 0.1 * rng.standard_normal(3)
    parameters = np.array([10.0, 28.0, 8.0 / 3.0])
    return state, parameters, rng.standard_normal((steps, 3))


def derivative(state, parameters):
    x, y, z = state
    sigma, rho, beta = parameters
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def run(state, parameters, points):
    h = 0.01
    loss = 0.0
    for point in points:
        k1 = derivative(state, parameters)
        k2 = derivative(state + 0.5 * h * k1, parameters)
        k3 = derivative(state + 0.5 * h * k2, parameters)
        k4 = derivative(state + h * k3, parameters)
        state = state + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        loss = loss + np.sum((state - point) ** 2)
    return loss / len(points)
