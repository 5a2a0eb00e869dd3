"""What transforms return: callables with the name of their function, which can be pickled, copied and used as methods."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from fxgrad import errors
from fxgrad.trace.function import name_of

__all__ = ["Transformed", "global_name", "name_after", "wraps"]

F = Callable[..., Any]


class Transformed(functools.partial):
    """A transformed function, pickled as the call that made it.

    A partial without arguments: calling it costs no more than calling the function inside.
    """

    made_by: tuple[F, tuple[Any, ...]]
    __name__: str

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """In a class body it is a method, like any function."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        return global_name(self) or self.made_by

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def global_name(x: Any) -> str | None:
    """The name under which a module holds x: that of its function, if x replaced it there (`@fx.jit` above a `def`)."""
    found: Any = sys.modules.get(getattr(x, "__module__", None) or "")
    name = getattr(x, "__qualname__", "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is x else None


def name_after(wrapped: Any, f: F, transform: str) -> None:
    """functools.wraps that survives callables without a name."""
    functools.update_wrapper(wrapped, f, updated=())
    wrapped.__name__ = f"{transform}({name_of(f)})"


def wraps(f: F, transform: str, made_by: tuple[F, tuple[Any, ...]]) -> Callable[[F], F]:
    """Makes a function the transform of f; `made_by`, (function, arguments), makes it again where it is unpickled."""
    if not callable(f):
        raise errors.FxTypeError(
            f"{transform} takes a function, got {type(f).__name__}",
            why="A transform makes a new function of one.",
            fix=f"Write fx.{transform}(f), then call the result with the arguments.",
        )

    def decorate(wrapped: F) -> F:
        transformed = Transformed(wrapped)
        transformed.made_by = made_by
        name_after(transformed, f, transform)
        return transformed

    return decorate
