"""Schedules: functions from the number of updates so far to a learning rate, with optax's names and arguments.

They take Python ints and traced counts alike, and answer float64 scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors

__all__ = [
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "join_schedules", "linear_schedule",
    "piecewise_constant_schedule", "polynomial_schedule", "warmup_cosine_decay_schedule",
]  # fmt: skip

Schedule = Callable[[Any], Any]


def _float(count: Any) -> Any:
    return fnp.astype(fnp.asarray(count), np.float64)


def _positive(name: str, what: str, value: float) -> None:
    if value <= 0:
        raise errors.FxValueError(
            f"{name} got {what}={value}",
            why="It is a number of updates.",
            fix=f"Pass a positive {what}, or use constant_schedule.",
        )


def constant_schedule(value: float) -> Schedule:
    """Always `value`.

    Example:
        >>> import fxgrad as fx
        >>> fx.optim.constant_schedule(0.1)(1000)
        array(0.1)
    """
    return lambda count: fnp.asarray(float(value))


def polynomial_schedule(
    init_value: float, end_value: float, power: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From init_value to end_value over `transition_steps` updates from `transition_begin` on, the way left to the power `power`.

    Example:
        >>> import fxgrad as fx
        >>> rate = fx.optim.polynomial_schedule(1.0, 0.0, power=2, transition_steps=4)
        >>> [float(rate(i)) for i in range(6)]
        [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]
    """
    _positive("polynomial_schedule", "transition_steps", transition_steps)

    def schedule(count: Any) -> Any:
        done = fnp.clip(_float(count) - transition_begin, 0.0, float(transition_steps)) / transition_steps
        return (init_value - end_value) * fnp.power(1.0 - done, float(power)) + end_value

    return schedule


def linear_schedule(init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """From init_value to end_value in a straight line.

    Example:
        >>> import fxgrad as fx
        >>> float(fx.optim.linear_schedule(0.0, 1.0, 10)(5))
        0.5
    """
    return polynomial_schedule(init_value, end_value, 1.0, transition_steps, transition_begin)


def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """init_value times decay_rate for every `transition_steps` updates; in steps with `staircase`; never beyond end_value.

    Example:
        >>> import fxgrad as fx
        >>> float(fx.optim.exponential_decay(1.0, 10, 0.5, staircase=True)(25))
        0.25
    """
    _positive("exponential_decay", "transition_steps", transition_steps)

    def schedule(count: Any) -> Any:
        passed = fnp.maximum(_float(count) - transition_begin, 0.0) / transition_steps
        passed = fnp.floor(passed) if staircase else passed
        value = init_value * fnp.power(float(decay_rate), passed)
        if end_value is None:
            return value
        return fnp.maximum(value, end_value) if decay_rate < 1 else fnp.minimum(value, end_value)

    return schedule


def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """From init_value to alpha*init_value along half a cosine (Loshchilov and Hutter, 2017).

    Example:
        >>> import fxgrad as fx
        >>> round(float(fx.optim.cosine_decay_schedule(1.0, 10)(5)), 12)
        0.5
    """
    _positive("cosine_decay_schedule", "decay_steps", decay_steps)

    def schedule(count: Any) -> Any:
        done = fnp.minimum(_float(count), float(decay_steps)) / decay_steps
        wave = fnp.power(0.5 * (1.0 + fnp.cos(math.pi * done)), float(exponent))
        return init_value * ((1.0 - alpha) * wave + alpha)

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after the other; the i-th ends at boundaries[i], and the next counts from there.

    Example:
        >>> import fxgrad as fx
        >>> rate = fx.optim.join_schedules([fx.optim.linear_schedule(0.0, 1.0, 2), fx.optim.constant_schedule(1.0)], [2])
        >>> [float(rate(i)) for i in range(4)]
        [0.0, 0.5, 1.0, 1.0]
    """
    if len(schedules) != len(boundaries) + 1:
        raise errors.FxValueError(
            f"join_schedules got {len(schedules)} schedules and {len(boundaries)} boundaries",
            why="Between two schedules stands one boundary.",
            fix="Pass one boundary less than schedules.",
        )

    def schedule(count: Any) -> Any:
        value = schedules[0](count)
        for boundary, following in zip(boundaries, schedules[1:], strict=True):
            value = fnp.where(fnp.asarray(count) < boundary, value, following(count - boundary))
        return value

    return schedule


def piecewise_constant_schedule(init_value: float, boundaries_and_scales: Mapping[int, float] | None = None) -> Schedule:
    """init_value, multiplied by a scale at each boundary.

    Example:
        >>> import fxgrad as fx
        >>> rate = fx.optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.5})
        >>> [float(rate(i)) for i in range(6)]
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    steps = sorted((boundaries_and_scales or {}).items())

    def schedule(count: Any) -> Any:
        value = fnp.asarray(float(init_value))
        for boundary, factor in steps:
            value = fnp.where(fnp.asarray(count) >= boundary, value * factor, value)
        return value

    return schedule


def warmup_cosine_decay_schedule(
    init_value: float, peak_value: float, warmup_steps: int, decay_steps: int, end_value: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """In a straight line to peak_value, then along half a cosine to end_value at `decay_steps` updates in all.

    Example:
        >>> import fxgrad as fx
        >>> rate = fx.optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 30)
        >>> [round(float(rate(i)), 12) for i in (0, 5, 10, 20, 30, 40)]
        [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if decay_steps <= warmup_steps:
        raise errors.FxValueError(
            f"warmup_cosine_decay_schedule got warmup_steps={warmup_steps} and decay_steps={decay_steps}",
            why="decay_steps counts all updates, those of the warm-up included.",
            fix="Pass decay_steps > warmup_steps.",
        )
    alpha = end_value / peak_value if peak_value else 0.0
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return (
        join_schedules([linear_schedule(init_value, peak_value, warmup_steps), decay], [warmup_steps]) if warmup_steps else decay
    )
