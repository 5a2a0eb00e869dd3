"""Trees as JSON and arrays with names: `encode` takes a tree apart, `decode` puts it together and trusts nothing it reads.

JSON's null, true, numbers, texts and lists are None, bools, ints, texts and lists. Everything else is an object whose first name
says what it is: {"array": NAME}, {"tuple": [...]}, {"dict": [[key, value], ...]}, {"float": "0x1.8p+0"}, and so on.
"""

from __future__ import annotations

import math
import struct
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from fxgrad import errors
from fxgrad.io.layout import DTYPES, fail
from fxgrad.structure import NODES, Entry, Node, Path, classify
from fxgrad.trace.tracer import Tracer
from fxgrad.tree import path_string

__all__ = ["KEPT_DTYPES", "Decoder", "array_name", "encode"]

MAX_DEPTH = 100  # containers in containers; beyond Python's recursion limit nothing could be read
COMPLEX128 = np.dtype(np.complex128)  # the format has it not: two float64 along a new last axis
KEPT_DTYPES = {*DTYPES.values(), COMPLEX128}
_FACTORIES: dict[str, Callable[[], Any]] = {f.__name__: f for f in (bool, dict, float, int, list, set, str, tuple)}
_DICTS: dict[str, type] = {"dict": dict, "ordereddict": OrderedDict}


def class_name(cls: type) -> str:
    """How files name a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


# ---- encoding ----------------------------------------------------------------------------------------------------------


def encode(tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree as (what JSON takes, arrays by name); names are paths as PyTorch writes them: `blocks.0.attention.w`.

    One array in two places has one name. Raises FxTypeError for leaves no file can hold, FxValueError for a tree too deep.
    """
    encoder = _Encoder()
    return encoder.value(tree, ()), encoder.arrays


class _Encoder:
    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._named: dict[int, str] = {}  # id of an array of the tree -> its name
        self._kept: list[np.ndarray] = []  # what the ids stand for: a node's flatten may make arrays that nobody else holds

    def value(self, x: Any, path: Path) -> Any:
        cls = type(x)
        if isinstance(x, (np.ndarray, np.generic)) and not isinstance(x, np.character):
            return self._array(x, path)
        known, text = _scalar(x)
        if known:
            return text
        if len(path) >= MAX_DEPTH:
            raise errors.FxValueError(
                f"cannot save a tree that is nested deeper than {MAX_DEPTH} levels or contains itself",
                why="Files are read by recursion, which Python limits.",
                fix="Keep long chains in a list instead of nesting them.",
            )
        if cls is list or cls is tuple:
            items = [self.value(child, (*path, Entry("item", i))) for i, child in enumerate(x)]
            return items if cls is list else {"tuple": items}
        if cls in (dict, OrderedDict, defaultdict):
            return self._dict(x, path)
        node = NODES.get(cls) or classify(cls)
        if node is None:
            _refuse(x, path)
        return self._node(node, x, path)

    def _dict(self, x: dict, path: Path) -> dict:
        pairs = [[_static(k, path, "a key"), self.value(v, (*path, Entry("item", k)))] for k, v in x.items()]
        if type(x) is not defaultdict:
            return {type(x).__name__.lower(): pairs}
        factory = x.default_factory
        if factory is not None and factory not in _FACTORIES.values():
            _refuse(factory, path, "a default_factory", f"Use one of {', '.join(_FACTORIES)}, or a plain dict.")
        return {"defaultdict": pairs, "factory": factory and factory.__name__}

    def _node(self, node: Node, x: Any, path: Path) -> dict:
        children, aux = node.take(x)
        items = [self.value(child, (*path, node.entry(aux, i))) for i, child in enumerate(children)]
        name = class_name(node.cls)
        if node.fields is None:
            return {"node": name, "children": items, "static": _static(aux, path, "static data")}
        data, meta = node.fields
        fixed = {k: _static(v, path, f"the static field {k!r}") for k, v in zip(meta, aux if meta else (), strict=True)}
        return {"class": name, "fields": dict(zip(data, items, strict=True)), "static": fixed}

    def _array(self, x: Any, path: Path) -> dict:
        scalar = isinstance(x, np.generic)
        if not scalar and type(x) not in (np.ndarray, np.memmap):
            _refuse(x, path, fix="Pass what it stands for as a plain array: np.asarray(x), or its parts (data and mask) as two.")
        name = self._named.get(id(x))
        if name is None:
            name = self._new_name(path)
            self._named[id(x)] = name
            self._kept.append(x)
            self.arrays[name] = _stored(x, path)
        extra: dict[str, Any] = {"scalar": True} if scalar else {}
        return {"array": name} | extra | ({"dtype": "complex128"} if x.dtype.type is np.complex128 else {})

    def _new_name(self, path: Path) -> str:
        base, n = array_name(path), 1
        name = base
        while name in self.arrays or name == "__metadata__":
            n += 1
            name = f"{base}#{n}"
        return name


