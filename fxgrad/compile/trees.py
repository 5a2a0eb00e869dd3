"""Straight-line Python for trees of known structure: taking arguments apart, putting results together.

What `tree.flatten` and `tree.unflatten` do for any tree, without looking at what is known already. A tree that is there many
times (a layer, in parameters and in the optimizer's state) is taken apart by a function: Python needs 7 KB to compile a line.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

from fxgrad.structure import DICT, NODES, Structure

__all__ = ["TreeCode", "depth"]


_MANY = 4  # containers in a tree that is worth a function, if it is there more than once: each takes about five lines


def _count(structure: Structure, found: Counter[int]) -> int:
    """How many containers there are; adds how often each structure of many occurs, by identity: repeated ones are one object."""
    if structure.node is None:
        return 0
    count = 1 + sum([_count(child, found) for child in structure.children])
    if count >= _MANY:
        found[id(structure)] += 1
    return count


def depth(structure: Structure) -> int:
    """How many containers enclose the innermost leaf, at most."""
    level, found = [structure], 0
    while level := [child for s in level for child in s.children]:
        found += 1
    return found


class TreeCode:
    """Collects lines and the objects they refer to, in `scope`; `miss` is the statement for an argument of another structure."""

    def __init__(self, miss: str):
        self.miss = miss
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self._times: Counter[int] = Counter()
        self._functions: dict[int, str] = {}

    def _constant(self, value: Any) -> str:
        name = f"x{len(self.scope)}"
        self.scope[name] = value
        return name

    # -- apart

    def take(self, structure: Structure, name: str, leaves: list[str]) -> None:
        """Lines that miss if the variable `name` has another structure, else bind its leaves to the next of `leaves`."""
        _count(structure, self._times)
        self._take(structure, name, leaves)

    def _take(self, structure: Structure, name: str, leaves: list[str]) -> None:
        if self._times[id(structure)] > 1:
            call = f"{self._function(structure)}({name})"
            mine = leaves[: structure.num_leaves]
            del leaves[: structure.num_leaves]
            self.lines += [f"{name} = {call}", f"if {name} is None: {self.miss}", f"[{', '.join(mine)}] = {name}"]
        else:
            self._take_apart(structure, name, leaves)

    def _function(self, structure: Structure) -> str:
        """A function that answers the leaves of a tree, or None if it has another structure."""
        if id(structure) not in self._functions:
            inner = TreeCode("return None")
            inner._times = self._times
            names = [f"a{i}" for i in range(structure.num_leaves)]
            inner._take_apart(structure, "tree", [*names])
            lines = [*inner.lines, f"return [{', '.join(names)}]"]
            exec("\n    ".join(["def take(tree):", *lines]), inner.scope)
            self._functions[id(structure)] = self._constant(inner.scope["take"])
        return self._functions[id(structure)]

    def _take_apart(self, structure: Structure, name: str, leaves: list[str]) -> None:
        node = structure.node
        if node is None:
            self.lines.append(f"{leaves.pop(0)} = {name}")
            return
        self.lines.append(f"if type({name}) is not {self._constant(node.cls)}: {self.miss}")
        count = len(structure.children)
        if node is DICT:
            self._take_dict(structure, name, leaves)
        elif node is NODES[tuple] or node is NODES[list] or issubclass(node.cls, tuple):
            self.lines.append(f"if len({name}) != {count}: {self.miss}")
            self._children(structure, name, leaves)
        elif node is not NODES[type(None)]:
            take, key = self._constant(node.take), self._constant(node.key)
            parts = f"{name}_"
            self.lines.append(f"{parts}, aux = {take}({name})")
            self.lines.append(f"if len({parts}) != {count} or {key}(aux) != {self._constant(structure.key)}: {self.miss}")
            self._children(structure, parts, leaves)

    def _take_dict(self, structure: Structure, name: str, leaves: list[str]) -> None:
        keys = structure.aux.keys
        self.lines.append(f"if len({name}) != {len(keys)}: {self.miss}")
        if not keys:
            return
        get = self._constant(itemgetter(*keys))
        self.lines += ["try:", f"    {name} = {get}({name})", f"except KeyError: {self.miss}"]
        if len(keys) == 1:
            self._take(structure.children[0], name, leaves)
        else:
            self._children(structure, name, leaves)

    def _children(self, structure: Structure, name: str, leaves: list[str]) -> None:
        inner = []
        targets = []
        for i, child in enumerate(structure.children):
            if child.node is None:
                targets.append(leaves.pop(0))
            else:
                targets.append(f"{name}_{i}")
                skipped = leaves[: child.num_leaves]
                del leaves[: child.num_leaves]
                inner.append((child, targets[-1], skipped))
        if targets:
            self.lines.append(f"{', '.join(targets)}, = {name}")
        for child, target, names in inner:
            self._take(child, target, names)

    def convert(self, name: str, kind: type, function: Any) -> None:
        """Lines that make something else of a leaf of this very type."""
        self.lines.append(f"if type({name}) is not {self._constant(kind)}: {self.miss}")
        self.lines.append(f"{name} = {self._constant(function)}({name})")

    # -- together

    def build(self, structure: Structure, leaves: list[str]) -> str:
        """The expression for a tree of the expressions `leaves`, which it consumes."""
        node = structure.node
        if node is None:
            return leaves.pop(0)
        parts = [self.build(child, leaves) for child in structure.children]
        if node is NODES[tuple]:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if node is NODES[list]:
            return f"[{', '.join(parts)}]"
        if node is NODES[type(None)]:
            return "None"
        if node is DICT:
            place = dict(zip(structure.aux.keys, parts, strict=True))
            return "{" + ", ".join(f"{self._key(k)}: {place[k]}" for k in structure.aux.order) + "}"
        return f"{self._constant(node.build)}({self._constant(structure.aux)}, [{', '.join(parts)}])"

    def _key(self, key: Any) -> str:
        return repr(key) if type(key) is str else self._constant(key)
