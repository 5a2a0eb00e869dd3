"""checkpoint: values that are computed again on the way back instead of being kept; its policies, and chains in segments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.wrapping import wraps
from fxgrad.custom import finish, flatten_call
from fxgrad.primitives import call
from fxgrad.trace.function import name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace, inline

__all__ = [
    "budget_of", "checkpoint", "checkpoint_name", "checkpoint_policies", "checkpoint_sequential", "remat",
]  # fmt: skip

F = Callable[..., Any]


def budget_of(value: Any, what: str) -> int:
    """A number of bytes a user gave, checked."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise errors.FxTypeError(
            f"{what} got {value!r}, which is not a number of bytes",
            why="A budget is counted in whole bytes.",
            fix="Write 200 * 2**20 for 200 MiB.",
        )
    if value < 0:
        raise errors.FxValueError(
            f"{what} got {int(value)} bytes",
            why="Nothing can be kept in less than no memory.",
            fix="Pass a positive number of bytes.",
        )
    return int(value)


class checkpoint_policies:
    """What a checkpointed function may keep for the backward pass; everything else is computed again there.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> f = fx.checkpoint(lambda x: np.sin(np.exp(x)), policy=fx.checkpoint_policies.memory_budget(1 << 20))
        >>> fx.grad(f)(0.0)
        np.float64(0.5403023058681398)
    """

    nothing_saveable = ("nothing",)
    everything_saveable = ("everything",)
    dots_saveable = ("dots",)

    @staticmethod
    def save_only_these_names(*names: str) -> tuple[str, ...]:
        """Keep the values given these names by `checkpoint_name`."""
        return ("names", *names)

    @staticmethod
    def memory_budget(bytes: int) -> tuple[str, int]:
        """Keep up to so many bytes beside the function's inputs: those whose recomputation would cost most.

        Which values those are is a minimum cut of the function's program, with their real sizes and the estimated cost of
        computing them again. 0 keeps nothing.
        """
        return ("budget", budget_of(bytes, "memory_budget(bytes)"))


def _checked_policy(policy: Any) -> tuple[Any, ...]:
    if policy is None:
        return checkpoint_policies.nothing_saveable
    kind = policy[0] if isinstance(policy, tuple) and policy else None
    plain = kind in ("nothing", "everything", "dots", "names") and all(isinstance(n, str) for n in policy)
    if not plain and not (kind == "budget" and len(policy) == 2):
        raise errors.FxValueError(
            f"checkpoint got policy={policy!r}",
            why="A policy says what may be kept for the backward pass.",
            fix="Use a member of fx.checkpoint_policies.",
        )
    return policy


def checkpoint(f: F, policy: tuple[Any, ...] | None = None) -> F:
    """f, whose intermediate values are not kept for the backward pass but computed again there (Griewank and Walther, 2000).

    Arguments:
        f: a function of arrays (pytrees).
        policy: `checkpoint_policies.nothing_saveable` (the default: only f's inputs are kept), `everything_saveable`,
            `dots_saveable` (results of matrix products), `save_only_these_names(*names)`, with names from `checkpoint_name`, or
            `memory_budget(bytes)`.

    Returns:
        A function with f's results and derivatives, to the bit.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.grad(fx.checkpoint(lambda x: np.sin(np.sin(x))))(0.0)
        np.float64(1.0)
    """
    policy = _checked_policy(policy)

    @wraps(f, "checkpoint", (checkpoint, (f, policy)))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, weak, flat_call = flatten_call(f, args, kwargs, "checkpoint")
        traced = trace_function(flat_call, leaves, weak, "checkpoint", known=True, name=name_of(f))
        operands = [*traced.captures, *leaves]
        if current_trace() is None:
            return finish(traced, inline(traced.program, operands))
        return finish(traced, call.applied(call.checkpoint, operands, {"policy": policy, "program": traced.program}))

    return wrapped


remat = checkpoint


