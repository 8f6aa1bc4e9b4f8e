"""The logger "uringload". `logging` is imported on first use: it takes as long as the rest of the package together."""

from __future__ import annotations

#: The steps down that the log has had.
_told: set[str] = set()


def info(text: str, *values: object) -> None:
    """Logs a choice that the loader made."""
    import logging

    logging.getLogger("uringload").info(text, *values)


def warning(text: str, *values: object) -> None:
    """Logs something that went other than the user asked."""
    import logging

    logging.getLogger("uringload").warning(text, *values)


def steps(found: list[tuple[str, bool]]) -> None:
    """Logs steps down from the best way, each once in a process: a warning where it is a defect, and no choice."""
    for step, is_defect in found:
        if step not in _told:
            _told.add(step)
            (warning if is_defect else info)("%s", step)
