"""The logger "uringload". `logging` is imported on first use: it takes as long as the rest of the package together."""

from __future__ import annotations


def info(text: str, *values: object) -> None:
    """Logs a choice that the loader made."""
    import logging

    logging.getLogger("uringload").info(text, *values)


def warning(text: str, *values: object) -> None:
    """Logs something that went other than the user asked."""
    import logging

    logging.getLogger("uringload").warning(text, *values)