def checkpoint_name(x: Any, name: str) -> Any:
    """x (any pytree), with a name that `save_only_these_names` can refer to.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> def f(x):
        ...     y = fx.checkpoint_name(np.exp(x), "y")
        ...     return np.sin(y)
        >>> keep = fx.checkpoint_policies.save_only_these_names("y")
        >>> fx.grad(fx.checkpoint(f, policy=keep))(0.0)
        np.float64(0.5403023058681398)
    """
    return tree.map(lambda leaf: call.name(leaf, name=name) if type(leaf) is Tracer else leaf, x)


# ---- chains ------------------------------------------------------------------------------------------------------------------


def checkpoint_sequential(fs: Sequence[F], segments: int | str = "sqrt", policy: tuple[Any, ...] | None = None) -> F:
    """The functions one after the other, checkpointed in segments (Chen et al., 2016, "sublinear memory").

    For n layers alike, "sqrt" keeps about 2 sqrt(n) of the n layers' values at any time, for one more forward pass; "log"
    keeps about log2(n) of them, for log2(n) / 2 more forward passes. The last segment is not computed again: its values are
    needed at once.

    Arguments:
        fs: functions of one value (any pytree), each applied to the result of the one before. Arrays they close over get
            gradients like any others.
        segments: their number, from 1 (nothing is computed again) to len(fs), as equally long as can be; "sqrt" for the square
            root of len(fs); "log" to halve the chain, and each half again where it is computed again.
        policy: of `checkpoint_policies`, what each segment may keep beside its input.

    Returns:
        A function g(x) = fs[-1](... fs[0](x)); or g(x, params), params a sequence with an entry for each function, which is
        then called as f(x, p). Results and derivatives have the bits of the plain loop.

    Raises:
        FxValueError: no functions; no such `segments`; params of another length.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> g = fx.checkpoint_sequential([lambda x, w: np.tanh(w * x)] * 9)
        >>> bool(fx.grad(lambda x: g(x, [1.0] * 9))(0.5) > 0)
        True
    """
    fs = list(fs)
    if not fs or not all(map(callable, fs)):
        raise errors.FxValueError(
            "checkpoint_sequential got no functions" if not fs else "checkpoint_sequential got something that is no function",
            why="It applies the functions of a list one after the other.",
            fix="Write fx.checkpoint_sequential([f, g, h])(x).",
        )
    count = _segment_count(len(fs), segments)
    policy = _checked_policy(policy)

    def chain(x: Any, params: Sequence[Any] | None = None) -> Any:
        if params is not None and len(params) != len(fs):
            raise errors.FxValueError(
                f"checkpoint_sequential of {len(fs)} functions got {len(params)} params",
                why="Each function gets one entry of params.",
                fix="Pass a list with the parameters of each function, in their order.",
            )
        given = [()] * len(fs) if params is None else [(p,) for p in params]

        def run(first: int, last: int, x: Any) -> Any:
            """Functions first to last, the first half of them checkpointed if `count` is None."""
            if count is None and last - first > 1:
                x = segment(first, (first + last) // 2, x)
                first = (first + last) // 2
                return run(first, last, x)
            for f, p in zip(fs[first:last], given[first:last], strict=True):
                x = f(x, *p)
            return x

        def segment(first: int, last: int, x: Any) -> Any:
            return checkpoint(lambda x: run(first, last, x), policy)(x)

        if count is None:
            return run(0, len(fs), x)
        ends = [i * len(fs) // count for i in range(count + 1)]
        for first, last in pairwise(ends[:-1]):
            x = segment(first, last, x)
        return run(ends[-2], ends[-1], x)

    return wraps(chain, "checkpoint_sequential", (checkpoint_sequential, (fs, segments, policy)))(chain)


def _segment_count(n: int, segments: Any) -> int | None:
    """How many segments; None for halves of halves."""
    if segments == "log":
        return None
    if segments == "sqrt":
        return max(1, round(math.sqrt(n)))
    if isinstance(segments, (int, np.integer)) and not isinstance(segments, bool) and 1 <= segments <= n:
        return int(segments)
    raise errors.FxValueError(
        f"checkpoint_sequential of {n} functions got segments={segments!r}",
        why="A segment is one function or several that follow one another.",
        fix=f"Pass an int from 1 to {n}, 'sqrt' or 'log'.",
    )