def array_name(path: Path) -> str:
    """The name of the array at a place in a tree; what is no Unicode in a key is written with backslashes."""
    return ".".join(str(step.key) for step in path).encode("utf-8", "backslashreplace").decode() or "array"


def _stored(x: Any, path: Path) -> np.ndarray:
    """An array as its bytes stand in the file: C-ordered, little-endian, of a dtype of the format."""
    little = x.dtype.newbyteorder("<")
    if little not in KEPT_DTYPES:
        names = ", ".join(sorted(str(d) for d in KEPT_DTYPES))
        _refuse(x, path, f"an array of {x.dtype}", f"Convert it; files hold {names}.")
    a = np.require(np.asarray(x), requirements="C")
    a = a.astype(little, copy=False)
    return a.reshape(*a.shape, 1).view(np.dtype("<f8")) if little == COMPLEX128 else a


def _refuse(x: Any, path: Path, what: str = "", fix: str = "") -> NoReturn:
    where = f" at {path_string(path)}" if path else ""
    if isinstance(x, Tracer):
        what, fix = "a traced value", "Return the tree from the transformed function and save what comes out."
    raise errors.FxTypeError(
        f"cannot save {what or f'a {type(x).__module__}.{type(x).__qualname__}'}{where}",
        why="Files hold arrays, numbers, texts and containers; nothing that would take code to be read.",
        fix=fix or "Leave it out; register its class (fx.tree.register_dataclass); or turn it into arrays first.",
    )


def _scalar(x: Any) -> tuple[bool, Any]:
    """(whether x is a Python value that is written into the text, how)."""
    cls = type(x)
    if x is None or cls is bool or cls is str:
        return True, x
    if cls is int:
        return True, x if -(1 << 63) <= x < 1 << 63 else {"int": hex(x)}
    if cls is float:
        return True, {"float": _float_text(x)}
    if cls is complex:
        return True, {"complex": [_float_text(x.real), _float_text(x.imag)]}
    if cls is bytes:
        return True, {"bytes": x.hex()}
    if isinstance(x, np.dtype) and x in KEPT_DTYPES:
        return True, {"dtype": x.name}
    if isinstance(x, type) and issubclass(x, np.generic) and x in {d.type for d in KEPT_DTYPES}:
        return True, {"type": x.__name__}
    return False, None


def _static(x: Any, path: Path, what: str) -> Any:
    """A key or static data: Python values and tuples of them."""
    if type(x) is tuple:
        return {"tuple": [_static(v, path, what) for v in x]}
    known, text = _scalar(x)
    if not known:
        _refuse(x, path, f"{what} of type {type(x).__qualname__}", "Use an int, a float, a text, None, or a tuple of these.")
    return text


def _float_text(x: float) -> str:
    return f"nan {struct.pack('>d', x).hex()}" if math.isnan(x) else x.hex()


# ---- decoding ----------------------------------------------------------------------------------------------------------


