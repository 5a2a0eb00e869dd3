"""What transforms return: callables with the name of their function, which can be pickled, copied and used as methods."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from types import FrameType, MethodType
from typing import Any

from fxgrad import errors
from fxgrad.trace.function import name_of

__all__ = ["Transformed", "name_after", "reduction", "wraps"]

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
        return reduction(self, self.made_by, sys._getframe(1))

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


def reduction(x: Any, by_value: Any, caller: FrameType) -> Any:
    """What `__reduce__` answers: the name under which a module holds x, or `by_value`, the call that makes it again.

    A module holds x under the name of its function if it replaced that (`@fx.jit` above a `def`).
    `__main__` of another process is another module. Pickle writes names all the same, but cloudpickle writes what is defined
    there by value; which of them asks is seen in `caller`, the frame that called `__reduce__`.
    """
    module = getattr(x, "__module__", None) or ""
    found: Any = sys.modules.get(module)
    name = getattr(x, "__qualname__", "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return by_value if found is not x or _travels_by_value(module, caller.f_locals.get("self")) else name


def _travels_by_value(module: str, pickler: Any) -> bool:
    """Whether this pickler writes functions that other processes do not find by name, and those of this module are such."""
    override = getattr(pickler, "reducer_override", None)
    if not isinstance(pickler, pickle.Pickler) or override is None or override(lambda: None) is NotImplemented:
        return False
    cloudpickle = sys.modules.get("cloudpickle")
    registered = cloudpickle.list_registry_pickle_by_value() if cloudpickle is not None else ()
    parts = module.split(".")
    return module == "__main__" or any(".".join(parts[: i + 1]) in registered for i in range(len(parts)))


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
