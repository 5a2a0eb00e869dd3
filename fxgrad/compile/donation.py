"""Running a program in the memory of arguments that its caller gives up."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.compile.lower import Executable
from fxgrad.ir.types import Aval
from fxgrad.runtime.buffers import Block

__all__ = ["Donating"]

_spent: dict[int, weakref.ref] = {}  # id -> an array that was donated
_heirs: dict[int, weakref.ref] = {}  # id -> a result in the memory of an array that was donated


class Donating:
    """An executable that reuses the memory of some arguments, where nobody else can notice.

    It does so when each donated argument owns its memory, may be written, need not be copied first, and shares no byte with
    another argument or a captured array; else the call runs like any other and the arguments stay as they are.
    """

    def __init__(self, plain: Executable, reusing: Executable, donated: Sequence[int]):
        self.plain, self.reusing, self.donated = plain, reusing, tuple(donated)
        self._avals = [v.aval for v in plain.flat.inputs]

    def __call__(self, *arrays: Any) -> list:
        for i in self.donated:
            _check_unspent(arrays[i])
        if not all([_given_up(arrays[i], self._avals[i]) for i in self.donated]) or self._entangled(arrays):
            return self.plain(*arrays)
        given = [arrays[i] for i in self.donated]
        try:
            results = self.reusing(*arrays)
        finally:
            for a in given:
                a.flags.writeable = False
                _remember(_spent, a)
        for i in self.reusing.memory.donated:
            _remember(_heirs, results[i])
        return results

    def function(
        self, head: Sequence[str], parameters: str, unfit: str, answer: Callable[[list[str]], str], scope: dict[str, Any]
    ) -> Callable[..., Any]:
        """A function of `parameters`, of which the lines `head` make the arguments, as `Source.function` writes it."""
        names = self.reusing.source.arguments
        results = [f"y{i}" for i in range(len(self.plain.flat.outputs))]
        lines = [f"def run({parameters}):", *(f"    {x}" for x in head)]
        # No line for each argument: Python takes 10 KB to compile one, and a training step has hundreds.
        unlike = "type(x) is not ndarray or x.dtype is not d or x.shape != s"
        lines += [f"    for x, d, s in zip(({', '.join([*names, ''])}), dtypes, shapes):", f"        if {unlike}: {unfit}"]
        lines += [f"    {', '.join(results)}, = call({', '.join(names)})", f"    return {answer([*results])}"]
        dtypes, shapes = [v.dtype for v in self._avals], [v.shape for v in self._avals]
        known = {"call": self.__call__, "ndarray": np.ndarray, "dtypes": dtypes, "shapes": shapes}
        space = {**scope, **known}
        exec(compile("\n".join(lines), f"<fxgrad {self.plain.flat.name}>", "exec"), space)
        return space["run"]

    def __reduce__(self) -> Any:
        return self.plain.__reduce__()

    def _entangled(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether a donated argument overlaps any other."""
        if _apart(arrays):  # always so in training: addresses, at 5 us an array, would cost more than a small step
            return False
        spans = sorted((*np.lib.array_utils.byte_bounds(a), i) for i, a in enumerate(arrays) if a.size)
        end, owner = 0, -1
        for start, stop, i in spans:
            if start < end and (i in self.donated or owner in self.donated):
                return True
            if stop > end:
                end, owner = stop, i
        return False

    def __getattr__(self, name: str) -> Any:
        """Of the program as it runs when the memory is reused: steps, text, analyses."""
        return getattr(self.reusing, name)


def _apart(arrays: Sequence[np.ndarray]) -> bool:
    """Whether each array is the only one here in memory that NumPy or the pool has given out: then no two of them overlap."""
    owners = set()
    for a in arrays:
        owner: Any = a
        while (base := owner.base) is not None and type(base) is np.ndarray:
            owner = base
        if (base is not None and type(base) is not Block) or (base is None and not owner.flags.owndata):
            return False
        owners.add(id(owner if base is None else base))
    return len(owners) == len(arrays)


def _remember(arrays: dict[int, weakref.ref], a: np.ndarray) -> None:
    def forget(_: Any, key: int = id(a)) -> None:
        arrays.pop(key, None)

    arrays[id(a)] = weakref.ref(a, forget)


def _is_in(arrays: dict[int, weakref.ref], a: Any) -> bool:
    known: Any = arrays.get(id(a))
    return known is not None and known() is a


def _check_unspent(a: Any) -> None:
    if _is_in(_spent, a):
        raise errors.FxValueError(
            f"an argument {Aval(a.shape, a.dtype)} was donated to an earlier call",
            why="Its memory belongs to a result of that call, so its old contents are gone.",
            fix="Use the result: params = step(params, x); or donate a copy, step(params.copy(), x).",
        )


def _given_up(a: Any, aval: Aval) -> bool:
    if type(a) is not np.ndarray or a.dtype is not aval.dtype:
        return False
    flags = a.flags
    if not (flags.writeable and flags.c_contiguous and flags.aligned):
        return False
    return a.base is None or isinstance(a.base, Block) or _is_in(_heirs, a)
