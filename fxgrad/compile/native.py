"""Native functions that Python calls: written in Python, compiled by numba once, loaded without numba ever after.

numba's import and its work cost most of a second, which every process would pay for a few functions. So what numba made of them
(LLVM text, `words.py`) is compiled to object code that the cache keeps, with entry points of our own. Arguments are 64-bit
integers, addresses most of them; so is the result.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxgrad.compile import store

__all__ = ["ADDRESS", "FUNCTION", "WITHOUT_GIL", "builtin", "load_native"]

_METH_FASTCALL = 0x0080
ADDRESS, FUNCTION, WITHOUT_GIL = "address", "function", "function without the GIL"  # what a native function is wanted as
_PYTHON = """
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
"""


def load_native(unit: str, make: Callable[[], Mapping[str, tuple[Any, str]]]) -> dict[str, Any]:
    """Native functions by name: addresses of functions of C, or built-in functions.

    `make` imports them, each a `Routine` and what it is wanted as; they are compiled if the cache has no code yet. Their source
    is part of the cache's key.
    """
    from fxgrad.compile.codegen import load_object

    name = "n_" + hashlib.sha256(unit.encode()).hexdigest()[:40]
    with store.lock:
        data = store.read(name) or _provide(name, make)
        head, _, code = data.partition(b"\n")
        about = json.loads(head)
        _resolve(about["needs"])
        found = load_object(name, code, [f"{name}_{f}" for f in about["functions"]])
    return {
        f: address if kind == ADDRESS else builtin(f, address)
        for (f, kind), address in zip(about["functions"].items(), found, strict=True)
    }


def _provide(name: str, make: Callable[[], Mapping[str, tuple[Any, str]]]) -> bytes:
    with store.exclusive(name[2:]):
        data = store.read(name)
        if data is None:
            data = _compile(name, make())
            store.write(name, data)
    return data


def _compile(name: str, functions: Mapping[str, tuple[Any, str]]) -> bytes:
    from fxgrad.compile.codegen import compile_linked
    from fxgrad.compile.words import N, compile_routines

    entries = [_PYTHON]
    for f, (routine, kind) in functions.items():
        arity = len(routine.sig.args)
        arguments = ", ".join(f"i64 %a{i}" for i in range(arity))
        returns = routine.sig.return_type == N
        entries.append(f'declare {"i64" if returns else "void"} @"{routine.symbol}"({", ".join(["i64"] * arity)})\n')
        called = f'@"{routine.symbol}"({arguments})'
        call = f"  %value = call i64 {called}\n" if returns else f"  call void {called}\n  %value = add i64 0, 0\n"
        if kind == ADDRESS:
            entries.append(f'define i64 @"{name}_{f}"({arguments}) {{\n{call}  ret i64 %value\n}}\n')
        else:
            entries.append(_python_entry(f"{name}_{f}", arity, call, kind == WITHOUT_GIL))
    routines = compile_routines([routine for routine, _ in functions.values()])
    code, needs = compile_linked([routines, "".join(entries)], [f"{name}_{f}" for f in functions])
    kinds = {f: kind for f, (_, kind) in functions.items()}
    return json.dumps({"functions": kinds, "needs": needs}).encode() + b"\n" + code


def _python_entry(name: str, arity: int, call: str, without_gil: bool) -> str:
    """A METH_FASTCALL function around a call that takes %a0, %a1, ... and gives %value."""
    read = "".join(
        f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %o{i} = load ptr, ptr %p{i}\n"
        f"  %a{i} = call i64 @PyLong_AsLongLong(ptr %o{i})\n"
        for i in range(arity)
    )
    if without_gil:
        call = f"  %state = call ptr @PyEval_SaveThread()\n{call}  call void @PyEval_RestoreThread(ptr %state)\n"
    return f"""
define ptr @"{name}"(ptr %self, ptr %args, i64 %count) {{
  %fits = icmp eq i64 %count, {arity}
  br i1 %fits, label %read, label %wrong
wrong:
  %ignored = call i32 @PyErr_BadArgument()
  ret ptr null
read:
{read}  %raised = call ptr @PyErr_Occurred()
  %good = icmp eq ptr %raised, null
  br i1 %good, label %run, label %failed
failed:
  ret ptr null
run:
{call}  %object = call ptr @PyLong_FromLongLong(i64 %value)
  ret ptr %object
}}
"""


def _resolve(symbols: Sequence[str]) -> None:
    """Tell LLVM where functions of Python and C are: they need not be visible to the whole process, and it would abort."""
    import llvmlite.binding as llvm

    libraries = ctypes.pythonapi, ctypes.CDLL(None)
    for symbol in symbols:
        place = next((getattr(lib, symbol) for lib in libraries if hasattr(lib, symbol)), None)
        if place is None:
            raise ImportError(f"fxgrad's native functions need '{symbol}', which this process does not have")
        llvm.add_symbol(symbol, ctypes.cast(place, ctypes.c_void_p).value)


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


_definitions: dict[tuple[str, int], _MethodDef] = {}  # outlive the functions that point at them


def builtin(name: str, address: int, bound: Any = None) -> Any:
    """The METH_FASTCALL function at an address as a built-in function; `bound` is its self."""
    definition = _definitions.setdefault((name, address), _MethodDef(name.encode(), address, _METH_FASTCALL, None))
    return _new_builtin(ctypes.addressof(definition), bound, None)


_new_builtin = ctypes.pythonapi.PyCFunction_NewEx
_new_builtin.restype, _new_builtin.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
