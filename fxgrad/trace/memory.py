"""What a tracer knows of the array it is a handle on: memory shared with other handles, and a place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from fxgrad.ir.types import Var
    from fxgrad.trace.steps import Step
    from fxgrad.trace.tracing import Trace

__all__ = ["ARGUMENT", "CAPTURED", "STALE", "Memory", "View"]


class Memory:
    """One array: the variable of its present value, and the handles that show it (those that are not stale).

    With a `refusal`, the reason why it cannot be written, nothing else is kept.
    """

    __slots__ = ("handles", "refusal", "trace", "var")

    def __init__(self, handle: Any = None, refusal: str | None = None):
        self.refusal = refusal
        if handle is not None:
            self.trace: Trace = handle._trace
            self.var: Var = handle._var
            self.handles: list[Any] = [ref(handle)]

    def add(self, handle: Any) -> None:
        """One more handle; those that are gone are forgotten whenever the list has doubled."""
        handles = self.handles
        handles.append(ref(handle))
        n = len(handles)
        if n >= 64 and not n & (n - 1):
            self.handles = [r for r in handles if r() is not None]


class View:
    """A place in a memory: `result` was made from `source`, the variable of the handle of which this is a view."""

    __slots__ = ("memory", "parent", "result", "source", "steps")

    def __init__(self, memory: Memory, parent: View | None, source: Var, result: Var):
        self.memory, self.parent, self.source, self.result = memory, parent, source, result
        self.steps: tuple[Step, ...] | None = None  # found when needed


class _Stale:
    """Stands for the trace of a handle whose memory was written since it was read."""

    active = False


STALE: Any = _Stale()
ARGUMENT = Memory(refusal="argument")
CAPTURED = Memory(refusal="captured")
