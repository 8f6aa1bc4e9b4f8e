"""Element types by the names of torch, NumPy and others."""

from __future__ import annotations

from typing import Any

from .errors import mistyped, refused

#: What NumPy, torch, JAX and ml_dtypes call the library's types.
NAMES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
    "bool": "bool", "bool_": "bool",
    # torch's older names.
    "double": "f64", "float": "f32", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
}  # fmt: skip

#: Python's own types, as NumPy takes them.
_BUILTINS = {float: "f64", int: "i64", bool: "bool"}


def named(name: str, value: Any) -> str:
    """The library's name of an element type: of its own name, of NumPy's or torch's ("int32"), or of a dtype of one of
    them. An unknown name is returned as it is: the format reports which it takes.
    """
    if isinstance(value, str):
        return NAMES.get(value.removeprefix("torch."), value)
    if isinstance(value, type) and value in _BUILTINS:
        return _BUILTINS[value]
    if getattr(value, "byteorder", "=") == ">":
        raise refused(f"{name} is {value!r}, of another byte order", "give a type of this machine's byte order")
    for said in (getattr(value, "name", None), getattr(value, "__name__", None), str(value)):
        known = NAMES.get(said.removeprefix("torch.")) if isinstance(said, str) else None
        if known is not None:
            return known
    raise mistyped(f"{name} is {value!r} (a {type(value).__name__}), not an element type",
                   f'give {name} as a name such as "int32", or as a dtype of torch or NumPy')
