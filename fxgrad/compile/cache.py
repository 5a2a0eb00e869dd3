"""Machine code of kernels: one numba unit for the kernels compiled together, kept on disk for the next process.

A unit is a Python module in the cache directory, named by a hash of its kernels' texts. It holds these texts and one `@njit`
function, cached by numba, which writes the kernels' addresses into a table; its code generator runs only when there is no machine
code yet. Beside it lie a file of checksums, so that damaged files are rebuilt instead of run, and for every kernel a small file
that names its unit: a kernel is generated once for a machine, whatever program asks for it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fxgrad.kernels.spec import KERNEL_FORMAT

__all__ = ["cache_directory", "clear_caches", "generated", "kernel_addresses", "load_module"]

generated: list[str] = []  # digests of kernels whose code was generated in this process, in order
_lock = threading.RLock()
_addresses: dict[str, int] = {}
_modules: dict[str, ModuleType] = {}
_pending: dict[str, Sequence[Any]] = {}
_alive: list[ModuleType] = []  # machine code must outlive every plan that points at it
_directory: dict[str, Path] = {}


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

# ---- the directory -------------------------------------------------------------------------------------------------------


def _wanted_directory() -> str:
    from fxgrad.config import config

    return str(config.cache_dir)


def cache_directory() -> Path:
    """Where units are kept: a directory below `fx.config.cache_dir` for this machine and these versions.

    When it cannot be written, a temporary directory of this process takes its place.
    """
    wanted = _wanted_directory()
    found = _directory.get(wanted)
    if found is None or not found.is_dir():
        found = _directory[wanted] = _usable(Path(wanted) / _environment())
    return found


def _usable(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "__pycache__").mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        temporary = Path(tempfile.mkdtemp(prefix="fxgrad-"))
        atexit.register(_remove, temporary, os.getpid())
        (temporary / "__pycache__").mkdir()
        return temporary


def _remove(directory: Path, process: int) -> None:
    """At exit; a forked child leaves its parent's directory alone."""
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


_environment_key: str | None = None


def _environment() -> str:
    """Hash of all that machine code depends on beside the kernel's text: versions, CPU, and the code of the bodies."""
    global _environment_key
    if _environment_key is None:
        import llvmlite
        import llvmlite.binding as llvm
        import numba

        features = llvm.get_host_cpu_features().flatten()
        settings: Any = numba.config
        parts = [KERNEL_FORMAT, numba.__version__, llvmlite.__version__, np.__version__.split(".")[0], platform.python_version()]
        parts += [llvm.get_host_cpu_name(), features, settings.CPU_NAME, settings.CPU_FEATURES, settings.ENABLE_AVX, settings.OPT]
        package = Path(__file__).resolve().parent.parent
        for path in sorted([*(package / "kernels").glob("*.py"), *(package / "primitives").glob("*.py"), Path(__file__)]):
            parts.append(hashlib.sha256(path.read_bytes()).hexdigest())
        _environment_key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:24]
    return _environment_key


def write_atomically(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "w") as f:
            f.write(text)
        os.utime(temporary, (0, 0))  # numba takes a module with another time for another module
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _file_lock(directory: Path, name: str) -> Iterator[None]:
    """Exclusion between processes, where the system offers it."""
    try:
        import fcntl

        handle = os.open(directory / f".{name}.lock", os.O_CREAT | os.O_RDWR)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# ---- modules with cached machine code -----------------------------------------------------------------------------------


def load_module(name: str, source: str) -> ModuleType:
    """The module with this source, its `@njit(cache=True)` functions compiled or loaded; damaged files are rebuilt."""
    with _lock:
        if name in _modules:
            return _modules[name]
        directory = cache_directory()
        try:
            module = _load_intact(directory, name, source)
            if module is None:
                with _file_lock(directory, name):
                    module = _load_intact(directory, name, source) or _build(directory, name, source)
        except OSError:  # the directory vanished or the disk is full: this process goes on in a temporary one
            directory = _directory[_wanted_directory()] = _usable(Path(os.devnull) / "none")
            module = _build(directory, name, source)
        _modules[name] = module
        _alive.append(module)
        return module


def _files(directory: Path, name: str) -> list[Path]:
    return [directory / f"{name}.py", *sorted((directory / "__pycache__").glob(f"{name}.*.nb[ic]"))]


def _checksums(directory: Path, name: str) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in _files(directory, name)}


def _load_intact(directory: Path, name: str, source: str) -> ModuleType | None:
    """The module, if all its files are there and as they were written."""
    try:
        recorded = json.loads((directory / f"{name}.sums").read_text())
        if recorded != _checksums(directory, name) or (directory / f"{name}.py").read_text() != source:
            return None
        return _execute(directory, name)
    except Exception:  # noqa: BLE001 - whatever is wrong with files on disk, rebuilding answers it
        return None


