"""`save`, `load` and `metadata`: what users call."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from io import BufferedReader
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.io.atomic import replacing
from fxgrad.io.layout import Entry, Header, build_header, fail, parse_json, read_header
from fxgrad.io.structure import Decoder, array_name, encode

__all__ = ["load", "metadata", "save"]

_KEY = "fxgrad"  # of the metadata: where the structure stands
_VERSION = 1
Path = str | os.PathLike[str]


def save(path: Path, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a tree of arrays to a safetensors file, whole or not at all.

    Arrays keep their bits, whatever their order in memory; the structure of the tree stands in the file's metadata as JSON. An
    array in two places is written once. Other programs (safetensors.torch, safetensors.numpy) read the arrays under dotted names,
    `blocks.0.w`; a complex128 array is float64 with a last axis of 2 there. Needs the package safetensors, which checks the file
    before it takes its place: a crash or a full disk leaves an older file of that name as it was.

    Arguments:
        path: the file, which is replaced if it is there (a symbolic link is followed, permissions stay).
        tree: arrays, NumPy scalars, Python numbers, texts, bytes and None, in dicts, lists, tuples, namedtuples and registered
            classes.
        metadata: texts to be kept beside it.

    Raises:
        FxTypeError: the tree holds something else. FxValueError: it is nested deeper than 100 levels.
        FileWriteError (an OSError): the file could not be written.
        MissingPackageError (an ImportError): safetensors is not installed.

    Source:
        https://github.com/huggingface/safetensors#format

    Example:
        >>> import os, tempfile, numpy as np, fxgrad as fx
        >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> fx.io.save(path, {"w": np.ones((2, 3)), "steps": 10}, {"made by": "me"})
        >>> fx.io.load(path)["steps"], fx.io.metadata(path)
        (10, {'made by': 'me'})
    """
    import json

    library = _library()
    path = _target(path)
    texts = _checked_metadata(metadata or {})
    value, arrays = encode(tree)
    texts[_KEY] = json.dumps({"version": _VERSION, "tree": value}, separators=(",", ":"))
    header, order = build_header(arrays, texts)
    try:
        with replacing(path) as (file, name):
            file.write(header)
            for a in (arrays[n] for n in order):
                file.write(a.reshape(-1).view(np.uint8).data)
            file.flush()
            with library.safe_open(name, "np"):
                pass  # opening checks all of the header, and the size
    except OSError as problem:
        failed = errors.FileWriteError(
            f"cannot save {path}: {problem.strerror or problem}",
            why="A new file is written beside it, and takes its place only when it is complete.",
            fix="Save to a directory that exists, may be written, and has room.",
        )
        failed.errno = problem.errno
        raise failed from problem


def load(path: Path, mmap: bool = False, like: Any = None, plain: bool = False) -> Any:
    """Read the tree that `save` wrote, or the arrays that another program wrote to a safetensors file.

    A file only names classes. Those that this program has registered, and namedtuples of modules it has imported, are used;
    nothing is imported and nothing else is run. Reading needs no package but NumPy.

    Arguments:
        path: the file.
        mmap: whether arrays are read-only windows on the file, which the system reads when they are used and can drop again. The
            file may be replaced by `save` meanwhile, but must not be written over. (Arrays that do not lie aligned are copied.)
        like: a tree that says what to expect: structure, shapes and dtypes. Its classes are used for those of the same name
            in the file, and the arrays of another program are put into its places by their dotted names.
        plain: whether namedtuples and registered classes come as dicts of their fields (without fields, of "children", "static").

    Returns:
        The tree; of another program's file, the dict of its arrays by name. Arrays own their memory, unless mapped.

    Raises:
        FileFormatError (a ValueError): it is no such file, it is damaged, or it names a class unknown here.
        TreeMismatchError (a ValueError): it is not like `like`. OSError: the file cannot be read.

    Example:
        >>> import os, tempfile, numpy as np, fxgrad as fx
        >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
        >>> params = {"w": np.ones(3), "layers": [np.zeros(2), (1.5, None)]}
        >>> state = fx.optim.adam(1e-3).init(params["w"])
        >>> fx.io.save(path, (params, state))
        >>> loaded, state = fx.io.load(path)
        >>> loaded
        {'w': array([1., 1., 1.]), 'layers': [array([0., 0.]), (1.5, None)]}
        >>> type(state[0]).__name__
        'AdamState'
    """
    path = _text(path)
    with open(path, "rb") as file:
        header = read_header(file, path)
        array = _mapped(file, path, header) if mmap else _reader(file, path, header)
        text = header.metadata.get(_KEY)
        if text is None:
            arrays = {name: array(name) for name in header.entries}
            return arrays if like is None else _placed(path, arrays, like)
        content = parse_json(text, path, "its structure")
        if not isinstance(content, dict) or set(content) != {"version", "tree"} or content["version"] != _VERSION:
            version = content.get("version") if isinstance(content, dict) else None
            fail(
                path,
                f"its structure is of version {version!r}, and this fxgrad reads version {_VERSION}",
                why="The structure of the tree stands in the metadata as JSON.",
                fix="Load it with the fxgrad that wrote it, or a newer one; safetensors.numpy.load_file reads its arrays.",
            )
        shapes = {name: (entry.dtype, entry.shape) for name, entry in header.entries.items()}
        known = [] if like is None else _classes(tree.structure(like))
        loaded = Decoder(path, shapes, array, known, plain).tree(content["tree"])
    if like is not None:
        _check_like(path, loaded, like)
    return loaded


