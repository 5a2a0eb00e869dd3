"""Flow in a cavity whose lid moves: the projection method of Barba's "12 steps", with the lid's speed profile as unknown."""

import numpy as np


def problem(rng, small=True):
    n, steps = (9, 3) if small else (65, 12)
    lid = 1.0 + 0.1 * rng.standard_normal(n)
    return lid, np.arange(steps)


def pressure_source(u, v, rho, dt, dx):
    b = np.zeros(u.shape)
    du_dx = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
    dv_dy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
    du_dy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dx)
    dv_dx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
    b[1:-1, 1:-1] = rho * ((du_dx + dv_dy) / dt - du_dx**2 - 2 * du_dy * dv_dx - dv_dy**2)
    return b


def relax_pressure(p, b, dx, sweeps):
    for _ in range(sweeps):
        old = p.copy()
        p[1:-1, 1:-1] = 0.25 * (old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1] - dx * dx * b[1:-1, 1:-1])
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0.0


def run(lid, steps):
    n = len(lid)
    rho, nu, dx = 1.0, 0.1, 2.0 / (n - 1)
    dt = 0.05 * dx
    u, v, p = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for _ in steps:
        b = pressure_source(u, v, rho, dt, dx)
        relax_pressure(p, b, dx, sweeps=8)
        un, vn = u.copy(), v.copy()
        inner = un[1:-1, 1:-1]
        u[1:-1, 1:-1] = (
            inner
            - inner * dt / dx * (inner - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * dt / dx * (inner - un[:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + nu * dt / dx**2 * (un[1:-1, 2:] + un[1:-1, :-2] + un[2:, 1:-1] + un[:-2, 1:-1] - 4 * inner)
        )
        inner = vn[1:-1, 1:-1]
        v[1:-1, 1:-1] = (
            inner
            - un[1:-1, 1:-1] * dt / dx * (inner - vn[1:-1, :-2])
            - inner * dt / dx * (inner - vn[:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + nu * dt / dx**2 * (vn[1:-1, 2:] + vn[1:-1, :-2] + vn[2:, 1:-1] + vn[:-2, 1:-1] - 4 * inner)
        )
        u[0, :] = 0.0
        u[:, 0] = 0.0
        u[:, -1] = 0.0
        u[-1, :] = lid
        v[0, :] = v[-1, :] = 0.0
        v[:, 0] = v[:, -1] = 0.0
    return np.sum(u**2 + v**2) / n + np.sum(p[1:-1, 1:-1] ** 2) / n**2