class Decoder:
    """Puts a tree together from what JSON gave; `array(name)` answers an array of the file.

    Args:
        path: for messages.
        shapes: name -> (dtype, shape) of every array in the file, each of which must occur.
        array: makes the array of a name; asked once for each.
        known: classes that the caller vouches for, found by name before all others.
        plain: whether namedtuples and registered classes come as dicts of their parts.
    """

    def __init__(
        self, path: str, shapes: dict[str, tuple[np.dtype, tuple]], array: Callable[[str], Any], known: list[type], plain: bool
    ):
        self.path, self.shapes, self.array, self.plain = path, shapes, array, plain
        self._classes = {class_name(cls): cls for cls in (*NODES, *known)}
        self._by_name = {cls.__qualname__: cls for cls in known}
        self._made: dict[tuple, Any] = {}  # one array in two places comes as one

    def tree(self, value: Any) -> Any:
        """The tree; raises FileFormatError, before any array is made if the text is at fault."""
        used: set[str] = set()
        build = self.value(value, 0, used)
        if missing := sorted(set(self.shapes) - used):
            self.wrong(f"has no place for {len(missing)} arrays of the file, {missing[0]!r} first")
        return build()

    def wrong(self, problem: str, fix: str = "") -> NoReturn:
        fail(self.path, f"its structure {problem}", "The structure of the tree stands in the metadata as JSON.", fix)

    def value(self, value: Any, depth: int, used: set[str]) -> Callable[[], Any]:
        """What makes the part of the tree that `value` describes, once all of it is known to be right."""
        if depth > MAX_DEPTH:
            self.wrong(f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, list):
            return self._items(value, depth, used)
        if isinstance(value, dict) and (kind := next(iter(value), "")) in _BUILDERS:
            return _BUILDERS[kind](self, value, depth, used)
        fixed = self.static(value)
        return lambda: fixed

    def _items(self, value: Any, depth: int, used: set[str]) -> Callable[[], list]:
        if not isinstance(value, list):
            self.wrong("has something else where a list should be")
        parts = [self.value(v, depth + 1, used) for v in value]
        return lambda: [part() for part in parts]

    def _tuple(self, value: dict, depth: int, used: set[str]) -> Callable[[], tuple]:
        items = self._items(self._only(value, "tuple")[0], depth, used)
        return lambda: tuple(items())

    def _dict(self, value: dict, depth: int, used: set[str]) -> Callable[[], dict]:
        kind = next(iter(value))
        pairs, *rest = self._only(value, *(("defaultdict", "factory") if kind == "defaultdict" else (kind,)))
        if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
            self.wrong(f"has a {kind} that is no list of pairs")
        keys = [self.static(k) for k, _ in pairs]
        if len(set(keys)) < len(keys):
            self.wrong(f"has a {kind} with a key twice")
        parts = [self.value(v, depth + 1, used) for _, v in pairs]
        if kind != "defaultdict":
            return lambda: _DICTS[kind](zip(keys, [part() for part in parts], strict=True))
        name = rest[0]
        if name is not None and (not isinstance(name, str) or name not in _FACTORIES):
            self.wrong(f"has a defaultdict of {name!r}")
        factory = None if name is None else _FACTORIES[name]
        return lambda: defaultdict(factory, zip(keys, [part() for part in parts], strict=True))

    def _array(self, value: dict, depth: int, used: set[str]) -> Callable[[], Any]:
        name, scalar, kept = value["array"], value.get("scalar", False), value.get("dtype")
        if not isinstance(name, str) or name not in self.shapes:
            self.wrong(f"has the array {name!r}, the file has not")
        if not set(value) <= {"array", "scalar", "dtype"} or type(scalar) is not bool or kept not in (None, "complex128"):
            self.wrong(f"says of the array {name!r} what this version does not know")
        dtype, shape = self.shapes[name]
        wide = kept is not None
        if wide and (dtype != np.float64 or not shape or shape[-1] != 2):
            self.wrong(f"has the array {name!r} as complex128, and it is {dtype}{list(shape)}")
        if scalar and len(shape) != wide:
            self.wrong(f"has the array {name!r} as a scalar, and it is {dtype}{list(shape)}")
        used.add(name)

        def make() -> Any:
            key = name, scalar, wide
            if key not in self._made:
                a = self.array(name)
                a = a.view(COMPLEX128).reshape(a.shape[:-1]) if wide else a
                self._made[key] = a[()] if scalar else a
            return self._made[key]

        return make

    def _node(self, value: dict, depth: int, used: set[str]) -> Callable[[], Any]:
        name, children, static = self._only(value, "node", "children", "static")
        items, aux = self._items(children, depth, used), self.static(static)
        if self.plain:
            return lambda: {"children": items(), "static": aux}
        node = self._known(name)
        if node.fields is not None:
            self.wrong(f"and this program do not agree on the parts of {name}")
        return lambda: self._built(node, aux, items())

    def _fields(self, value: dict, depth: int, used: set[str]) -> Callable[[], Any]:
        name, fields, static = self._only(value, "class", "fields", "static")
        if not isinstance(fields, dict) or not isinstance(static, dict):
            self.wrong(f"does not give the fields of {name!r}")
        parts = {k: self.value(v, depth + 1, used) for k, v in fields.items()}
        fixed = {k: self.static(v) for k, v in static.items()}
        if self.plain:
            return lambda: {k: part() for k, part in parts.items()} | fixed
        node = self._known(name)
        data, meta = node.fields or ((), ())
        if node.fields is None or set(parts) != set(data) or set(fixed) != set(meta):
            have = f"{', '.join([*data, *meta]) or 'none'} in this program, {', '.join([*parts, *fixed]) or 'none'} in the file"
            self.wrong(f"and this program do not agree on the fields of {name}: {have}", _PLAIN)
        aux = tuple(fixed[k] for k in meta) if meta else None
        return lambda: self._built(node, aux, [parts[k]() for k in data])

    def _built(self, node: Node, aux: Any, children: list) -> Any:
        try:
            return node.build(aux, children)
        except Exception as problem:
            raise errors.FileFormatError(
                f"cannot load {self.path}: {class_name(node.cls)} does not take what the file has for it",
                why=f"Its own code raised {type(problem).__name__}: {problem}",
                fix=_PLAIN,
            ) from problem

    def _known(self, name: Any) -> Node:
        """The node of a class that this program has registered, or of a namedtuple in a module it has imported."""
        if not isinstance(name, str):
            self.wrong(f"has {name!r} where the name of a class should be")
        cls = self._by_name.get(name.partition(":")[2]) or self._classes.get(name) or _loaded_namedtuple(name)
        node = None if cls is None else NODES.get(cls) or classify(cls)
        if node is None:
            raise errors.FileFormatError(
                f"cannot load {self.path}: this program knows no class {name!r}",
                why="A file only names classes, and what it names is neither imported nor run. Known are registered classes, "
                "and namedtuples of modules that are imported.",
                fix="Import the module that defines and registers it, pass like=a tree with it, or plain=True for dicts.",
            )
        return node

    def _only(self, value: dict, *names: str) -> list[Any]:
        if set(value) != set(names):
            self.wrong(f"has {', '.join(map(repr, value))} where {', '.join(map(repr, names))} should be")
        return [value[n] for n in names]

    def static(self, value: Any, depth: int = 0) -> Any:
        """The Python value that a text stands for."""
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, dict) and len(value) == 1 and depth <= MAX_DEPTH:
            ((kind, text),) = value.items()
            if kind == "tuple" and isinstance(text, list):
                return tuple([self.static(v, depth + 1) for v in text])
            try:
                if kind in _SCALARS:
                    return _SCALARS[kind](text)
            except (TypeError, ValueError, KeyError, OverflowError, struct.error, AttributeError):
                self.wrong(f"has a {kind} it writes {str(text)[:60]!r}")
        return self.wrong(f"has {str(value)[:60]!r}, which this version does not know")


