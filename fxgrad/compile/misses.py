"""Why jit traced again: the part of the key that changed, in words."""

from __future__ import annotations

from typing import Any, NamedTuple

from fxgrad import tree
from fxgrad.structure import Entry, Path, Structure

__all__ = ["NEW_ARGUMENTS", "Miss"]

NEW_ARGUMENTS = "new arguments"
_SHOWN = 4  # changes named one by one
_LONGEST = 80  # characters of a static value


class Miss(NamedTuple):
    """A call that no trace answered: its key, that of the trace made before (None: there was none), and what had changed.

    A key is (structure of the arguments, avals, which are Python numbers, static arguments by position or name); `names` are
    those of the positional arguments. Words are found when they are asked for, since static arguments print themselves by the
    user's code.
    """

    key: tuple
    previous: tuple | None
    changed: str
    names: list[str]

    @property
    def why(self) -> str:
        """The reason in one line."""
        if self.changed != NEW_ARGUMENTS:
            return f"{self.changed} changed"
        if self.previous is None:
            return "no trace was held"
        changes = self._changes(self.previous)
        more = f", and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        return "; ".join(changes[:_SHOWN]) + more if changes else "its trace had been dropped"

    def _changes(self, old: tuple) -> list[str]:
        structure, avals, weak, statics = self.key
        if structure != old[0]:
            path, a, b = tree._first_difference(old[0], structure)
            changes = [f"structure of {self._name(path)} (first: before, second: now): {tree._details(a, b)}"]
        else:
            paths = _leaf_paths(structure)
            differing = [f"{self._name(p)}: {a} -> {b}" for p, a, b in zip(paths, old[1], avals, strict=True) if a is not b]
            kinds = {True: "a Python number", False: "an array"}
            changes = [*differing] + [
                f"{self._name(p)}: {kinds[a]} -> {kinds[b]}" for p, a, b in zip(paths, old[2], weak, strict=True) if a != b
            ]
        before = dict(old[3])
        changes += [
            f"static {self._static(k)}: {_short(before[k].value) if k in before else 'absent'} -> {_short(v.value)}"
            for k, v in statics
            if k not in before or before[k] != v
        ]
        return changes + [f"static {self._static(k)}: absent" for k in before if k not in dict(statics)]

    def _name(self, path: Path) -> str:
        """`w['hidden']` for the path of a leaf in (positional arguments, keyword arguments)."""
        if len(path) < 2:
            return "the arguments"
        group, first, *rest = path
        key = first.key
        if group.key == 0:
            statics = {k for k, _ in self.key[3]}
            key = [name for i, name in enumerate(self.names) if i not in statics][key]
        return f"{key}{tree.path_string(tuple(rest))}"

    def _static(self, key: int | str) -> str:
        return self.names[key] if isinstance(key, int) and key < len(self.names) else str(key)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _leaf_paths(structure: Structure) -> list[Path]:
    """The path to every leaf, in order."""
    out: list[Path] = []
    stack: list[tuple[Structure, tuple[Entry, ...]]] = [(structure, ())]
    while stack:
        shape, path = stack.pop()
        if shape.node is None:
            out.append(path)
            continue
        steps = tree._steps(shape)
        stack.extend((child, (*path, step)) for child, step in reversed(list(zip(shape.children, steps, strict=True))))
    return out
