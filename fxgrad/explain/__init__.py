"""fx.explain: what a compiled function does, where its time goes, and what the machine would allow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxgrad.explain.report import Explanation

__all__ = ["explain"]


def explain(jitted: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Print what a jitted function does for these arguments, what it costs, and what this machine would allow.

    It runs the compiled function several times to time it. The first use on a machine measures the machine's limits, which
    takes a second. Nothing it does counts as a hit; a trace it has to make is kept and counts as a miss, as any call's.

    Arguments:
        jitted: what `fx.jit` returned: a function, a method, or a `functools.partial` of one.
        args, kwargs: as for a call. Where any is an `fx.Aval` instead of an array nothing is run and no time is shown.

    Returns:
        An `Explanation`: the printed text again as `str()`, a page as `to_html(path)`, figures as `as_dict()`.

    Raises:
        FxTypeError: the function is not jitted, or the arguments are traced values of a transform.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> e = fx.explain(fx.jit(lambda x: np.sum(x * 2.0)), np.ones(1000))  # doctest: +ELLIPSIS
        <lambda>: ...
        >>> e.as_dict()["speed"]["bytes_read"]
        8000
    """
    from fxgrad.explain.report import explanation  # `import fxgrad` does not wait for it

    found = explanation(jitted, args, kwargs)
    sys.stdout.write(f"{found}\n")
    return found
