"""The cache on disk: files that are whole or absent, for this machine and these versions, in bounded space.

Below `fx.config.cache_dir` lies a directory for every environment (versions, CPU, the source of what generates code). A file in
it begins with the checksum of the rest and is put in place by a rename, so that readers see all of it or nothing, and what is
damaged counts as absent. Nothing here raises because of the disk: a directory that cannot be written is read (and a warning names
it, once), one that cannot be read is empty. When the space is used up, the files that were not used for longest go, and
environments not used for a month.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fxgrad.kernels.spec import KERNEL_FORMAT
from fxgrad.runtime.forks import compiling as lock

__all__ = ["cache_directory", "clear", "discard", "exclusive", "lock", "read", "write"]

_UNUSED = 30 * 86400.0  # seconds after which another environment's directory is removed
_ABANDONED = 3600.0  # seconds after which a half-written file belongs to nobody
_PATIENCE = 20.0  # seconds to wait for another process that compiles the same
_SLOTS = 16
_written = 0  # bytes since the last look at the space in use; 0 before the first
_warned = False  # that nothing can be written
_environment_key: str | None = None
_touched: set[Path] = set()


def _environment() -> str:
    """Hash of all that machine code depends on beside a kernel's text: versions, CPU, and the code that generates it.

    numba's version is not looked up, which would cost a sixth of a warm start. Each of its minor versions wants one of llvmlite,
    which is in the key; between patch releases the executor's code stays what it was, tested and independent of numba.
    """
    global _environment_key
    if _environment_key is None:
        import llvmlite

        from fxgrad import __version__
        from fxgrad.compile.codegen import host

        parts = [
            KERNEL_FORMAT,
            __version__,
            llvmlite.__version__,
            np.__version__.split(".")[0],
            platform.python_version(),
            *host(),
        ]
        package = Path(__file__).resolve().parent.parent
        for folder in ("kernels", "primitives", "compile", "runtime"):
            parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((package / folder).glob("*.py"))]
        _environment_key = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:24]
    return _environment_key


def cache_directory() -> Path:
    """Where this environment's files are kept, if the disk lets us."""
    from fxgrad.config import config

    path = Path(config.cache_dir) / _environment()
    if path not in _touched:
        _touched.add(path)
        with contextlib.suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            (path / "used").touch()
    return path


def read(name: str) -> bytes | None:
    """The contents of a file, None if it is absent or damaged."""
    path = cache_directory() / name
    try:
        checksum, _, rest = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(rest).hexdigest().encode() != checksum:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return rest


def write(name: str, data: bytes) -> None:
    """Put a file in place, if the disk lets us; else say so, once."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            os.replace(temporary, directory / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _account(len(data))
    except OSError as problem:
        if (
            not isinstance(problem, FileNotFoundError) or not directory.parent.exists()
        ):  # else cleared by another process just now
            _warn(problem)


def _warn(problem: OSError) -> None:
    """That every process will compile anew, which costs seconds that nobody would find the reason of."""
    global _warned
    if _warned:
        return
    _warned = True
    from fxgrad.config import config

    warnings.warn(
        f"fxgrad cannot keep compiled kernels in {config.cache_dir}: {problem.strerror or problem}.\n"
        "  Every process compiles them again, which takes seconds.\n"
        "  Set FXGRAD_CACHE_DIR (or fxgrad.config.cache_dir) to a directory that can be written.",
        RuntimeWarning,
        stacklevel=2,
    )


def discard(name: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(OSError):
        (cache_directory() / name).unlink()


def clear() -> None:
    """Remove this environment's files."""
    shutil.rmtree(cache_directory(), ignore_errors=True)
    _touched.clear()


@contextlib.contextmanager
def exclusive(key: str) -> Iterator[None]:
    """Keeps processes from doing the same work twice, where the system offers locks; never longer than is worth it."""
    try:
        import fcntl

        handle = os.open(cache_directory() / f".lock-{int(key[:8], 16) % _SLOTS}", os.O_CREAT | os.O_RDWR)
    except (ImportError, OSError):
        yield
        return
    try:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


# ---- bounded space -------------------------------------------------------------------------------------------------------


def _account(size: int) -> None:
    """Look at the space in use at the first write of a process and whenever it may have grown by a sixteenth."""
    global _written
    from fxgrad.config import config

    first = _written == 0
    _written += size
    if first or _written > config.cache_size // 16:
        _written = 1
        _make_room(Path(config.cache_dir), config.cache_size)


def _make_room(root: Path, limit: int) -> None:
    now, ours = time.time(), cache_directory()
    files: list[tuple[float, int, Path]] = []
    for directory in _environments(root):
        if directory != ours and _age(directory / "used", now) > _UNUSED:
            shutil.rmtree(directory, ignore_errors=True)
            continue
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                path = Path(entry.path)
                with contextlib.suppress(OSError):
                    if entry.name.startswith(".tmp-") and _age(path, now) > _ABANDONED:
                        path.unlink()
                    elif not entry.name.startswith(".") and entry.name != "used":
                        status = entry.stat()
                        files.append((status.st_mtime, status.st_blocks * 512 or status.st_size, path))
    used = sum(size for _, size, _ in files)
    if used <= limit:
        return
    for _, size, path in sorted(files):
        with contextlib.suppress(OSError):
            path.unlink()
            used -= size
        if used <= limit * 3 // 4:
            return


def _environments(root: Path) -> list[Path]:
    try:
        return [p for p in root.iterdir() if re.fullmatch("[0-9a-f]{24}", p.name) and (p / "used").exists()]
    except OSError:
        return []


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0
