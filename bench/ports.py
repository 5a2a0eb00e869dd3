"""The programs of examples/numpy_programs, ported by hand to JAX as its users write them: `.at`, `fori_loop` and `scan`.

Each is `port(*args)` with the arguments of the program's `run`; the benchmark checks that values and gradients agree.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

__all__ = ["PORTS"]

Array = Any
PORTS: dict[str, Any] = {}


def port(f: Any) -> Any:
    PORTS[f.__name__] = f
    return f


# ---- stencils ----------------------------------------------------------------------------------------------------------


@port
def jacobi(source: Array, target: Array) -> Array:
    n = source.shape[0]
    h = 1.0 / (n - 1)

    def sweep(_: int, u: Array) -> Array:
        inner = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + h * h * source[1:-1, 1:-1])
        return jnp.zeros((n, n)).at[1:-1, 1:-1].set(inner)

    u = lax.fori_loop(0, 20, sweep, jnp.zeros((n, n)))
    return jnp.sum((u - target)[1:-1, 1:-1] ** 2)


@port
def gauss_seidel(b: Array, a: Array) -> Array:
    def element(i: int, x: Array) -> Array:
        rest = a[i] @ x - a[i, i] * x[i]
        return x.at[i].set((b[i] - rest) / a[i, i])

    def sweep(_: int, x: Array) -> Array:
        return lax.fori_loop(0, len(b), element, x)

    return jnp.sum(lax.fori_loop(0, 4, sweep, jnp.zeros(len(b))) ** 2)


@port
def heat(conductivity: Array, initial: Array, times: Array) -> Array:
    def step(_: int, u: Array) -> Array:
        flux = conductivity * (u[1:] - u[:-1])
        return u.at[1:-1].add(0.2 * (flux[1:] - flux[:-1]))

    u = lax.fori_loop(0, len(times), step, initial)
    return jnp.mean(u**2) + jnp.sum(u[::4]) / len(u)


@port
def advection(velocity: Array, pulse: Array, steps: Array) -> Array:
    courant = 0.8 * velocity

    def step(_: int, u: Array) -> Array:
        ahead, behind = jnp.roll(u, -1), jnp.roll(u, 1)
        return u - 0.5 * courant * (ahead - behind) + 0.5 * courant**2 * (ahead - 2.0 * u + behind)

    u = lax.fori_loop(0, len(steps), step, pulse)
    grid = jnp.linspace(0.0, 1.0, len(u), endpoint=False)
    return jnp.sum(grid * u) / jnp.sum(u) + jnp.sum((u - pulse) ** 2) / len(u)


@port
def shallow_water(height: Array, floor: Array, steps: Array) -> Array:
    n = height.shape[0]
    dx = 1.0 / n
    dt = 0.3 * dx / 9.81**0.5
    depth = 1.0 - floor
    across = 0.5 * (depth[:, 1:] + depth[:, :-1])
    down = 0.5 * (depth[1:, :] + depth[:-1, :])

    def step(_: int, state: Any) -> Any:
        h, u, v = state
        u = u.at[:, 1:-1].add(-dt / dx * 9.81 * (h[:, 1:] - h[:, :-1]))
        v = v.at[1:-1, :].add(-dt / dx * 9.81 * (h[1:, :] - h[:-1, :]))
        flow_x = jnp.zeros((n, n + 1)).at[:, 1:-1].set(across * u[:, 1:-1])
        flow_y = jnp.zeros((n + 1, n)).at[1:-1, :].set(down * v[1:-1, :])
        return h - dt / dx * (flow_x[:, 1:] - flow_x[:, :-1] + flow_y[1:, :] - flow_y[:-1, :]), u, v

    h, u, v = lax.fori_loop(0, len(steps), step, (height, jnp.zeros((n, n + 1)), jnp.zeros((n + 1, n))))
    return 0.5 * 9.81 * jnp.sum(h**2) + 0.5 * (jnp.sum(u**2) + jnp.sum(v**2)) + jnp.sum(h[n // 2, :] ** 2)


@port
def cavity_flow(lid: Array, steps: Array) -> Array:
    n = len(lid)
    rho, nu, dx = 1.0, 0.1, 2.0 / (n - 1)
    dt = 0.05 * dx

    def relax(b: Array) -> Any:
        def sweep(_: int, old: Array) -> Array:
            around = old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1]
            p = old.at[1:-1, 1:-1].set(0.25 * (around - dx * dx * b[1:-1, 1:-1]))
            p = p.at[:, -1].set(p[:, -2])
            p = p.at[0, :].set(p[1, :])
            p = p.at[:, 0].set(p[:, 1])
            return p.at[-1, :].set(0.0)

        return sweep

    def moved(x: Array, u: Array, v: Array, push: Array) -> Array:
        inner = x[1:-1, 1:-1]
        return (
            inner
            - u[1:-1, 1:-1] * dt / dx * (inner - x[1:-1, :-2])
            - v[1:-1, 1:-1] * dt / dx * (inner - x[:-2, 1:-1])
            - dt / (2 * rho * dx) * push
            + nu * dt / dx**2 * (x[1:-1, 2:] + x[1:-1, :-2] + x[2:, 1:-1] + x[:-2, 1:-1] - 4 * inner)
        )

    def step(_: int, state: Any) -> Any:
        u, v, p = state
        du_dx = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
        dv_dy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
        du_dy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * dx)
        dv_dx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx)
        b = jnp.zeros((n, n)).at[1:-1, 1:-1].set(rho * ((du_dx + dv_dy) / dt - du_dx**2 - 2 * du_dy * dv_dx - dv_dy**2))
        p = lax.fori_loop(0, 8, relax(b), p)
        new_u = u.at[1:-1, 1:-1].set(moved(u, u, v, p[1:-1, 2:] - p[1:-1, :-2]))
        new_v = v.at[1:-1, 1:-1].set(moved(v, u, v, p[2:, 1:-1] - p[:-2, 1:-1]))
        new_u = new_u.at[0, :].set(0.0).at[:, 0].set(0.0).at[:, -1].set(0.0).at[-1, :].set(lid)
        new_v = new_v.at[0, :].set(0.0).at[-1, :].set(0.0).at[:, 0].set(0.0).at[:, -1].set(0.0)
        return new_u, new_v, p

    zero = jnp.zeros((n, n))
    u, v, p = lax.fori_loop(0, len(steps), step, (zero, zero, zero))
    return jnp.sum(u**2 + v**2) / n + jnp.sum(p[1:-1, 1:-1] ** 2) / n**2


@port
def reaction_diffusion(rates: Array, u: Array, v: Array, steps: Array) -> Array:
    feed, kill = rates

    def laplacian(x: Array) -> Array:
        return jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4.0 * x

    def step(_: int, state: Any) -> Any:
        u, v = state
        reaction = u * v * v
        du = 0.16 * laplacian(u) - reaction + feed * (1.0 - u)
        dv = 0.08 * laplacian(v) + reaction - (feed + kill) * v
        return u + du, v + dv

    u, v = lax.fori_loop(0, len(steps), step, (u, v))
    return jnp.var(v) + jnp.mean(u * v)


@port
def wave(speed: Array, record: Array) -> Array:
    n, steps = speed.shape[0], record.shape[0]
    courant = (0.5 * speed) ** 2

    def step(state: Any, x: Any) -> Any:
        before, now = state
        t, row = x
        curvature = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4.0 * now[1:-1, 1:-1]
        inner = 2.0 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + courant[1:-1, 1:-1] * curvature
        after = jnp.zeros((n, n)).at[1:-1, 1:-1].set(inner)
        after = after.at[n // 2, n // 2].add(jnp.exp(-0.1 * (t - 5.0) ** 2))
        return (now, after), jnp.mean((after[1, :] - row) ** 2)

    _, misfits = lax.scan(step, (jnp.zeros((n, n)), jnp.zeros((n, n))), (jnp.arange(steps), record))
    return jnp.sum(misfits) / steps


# ---- factorisations ----------------------------------------------------------------------------------------------------


@port
def lu(a: Array) -> Array:
    n = a.shape[0]
    rows = jnp.arange(n)

    def column(k: int, state: Any) -> Any:
        lower, upper = state
        factor = jnp.where(rows > k, upper[:, k] / upper[k, k], 0.0)
        upper = upper - jnp.outer(factor, jnp.where(rows >= k, upper[k], 0.0))
        upper = upper.at[:, k].set(jnp.where(rows > k, 0.0, upper[:, k]))
        return lower.at[:, k].add(factor), upper

    lower, upper = lax.fori_loop(0, n - 1, column, (jnp.eye(n), a))
    return jnp.sum(jnp.log(jnp.abs(jnp.diag(upper)))) + 0.01 * jnp.sum(lower**2)


@port
def cholesky(x: Array, y: Array) -> Array:
    n = len(x)
    rows = jnp.arange(n)
    distances = jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)
    kernel = jnp.exp(-0.5 * distances) + 0.1 * jnp.eye(n)

    def column(j: int, lower: Array) -> Array:
        row = lower[j]
        root = jnp.sqrt(kernel[j, j] - jnp.sum(row**2))
        below = (kernel[:, j] - lower @ row) / root
        return lower.at[:, j].set(jnp.where(rows > j, below, jnp.where(rows == j, root, 0.0)))

    lower = lax.fori_loop(0, n, column, jnp.zeros((n, n)))

    def substitute(i: int, z: Array) -> Array:
        return z.at[i].set((y[i] - lower[i] @ z) / lower[i, i])

    z = lax.fori_loop(0, n, substitute, jnp.zeros(n))
    return 0.5 * jnp.sum(z**2) + jnp.sum(jnp.log(jnp.diag(lower)))


@port
def gram_schmidt(a: Array, v: Array) -> Array:
    columns = jnp.arange(a.shape[1])

    def column(j: int, q: Array) -> Array:
        unit = q[:, j] / jnp.sqrt(jnp.sum(q[:, j] ** 2))
        q = q.at[:, j].set(unit)
        return q - jnp.outer(unit, jnp.where(columns > j, unit @ q, 0.0))

    q = lax.fori_loop(0, a.shape[1], column, a)
    c = q.T @ v
    return jnp.sum(jnp.arange(1.0, len(c) + 1) * c**2)


@port
def qr(a: Array, b: Array) -> Array:
    n, m = a.shape
    rows = jnp.arange(n)

    def reflect(j: int, state: Any) -> Any:
        r, c = state
        x = jnp.where(rows >= j, r[:, j], 0.0)
        x = x.at[j].add(jnp.copysign(jnp.sqrt(jnp.sum(x**2)), x[j]))
        w = x / jnp.sqrt(jnp.sum(x**2))
        return r - 2.0 * jnp.outer(w, jnp.where(jnp.arange(m) >= j, w @ r, 0.0)), c - 2.0 * w * (w @ c)

    r, c = lax.fori_loop(0, m, reflect, (a, b))

    def substitute(k: int, x: Array) -> Array:
        i = m - 1 - k
        known = jnp.where(jnp.arange(m) > i, r[i], 0.0) @ x
        return x.at[i].set((c[i] - known) / r[i, i])

    x = lax.fori_loop(0, m, substitute, jnp.zeros(m))
    return jnp.sum(x**2) + jnp.sum(jnp.cos(x))


# ---- dynamics ----------------------------------------------------------------------------------------------------------


@port
def nbody(position: Array, velocity: Array, mass: Array, steps: Array) -> Array:
    dt = 0.01

    def acceleration(x: Array) -> Array:
        apart = x[None, :, :] - x[:, None, :]
        squared = jnp.sum(apart**2, axis=-1) + 0.05
        strength = mass[None, :] / (squared * jnp.sqrt(squared))
        return jnp.sum(strength[:, :, None] * apart, axis=1)

    def step(_: int, state: Any) -> Any:
        x, v, a = state
        v = v + 0.5 * dt * a
        x = x + dt * v
        a = acceleration(x)
        return x, v + 0.5 * dt * a, a

    x, v, _ = lax.fori_loop(0, len(steps), step, (position, velocity, acceleration(position)))
    centre = jnp.sum(mass[:, None] * x, axis=0) / jnp.sum(mass)
    return 0.5 * jnp.sum(mass * jnp.sum(v**2, axis=1)) + jnp.sum(centre**2) + 0.1 * jnp.sum(x**2)


def runge_kutta_step(f: Any, state: Array, h: float) -> Array:
    k1 = f(state)
    k2 = f(state + h / 2 * k1)
    k3 = f(state + h / 2 * k2)
    k4 = f(state + h * k3)
    return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@port
def lorenz(state: Array, parameters: Array, points: Array) -> Array:
    sigma, rho, beta = parameters

    def derivative(s: Array) -> Array:
        x, y, z = s
        return jnp.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

    def step(s: Array, point: Array) -> Any:
        s = runge_kutta_step(derivative, s, 0.01)
        return s, jnp.sum((s - point) ** 2)

    return jnp.sum(lax.scan(step, state, points)[1]) / len(points)


@port
def pendulum(start: Array, steps: Array) -> Array:
    g, h = 9.81, 0.005

    def energy(a1: Array, a2: Array, w1: Array, w2: Array) -> Array:
        return w1**2 + 0.5 * w2**2 + w1 * w2 * jnp.cos(a1 - a2) - 2.0 * g * jnp.cos(a1) - g * jnp.cos(a2)

    def step(_: int, state: Any) -> Any:
        a1, a2, w1, w2 = state
        d = a1 - a2
        den = 3.0 - jnp.cos(2.0 * d)
        pull = -3.0 * g * jnp.sin(a1) - g * jnp.sin(a1 - 2.0 * a2)
        first = (pull - 2.0 * jnp.sin(d) * (w2**2 + w1**2 * jnp.cos(d))) / den
        second = (2.0 * jnp.sin(d) * (2.0 * w1**2 + 2.0 * g * jnp.cos(a1) + w2**2 * jnp.cos(d))) / den
        w1, w2 = w1 + h * first, w2 + h * second
        return a1 + h * w1, a2 + h * w2, w1, w2

    a1, a2, w1, w2 = lax.fori_loop(0, len(steps), step, tuple(start))
    return jnp.sin(a1) + jnp.cos(a2) + 0.01 * (energy(a1, a2, w1, w2) - energy(*start)) ** 2


@port
def runge_kutta(rates: Array, start: Array, observed: Array) -> Array:
    alpha, beta, delta, gamma = rates

    def slope(state: Array) -> Array:
        prey, predators = state
        return jnp.stack([alpha * prey - beta * prey * predators, delta * prey * predators - gamma * predators])

    def step(state: Array, seen: Array) -> Any:
        state = runge_kutta_step(slope, state, 0.05)
        return state, jnp.mean((state - seen) ** 2)

    return jnp.sum(lax.scan(step, start, observed)[1]) / len(observed)


@port
def leapfrog(displacement: Array, alpha: Array, steps: Array) -> Array:
    dt = 0.05

    def force(q: Array) -> Array:
        stretched = jnp.zeros(len(q) + 2).at[1:-1].set(q)
        spring = stretched[1:] - stretched[:-1]
        tension = spring + alpha * spring**2
        return tension[1:] - tension[:-1]

    def step(_: int, state: Any) -> Any:
        q, p = state
        q = q + dt * p
        return q, p + dt * force(q)

    q, p = lax.fori_loop(0, len(steps), step, (displacement, 0.5 * dt * force(displacement)))
    mode = jnp.sin(jnp.pi * jnp.arange(1, len(q) + 1) / (len(q) + 1))
    return jnp.sum(mode * q) ** 2 / len(q) + 0.5 * jnp.sum(p**2)
