"""More programs of examples/numpy_programs for JAX (see `bench.ports`): statistics, signals, pictures, graphs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.ports import Array, port


@port
def gaussian_mixture(means: Array, factors: Array, logits: Array, data: Array) -> Array:
    d = data.shape[1]
    lower = jnp.tril(factors, -1)
    log_diagonal = jnp.diagonal(factors, axis1=1, axis2=2)
    log_weights = jax.nn.log_softmax(logits)

    def component(mean: Array, below: Array, logs: Array, weight: Array) -> Array:
        white = (data - mean) @ (below + jnp.diag(jnp.exp(logs)))
        return weight - 0.5 * jnp.sum(white**2, axis=1) + jnp.sum(logs)

    score = jax.vmap(component, out_axes=1)(means, lower, log_diagonal, log_weights)
    likelihood = jax.nn.logsumexp(score, axis=1) - 0.5 * d * jnp.log(2.0 * jnp.pi)
    return -jnp.mean(likelihood) + 0.01 * (0.5 * jnp.sum(jnp.exp(2.0 * log_diagonal)) + 0.5 * jnp.sum(lower**2))


@port
def logistic_regression(settings: Array, x: Array, y: Array, steps: Array) -> Array:
    rate, penalty = settings
    half = x.shape[0] // 2
    train, rest = x[:half], x[half:]

    def step(_: int, w: Array) -> Array:
        return w - rate * (train.T @ (jax.nn.sigmoid(train @ w) - y[:half]) / half + penalty * w)

    z = rest @ lax.fori_loop(0, len(steps), step, jnp.zeros(x.shape[1]))
    return jnp.mean(jnp.logaddexp(0.0, z) - y[half:] * z)


@port
def hidden_markov(transition_logits: Array, means: Array, observed: Array) -> Array:
    transition = jax.nn.softmax(transition_logits)
    emission = jnp.exp(-0.5 * (observed[:, None] - means[None, :]) ** 2) / jnp.sqrt(2.0 * jnp.pi)
    states = len(means)

    def rescaled(alpha: Array) -> Any:
        scale = jnp.sum(alpha)
        return alpha / scale, jnp.log(scale)

    first, start = rescaled(emission[0] / states)
    _, logs = lax.scan(lambda alpha, e: rescaled((alpha @ transition) * e), first, emission[1:])
    return -(start + jnp.sum(logs)) / len(observed)


@port
def kalman_filter(noise: Array, seen: Array) -> Array:
    process, measurement = noise
    f = jnp.array([[1.0, 1.0], [0.0, 1.0]])
    q = process * jnp.array([[1.0 / 3, 0.5], [0.5, 1.0]])

    def step(state: Any, z: Array) -> Any:
        mean, covariance = state
        mean = f @ mean
        covariance = f @ covariance @ f.T + q
        innovation = z - mean[0]
        variance = covariance[0, 0] + measurement
        gain = covariance[:, 0] / variance
        state = mean + gain * innovation, covariance - jnp.outer(gain, covariance[0, :])
        return state, 0.5 * (jnp.log(variance) + innovation**2 / variance)

    return jnp.sum(lax.scan(step, (jnp.zeros(2), 10.0 * jnp.eye(2)), seen)[1]) / len(seen)


@port
def arma(coefficients: Array, series: Array) -> Array:
    ar, ma = coefficients[:2], coefficients[2:4]
    constant, log_sigma = coefficients[4], coefficients[5]

    def step(last: Any, x: Any) -> Any:
        one, two = last
        now, before, earlier = x
        residual = now - (constant + ar[0] * before + ar[1] * earlier + ma[0] * one + ma[1] * two)
        return (residual, one), residual

    _, residuals = lax.scan(step, (jnp.zeros(()), jnp.zeros(())), (series[2:], series[1:-1], series[:-2]))
    return jnp.sum(residuals**2) / (2.0 * jnp.exp(log_sigma) ** 2) / len(series) + log_sigma


@port
def black_scholes(market: Array, shocks: Array) -> Array:
    spot, volatility, rate = market
    dt = 1.0 / shocks.shape[1]
    log_path = jnp.cumsum((rate - 0.5 * volatility**2) * dt + volatility * jnp.sqrt(dt) * shocks, axis=1)
    payoff = jnp.maximum(jnp.mean(spot * jnp.exp(log_path), axis=1) - 100.0, 0.0)
    return jnp.exp(-rate) * jnp.mean(payoff)


@port
def hmc(start: Array, precision: Array, momentum: Array, steps: Array) -> Array:
    h = 0.05

    def potential(x: Array) -> Array:
        return 0.5 * jnp.sum((x @ precision) * x, axis=-1) + jnp.sum(jnp.log(jnp.cosh(x)), axis=-1)

    def slope(x: Array) -> Array:
        return x @ precision + jnp.tanh(x)

    def step(_: int, state: Any) -> Any:
        x, p = state
        x = x + h * p
        return x, p - h * slope(x)

    x, p = lax.fori_loop(0, len(steps) - 1, step, (start, momentum - 0.5 * h * slope(start)))
    x = x + h * p
    p = p - 0.5 * h * slope(x)
    before = potential(start) + 0.5 * jnp.sum(momentum**2, axis=-1)
    after = potential(x) + 0.5 * jnp.sum(p**2, axis=-1)
    return jnp.mean(jnp.minimum(1.0, jnp.exp(before - after))) + jnp.mean(jnp.sum((x - start) ** 2, axis=-1))


@port
def fft_convolution(signal: Array, kernel: Array, measured: Array) -> Array:
    length = len(signal) + len(kernel) - 1
    size = 1 << (length - 1).bit_length()
    blurred = jnp.fft.irfft(jnp.fft.rfft(signal, size) * jnp.fft.rfft(kernel, size), size)[:length]
    return jnp.mean((blurred - measured) ** 2) + 0.01 * jnp.sum((signal[1:] - signal[:-1]) ** 2) / len(signal)


@port
def bilateral_filter(image: Array, widths: Array, wanted: Array) -> Array:
    n, radius = image.shape[0], 2
    near, alike = widths
    padded = jnp.pad(image, radius, mode="edge")
    total, weight = jnp.zeros((n, n)), jnp.zeros((n, n))
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            shifted = padded[radius + dy : radius + dy + n, radius + dx : radius + dx + n]
            w = jnp.exp(-(dx * dx + dy * dy) / (2 * near**2) - (shifted - image) ** 2 / (2 * alike**2))
            total, weight = total + w * shifted, weight + w
    return jnp.mean((total / weight - wanted) ** 2)


@port
def bundle_adjustment(cameras: Array, points: Array, observed: Array, which_camera: Array, which_point: Array) -> Array:
    camera = cameras[which_camera]
    axis, x = camera[:, :3], points[which_point]
    angle = jnp.sqrt(jnp.sum(axis**2, axis=1, keepdims=True) + 1e-12)
    unit = axis / angle
    along = jnp.sum(unit * x, axis=1, keepdims=True)
    placed = jnp.cos(angle) * x + jnp.sin(angle) * jnp.cross(unit, x) + (1.0 - jnp.cos(angle)) * along * unit + camera[:, 3:6]
    flat = placed[:, :2] / placed[:, 2:3]
    radius = jnp.sum(flat**2, axis=1, keepdims=True)
    projected = camera[:, 6:7] * (1.0 + camera[:, 7:8] * radius + camera[:, 8:9] * radius**2) * flat
    return jnp.sum(jnp.log1p(jnp.sum((projected - observed) ** 2, axis=1))) / len(observed)


@port
def ray_marching(centres: Array, radii: Array, picture: Array) -> Array:
    size = picture.shape[0]

    def distance(p: Array) -> Array:
        to = jnp.sqrt(jnp.sum((p[..., None, :] - centres) ** 2, axis=-1)) - radii
        nearest = jnp.min(to, axis=-1, keepdims=True)
        return nearest[..., 0] - jnp.log(jnp.sum(jnp.exp(-8.0 * (to - nearest)), axis=-1)) / 8.0

    axis = jnp.linspace(-0.5, 0.5, size)
    gx, gy = jnp.meshgrid(axis, axis)
    rays = jnp.stack([gx, gy, jnp.ones_like(gx)], axis=-1)
    rays = rays / jnp.sqrt(jnp.sum(rays**2, axis=-1, keepdims=True))
    depth = lax.fori_loop(0, 12, lambda _, depth: depth + distance(depth[..., None] * rays), jnp.zeros((size, size)))
    reached = distance(depth[..., None] * rays)
    shade = jnp.exp(-0.2 * depth) * (0.5 - 0.5 * jnp.tanh(10.0 * (reached - 0.1)))
    return jnp.mean((shade - picture) ** 2)


@port
def pagerank(strength: Array, source: Array, target: Array, interest: Array) -> Array:
    pages = len(interest)
    weight = jnp.exp(strength)
    share = weight / jnp.zeros(pages).at[source].add(weight)[source]

    def step(_: int, rank: Array) -> Array:
        return 0.15 / pages + 0.85 * jnp.zeros(pages).at[target].add(share * rank[source])

    return pages * jnp.sum(interest * lax.fori_loop(0, 15, step, jnp.ones(pages) / pages))


@port
def kmeans(data: Array, centres: Array) -> Array:
    def squared_distances(c: Array) -> Array:
        return jnp.sum(data**2, axis=1)[:, None] - 2.0 * data @ c.T + jnp.sum(c**2, axis=1)[None, :]

    def step(_: int, c: Array) -> Array:
        member = jax.nn.one_hot(jnp.argmin(squared_distances(c), axis=1), len(c), dtype=data.dtype)
        count = jnp.sum(member, axis=0)
        return jnp.where(count[:, None] > 0, member.T @ data / jnp.maximum(count, 1.0)[:, None], c)

    return jnp.mean(jnp.min(squared_distances(lax.fori_loop(0, 5, step, centres)), axis=1))
