"""A module whose attributes test_jit rebinds."""

SCALE = 2.0
TABLE = [1.0, 2.0]


def slope() -> float:
    return 3.0
