"""What a package has and imports when it is first asked for."""

from __future__ import annotations

from typing import Any

from .errors import Error


def module(package: str, name: str) -> Any:
    """A submodule. Where it cannot be imported, it is an attribute that is not there, to `hasattr` and to `help`."""
    import importlib

    try:
        return importlib.import_module(f"{package}.{name}")
    except (ImportError, Error) as error:
        raise AttributeError(f"{package}.{name} cannot be imported: {error}") from error


def missing(package: str, name: str) -> AttributeError:
    """As Python says it."""
    return AttributeError(f"module {package!r} has no attribute {name!r}")
