"""Checks written from the text of the Python array API standard, version 2024.12, NumPy being the oracle for values.

`special.py` holds the standard's tables of special cases, `calls.py` calls of every function with its keywords.
"""
