"""Guards: what a traced function read from outside its arguments, so that rebinding any of it traces again.

Found without running anything: the closure cells and the globals named in a function's code, and whatever can be reached from
them: functions called, attributes of captured objects, leaves of captured containers. Code of NumPy, the standard library and
installed packages is not followed. Arrays are guarded by identity (their contents are read at run time anyway), everything else
by type and value.
"""

from __future__ import annotations

import builtins
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from operator import getitem
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, ClassVar

import numpy as np

from fxgrad.ir.program import Program
from fxgrad.runtime.stale import reachable
from fxgrad.trace.tracer import Tracer

__all__ = ["Guards", "generators_of"]

_SKIPPED = tuple(
    {os.path.realpath(sysconfig.get_paths()[k]) + os.sep for k in ("stdlib", "purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep}
)
_SCALARS = (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype, type(Ellipsis), slice, range)
MOST_GUARDS = 20_000  # beyond it a captured structure is watched by identity only

_MISSING = object()


@lru_cache(maxsize=4096)
def _is_user_file(path: str) -> bool:
    return not os.path.realpath(path).startswith(_SKIPPED) and not path.startswith("<frozen")


@lru_cache(maxsize=4096)
def _names_read(code: CodeType) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """(globals read, (global, attribute) pairs read) by this code and the code nested in it."""
    import dis  # slow to import, and needed for jit only

    names: dict[str, None] = {}
    attributes: dict[tuple[str, str], None] = {}
    last = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
            last = instruction.argval
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and last is not None:
            attributes[last, instruction.argval] = None
            last = None
        elif instruction.opname != "CACHE":
            last = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner_names, inner_attributes = _names_read(constant)
            names.update(dict.fromkeys(inner_names))
            attributes.update(dict.fromkeys(inner_attributes))
    return tuple(names), tuple(attributes)


def _same(a: Any, b: Any) -> bool:
    """Equal in type and value; tells 1 from True and 1.0, 0.0 from -0.0, and a NaN is itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, complex, np.generic)):
        return repr(a) == repr(b)
    return isinstance(a, _SCALARS) and bool(a == b)


def _is_generator(value: Any) -> bool:
    random = sys.modules.get("numpy.random")
    return random is not None and isinstance(value, (random.Generator, random.RandomState, random.BitGenerator))


def generators_of(f: Any) -> list[Any]:
    """NumPy's random generators that a function's code names."""
    f = getattr(f, "__func__", f)
    code = getattr(f, "__code__", None)
    if code is None:
        return []
    cells = [c.cell_contents for c in f.__closure__ or () if c != CellType()]
    return [x for x in (*cells, *map(f.__globals__.get, _names_read(code)[0])) if _is_generator(x)]


class Guards:
    """The readings a trace depends on; `changed()` names the first that differs now, or answers None."""

    __slots__ = ("_seen", "arrays", "checks", "generators")

    def __init__(self, f: Any):
        self.checks: list[tuple[Callable[[], Any], Any, str]] = []
        self.arrays: list[np.ndarray] = []  # within reach: the function may compute with them before anything is traced
        self.generators: list[Any] = []  # NumPy's random generators within reach
        self._seen: dict[int, Any] = {}
        self._follow(f)
        self._seen = {}

    def changed(self) -> str | None:
        for read, expected, name in self.checks:
            try:
                value = read()
            except (ValueError, LookupError, AttributeError):
                return name
            if value is not expected and not _same(value, expected):
                return name
        return None

    def _watch(self, read: Callable[[], Any], value: Any, name: str) -> None:
        """Guard one binding and follow what it holds."""
        if isinstance(value, ModuleType):
            return
        self.checks.append((read, value, name))
        self._note(value)
        if _is_generator(value):
            self.generators.append(value)
        elif not isinstance(value, _SCALARS) and not isinstance(value, (np.ndarray, np.ufunc)):
            self._follow(value, name)

    def _note(self, value: Any) -> None:
        """Remember an array that somebody may write to."""
        if isinstance(value, np.ndarray) and reachable(value):
            self.arrays.append(value)

    def _follow(self, value: Any, name: str = "") -> None:
        """Guard what can be reached from a value."""
        if id(value) in self._seen or len(self.checks) > MOST_GUARDS:
            return
        self._seen[id(value)] = value
        for kinds, follow in self._ways.items():
            if isinstance(value, kinds):
                follow(self, value, name)
                return
        self._object(value, name)

    def _method(self, method: MethodType, name: str) -> None:
        self._follow(method.__func__, name)
        self._follow(method.__self__, name or "self")

    def _partial(self, call: partial, name: str) -> None:
        self._follow(call.func, name)
        self._follow(call.args, name)
        self._follow(call.keywords, name)

    def _size(self, container: Any, name: str) -> None:
        self.checks.append((partial(len, container), len(container), f"len({name})"))

    def _sequence(self, items: Any, name: str) -> None:
        self._size(items, name)
        for i, item in enumerate(items):
            self._watch(partial(getitem, items, i), item, f"{name}[{i}]")

    def _dict(self, items: dict, name: str) -> None:
        self._size(items, name)
        for k, item in items.items():
            self._watch(partial(getitem, items, k), item, f"{name}[{k!r}]")

    def _class(self, cls: type, name: str) -> None:
        if not _is_user_class(cls):
            return
        for base in cls.__bases__:
            self._follow(base, base.__name__)
        for k, item in vars(cls).items():
            if isinstance(item, (FunctionType, staticmethod, classmethod, property)) or not k.startswith("__"):
                self._watch(partial(vars(cls).get, k, _MISSING), item, f"{cls.__name__}.{k}")

    def _descriptor(self, item: Any, name: str) -> None:
        self._follow(getattr(item, "__func__", None) or getattr(item, "fget", None), name)

    def _nothing(self, value: Any, name: str) -> None:
        """Modules, traced values and programs hold nothing a trace reads."""

    def _object(self, value: Any, name: str) -> None:
        """An instance: its attributes, and the code of its class."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.checks.append((partial(len, attributes), len(attributes), f"attributes of {name}"))
            for k, item in attributes.items():
                if k != "__wrapped__":
                    self._watch(partial(getitem, attributes, k), item, f"{name}.{k}")
            if "__wrapped__" in attributes:
                self._follow(attributes["__wrapped__"], name)
        for slot in getattr(type(value), "__slots__", ()):
            if isinstance(slot, str) and _is_user_class(type(value)) and not slot.startswith("__") and hasattr(value, slot):
                self._watch(partial(getattr, value, slot), getattr(value, slot), f"{name}.{slot}")
        self._follow(type(value), type(value).__name__)

    def _function(self, f: FunctionType, name: str) -> None:
        if hasattr(f, "__wrapped__"):
            self._follow(f.__wrapped__, name)
        for cell, free in zip(f.__closure__ or (), f.__code__.co_freevars, strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._watch(partial(getattr, cell, "cell_contents"), value, free)
        if not _is_user_file(f.__code__.co_filename):
            return
        self._defaults(f)
        names, attributes = _names_read(f.__code__)
        space = f.__globals__
        for name in names:
            if name in space:
                self._watch(partial(space.get, name, _MISSING), space[name], name)
            elif not hasattr(builtins, name):
                self.checks.append((partial(space.get, name, _MISSING), _MISSING, name))
        for name, attribute in attributes:
            module = space.get(name)
            if isinstance(module, ModuleType) and attribute in vars(module) and _is_user_module(module):
                members = vars(module)
                self._watch(partial(members.get, attribute, _MISSING), members[attribute], f"{name}.{attribute}")

    def _defaults(self, f: FunctionType) -> None:
        for default in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            if isinstance(default, np.ndarray):
                self._note(default)
            elif not isinstance(default, _SCALARS):
                self._follow(default, f"a default of {f.__name__}")

    _ways: ClassVar[dict[Any, Callable[[Guards, Any, str], None]]] = {
        FunctionType: _function,
        MethodType: _method,
        partial: _partial,
        (staticmethod, classmethod, property): _descriptor,
        (list, tuple, deque): _sequence,
        (dict, MappingProxyType): _dict,
        (set, frozenset): _size,
        type: _class,
        (ModuleType, Tracer, Program): _nothing,
    }


def _is_user_module(module: ModuleType | None) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and _is_user_file(path)


def _is_user_class(cls: type) -> bool:
    return cls.__module__ == "__main__" or _is_user_module(sys.modules.get(cls.__module__))
