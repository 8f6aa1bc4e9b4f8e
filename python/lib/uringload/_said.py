"""The facts about another library's object that decide how it is read: whether its code is its library's own,
and whether these facts have changed."""

from __future__ import annotations

import sys
from typing import Any


def unlike(given: Any, kind: Any, methods: tuple[str, ...], attributes: tuple[str, ...] = ()) -> str | None:
    """Where an object does something else than its library's class: in one of these methods, which are not those that
    the class's module has, or in one of these attributes, which its class makes. None: nowhere.
    """
    module = vars(sys.modules[kind.__module__])
    its, held = type(given), vars(given)
    if getattr(its, "__getattribute__") is not object.__getattribute__:
        return "it has its own __getattribute__"
    if "__getitems__" not in methods:
        methods += ("__getitems__",)
    for name in methods:
        method, known = getattr(its, name, None), getattr(kind, name, None)
        is_known = method is known and (known is None or getattr(method, "__globals__", None) is module)
        if name in held or not is_known:
            return f"it has its own {name}"
    for name in attributes:
        if name not in held or hasattr(its, name):
            return f"it has its own way to {name}"
    return None


def differs(one: list[Any], other: list[Any]) -> bool:
    """Whether what an object says is something else than it said. What cannot be compared differs, unless it is the
    same object.
    """
    return len(one) != len(other) or not all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, list) and isinstance(other, list):
        if one and other and type(one[0]) is type(other[0]) and type(one[0]) in (int, tuple):
            # Numbers, and paths with labels: there may be millions, and most are still the same objects.
            return bool(one == other)
        return not differs(one, other)
    return type(one) is type(other) and isinstance(one, (int, float, str, dict)) and bool(one == other)
