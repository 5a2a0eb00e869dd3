"""Guards: what a traced function read from outside its arguments, so that rebinding any of it traces again.

Found without running anything: the closure cells and the globals named in a function's code, and whatever can be reached from
them: functions called, attributes of captured objects, leaves of captured containers. Code of NumPy, the standard library and
installed packages is not followed. Arrays are guarded by identity (their contents are read at run time anyway), everything else
by type and value.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fxgrad.ir.program import Program
from fxgrad.trace.tracer import Tracer

__all__ = ["Guards"]

_SKIPPED = tuple(
    {os.path.realpath(sysconfig.get_paths()[k]) + os.sep for k in ("stdlib", "purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep}
)
_SCALARS = (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype, type(Ellipsis), slice, range)
MOST_GUARDS = 20_000  # beyond it a captured structure is watched by identity only

_MISSING = object()


def _followed(code: CodeType) -> bool:
    return not os.path.realpath(code.co_filename).startswith(_SKIPPED) and not code.co_filename.startswith("<frozen")


@functools.lru_cache(maxsize=4096)
def _names_read(code: CodeType) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """(globals read, (global, attribute) pairs read) by this code and the code nested in it."""
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


class Guards:
    """The readings a trace depends on; `changed()` names the first that differs now, or answers None."""

    __slots__ = ("_code", "_seen", "captures_tracers", "checks")

    def __init__(self, f: Any):
        self.checks: list[tuple[Callable[[], Any], Any, str]] = []
        self.captures_tracers = False
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
        if isinstance(value, Tracer):
            self.captures_tracers = True
        if isinstance(value, ModuleType):
            return
        self.checks.append((read, value, name))
        if not isinstance(value, _SCALARS) and not isinstance(value, (np.ndarray, np.ufunc)):
            self._follow(value, name)

    def _follow(self, value: Any, name: str = "") -> None:
        """Guard what can be reached from a value."""
        if id(value) in self._seen or len(self.checks) > MOST_GUARDS:
            return
        self._seen[id(value)] = value
        if isinstance(value, FunctionType):
            if hasattr(value, "__wrapped__"):
                self._follow(value.__wrapped__, name)
            self._function(value)
        elif isinstance(value, MethodType):
            self._follow(value.__func__, name)
            self._follow(value.__self__, name or "self")
        elif isinstance(value, functools.partial):
            self._follow(value.func, name)
            self._follow(value.args, name)
            self._follow(value.keywords, name)
        elif isinstance(value, (list, tuple)):
            if isinstance(value, list):
                self.checks.append((lambda: len(value), len(value), f"len({name})"))
            for i, item in enumerate(value):
                self._watch(lambda i=i: value[i], item, f"{name}[{i}]")
        elif isinstance(value, dict):
            self.checks.append((lambda: len(value), len(value), f"len({name})"))
            for k, item in value.items():
                self._watch(lambda k=k: value[k], item, f"{name}[{k!r}]")
        elif isinstance(value, (set, frozenset)):
            self.checks.append((lambda: len(value), len(value), f"len({name})"))
        elif isinstance(value, type):
            if value.__module__ != "builtins" and self._is_user_class(value):
                for k, item in vars(value).items():
                    if isinstance(item, (FunctionType, staticmethod, classmethod, property)):
                        self._follow(getattr(item, "__func__", None) or getattr(item, "fget", None) or item, k)
                    elif not k.startswith("__"):
                        self._watch(lambda k=k: vars(value).get(k, _MISSING), item, f"{value.__name__}.{k}")
        elif not isinstance(value, (ModuleType, Tracer, Program)):
            self._object(value, name)

    def _object(self, value: Any, name: str) -> None:
        """An instance: its attributes, and the code of its class."""
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.checks.append((lambda: len(attributes), len(attributes), f"attributes of {name}"))
            for k, item in attributes.items():
                if k != "__wrapped__":
                    self._watch(lambda k=k: attributes[k], item, f"{name}.{k}")
            if "__wrapped__" in attributes:
                self._follow(attributes["__wrapped__"], name)
        for slot in getattr(type(value), "__slots__", ()):
            if isinstance(slot, str) and hasattr(value, slot) and self._is_user_class(type(value)):
                self._watch(lambda slot=slot: getattr(value, slot), getattr(value, slot), f"{name}.{slot}")
        self._follow(type(value), type(value).__name__)

    @staticmethod
    def _is_user_class(cls: type) -> bool:
        module = sys.modules.get(cls.__module__)
        path = getattr(module, "__file__", None)
        return cls.__module__ == "__main__" or (path is not None and not os.path.realpath(path).startswith(_SKIPPED))

    def _function(self, f: FunctionType) -> None:
        for cell, free in zip(f.__closure__ or (), f.__code__.co_freevars, strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._watch(lambda cell=cell: cell.cell_contents, value, free)
        if not _followed(f.__code__):
            return
        for default in (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            self._follow(default, f"a default of {f.__name__}") if not isinstance(default, _SCALARS) else None
        names, attributes = _names_read(f.__code__)
        space = f.__globals__
        for name in names:
            if name in space:
                self._watch(lambda name=name: space.get(name, _MISSING), space[name], name)
            elif not hasattr(builtins, name):
                self.checks.append((lambda name=name: space.get(name, _MISSING), _MISSING, name))
        for name, attribute in attributes:
            module = space.get(name)
            if isinstance(module, ModuleType) and attribute in vars(module) and self._is_user_module(module):
                members = vars(module)
                self._watch(lambda members=members, a=attribute: members.get(a, _MISSING), members[attribute], f"{name}.{attribute}")

    @staticmethod
    def _is_user_module(module: ModuleType) -> bool:
        path = getattr(module, "__file__", None)
        return path is not None and not os.path.realpath(path).startswith(_SKIPPED)
