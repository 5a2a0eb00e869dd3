"""Transformations of gradients: pairs (init, update) that chain.

States are tuples of arrays and of trees like the parameters, so they are pytrees themselves: they pass through `jit`, and are
saved as any tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fxgrad.numpy as fnp
from fxgrad import errors, tree
from fxgrad.optim.checks import require_alike, require_parameters, setting

__all__ = [
    "AdamState", "CountState", "LionState", "MeanSquareState", "SumOfSquaresState", "TraceState", "Transformation",
    "add_decayed_weights", "apply_updates", "chain", "clip", "clip_by_global_norm", "global_norm", "identity", "scale",
    "scale_by_adam", "scale_by_learning_rate", "scale_by_lion", "scale_by_rms", "scale_by_rss", "trace",
]  # fmt: skip

Tree = Any
Schedule = Callable[[Any], Any]


class Transformation(NamedTuple):
    """What an optimizer is, and what optimizers are made of.

    init(params) -> state; update(gradients, state, params=None) -> (updates, state), the updates a tree like the gradients.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> half = fx.optim.Transformation(lambda params: (), lambda g, state, params=None: (0.5 * g, state))
        >>> updates, state = half.update(np.array([2.0, 4.0]), half.init(np.zeros(2)))
        >>> updates
        array([1., 2.])
    """

    init: Callable[[Tree], Tree]
    update: Callable[..., tuple[Tree, Tree]]


class CountState(NamedTuple):
    """How many updates there were, an int32."""

    count: Any


class TraceState(NamedTuple):
    """The decayed sum of gradients."""

    trace: Tree


class AdamState(NamedTuple):
    """The number of updates; running means of gradients and of their squares."""

    count: Any
    mu: Tree
    nu: Tree


class LionState(NamedTuple):
    """The running mean of gradients."""

    mu: Tree


class MeanSquareState(NamedTuple):
    """Running means of the squares of gradients and, if they are centred, of gradients."""

    nu: Tree
    mu: Tree


class SumOfSquaresState(NamedTuple):
    """The sum of the squares of gradients."""

    sum_of_squares: Tree


def _zeros(params: Tree) -> Tree:
    return tree.map(fnp.zeros_like, params)


def _number() -> np.ndarray:
    return np.zeros((), np.int32)


def _rule(
    name: str,
    init: Callable[[Tree], Tree],
    update: Callable[..., tuple[Tree, Tree]],
    kept: Callable[[Any], Tree] | None = None,
    linear: bool = False,
) -> Transformation:
    """A transformation that looks at what it is given; `kept` is the tree like the parameters in its state."""

    def checked_init(params: Tree) -> Tree:
        require_parameters(name, params, complex_too=linear)
        return init(params)

    def checked_update(gradients: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        if kept is not None:
            require_alike(name, kept(state), gradients, ("state", "gradient"))
        if params is not None:
            require_alike(name, params, gradients, ("parameter", "gradient"))
        return update(gradients, state, params)

    return Transformation(checked_init, checked_update)


def _stateless(name: str, update: Callable[[Tree, Tree], Tree], linear: bool = False) -> Transformation:
    return _rule(name, lambda params: (), lambda gradients, state, params=None: (update(gradients, params), state), linear=linear)


def _like(x: Any, value: Any) -> Any:
    """A number that was computed in float64, in the dtype of x."""
    return fnp.astype(value, x.dtype)


def _decayed(mean: Tree, new: Tree, decay: float) -> Tree:
    return tree.map(lambda m, x: decay * m + (1.0 - decay) * x, mean, new)


def _squares(gradients: Tree) -> Tree:
    return tree.map(fnp.square, gradients)


def _decays(rule: str, **decays: float) -> None:
    for name, value in decays.items():
        setting(rule, name, value, 1.0)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """The parameters plus the updates, each in the parameter's dtype.

    Arguments:
        params: a pytree of arrays.
        updates: a pytree like it.

    Returns:
        A new tree; the arguments stay as they are.

    Raises:
        FxValueError: an update has another shape than its parameter.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.optim.apply_updates({"w": np.array([1.0, 2.0])}, {"w": np.array([0.5, 0.5])})
        {'w': array([1.5, 2.5])}
    """
    require_parameters("apply_updates", params, complex_too=True)
    require_alike("apply_updates", params, updates, ("parameter", "update"))
    return tree.map(lambda p, u: fnp.astype(fnp.add(p, u), fnp.asarray(p).dtype), params, updates)


def chain(*transformations: Transformation) -> Transformation:
    """Transformations one after the other; the state is the tuple of their states.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> optimizer = fx.optim.chain(fx.optim.clip_by_global_norm(1.0), fx.optim.sgd(0.1))
        >>> updates, _ = optimizer.update(np.array([3.0, 4.0]), optimizer.init(np.zeros(2)))
        >>> updates
        array([-0.06, -0.08])
    """

    def init(params: Tree) -> Tree:
        return tuple(t.init(params) for t in transformations)

    def update(gradients: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        if len(state) != len(transformations):
            raise errors.FxValueError(
                f"a chain of {len(transformations)} transformations got the states of {len(state)}",
                why="The state is the tuple of the states of its members.",
                fix="Pass what init or the last update of this very chain returned.",
            )
        states = []
        for t, s in zip(transformations, state, strict=True):
            gradients, s = t.update(gradients, s, params)
            states.append(s)
        return gradients, tuple(states)

    return Transformation(init, update)


def identity() -> Transformation:
    """Gradients as they are.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.identity()
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([2.0, 4.0]), t.init(params), params)
        >>> updates
        array([2., 4.])
    """
    return _stateless("identity", lambda gradients, params: gradients, linear=True)


def scale(factor: float) -> Transformation:
    """Gradients times a number.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale(0.5)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([2.0, 4.0]), t.init(params), params)
        >>> updates
        array([1., 2.])
    """
    return _scaled("scale", factor)


def _scaled(name: str, factor: float) -> Transformation:
    return _stateless(name, lambda gradients, params: tree.map(lambda g: factor * g, gradients), linear=True)


def scale_by_learning_rate(learning_rate: float | Schedule) -> Transformation:
    """Gradients times minus the learning rate, a number or a schedule (a function of the number of updates before).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale_by_learning_rate(lambda count: 0.5 / (1 + count))
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([2.0, 4.0]), t.init(params), params)
        >>> updates
        array([-1., -2.])
    """
    if not callable(learning_rate):
        setting("scale_by_learning_rate", "learning_rate", learning_rate)
        return _scaled("scale_by_learning_rate", -learning_rate)

    def update(gradients: Tree, state: CountState, params: Tree = None) -> tuple[Tree, CountState]:
        rate = -fnp.asarray(learning_rate(state.count))
        return tree.map(lambda g: _like(g, rate) * g, gradients), CountState(state.count + np.int32(1))

    return _rule("scale_by_learning_rate", lambda params: CountState(_number()), update, linear=True)


def clip(limit: float) -> Transformation:
    """Each element limited to [-limit, limit].

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.clip(1.0)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([-3.0, 0.5]), t.init(params), params)
        >>> updates
        array([-1. ,  0.5])
    """
    setting("clip", "limit", limit)
    return _stateless("clip", lambda gradients, params: tree.map(lambda g: fnp.clip(g, -limit, limit), gradients))


def global_norm(values: Tree) -> Any:
    """The root of the sum of the squares of all elements of a tree, a scalar.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.optim.global_norm([np.array([3.0]), np.array([[4.0]])])
        np.float64(5.0)
    """
    squares = [fnp.sum(fnp.square(x)) for x in tree.leaves(values)]
    total = squares[0] if squares else 0.0
    for s in squares[1:]:
        total = total + s
    return fnp.sqrt(total)


def clip_by_global_norm(max_norm: float) -> Transformation:
    """Gradients scaled down so that their global norm is at most `max_norm` (Pascanu, Mikolov, Bengio, 2013).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.clip_by_global_norm(1.0)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([3.0, 4.0]), t.init(params), params)
        >>> updates
        array([0.6, 0.8])
    """

    def clipped(gradients: Tree, params: Tree) -> Tree:
        norm = global_norm(gradients)
        small = norm < max_norm
        norm = fnp.where(small, 1.0, norm)
        return tree.map(lambda g: fnp.where(small, g, g / _like(g, norm) * max_norm), gradients)

    setting("clip_by_global_norm", "max_norm", max_norm)
    return _stateless("clip_by_global_norm", clipped)


def add_decayed_weights(weight_decay: float, mask: Tree | Callable[[Tree], Tree] | None = None) -> Transformation:
    """Gradients plus weight_decay times the parameters for which `mask` (a tree of bools, or a function to one) is true.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.add_decayed_weights(0.5)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([0.0, 1.0]), t.init(params), params)
        >>> updates
        array([0.5, 1.5])
    """

    def decayed(gradients: Tree, params: Tree) -> Tree:
        if params is None:
            raise errors.FxValueError(
                "add_decayed_weights was not given the parameters",
                why="It adds a multiple of them to the gradients.",
                fix="Call optimizer.update(gradients, state, params).",
            )
        if mask is None:
            return tree.map(lambda g, p: g + weight_decay * p, gradients, params)
        wanted = mask(params) if callable(mask) else mask
        return tree.map(lambda g, p, w: g + weight_decay * p if w else g, gradients, params, wanted)

    setting("add_decayed_weights", "weight_decay", weight_decay)
    return _stateless("add_decayed_weights", decayed, linear=True)


def trace(decay: float, nesterov: bool = False) -> Transformation:
    """Momentum: the decayed sum of gradients, t = g + decay*t; with `nesterov`, g + decay*t (Sutskever et al., 2013).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.trace(0.5)
        >>> first, state = t.update(np.array([1.0]), t.init(np.zeros(1)))
        >>> second, state = t.update(np.array([1.0]), state)
        >>> first, second
        (array([1.]), array([1.5]))
    """

    def update(gradients: Tree, state: TraceState, params: Tree = None) -> tuple[Tree, TraceState]:
        total = tree.map(lambda g, t: g + decay * t, gradients, state.trace)
        updates = tree.map(lambda g, t: g + decay * t, gradients, total) if nesterov else total
        return updates, TraceState(total)

    setting("trace", "decay", decay, 1.0)
    return _rule("trace", lambda params: TraceState(_zeros(params)), update, lambda state: state.trace, linear=True)


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0) -> Transformation:
    """The mean of gradients over the root of the mean of their squares, both corrected for their start (Kingma and Ba, 2015).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale_by_adam(eps=0.0)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([3.0, -4.0]), t.init(params), params)
        >>> updates
        array([ 1., -1.])
    """

    def init(params: Tree) -> AdamState:
        return AdamState(_number(), _zeros(params), _zeros(params))

    def update(gradients: Tree, state: AdamState, params: Tree = None) -> tuple[Tree, AdamState]:
        count = state.count + np.int32(1)
        mu, nu = _decayed(state.mu, gradients, b1), _decayed(state.nu, _squares(gradients), b2)
        first, second = (1.0 - fnp.power(b, fnp.astype(count, np.float64)) for b in (b1, b2))

        def step(m: Any, v: Any) -> Any:
            return m / _like(m, first) / (fnp.sqrt(v / _like(v, second) + eps_root) + eps)

        return tree.map(step, mu, nu), AdamState(count, mu, nu)

    _decays("scale_by_adam", b1=b1, b2=b2)
    setting("scale_by_adam", "eps", eps)
    return _rule("scale_by_adam", init, update, lambda state: state.mu)


def scale_by_rms(
    decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True, centered: bool = False
) -> Transformation:
    """Gradients over the root of the running mean of their squares (Hinton, 2012), or, `centered`, of their variance.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale_by_rms(decay=0.75, eps=0.0)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([3.0, -4.0]), t.init(params), params)
        >>> updates
        array([ 2., -2.])
    """

    def init(params: Tree) -> MeanSquareState:
        return MeanSquareState(tree.map(lambda p: fnp.full_like(p, initial_scale), params), _zeros(params) if centered else ())

    def update(gradients: Tree, state: MeanSquareState, params: Tree = None) -> tuple[Tree, MeanSquareState]:
        nu = _decayed(state.nu, _squares(gradients), decay)
        mu = _decayed(state.mu, gradients, decay) if centered else ()
        spread = tree.map(lambda v, m: v - fnp.square(m), nu, mu) if centered else nu
        updates = tree.map(lambda g, v: g / _root(v, eps, eps_in_sqrt), gradients, spread)
        return updates, MeanSquareState(nu, mu)

    _decays("scale_by_rms", decay=decay)
    setting("scale_by_rms", "eps", eps)
    return _rule("scale_by_rms", init, update, lambda state: state.nu)


def _root(v: Any, eps: float, eps_in_sqrt: bool) -> Any:
    return fnp.sqrt(v + eps) if eps_in_sqrt else fnp.sqrt(v) + eps


def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7, eps_in_sqrt: bool = True) -> Transformation:
    """Gradients over the root of the sum of all their squares so far (Duchi, Hazan, Singer, 2011).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale_by_rss(initial_accumulator_value=0.0, eps=0.0)
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([3.0, -4.0]), t.init(params), params)
        >>> updates
        array([ 1., -1.])
    """

    def init(params: Tree) -> SumOfSquaresState:
        return SumOfSquaresState(tree.map(lambda p: fnp.full_like(p, initial_accumulator_value), params))

    def update(gradients: Tree, state: SumOfSquaresState, params: Tree = None) -> tuple[Tree, SumOfSquaresState]:
        total = tree.map(lambda s, g: s + fnp.square(g), state.sum_of_squares, gradients)
        updates = tree.map(
            lambda g, s: fnp.where(s > 0, g / _root(fnp.where(s > 0, s, 1.0), eps, eps_in_sqrt), 0.0 * g), gradients, total
        )
        return updates, SumOfSquaresState(total)

    setting("scale_by_rss", "eps", eps)
    return _rule("scale_by_rss", init, update, lambda state: state.sum_of_squares)


def scale_by_lion(b1: float = 0.9, b2: float = 0.99) -> Transformation:
    """The sign of a mean of the gradient and its running mean (Chen et al., 2023).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> t = fx.optim.scale_by_lion()
        >>> params = np.array([1.0, 1.0])
        >>> updates, _ = t.update(np.array([3.0, -4.0]), t.init(params), params)
        >>> updates
        array([ 1., -1.])
    """

    def update(gradients: Tree, state: LionState, params: Tree = None) -> tuple[Tree, LionState]:
        updates = tree.map(lambda g, m: fnp.sign((1.0 - b1) * g + b1 * m), gradients, state.mu)
        return updates, LionState(_decayed(state.mu, gradients, b2))

    _decays("scale_by_lion", b1=b1, b2=b2)
    return _rule("scale_by_lion", lambda params: LionState(_zeros(params)), update, lambda state: state.mu)
