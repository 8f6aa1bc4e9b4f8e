"""The log, "uringload", imported when there is something to say: it takes as long as all else here together."""

from __future__ import annotations


def info(text: str, *values: object) -> None:
    """Says what was chosen."""
    import logging

    logging.getLogger("uringload").info(text, *values)


def warning(text: str, *values: object) -> None:
    """Says what went otherwise than wished."""
    import logging

    logging.getLogger("uringload").warning(text, *values)
