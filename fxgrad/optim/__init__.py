"""Optimizers as pairs of functions, in optax's form.

    optimizer = fx.optim.adamw(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params)
    params = fx.optim.apply_updates(params, updates)

Parameters, gradients, states and updates are pytrees of arrays; every function is pure, so the whole step compiles with `fx.jit`.
"""

from fxgrad.optim.optimizers import adagrad, adam, adamw, lion, rmsprop, sgd
from fxgrad.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_cosine_decay_schedule,
)
from fxgrad.optim.transformations import (
    Transformation,
    add_decayed_weights,
    apply_updates,
    chain,
    clip,
    clip_by_global_norm,
    global_norm,
    identity,
    scale,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    trace,
)

__all__ = [
    "Transformation", "adagrad", "adam", "adamw", "add_decayed_weights", "apply_updates", "chain", "clip", "clip_by_global_norm",
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "global_norm", "identity", "join_schedules",
    "linear_schedule", "lion", "piecewise_constant_schedule", "polynomial_schedule", "rmsprop", "scale", "scale_by_adam",
    "scale_by_learning_rate", "scale_by_lion", "scale_by_rms", "scale_by_rss", "sgd", "trace", "warmup_cosine_decay_schedule",
]  # fmt: skip
