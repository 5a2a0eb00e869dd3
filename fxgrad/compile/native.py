"""Native functions that Python calls: written in Python, compiled by numba once, loaded without numba ever after.

numba's import and registries cost half a second, which every process would pay for a few small functions. So what numba made of
them (the LLVM text its dispatchers show) is compiled to object code that the cache keeps, together with entry points of CPython's
own kind. Arguments are 64-bit integers, addresses most of them; so is the result.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fxgrad.compile import store

__all__ = ["Native", "native_functions"]

_METH_FASTCALL = 0x0080
_PYTHON = (
    "PyErr_BadArgument",
    "PyErr_Occurred",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
)


class Native(NamedTuple):
    """A function for numba: its name, the number of its arguments, whether it runs without the GIL."""

    name: str
    arity: int
    nogil: bool


def native_functions(unit: str, wanted: Sequence[Native], make: Callable[[], Sequence[Any]]) -> list[Any]:
    """Built-in functions for `wanted`; `make` gives numba's dispatchers of them, compiled, if the cache has no code yet.

    `unit` names them; the source of fxgrad is part of the cache's key.
    """
    from fxgrad.compile.codegen import load_object

    name = "n_" + hashlib.sha256(f"{unit} {wanted}".encode()).hexdigest()[:40]
    with store.lock:
        code = store.read(name) or _provide(name, wanted, make)
    _declare_python()
    addresses = load_object(name, code, [f"{name}_{w.name}" for w in wanted])
    return [_builtin(w.name, address) for w, address in zip(wanted, addresses, strict=True)]


def _provide(name: str, wanted: Sequence[Native], make: Callable[[], Sequence[Any]]) -> bytes:
    with store.exclusive(name[2:]):
        code = store.read(name)
        if code is None:
            code = _compile(name, wanted, make())
            store.write(name, code)
    return code


def _compile(unit: str, wanted: Sequence[Native], dispatchers: Sequence[Any]) -> bytes:
    from fxgrad.compile.codegen import compile_linked

    modules, entries = [], []
    for w, dispatcher in zip(wanted, dispatchers, strict=True):
        (signature,) = dispatcher.signatures
        modules.append(dispatcher.inspect_llvm(signature))
        entries.append(_entry_point(f"{unit}_{w.name}", w, dispatcher.overloads[signature].fndesc.llvm_func_name))
    return compile_linked([*entries, *modules], [f"{unit}_{w.name}" for w in wanted])


def _entry_point(name: str, w: Native, target: str) -> str:
    """A METH_FASTCALL function around one with numba's convention: status = f(result, error, arguments...)."""
    places = "".join(
        f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %o{i} = load ptr, ptr %p{i}\n"
        f"  %a{i} = call i64 @PyLong_AsLongLong(ptr %o{i})\n"
        for i in range(w.arity)
    )
    types, values = "".join(", i64" for _ in range(w.arity)), "".join(f", i64 %a{i}" for i in range(w.arity))
    save = "  %state = call ptr @PyEval_SaveThread()\n" if w.nogil else ""
    restore = "  call void @PyEval_RestoreThread(ptr %state)\n" if w.nogil else ""
    return f"""
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @"{target}"(ptr, ptr{types})
define ptr @"{name}"(ptr %self, ptr %args, i64 %count) {{
  %result = alloca i64
  %error = alloca ptr
  store i64 0, ptr %result
  %fits = icmp eq i64 %count, {w.arity}
  br i1 %fits, label %read, label %wrong
wrong:
  %ignored = call i32 @PyErr_BadArgument()
  ret ptr null
read:
{places}  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %run, label %failed
failed:
  ret ptr null
run:
{save}  %status = call i32 @"{target}"(ptr %result, ptr %error{values})
{restore}  %value = load i64, ptr %result
  %object = call ptr @PyLong_FromLongLong(i64 %value)
  ret ptr %object
}}
"""


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


_alive: list[Any] = []


def _builtin(name: str, address: int) -> Any:
    """The function at an address as a built-in function of Python."""
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    _alive.append(definition)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes, make.restype = [ctypes.POINTER(_MethodDef), ctypes.c_void_p, ctypes.c_void_p], ctypes.py_object
    return make(definition, None, None)


def _declare_python() -> None:
    """Tell LLVM where Python's functions are: they need not be visible to the whole process."""
    import llvmlite.binding as llvm

    for name in _PYTHON:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
