"""What trees are made of: container types (nodes), structures, and paths. `fxgrad.tree` has the functions users call.

Flattening is on the path of every call, so structures met before are looked up, not made: `interned` holds them by container
type, aux and the identity of their children. That is only a cache; equality of structures never depends on it.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from fxgrad import errors

__all__ = ["LEAF", "Entry", "Node", "Path", "Structure"]

_CACHE_SIZE = 16384


class Entry:
    """One step of a path into a tree: `['key']`, `[0]`, `.field`, or `[<child 0>]` of a class that names no children.

    Example:
        >>> import fxgrad as fx
        >>> ((path, leaf),), _ = fx.tree.flatten_with_path({"w": [1.0]})
        >>> path
        (Entry('item', 'w'), Entry('item', 0))
        >>> [str(entry) for entry in path]
        ["['w']", '[0]']
    """

    __slots__ = ("key", "kind")

    def __init__(self, kind: str, key: Any):
        self.kind, self.key = kind, key

    def __str__(self) -> str:
        return f".{self.key}" if self.kind == "field" else f"[<child {self.key}>]" if self.kind == "child" else f"[{self.key!r}]"

    def __repr__(self) -> str:
        return f"Entry({self.kind!r}, {self.key!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.kind, self.key) == (other.kind, other.key)

    def __hash__(self) -> int:
        return hash((self.kind, self.key))


Path = tuple[Entry, ...]


class Node:
    """How one container type comes apart and is put together.

    take(x) -> (children, aux); build(aux, children) -> x; key(aux): the part of aux that equality of structures compares;
    entry(aux, i): the path step to child i; show(aux, parts): the text of a container whose children print as `parts`;
    fields: of namedtuples and dataclasses, the names of the children and those of the entries of aux.
    """

    __slots__ = ("build", "cls", "entry", "fields", "key", "show", "take")

    def __init__(
        self,
        cls: type,
        take: Callable[[Any], tuple[Sequence[Any], Any]],
        build: Callable[[Any, Sequence[Any]], Any],
        entry: Callable[[Any, int], Entry],
        show: Callable[[Any, list[str]], str],
        key: Callable[[Any], Hashable] = lambda aux: aux,
        fields: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    ):
        self.cls, self.take, self.build, self.entry, self.show, self.key = cls, take, build, entry, show, key
        self.fields = fields

    def __reduce__(self) -> tuple:
        return _node_of, (self.cls,)


class Structure:
    """The shape of a tree without its leaves: hashable, comparable, picklable; prints with `*` for each leaf.

    Two structures are equal when their containers, keys and static values are. In which order dicts were filled does not count.

    Example:
        >>> import fxgrad as fx
        >>> s = fx.tree.structure({"w": 1.0, "b": (2.0, None)})
        >>> s, s.num_leaves
        (Structure({'b': (*, None), 'w': *}), 2)
    """

    __slots__ = ("_hash", "aux", "children", "flat", "key", "node", "num_leaves")
    node: Node | None  # None: a leaf
    children: tuple[Structure, ...]
    num_leaves: int

    def __init__(self, node: Node | None, aux: Any, children: tuple[Structure, ...]):
        self.node, self.aux, self.children = node, aux, children
        self.num_leaves = 1 if node is None else sum([c.num_leaves for c in children])
        self.flat = all_leaves = all([c.node is None for c in children])
        self.key = None if node is None else node.key(aux)
        try:
            self._hash = hash((node and node.cls, self.key, len(children) if all_leaves else children))
        except TypeError:
            assert node is not None
            raise errors.FxTypeError(
                f"the static data of a {node.cls.__name__} in a tree is not hashable: {aux!r}",
                why="What is not an array is part of the tree's structure, which caches are keyed on.",
                fix="Use a tuple for a list and a frozen dataclass for a dict, or make the field a child of the node.",
            ) from None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not Structure or self._hash != other._hash or self.node is not other.node or self.key != other.key:
            return False
        return self.children == other.children

    def __str__(self) -> str:
        return "*" if self.node is None else self.node.show(self.aux, [str(c) for c in self.children])

    def __repr__(self) -> str:
        return f"Structure({self})"

    def __reduce__(self) -> tuple:
        return (_leaf, ()) if self.node is None else (Structure, (self.node, self.aux, self.children))


def _leaf() -> Structure:
    return LEAF


# ---- the containers ----------------------------------------------------------------------------------------------------

NODES: dict[type, Node] = {}
LEAF_TYPES: set[type] = {np.ndarray, int, float, complex, bool, str, *(np.dtype(c).type for c in "?bhilqBHILQefdgFDG")}
REGISTRATION = "__fxgrad_node__"
interned: dict[tuple, Structure] = {}


def _index(aux: Any, i: int) -> Entry:
    return Entry("item", i)


NODES[tuple] = TUPLE = Node(
    tuple,
    lambda x: (x, None),
    lambda aux, xs: tuple(xs),
    _index,
    lambda aux, parts: f"({', '.join(parts)}{',' if len(parts) == 1 else ''})",
)
NODES[list] = Node(list, lambda x: (x, None), lambda aux, xs: list(xs), _index, lambda aux, parts: f"[{', '.join(parts)}]")
NODES[type(None)] = Node(type(None), lambda x: ((), None), lambda aux, xs: None, _index, lambda aux, parts: "None")


class Layout:
    """The keys of a dict: as they stand in it, and sorted as its values flatten. `sort` and `unsort` turn one into the other."""

    __slots__ = ("flat", "keys", "order", "sort", "unsort")

    def __init__(self, order: tuple):
        try:
            self.keys = tuple(sorted(order))
        except TypeError:
            listed = ", ".join(f"{k!r} ({type(k).__name__})" for k in order[:6])
            raise errors.FxTypeError(
                f"cannot sort the keys of a dict in a tree: {listed}{', ...' if len(order) > 6 else ''}",
                why="Dicts flatten in the order of their sorted keys, so that two dicts filled in another order match.",
                fix="Use keys of one type, or a collections.OrderedDict, which flattens in its own order.",
            ) from None
        self.order = order
        self.sort = self.unsort = None
        if any(a is not b for a, b in zip(self.keys, order, strict=True)):  # then there are two at least: getters answer tuples
            place = {k: i for i, k in enumerate(self.keys)}
            self.sort, self.unsort = itemgetter(*self.keys), itemgetter(*(place[k] for k in order))
        self.flat = Structure(DICT, self, (LEAF,) * len(order))  # the structure of a dict of leaves

    def values(self, x: dict) -> Sequence[Any]:
        return list(x.values()) if self.sort is None else self.sort(x)

    def items(self, xs: Sequence[Any]) -> Iterator[tuple]:
        return zip(self.order, xs if self.unsort is None else self.unsort(xs), strict=True)

    def __repr__(self) -> str:
        return f"keys {', '.join(map(repr, self.order))}"

    def __reduce__(self) -> tuple:
        return layout_of, (self.order,)


layouts: dict[tuple, Layout] = {}


def layout_of(order: tuple) -> Layout:
    found = layouts.get(order)
    if found is None:
        if len(layouts) > _CACHE_SIZE:
            layouts.clear()
        found = layouts[order] = Layout(order)
    return found


def _take_dict(x: dict) -> tuple[Sequence[Any], Layout]:
    layout = layouts.get(tuple(x)) or layout_of(tuple(x))
    return layout.values(x), layout


def _show_items(keys: Iterable[Any], parts: list[str]) -> str:
    return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"


NODES[dict] = DICT = Node(
    dict,
    _take_dict,
    lambda aux, xs: dict(aux.items(xs)),
    lambda aux, i: Entry("item", aux.keys[i]),
    lambda aux, parts: _show_items(aux.keys, parts),
    key=lambda aux: aux.keys,
)


def _take_defaultdict(x: defaultdict) -> tuple[Sequence[Any], tuple[Layout, Any]]:
    children, layout = _take_dict(x)
    return children, (layout, x.default_factory)


NODES[defaultdict] = Node(
    defaultdict,
    _take_defaultdict,
    lambda aux, xs: defaultdict(aux[1], aux[0].items(xs)),
    lambda aux, i: Entry("item", aux[0].keys[i]),
    lambda aux, parts: f"defaultdict({getattr(aux[1], '__name__', aux[1])}, {_show_items(aux[0].keys, parts)})",
    key=lambda aux: (aux[0].keys, aux[1]),
)
NODES[OrderedDict] = Node(
    OrderedDict,
    lambda x: (list(x.values()), tuple(x)),
    lambda aux, xs: OrderedDict(zip(aux, xs, strict=True)),
    lambda aux, i: Entry("item", aux[i]),
    lambda aux, parts: f"OrderedDict({_show_items(aux, parts)})",
)
LEAF = Structure(None, None, ())


def _show_fields(cls: type, names: Iterable[str], parts: Iterable[str]) -> str:
    return f"{cls.__name__}({', '.join(f'{n}={p}' for n, p in zip(names, parts, strict=True))})"


def classify(cls: type) -> Node | None:
    """The node of a type met for the first time: namedtuples are containers, everything else is a leaf.

    A class that came by value (cloudpickle) brings its registration along, `(function, arguments)`.
    """
    if REGISTRATION in cls.__dict__:
        register, arguments = cls.__dict__[REGISTRATION]
        register(cls, *arguments)
        return NODES[cls]
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        fields = cls._fields
        node = NODES[cls] = Node(
            cls, lambda x: (x, None), lambda aux, xs: cls._make(xs), lambda aux, i: Entry("field", fields[i]),
            lambda aux, parts: _show_fields(cls, fields, parts), fields=(fields, ()),
        )  # fmt: skip
        return node
    LEAF_TYPES.add(cls)
    return None


def _node_of(cls: type) -> Node:
    node = NODES.get(cls) or classify(cls)
    if node is None:
        raise errors.FxTypeError(
            f"a tree structure names {cls.__module__}.{cls.__qualname__}, which is not registered",
            fix=f"Register the class where it is defined: fx.tree.register_node({cls.__name__}, flatten, unflatten).",
            why="How to take it apart and put it together is known only once it is registered.",
        )
    return node


# ---- flatten, unflatten ------------------------------------------------------------------------------------------------


def _intern(node: Node, aux: Any, children: tuple[Structure, ...]) -> Structure:
    """The structure made before of this very aux and these very children (equal ones may rebuild dicts in another order)."""
    if aux is not None and node is not DICT and node.cls is not OrderedDict:
        return Structure(node, aux, children)  # static data of users: equal does not mean interchangeable
    key = (node, aux, *map(id, children))  # the structure found holds what the ids stand for alive
    found = interned.get(key)
    if found is None:
        if len(interned) > _CACHE_SIZE:
            interned.clear()
        found = interned[key] = Structure(node, aux, children)
    return found


flat_tuples: dict[int, Structure] = {}  # the structures of tuples of leaves, by length


def flat_tuple(n: int) -> Structure:
    found = flat_tuples[n] = _intern(TUPLE, None, (LEAF,) * n)
    return found


def flatten_node(tree: Any, out: list[Any]) -> Structure:
    """Append the leaves of `tree` to `out` and answer its structure."""
    cls = type(tree)
    node: Node | None
    if cls is dict:
        node, aux = DICT, layouts.get(tuple(tree)) or layout_of(tuple(tree))
        children = tree.values() if aux.sort is None else aux.sort(tree)
        if LEAF_TYPES.issuperset(map(type, children)):
            out.extend(children)
            return aux.flat
    else:
        if cls in LEAF_TYPES or (node := NODES.get(cls) or classify(cls)) is None:
            out.append(tree)
            return LEAF
        children, aux = node.take(tree)
        if LEAF_TYPES.issuperset(map(type, children)):
            out.extend(children)
            return _intern(node, aux, (LEAF,) * len(children))
    found = []
    for child in children:  # not a comprehension, which is one more frame a level
        if type(child) in LEAF_TYPES:
            out.append(child)
            found.append(LEAF)
        else:
            found.append(flatten_node(child, out))
    return _intern(node, aux, tuple(found))


def flatten_until(tree: Any, out: list[Any], is_leaf: Callable[[Any], bool]) -> Structure:
    node = None if is_leaf(tree) else NODES.get(type(tree)) or classify(type(tree))
    if node is None:
        out.append(tree)
        return LEAF
    children, aux = node.take(tree)
    found = []
    for child in children:
        found.append(flatten_until(child, out, is_leaf))  # noqa: PERF401
    return _intern(node, aux, tuple(found))


def build_node(structure: Structure, given: Iterator[Any]) -> Any:
    node = structure.node
    if node is None:
        return next(given)
    children = []
    for child in structure.children:
        children.append(build_node(child, given))  # noqa: PERF401
    return node.build(structure.aux, children)
