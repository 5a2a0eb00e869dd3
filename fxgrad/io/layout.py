"""The bytes of a safetensors file: the length of a header, the header (JSON), then the arrays one after the other.

A header is checked completely before anything else is done with a file. What passes here, the library `safetensors` reads too.
The format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from fxgrad import errors

__all__ = ["DTYPES", "Entry", "Header", "build_header", "fail", "read_header"]

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{k}{8 * n}": np.dtype(f"<{k.lower()}{n}") for k in "IU" for n in (1, 2, 4, 8)},
    **{f"F{8 * n}": np.dtype(f"<f{n}") for n in (2, 4, 8)},
    "C64": np.dtype("<c8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_HEADER = 100_000_000  # bytes, the format's own limit
MAX_CONTAINERS = (
    2_000_000  # lists and objects in a JSON text, three an array: of `[],` a Python list takes twenty times the bytes
)
_FOREIGN = (  # how files begin that people mistake for safetensors, where that gives no possible length of a header
    (
        b"PK\x03\x04",
        "a zip archive (npz, or PyTorch's .pt)",
        "Read it with what wrote it (np.load), and save it with fx.io.save.",
    ),
    (b"\x93NUMPY", "a NumPy array (npy)", "Read it with np.load(path, allow_pickle=False)."),
    (b"\x89HDF", "an HDF5 file", "Read it with what wrote it, and save its arrays with fx.io.save."),
    (b"\x80", "a pickle", "A pickle runs code when it is read: have whoever made it save safetensors."),
    (b"{", "JSON text", "Read it with json.load."),
)


class Entry(NamedTuple):
    """An array in a file: its dtype and shape, and where it begins, counted from the start of the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class Header(NamedTuple):
    """What stands at the start of a file: its arrays, in the order of the header, and its metadata."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


def fail(path: str, problem: str, why: str = "", fix: str = "") -> NoReturn:
    """Raise the error for a file that cannot be read."""
    raise errors.FileFormatError(
        f"cannot load {path}: {problem}",
        why=why or "A safetensors file is the length of its header, the header, and the bytes of its arrays, without gaps.",
        fix=fix or "The file was damaged or made by a faulty program: get it again, or save it again with fx.io.save.",
    )


# ---- writing -----------------------------------------------------------------------------------------------------------


def build_header(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """The first bytes of a file, and the names of its arrays in the order in which their bytes follow.

    Wide elements come first, so that every array is aligned in the file, as the library has it too.
    """
    import json

    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in order:
        a, start = arrays[name], end
        end = start + a.nbytes
        header[name] = {"dtype": NAMES[a.dtype], "shape": a.shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER or _containers(text) > MAX_CONTAINERS:
        raise errors.FxValueError(
            f"names, shapes and structure of this tree take {len(text):,} bytes, {_containers(text):,} lists and objects as JSON",
            why=f"A file has at most {MAX_HEADER:,} bytes of them and fx.io reads at most {MAX_CONTAINERS:,} lists and objects.",
            fix="Stack small arrays into larger ones, or save the tree in several files.",
        )
    return len(text).to_bytes(8, "little") + text, order


# ---- reading -----------------------------------------------------------------------------------------------------------


def read_header(file: BinaryIO, path: str) -> Header:
    """The checked header of an open file; raises FileFormatError."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(MAX_HEADER, size - 8):
        _no_header(path, start, length, size)
    text = file.read(length)
    if len(text) < length:
        fail(path, "it became shorter while it was read")
    header = parse_json(text, path, "the header")
    if not isinstance(header, dict):
        fail(path, "its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        fail(path, "its __metadata__ does not map names to texts")
    entries = {name: _entry(path, name, value, 8 + length) for name, value in header.items()}
    _check_cover(path, entries, 8 + length, size)
    return Header(entries, metadata)


def _no_header(path: str, start: bytes, length: int, size: int) -> NoReturn:
    for magic, name, fix in _FOREIGN:
        if start.startswith(magic):
            fail(path, f"it begins like {name}", fix=fix)
    if len(start) < 8:
        fail(path, f"it ends after {size} bytes")
    if length > MAX_HEADER:
        fail(path, f"its header would be {length:,} bytes, and the format has at most {MAX_HEADER:,}")
    fail(path, f"its header would be {length:,} bytes, and only {size - 8:,} follow")


def parse_json(text: bytes | str, path: str, what: str) -> Any:
    """A JSON text whose objects have no name twice; raises FileFormatError."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} stands twice in an object")
        return found

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number there")

    if _containers(text if isinstance(text, bytes) else text.encode(errors="replace")) > MAX_CONTAINERS:
        fail(path, f"{what} has more than {MAX_CONTAINERS:,} lists and objects", why="They would fill the memory.")
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        fail(path, f"{what} is nested too deep")
    except ValueError as problem:  # not UTF-8, no JSON, an int of thousands of digits, and what is raised above
        fail(path, f"{what} is not valid JSON: {problem}")


def _containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _is_size(x: Any) -> bool:
    return type(x) is int and 0 <= x < 1 << 63


def _entry(path: str, name: str, value: Any, base: int) -> Entry:
    def wrong(problem: str, why: str = "", fix: str = "") -> NoReturn:
        fail(path, f"{problem} of array {name!r}", why, fix)

    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= set(value):
        wrong("it does not give dtype, shape and data_offsets")
    shape, offsets = value["shape"], value["data_offsets"]
    if not isinstance(shape, list) or not all(map(_is_size, shape)) or not _fits(shape):
        wrong(f"{_shown(shape)} is no shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)) or offsets[0] > offsets[1]:
        wrong(f"{_shown(offsets)} are no data_offsets")
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        wrong(
            f"{_shown(value['dtype'])} is no dtype fxgrad has, it is that",
            why=f"NumPy's dtypes, and fxgrad's, are {', '.join(DTYPES)}.",
            fix="Convert it where the file was made, in PyTorch with tensor.float(), and save it again.",
        )
    entry = Entry(dtype, tuple(shape), base + offsets[0])
    if entry.nbytes != offsets[1] - offsets[0]:
        wrong(f"{offsets[1] - offsets[0]:,} bytes do not make the {dtype}{shape}")
    return entry


def _fits(shape: list[int]) -> bool:
    """Whether NumPy has arrays of a shape: those without elements must not have too long axes either."""
    return len(shape) <= 64 and math.prod([n or 1 for n in shape]) < 1 << 58


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _check_cover(path: str, entries: dict[str, Entry], start: int, size: int) -> None:
    """The arrays lie side by side from the header to the end of the file."""
    end = start
    for name, entry in _by_place(entries.items()):
        if entry.offset != end:
            kind = "overlaps another array" if entry.offset < end else f"leaves {entry.offset - end:,} bytes before it unused"
            fail(path, f"array {name!r} {kind}")
        end += entry.nbytes
    if end != size:
        problem = f"it has {size:,} bytes where its header says {end:,}"
        fail(path, problem, fix="" if end < size else "It was cut short, by an interrupted copy perhaps: get it again.")


def _by_place(entries: Iterable[tuple[str, Entry]]) -> list[tuple[str, Entry]]:
    return sorted(entries, key=lambda item: (item[1].offset, item[1].nbytes))
