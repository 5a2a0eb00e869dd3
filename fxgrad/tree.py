"""Pytrees: arrays in nested containers. Flattening takes them out in a fixed order, a Structure says how to put them back.

Containers are list, tuple, namedtuple, dict, OrderedDict, defaultdict, None (which holds nothing), and the classes registered
here. Everything else is a leaf. A dict flattens in the order of its sorted keys and is rebuilt in its own order.
"""

from __future__ import annotations

import dataclasses
from builtins import all as _all
from builtins import map as _map
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import reduce as _reduce
from typing import Any

from fxgrad import errors
from fxgrad.structure import (
    LEAF,
    LEAF_TYPES,
    NODES,
    REGISTRATION,
    Entry,
    Node,
    Path,
    Structure,
    build_node,
    classify,
    flat_tuple,
    flat_tuples,
    flatten_node,
    flatten_until,
)  # fmt: skip

__all__ = [
    "Entry", "Structure", "all", "check_same", "flatten", "flatten_with_path", "leaves", "map", "path_string", "reduce",
    "register_dataclass", "register_node", "structure", "transpose", "unflatten",
]  # fmt: skip

_MISSING: Any = object()


# ---- flatten, unflatten ------------------------------------------------------------------------------------------------


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """Take a tree apart into the list of its leaves and its structure.

    Args:
        tree: any nesting of containers; a lone leaf is a tree too.
        is_leaf: called on every subtree; where it answers true, the subtree counts as a leaf.
    Returns:
        (leaves, structure), from which `unflatten(structure, leaves)` makes the tree again.
    Raises:
        FxTypeError: a dict has keys that cannot be sorted, or a registered class has static data that cannot be hashed.
        FxValueError: the tree contains itself, or is nested deeper than Python's recursion limit.

    >>> flatten({"w": 1.0, "b": (2.0, None)})
    ([2.0, 1.0], Structure({'b': (*, None), 'w': *}))
    """
    if is_leaf is None:
        cls = type(tree)
        if cls in LEAF_TYPES:
            return [tree], LEAF
        if cls is tuple and LEAF_TYPES.issuperset(_map(type, tree)):
            return list(tree), flat_tuples.get(len(tree)) or flat_tuple(len(tree))
    out: list[Any] = []
    try:
        return out, flatten_node(tree, out) if is_leaf is None else flatten_until(tree, out, is_leaf)
    except RecursionError:
        raise errors.FxValueError(
            "cannot flatten a tree that contains itself or is nested deeper than Python's recursion limit",
            fix="Keep long chains in a list instead of nesting them.",
            why="Trees are walked by recursion and have no cycles.",
        ) from None


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Make a tree of this structure with these leaves.

    Args:
        structure: as `flatten` or `structure` answer it.
        leaves: as many values as it has leaves, in the order of `flatten`; any objects.
    Returns:
        The tree; dicts have their keys in the order of the tree the structure was taken from.
    Raises:
        TreeMismatchError: the number of leaves is not that of the structure.

    >>> unflatten(structure({"w": 0, "b": (0, 0)}), [1, 2, 3])
    {'w': 3, 'b': (1, 2)}
    """
    if type(leaves) is not list:
        leaves = list(leaves)
    if len(leaves) != structure.num_leaves:
        raise errors.TreeMismatchError(
            f"cannot put {len(leaves)} leaves into a tree of {structure.num_leaves}",
            why=f"Its structure is {_short(structure)}.",
            fix="Pass as many leaves as the structure has (structure.num_leaves), in the order of flatten.",
        )
    node = structure.node
    if node is None:
        return leaves[0]
    return node.build(structure.aux, leaves) if structure.flat else build_node(structure, iter(leaves))


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, in the order of `flatten` (whose arguments and errors it shares).

    >>> leaves([1, {"b": 2, "a": 3}, None])
    [1, 3, 2]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Structure:
    """The structure of a tree (arguments and errors as for `flatten`).

    >>> structure([1, (2,)])
    Structure([*, (*,)])
    """
    return flatten(tree, is_leaf)[1]


# ---- over trees --------------------------------------------------------------------------------------------------------


def flatten_up_to(prefix: Structure, tree: Any, what: str) -> list[Any]:
    """The subtrees of `tree` at the leaves of `prefix`; `what` names both in messages.

    >>> flatten_up_to(structure({"w": 0, "b": 0}), {"w": (1, 2), "b": None}, "the two trees")
    [None, (1, 2)]
    """
    out: list[Any] = []

    def walk(below: Structure, part: Any, path: Path) -> None:
        node = below.node
        if node is None:
            out.append(part)
            return
        own = NODES.get(type(part)) or classify(type(part))
        children, aux = own.take(part) if own is not None else ((), None)
        if own is not node or node.key(aux) != below.key or len(children) != len(below.children):
            shallow = LEAF if own is None else Structure(own, aux, (LEAF,) * len(children))
            raise _mismatch(what, below, shallow, path, prefix, structure(tree))
        for i, (shape, child) in enumerate(zip(below.children, children, strict=True)):
            walk(shape, child, (*path, node.entry(aux, i)))

    walk(prefix, tree, ())
    return out


def map(f: Callable, tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply f to every leaf of a tree, together with what stands there in the other trees.

    Args:
        f: takes one leaf of `tree` and one value from each of `rest`.
        tree: decides the structure.
        rest: trees of the same structure, or with whole subtrees where `tree` has leaves.
        is_leaf: as for `flatten`, for `tree`.
    Returns:
        The tree of results.
    Raises:
        TreeMismatchError: a tree in `rest` differs from `tree`; the message names the path.

    >>> map(lambda p, g: p - g, {"w": 3, "b": 1}, {"w": 2, "b": 1})
    {'w': 1, 'b': 0}
    """
    first, shape = flatten(tree, is_leaf)
    if not rest:
        return unflatten(shape, [f(x) for x in first])
    columns = [first]
    for other in rest:
        found, other_shape = flatten(other)
        columns.append(found if other_shape == shape else flatten_up_to(shape, other, "the trees given to map"))
    return unflatten(shape, list(_map(f, *columns)))


