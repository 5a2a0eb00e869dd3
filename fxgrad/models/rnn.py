"""Recurrent networks: tanh, GRU (Cho et al., 2014) or LSTM (Hochreiter and Schmidhuber, 1997), as torch.nn has them.

Gates stand in PyTorch's order (GRU: reset, update, new; LSTM: input, forget, cell, output) on an axis of their own, whose length
tells which cell it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fxgrad.numpy as fnp
from fxgrad import errors, random
from fxgrad.control import scan
from fxgrad.models.common import Params, apply_dense, classification_loss, init_dense, require, require_floating, require_sizes
from fxgrad.nn import initializers
from fxgrad.nn.activations import sigmoid, tanh

__all__ = ["Config", "apply", "init", "initial_state", "loss", "step"]

GATES = {"tanh": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True)
class Config:
    """Sizes of a recurrent network.

    Arguments:
        inputs: features at each time.
        outputs: numbers that come out at each time.
        hidden: the width of the state.
        layers: how many cells, each fed by the one before.
        cell: "tanh", "gru" or "lstm".
        dtype: of the parameters.

    Example:
        >>> import fxgrad as fx
        >>> fx.models.rnn.Config(8, 2)
        Config(inputs=8, outputs=2, hidden=128, layers=1, cell='gru', dtype='float32')
    """

    inputs: int
    outputs: int
    hidden: int = 128
    layers: int = 1
    cell: str = "gru"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        require_sizes(self, "inputs", "outputs", "hidden", "layers")
        require(self, self.cell in GATES, "cell", "It names what is repeated.", 'Pass "tanh", "gru" or "lstm".')
        require_floating(self)


def init(key: Any, config: Config) -> Params:
    """Parameters {"cells": [{"input": {"w", "b"}, "recurrent": {"w", "b"}}, ...], "head": {"w", "b"}}.

    A cell's weights have the shapes (inputs, gates, hidden) and (hidden, gates, hidden), its biases (gates, hidden). Input
    weights start by glorot_uniform, recurrent ones orthogonal, biases zero.

    Example:
        >>> import fxgrad as fx
        >>> rnn = fx.models.rnn
        >>> params = rnn.init(fx.random.key(0), rnn.Config(8, 2, hidden=16, cell="lstm"))
        >>> params["cells"][0]["recurrent"]["w"].shape
        (16, 4, 16)
    """
    gates, hidden, dtype = GATES[config.cell], config.hidden, config.dtype
    *keys, head = random.split(key, config.layers + 1)
    cells = []
    for i, k in enumerate(keys):
        n = hidden if i else config.inputs
        first, second = random.split(k)
        each = initializers.glorot_uniform(0, 2, 1)
        turns = [initializers.orthogonal()(k, (hidden, hidden), dtype) for k in random.split(second, gates)]
        cells.append({
            "input": {"w": each(first, (n, gates, hidden), dtype), "b": fnp.zeros((gates, hidden), dtype)},
            "recurrent": {"w": fnp.stack(turns, axis=1), "b": fnp.zeros((gates, hidden), dtype)},
        })  # fmt: skip
    return {"cells": cells, "head": init_dense(head, hidden, config.outputs, dtype, initializers.glorot_uniform())}


def initial_state(params: Params, batch: tuple[int, ...] = ()) -> list[Any]:
    """The state before the first input: zeros (*batch, hidden) for each cell; for an LSTM a pair of them.

    Example:
        >>> import fxgrad as fx
        >>> rnn = fx.models.rnn
        >>> params = rnn.init(fx.random.key(0), rnn.Config(8, 2, hidden=16))
        >>> [h.shape for h in rnn.initial_state(params, (5,))]
        [(5, 16)]
    """
    states = []
    for cell in params["cells"]:
        w = cell["recurrent"]["w"]
        h = fnp.zeros((*batch, w.shape[-1]), w.dtype)
        states.append((h, h) if w.shape[1] == GATES["lstm"] else h)
    return states


def _project(params: Params, x: Any) -> Any:
    """x @ w + b, for all gates at once: (..., n) to (..., gates, hidden)."""
    w = params["w"]
    y = fnp.matmul(x, fnp.reshape(w, (w.shape[0], -1)))
    return fnp.add(fnp.reshape(y, (*y.shape[:-1], *w.shape[1:])), params["b"])


def _turn(params: Params, state: Any, given: Any) -> tuple[Any, Any]:
    """(state, output) after one input, of which `given` is the projection."""
    gates = given.shape[-2]
    if gates == GATES["lstm"]:
        h, c = state
        z = fnp.add(given, _project(params["recurrent"], h))
        i, f, o = (sigmoid(z[..., k, :]) for k in (0, 1, 3))
        c = fnp.add(fnp.multiply(f, c), fnp.multiply(i, tanh(z[..., 2, :])))
        h = fnp.multiply(o, tanh(c))
        return (h, c), h
    again = _project(params["recurrent"], state)
    if gates == GATES["tanh"]:
        h = tanh(fnp.add(given, again)[..., 0, :])
        return h, h
    r, u = (sigmoid(fnp.add(given[..., k, :], again[..., k, :])) for k in (0, 1))
    new = tanh(fnp.add(given[..., 2, :], fnp.multiply(r, again[..., 2, :])))
    h = fnp.add(fnp.multiply(fnp.subtract(1, u), new), fnp.multiply(u, state))
    return h, h


def step(params: Params, state: list[Any], x: Any) -> tuple[list[Any], Any]:
    """(state, outputs) after the inputs of one time: what `apply` does at every time, for generating.

    Arguments:
        params: of `init`.
        state: of `initial_state` or of the step before.
        x: (*batch, inputs).

    Returns:
        (state, outputs), the latter (*batch, outputs).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> rnn = fx.models.rnn
        >>> params = rnn.init(fx.random.key(0), rnn.Config(8, 2))
        >>> state, y = rnn.step(params, rnn.initial_state(params), np.ones(8, np.float32))
        >>> y.shape
        (2,)
    """
    new = []
    for cell, before in zip(params["cells"], state, strict=True):
        after, x = _turn(cell, before, _project(cell["input"], x))
        new.append(after)
    return new, apply_dense(params["head"], x)


def apply(params: Params, x: Any) -> Any:
    """The outputs at every time, from the initial state on; a scan over time.

    Arguments:
        params: of `init`.
        x: (*batch, T, inputs).

    Returns:
        (*batch, T, outputs): the last time's are `apply(params, x)[..., -1, :]`.

    Raises:
        FxValueError: x has no axis of time.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> rnn = fx.models.rnn
        >>> params = rnn.init(fx.random.key(0), rnn.Config(8, 2, layers=2))
        >>> rnn.apply(params, np.ones((5, 12, 8), np.float32)).shape
        (5, 12, 2)
    """
    x = fnp.asarray(x)
    if x.ndim < 2:
        raise errors.FxValueError(
            f"models.rnn.apply got x of shape {x.shape}",
            why="It takes sequences: (*batch, T, inputs).",
            fix="For one time use models.rnn.step(params, state, x).",
        )
    x = fnp.moveaxis(x, -2, 0)  # time first, from here to the outputs: scans and the products around them walk it in order
    for cell, start in zip(params["cells"], initial_state(params, x.shape[1:-1]), strict=True):
        given = _project(cell["input"], x)  # of all times at once
        _, x = scan(lambda state, g, cell=cell: _turn(cell, state, g), start, given)
    return fnp.moveaxis(apply_dense(params["head"], x), 0, -2)


def loss(params: Params, x: Any, labels: Any) -> Any:
    """The mean cross entropy of softmax(apply(params, x)) with integer labels at every time.

    Arguments:
        params: of `init`.
        x: (*batch, T, inputs).
        labels: (*batch, T) integers, 0 to outputs - 1; or (*batch,), compared with the last time only.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> rnn = fx.models.rnn
        >>> params = rnn.init(fx.random.key(0), rnn.Config(8, 2))
        >>> g = fx.grad(rnn.loss)(params, np.ones((5, 12, 8), np.float32), np.zeros(5, int))
        >>> g["head"]["w"].shape
        (128, 2)
    """
    y = apply(params, x)
    return classification_loss(y[..., -1, :] if labels.ndim < y.ndim - 1 else y, labels)