_PLAIN = "Load it as containers only with fx.io.load(path, plain=True), and convert it."
_BUILDERS: dict[str, Callable[[Decoder, dict, int, set[str]], Callable[[], Any]]] = {
    "array": Decoder._array, "tuple": Decoder._tuple, "dict": Decoder._dict, "ordereddict": Decoder._dict,
    "defaultdict": Decoder._dict, "node": Decoder._node, "class": Decoder._fields,
}  # fmt: skip


def _float_of(text: str) -> float:
    return struct.unpack(">d", bytes.fromhex(text[4:]))[0] if text.startswith("nan ") else float.fromhex(text)


def _complex_of(parts: list[str]) -> complex:
    re, im = parts
    return complex(_float_of(re), _float_of(im))


_BY_NAME = {d.name: d for d in KEPT_DTYPES}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": _float_of,
    "complex": _complex_of,
    "bytes": bytes.fromhex,
    "dtype": lambda name: _BY_NAME[name],
    "type": lambda name: {d.type.__name__: d.type for d in KEPT_DTYPES}[name],
}


def _loaded_namedtuple(name: str) -> type | None:
    """A namedtuple class, found where an import has already put it; no attribute access that could run code."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    ok = isinstance(found, type) and issubclass(found, tuple) and "_fields" in vars(found) and class_name(found) == name
    return found if ok else None
