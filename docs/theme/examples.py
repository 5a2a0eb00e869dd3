"""For the reference pages: examples as sections of their own, and no members of classes that begin with an underscore.

Docstrings here say `Example:`, where the parser of Google's style looks for `Examples:`, or show a prompt without a heading.
"""

import inspect
import textwrap
from typing import Any

import griffe

# What inspection takes for the docstring of a field with a default: that of the default's class.
OF_BUILTINS = {inspect.cleandoc(cls.__doc__ or "") for cls in (bool, dict, float, int, list, str, tuple, type(None))}


def with_sections(text: str) -> str:
    """A docstring whose examples all stand under `Examples:`."""
    paragraphs = text.replace("\nExample:\n", "\nExamples:\n").split("\n\n")
    return "\n\n".join("Examples:\n" + textwrap.indent(p, "    ") if p.startswith(">>> ") else p for p in paragraphs)


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        text = inspect.cleandoc(obj.docstring.value)
        if obj.is_attribute and text in OF_BUILTINS:
            obj.docstring = None
        else:
            obj.docstring.value = with_sections(text)

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        for name in [name for name in cls.members if name.startswith("_")]:
            cls.del_member(name)