def _build(directory: Path, name: str, source: str) -> ModuleType:
    for path in _files(directory, name):
        path.unlink(missing_ok=True)
    write_atomically(directory / f"{name}.py", source)
    module = _execute(directory, name)
    with contextlib.suppress(OSError):
        write_atomically(directory / f"{name}.sums", json.dumps(_checksums(directory, name)))
    return module


def _execute(directory: Path, name: str) -> ModuleType:
    """Run the module's source; no bytecode is written, the machine code is what costs."""
    path = directory / f"{name}.py"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


# ---- units of kernels ----------------------------------------------------------------------------------------------------

_TEMPLATE = '''"""Kernels generated by fxgrad. What each does is in the comments; its machine code lies in __pycache__."""
from numba import njit, types

from fxgrad.compile.cache import kernel_table

{texts}
DIGESTS = {digests}
write_addresses = kernel_table({name!r})


@njit(types.void(types.intp), cache=True, nogil=True)
def addresses(table):
    write_addresses(table)
'''


def kernel_table(name: str) -> Any:
    """The numba intrinsic that emits the unit's kernels and stores their addresses at its argument."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def write_addresses(typing_context: Any, table: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            from fxgrad.kernels.loops import emit_kernel

            i64 = ir.IntType(64)
            start = builder.inttoptr(args[0], ir.PointerType())
            for i, kernel in enumerate(_pending[name]):
                generated.append(kernel.digest)
                fn = emit_kernel(kernel, builder.module, f"fx_{kernel.digest[:32]}")
                builder.store(builder.ptrtoint(fn, i64), builder.gep(start, [ir.Constant(i64, i)], source_etype=i64))
            return context.get_dummy_value()

        return types.void(types.intp), codegen

    return write_addresses


def _unit_source(name: str, kernels: Sequence[Any]) -> str:
    texts = "\n".join(f"# {line}".rstrip() for k in kernels for line in [*k.text.splitlines(), ""])
    digests = "(" + "".join(f"\n    {k.digest!r}," for k in kernels) + "\n)"
    return _TEMPLATE.format(texts=texts, digests=digests, name=name)


def _load_unit(name: str, source: str) -> None:
    """Load a unit and take note of its kernels' addresses."""
    module = load_module(name, source)
    table = np.zeros(len(module.DIGESTS), np.int64)
    module.addresses(table.ctypes.data)
    _addresses.update(zip(module.DIGESTS, table.tolist(), strict=True))


def _find_unit(directory: Path, kernel: Any) -> None:
    """Load the unit on disk that holds the kernel, if there is one."""
    try:
        name = (directory / f"k_{kernel.digest[:40]}").read_text()
        source = (directory / f"{name}.py").read_text()
        module = _modules.get(name) or _load_intact(directory, name, source)
    except OSError:
        return
    if module is not None and kernel.digest in module.DIGESTS and f"# {kernel.text.splitlines()[0]}" in source:
        _modules.setdefault(name, module)
        _alive.append(module)
        _load_unit(name, source)


def kernel_addresses(kernels: Sequence[Any]) -> list[int]:
    """Addresses of the kernels' machine code; those not yet known to the machine are compiled together."""
    missing = [k for k in kernels if k.digest not in _addresses]
    if missing:
        with _lock:
            _compile(list({k.digest: k for k in missing}.values()))
    return [_addresses[k.digest] for k in kernels]


def _compile(kernels: Sequence[Any]) -> None:
    directory = cache_directory()
    for k in kernels:
        if k.digest not in _addresses:
            _find_unit(directory, k)
    rest = [k for k in kernels if k.digest not in _addresses]
    if not rest:
        return
    name = "u_" + hashlib.sha256("".join(k.digest for k in rest).encode()).hexdigest()[:40]
    _pending[name] = rest
    try:
        _load_unit(name, _unit_source(name, rest))
    finally:
        del _pending[name]
    for k in rest:
        with contextlib.suppress(OSError):
            write_atomically(cache_directory() / f"k_{k.digest[:40]}", name)


def clear_caches(disk: bool = True) -> None:
    """Forget what is compiled (code in use stays valid) and, with `disk`, delete this machine's files."""
    for name, forget in (("fxgrad.compile.lower", "forget_executables"), ("fxgrad.runtime.eager", "forget_operations")):
        if name in sys.modules:
            getattr(sys.modules[name], forget)()
    with _lock:
        _addresses.clear()
        _modules.clear()
        if disk:
            for path in list(_directory.values()):
                shutil.rmtree(path, ignore_errors=True)
            _directory.clear()
