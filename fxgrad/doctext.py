"""Docstrings of functions that a factory makes: a summary and an example, in the form of those written by hand."""

from __future__ import annotations

__all__ = ["documented"]


def documented(summary: str, code: str, result: str, imports: str = "import fxgrad as fx") -> str:
    """The summary, then `code` as typed at a prompt after `imports`, and the `result` it prints."""
    return f"{summary}\n\nExample:\n    >>> {imports}\n    >>> {code}\n    {result}\n"