def reduce(f: Callable[[Any, Any], Any], tree: Any, initial: Any = _MISSING, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Combine the leaves of a tree from left to right.

    Args:
        f: (what is combined so far, leaf) -> the next.
        tree: any tree.
        initial: where to start; without it, the first leaf.
        is_leaf: as for `flatten`.
    Returns:
        The last result of f; `initial` if there are no leaves.
    Raises:
        TypeError: there are no leaves and no initial value.

    >>> reduce(lambda total, x: total + x, {"a": 1, "b": [2, 3]}, 0)
    6
    """
    found = leaves(tree, is_leaf)
    return _reduce(f, found) if initial is _MISSING else _reduce(f, found, initial)


def all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf is true (a tree without leaves: True).

    >>> all({"a": True, "b": [1, 0]})
    False
    """
    return _all(leaves(tree, is_leaf))


def transpose(outer: Structure, inner: Structure | None, tree: Any) -> Any:
    """Turn a tree of trees inside out.

    Args:
        outer: the structure of the outside.
        inner: the structure every leaf of `outer` has in `tree`; None finds it out from the first.
        tree: a tree of structure `outer` with trees of structure `inner` for leaves.
    Returns:
        A tree of structure `inner` with trees of structure `outer` for leaves.
    Raises:
        TreeMismatchError: `tree` is not such a tree.

    >>> transpose(structure([0, 0]), structure({"a": 0, "b": 0}), [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    parts = flatten_up_to(outer, tree, "the outer structure and the tree given to transpose")
    if inner is None:
        inner = structure(parts[0]) if parts else LEAF
    rows = []
    for part in parts:
        found, shape = flatten(part)
        rows.append(found if shape == inner else flatten_up_to(inner, part, "the inner structure and a part of the tree"))
    columns = zip(*rows, strict=True) if rows else ((),) * inner.num_leaves
    return unflatten(inner, [unflatten(outer, column) for column in columns])


# ---- paths and messages ------------------------------------------------------------------------------------------------


def _walk(tree: Any, path: Path, out: list[tuple[Path, Any]], is_leaf: Callable[[Any], bool] | None) -> None:
    node = None if is_leaf is not None and is_leaf(tree) else NODES.get(type(tree)) or classify(type(tree))
    if node is None:
        out.append((path, tree))
        return
    children, aux = node.take(tree)
    for i, child in enumerate(children):
        _walk(child, (*path, node.entry(aux, i)), out, is_leaf)


def flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[Path, Any]], Structure]:
    """Like `flatten`, with the path to each leaf.

    Args:
        tree, is_leaf: as for `flatten`.
    Returns:
        ([(path, leaf), ...], structure). A path is a tuple of `Entry`, one a level; `path_string` prints it.
    Raises:
        As `flatten`.

    >>> [(path_string(path), leaf) for path, leaf in flatten_with_path({"a": [1, (2, 3)]})[0]]
    [("['a'][0]", 1), ("['a'][1][0]", 2), ("['a'][1][1]", 3)]
    """
    shape = structure(tree, is_leaf)
    out: list[tuple[Path, Any]] = []
    _walk(tree, (), out, is_leaf)
    return out, shape


def path_string(path: Path) -> str:
    """A path as Python would index the tree: `['a'][0].w`; the empty path is the empty string.

    >>> path_string((Entry("item", "a"), Entry("item", 0), Entry("field", "w")))
    "['a'][0].w"
    """
    return "".join(_map(str, path))


def _short(shape: Structure, limit: int = 400) -> str:
    text = str(shape)
    return text if len(text) <= limit else f"{text[:limit]}... ({shape.num_leaves} leaves)"


def _describe(shape: Structure) -> str:
    """`a leaf`, `a tuple of 2`, `a dict with keys 'a', 'b'`."""
    node = shape.node
    if node is None:
        return "a leaf"
    if node.cls is type(None):
        return "None"
    n, name = len(shape.children), node.cls.__name__
    if not n:
        return f"an empty {name}"
    steps = _steps(shape)[:8]
    if issubclass(node.cls, dict):
        return f"a {name} with keys {', '.join(repr(s.key) for s in steps)}{', ...' if n > 8 else ''}"
    if steps[0].kind == "field":
        return f"a {name}({', '.join(str(s.key) for s in steps)}{', ...' if n > 8 else ''})"
    return f"a {name} of {n}"


def _steps(shape: Structure) -> list[Entry]:
    return [shape.node.entry(shape.aux, i) for i in range(len(shape.children))] if shape.node is not None else []


def _details(a: Structure, b: Structure) -> str:
    """What sets two structures apart at their root."""
    if a.node is not None and a.node is b.node and a.key != b.key:
        mine, theirs = _steps(a), _steps(b)
        if set(mine) != set(theirs) and issubclass(a.node.cls, dict):
            sides = (("first", [e for e in mine if e not in theirs]), ("second", [e for e in theirs if e not in mine]))
            return "; ".join(
                [f"only the {side} has {', '.join([repr(e.key) for e in only[:8]])}" for side, only in sides if only]
            )
        if mine != theirs and issubclass(a.node.cls, dict):
            return "the keys stand in another order, which counts in an OrderedDict"
        return f"{_describe(a)} with static data {a.aux!r} in the first, {b.aux!r} in the second"
    first, second = _describe(a), _describe(b)
    if first == second:  # of two classes with one name
        first, second = (f"{text} of {s.node and s.node.cls!r}" for text, s in ((first, a), (second, b)))
    return f"{first} in the first, {second} in the second"


def _mismatch(
    what: str, a: Structure, b: Structure, path: Path, whole_a: Structure, whole_b: Structure
) -> errors.TreeMismatchError:
    where = f"at {path_string(path)}" if path else "at the root"
    return errors.TreeMismatchError(
        f"{what} differ in structure {where}: {_details(a, b)}",
        why=f"The first is {_short(whole_a)},\n    the second {_short(whole_b)}.",
        fix="Build both from the same containers with the same keys.",
    )


def _first_difference(a: Structure, b: Structure) -> tuple[Path, Structure, Structure]:
    path: Path = ()
    while a.node is b.node and a.key == b.key and len(a.children) == len(b.children) and a.node is not None:
        i, a_child, b_child = next((i, x, y) for i, (x, y) in enumerate(zip(a.children, b.children, strict=True)) if x != y)
        path = (*path, a.node.entry(a.aux, i))
        a, b = a_child, b_child
    return path, a, b


def check_same(a: Structure, b: Structure, what: str) -> None:
    """Raise unless two structures are equal.

    Args:
        a, b: two structures.
        what: names both in the message, as a plural: "the primals and tangents of jvp".
    Raises:
        TreeMismatchError: they differ; the message has the path, what stands there in each, and both structures.

    >>> check_same(structure([1, 2]), structure([3, 4]), "the two lists")
    """
    if a is not b and a != b:
        path, a_part, b_part = _first_difference(a, b)
        raise _mismatch(what, a_part, b_part, path, a, b)


# ---- registering classes -----------------------------------------------------------------------------------------------


def _exact(value: Any) -> Hashable:
    """A key that tells static values apart by type too: 1, True and 1.0, 0.0 and -0.0 are different programs."""
    if type(value) is float:
        return float, value.hex()
    if type(value) is tuple:
        return tuple, tuple([_exact(v) for v in value])
    return type(value), value


def _register(cls: type, node: Node, again: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
    """`again` registers the class where it arrives by value, in another process."""
    if not isinstance(cls, type):
        raise errors.FxTypeError(
            f"only classes can be registered as tree nodes, got {cls!r}",
            why="Nodes are found by the type of a value.",
            fix="Pass the class itself: register_node(Point, flatten, unflatten).",
        )
    if cls in NODES:
        raise errors.FxValueError(
            f"{cls.__name__} is a tree node already",
            why="A class has one way to be flattened, so that structures stay valid.",
            fix="Register a class once, where it is defined; derive another one for another way to flatten it.",
        )
    with suppress(TypeError):  # a class in C takes no attributes, and is found by name everywhere
        setattr(cls, REGISTRATION, again)
    NODES[cls] = node
    LEAF_TYPES.discard(cls)


def register_node(
    cls: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]], unflatten: Callable[[Any, Sequence[Any]], Any]
) -> type:
    """Make a class a container of trees.

    Args:
        cls: the class; its subclasses are not registered with it.
        flatten: x -> (children, aux): its subtrees, and hashable static data that becomes part of the structure.
        unflatten: (aux, children) -> x, the inverse. Children may be any objects, not only arrays.
    Returns:
        cls.
    Raises:
        FxValueError: the class is a node already.

    >>> class Ring:
    ...     def __init__(self, *items):
    ...         self.items = items
    >>> _ = register_node(Ring, lambda r: (r.items, None), lambda aux, items: Ring(*items))
    >>> map(lambda x: 2 * x, Ring(1, 2)).items
    (2, 4)
    """

    def take(x: Any) -> tuple[Sequence[Any], Any]:
        children, aux = flatten(x)
        return tuple(children), aux

    def show(aux: Any, parts: list[str]) -> str:
        return f"{cls.__name__}{'' if aux is None else f'[{aux!r}]'}({', '.join(parts)})"

    node = Node(cls, take, lambda aux, xs: unflatten(aux, tuple(xs)), lambda aux, i: Entry("child", i), show, key=_exact)
    _register(cls, node, (register_node, (flatten, unflatten)))
    return cls


def register_dataclass(cls: type | None = None, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] = ()) -> Any:
    """Make a dataclass a container of trees; works as a decorator above `@dataclass`, with or without arguments.

    Args:
        cls: the dataclass; its subclasses are not registered with it.
        data_fields: the fields that hold subtrees; by default all that are not meta fields.
        meta_fields: hashable static fields, part of the structure. A field declared with metadata={"static": True} is one too.
    Returns:
        cls (a decorator, if cls is not given).
    Raises:
        FxTypeError: cls is not a dataclass.
        FxValueError: the fields named are not exactly those of __init__, or the class is a node already.

    >>> @register_dataclass(meta_fields=["rate"])
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     rate: float
    >>> map(lambda x: x + 1, Layer(w=1.0, rate=0.5))
    Layer(w=2.0, rate=0.5)
    """
    if cls is None:
        return lambda c: register_dataclass(c, data_fields, meta_fields)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise errors.FxTypeError(
            f"register_dataclass got {cls!r}, which is not a dataclass",
            fix="Put @register_dataclass above @dataclass.",
            why="Its fields, data and meta, are those that dataclasses.fields names.",
        )
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    static = [f.name for f in dataclasses.fields(cls) if f.init and f.metadata.get("static")]
    meta = tuple(dict.fromkeys([*meta_fields, *static]))
    data = tuple(f for f in fields if f not in meta) if data_fields is None else tuple(data_fields)
    if sorted([*data, *meta]) != sorted(fields):
        raise errors.FxValueError(
            f"data fields {data} and meta fields {meta} of {cls.__name__} are not its fields {tuple(fields)}",
            why="Each field that __init__ takes must be one or the other, or a copy would lose it.",
            fix="Name every field once, in data_fields or in meta_fields.",
        )

    def take(x: Any) -> tuple[Sequence[Any], Any]:
        return [getattr(x, name) for name in data], tuple([getattr(x, name) for name in meta]) if meta else None

    def build(aux: Any, children: Sequence[Any]) -> Any:
        given = dict(zip(data, children, strict=True))
        return cls(**given, **dict(zip(meta, aux, strict=True))) if meta else cls(**given)

    def show(aux: Any, parts: list[str]) -> str:
        shown = [f"{n}={p}" for n, p in zip(data, parts, strict=True)] + [
            f"{n}={v!r}" for n, v in zip(meta, aux or (), strict=True)
        ]
        return f"{cls.__name__}({', '.join(shown)})"

    node = Node(cls, take, build, lambda aux, i: Entry("field", data[i]), show, key=_exact, fields=(data, meta))
    _register(cls, node, (register_dataclass, (data, meta)))
    return cls
