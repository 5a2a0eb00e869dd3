"""Programs compiled in ways that users do not ask for: without fusion or reuse of memory, with or without streamed stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fxgrad as fx
from fxgrad import tree
from fxgrad.compile import layout, lower

__all__ = ["NEVER", "built", "compiled", "program_of", "threads_set"]

NEVER = 1 << 62


def program_of(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What jit compiles for these arguments."""
    return fx.jit(f).lower(*args).program


def built(
    f: Callable[..., Any], args: Sequence[Any], fusion: bool = True, reuse: bool = True, stream: int | None = None
) -> tuple[Any, list[Any]]:
    """(an executable, the arrays it is called with: what f captures, then the leaves of its arguments).

    fusion: False makes a kernel of each operation. reuse: False gives every value memory of its own. stream: results of at
    least so many bytes bypass the caches (None: what fxgrad takes; `NEVER`).
    """
    entry = fx.jit(f).lower(*args)._entry
    kept = layout._STREAM
    layout._STREAM = kept if stream is None else stream
    try:
        return lower._compile(entry.program, fusion, reuse=reuse), [*entry.captures, *tree.leaves(tuple(args))]
    finally:
        layout._STREAM = kept


def compiled(f: Callable[..., Any], args: Sequence[Any], **options: Any) -> Any:
    """The executable alone, of a function that captures nothing; called with the leaves of its arguments."""
    executable, arrays = built(f, args, **options)
    assert len(arrays) == len(tree.leaves(tuple(args))), "the function captures arrays"
    return executable


@contextmanager
def threads_set(n: int) -> Iterator[None]:
    """So many threads for a while."""
    before = fx.get_num_threads()
    fx.set_num_threads(n)
    try:
        yield
    finally:
        fx.set_num_threads(before)
