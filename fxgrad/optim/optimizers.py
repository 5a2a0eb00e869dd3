"""Optimizers: chains of transformations, with optax's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxgrad.optim import transformations as t
from fxgrad.optim.transformations import Schedule, Transformation

__all__ = ["adagrad", "adam", "adamw", "lion", "rmsprop", "sgd"]

Mask = Any | Callable[[Any], Any] | None


def sgd(learning_rate: float | Schedule, momentum: float | None = None, nesterov: bool = False) -> Transformation:
    """Gradient descent, with momentum if given (t = g + momentum*t, as in PyTorch).

    Arguments:
        learning_rate: a number, or a schedule: a function of the number of updates before.
        momentum: the decay of the sum of gradients.
        nesterov: whether the step looks ahead (Sutskever et al., 2013).

    Returns:
        A `Transformation`: init(params) -> state, update(gradients, state, params=None) -> (updates, state).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer = fx.optim.sgd(0.1)
        >>> optimizer.update(np.array([1.0, 2.0]), optimizer.init(np.zeros(2)))[0]
        array([-0.1, -0.2])
    """
    steps = [t.scale_by_learning_rate(learning_rate)]
    return t.chain(*([t.trace(momentum, nesterov)] if momentum is not None else []), *steps)


def adam(
    learning_rate: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0
) -> Transformation:
    """Adam (Kingma and Ba, 2015).

    Arguments:
        learning_rate: a number, or a schedule.
        b1, b2: decay of the running means of gradients and of their squares.
        eps: added to the root of the second mean; eps_root: added inside the root.

    Returns:
        A `Transformation`; see sgd.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer = fx.optim.adam(0.1)
        >>> updates, state = optimizer.update(np.array([1.0, -2.0]), optimizer.init(np.zeros(2)))
        >>> np.round(updates, 6)
        array([-0.1,  0.1])
    """
    return t.chain(t.scale_by_adam(b1, b2, eps, eps_root), t.scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: float | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 1e-4,
    mask: Mask = None,
) -> Transformation:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019); update needs the parameters.

    Arguments:
        learning_rate, b1, b2, eps, eps_root: as for adam.
        weight_decay: the part of a parameter that a step of size 1 takes off.
        mask: a tree of bools like the parameters, or a function from parameters to one: which of them decay.

    Returns:
        A `Transformation`; see sgd.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer, p = fx.optim.adamw(0.1, weight_decay=0.5), np.array([1.0, 2.0])
        >>> np.round(optimizer.update(np.array([1.0, 1.0]), optimizer.init(p), p)[0], 6)
        array([-0.15, -0.2 ])
    """
    return t.chain(
        t.scale_by_adam(b1, b2, eps, eps_root),
        t.add_decayed_weights(weight_decay, mask),
        t.scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: float | Schedule,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
) -> Transformation:
    """RMSprop (Hinton, 2012).

    Arguments:
        learning_rate: a number, or a schedule.
        decay: of the running mean of squares.
        eps: added to the mean inside the root, or (`eps_in_sqrt=False`, as in PyTorch) to the root.
        initial_scale: where the mean of squares starts.
        centered: whether the mean gradient is taken off (Graves, 2013).
        momentum, nesterov: as for sgd, of the scaled gradients.

    Returns:
        A `Transformation`; see sgd.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer = fx.optim.rmsprop(0.1, decay=0.75)
        >>> np.round(optimizer.update(np.array([1.0, -3.0]), optimizer.init(np.zeros(2)))[0], 6)
        array([-0.2,  0.2])
    """
    steps = [t.scale_by_rms(decay, eps, initial_scale, eps_in_sqrt, centered), t.scale_by_learning_rate(learning_rate)]
    return t.chain(*steps, *([t.trace(momentum, nesterov)] if momentum is not None else []))


def adagrad(
    learning_rate: float | Schedule, initial_accumulator_value: float = 0.1, eps: float = 1e-7, eps_in_sqrt: bool = True
) -> Transformation:
    """AdaGrad (Duchi, Hazan, Singer, 2011).

    Arguments:
        learning_rate: a number, or a schedule.
        initial_accumulator_value: where the sum of squares starts.
        eps: added to the sum inside the root, or (`eps_in_sqrt=False`, as in PyTorch) to the root.

    Returns:
        A `Transformation`; see sgd.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer = fx.optim.adagrad(0.1, initial_accumulator_value=0.0)
        >>> np.round(optimizer.update(np.array([1.0, -3.0]), optimizer.init(np.zeros(2)))[0], 6)
        array([-0.1,  0.1])
    """
    return t.chain(t.scale_by_rss(initial_accumulator_value, eps, eps_in_sqrt), t.scale_by_learning_rate(learning_rate))


def lion(
    learning_rate: float | Schedule, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 1e-3, mask: Mask = None
) -> Transformation:
    """Lion: steps of the sign of a mean gradient (Chen et al., 2023); update needs the parameters.

    Arguments:
        learning_rate: a number, or a schedule.
        b1: how much the running mean counts in a step; b2: its decay.
        weight_decay, mask: as for adamw.

    Returns:
        A `Transformation`; see sgd.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer, p = fx.optim.lion(0.1, weight_decay=0.0), np.array([1.0, 2.0])
        >>> optimizer.update(np.array([5.0, -0.1]), optimizer.init(p), p)[0]
        array([-0.1,  0.1])
    """
    return t.chain(t.scale_by_lion(b1, b2), t.add_decayed_weights(weight_decay, mask), t.scale_by_learning_rate(learning_rate))