def metadata(path: Path) -> dict[str, str]:
    """The texts that stand beside the arrays in a safetensors file (without fxgrad's own, the structure).

    Arguments and errors as for `load`.

    Example:
        >>> import os, tempfile, fxgrad as fx
        >>> path = os.path.join(tempfile.mkdtemp(), "nothing.safetensors")
        >>> fx.io.save(path, None, {"why": "to show it"})
        >>> fx.io.metadata(path)
        {'why': 'to show it'}
    """
    path = _text(path)
    with open(path, "rb") as file:
        texts = read_header(file, path).metadata
    texts.pop(_KEY, None)
    return texts


# ---- arguments -----------------------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        import safetensors
    except ImportError as problem:
        raise errors.MissingPackageError(
            "fx.io.save needs the package safetensors, which is not installed",
            why="It checks every file before it takes its place. fxgrad itself needs only NumPy and numba.",
            fix="Install it: pip install 'fxgrad[io]'.",
        ) from problem
    return safetensors


def _text(path: Path) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise errors.FxTypeError(
            f"a path is a text or a pathlib.Path, got {type(path).__name__}",
            why="Files are opened, replaced and mapped by name.",
            fix='Pass the name first: fx.io.save("model.safetensors", tree).',
        )
    return os.fsdecode(path)


def _target(path: Path) -> str:
    path = _text(path)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise errors.FxValueError(
            f"cannot save {path}: it is there and no regular file",
            why="The new file takes the place of what is there, which would be a directory or a device.",
            fix='Name a file: fx.io.save("model.safetensors", tree).',
        )
    return path


def _checked_metadata(given: Mapping[str, str]) -> dict[str, str]:
    texts = dict(given)
    for item in texts.items():
        if not all(isinstance(s, str) and s.encode(errors="replace").decode() == s for s in item):
            raise errors.FxTypeError(
                f"metadata maps texts to texts, got {item[0]!r}: {item[1]!r}",
                why="The safetensors format has nothing else there, and its texts are valid Unicode.",
                fix="Put numbers and containers into the tree, or write them as text: str(x).",
            )
    if _KEY in texts:
        raise errors.FxValueError(
            f"metadata has the name {_KEY!r}",
            why="There the structure of the tree is kept.",
            fix="Choose another name.",
        )
    return texts


# ---- arrays --------------------------------------------------------------------------------------------------------------


def _reader(file: BufferedReader, path: str, header: Header) -> Callable[[str], np.ndarray]:
    """Reads an array into memory of its own."""

    def array(name: str) -> np.ndarray:
        entry = header.entries[name]
        a = np.empty(entry.shape, entry.dtype)
        if a.size:
            file.seek(entry.offset)
            if file.readinto(a.reshape(-1).view(np.uint8).data) < entry.nbytes:
                fail(path, "it became shorter while it was read")
        return _checked(path, name, a)

    return array


def _mapped(file: BufferedReader, path: str, header: Header) -> Callable[[str], np.ndarray]:
    """Answers windows on the file, which stays mapped as long as one of them is alive."""
    from mmap import ACCESS_READ, mmap

    memory = mmap(file.fileno(), 0, access=ACCESS_READ)

    def array(name: str) -> np.ndarray:
        entry = header.entries[name]
        if entry.offset + entry.nbytes > len(memory):
            fail(path, "it became shorter while it was read")
        a = _window(memory, entry)
        a.flags.writeable = False
        return _checked(path, name, a)

    return array


def _window(memory: Any, entry: Entry) -> np.ndarray:
    if not entry.nbytes:
        return np.empty(entry.shape, entry.dtype)
    window = np.frombuffer(memory, np.uint8, entry.nbytes, entry.offset).view(entry.dtype).reshape(entry.shape)
    return window if window.flags.aligned else window.copy()


def _checked(path: str, name: str, a: np.ndarray) -> np.ndarray:
    if a.dtype == np.bool_ and a.size and a.view(np.uint8).max() > 1:
        fail(path, f"the bools of array {name!r} are not 0 and 1", why="Other bytes are neither true nor false to machine code.")
    return a


# ---- like ----------------------------------------------------------------------------------------------------------------


def _classes(structure: tree.Structure) -> list[type]:
    own = [structure.node.cls] if structure.node is not None else []
    return own + [cls for child in structure.children for cls in _classes(child)]


def _placed(path: str, arrays: dict[str, np.ndarray], like: Any) -> Any:
    """Arrays of another program in the places of a tree that have their names."""
    pairs, structure = tree.flatten_with_path(like)
    names = [array_name(where) for where, _ in pairs]
    if set(names) != set(arrays):
        missing, unused = sorted(set(names) - set(arrays)), sorted(set(arrays) - set(names))
        parts = [f"it has no {missing[0]!r} ({len(missing)} such)"] * bool(missing)
        parts += [f"the tree has no place for {unused[0]!r} ({len(unused)} such)"] * bool(unused)
        raise errors.TreeMismatchError(
            f"{path} is not like the tree given: {' and '.join(parts)}",
            why="It has no structure of its own, so arrays are placed by their dotted names.",
            fix="Load it without like=, which gives the dict of its arrays, and rename them.",
        )
    loaded = tree.unflatten(structure, [arrays[name] for name in names])
    _check_like(path, loaded, like)
    return loaded


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, (np.ndarray, np.generic)) else f"a Python {type(x).__name__}"


def _check_like(path: str, loaded: Any, like: Any) -> None:
    tree.check_same(tree.structure(like), tree.structure(loaded), f"the tree given as like= and that in {path}")
    for (where, a), b in zip(tree.flatten_with_path(like)[0], tree.leaves(loaded), strict=True):
        if _kind(a) != _kind(b):
            raise errors.TreeMismatchError(
                f"{path} is not like the tree given: {tree.path_string(where) or 'it'} is {_kind(b)}, not {_kind(a)}",
                why="Shapes and dtypes must be those of the tree given as like=.",
                fix="Build that tree with the settings the file was written with, or load without like=.",
            )
