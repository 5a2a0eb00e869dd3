"""Files that are put in place whole: readers see the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["replacing"]

_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}  # how file systems and kernels refuse O_TMPFILE


@contextlib.contextmanager
def replacing(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """A new file, and a name to open it by, that takes the place of `path` when the block ends, and is gone if it raises.

    Where the system allows, the file has no name in its directory until it is complete: a process killed while it writes leaves
    nothing behind. A symbolic link is followed. The new file has the permissions of the old one, or those of any new file.
    """
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    temporary: str | None = None
    try:
        file, temporary = _create(directory)
        with file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            yield file, temporary or _descriptor(file)
            file.flush()
            os.fsync(file.fileno())  # before the rename: a name that survives a power cut must not lead to an empty file
            if temporary is None:
                temporary = _temporary_name(directory)
                # src_dir_fd does not count for an absolute path; without one, Python calls link(), which follows nothing
                os.link(_descriptor(file), temporary, src_dir_fd=handle, follow_symlinks=True)
        os.replace(temporary, path)
        _sync(handle)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        raise
    finally:
        os.close(handle)


def _create(directory: str) -> tuple[BinaryIO, str | None]:
    """A new file in a directory and its name, None if it has none."""
    if hasattr(os, "O_TMPFILE"):
        try:
            file = os.fdopen(os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o666), "wb")
            if os.path.exists(_descriptor(file)):
                return file, None
            file.close()
        except OSError as problem:
            if problem.errno not in _NO_UNNAMED:
                raise
    temporary = _temporary_name(directory)
    return os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "wb"), temporary


def _temporary_name(directory: str) -> str:
    return os.path.join(directory, f".fxgrad-{os.urandom(8).hex()}.tmp")


def _descriptor(file: BinaryIO) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _sync(directory: int) -> None:
    """Make a rename last, where the file system can."""
    try:
        os.fsync(directory)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # "fd is bound to a special file which does not support synchronization"
            raise
