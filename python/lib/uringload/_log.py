"""The logger "uringload". `logging` is imported on first use: it takes as long as the rest of the package together."""

from __future__ import annotations

from typing import Any

#: The steps down that the log has had.
_told: set[str] = set()
#: What `show_from` was called with last.
_shown: str | None = None


def info(text: str, *values: object) -> None:
    """Logs a choice that the loader made."""
    import logging

    logging.getLogger("uringload").info(text, *values)


def warning(text: str, *values: object) -> None:
    """Logs something that went other than the user asked."""
    import logging

    logging.getLogger("uringload").warning(text, *values)


def show_from(level: str) -> None:
    """Has the logger show what is of this level or above: on stderr, unless the program has handlers of its own."""
    global _shown
    if level == _shown:
        return
    _shown = level
    import logging

    class Otherwise(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            if not logging.getLogger().handlers:
                super().emit(record)

    logger = logging.getLogger("uringload")
    logger.setLevel(level.upper())
    if not logger.handlers:
        handler = Otherwise()
        handler.setFormatter(logging.Formatter("uringload: %(message)s"))
        logger.addHandler(handler)


def steps(found: list[tuple[str, bool]]) -> None:
    """Logs steps down from the best way, each once in a process: a warning where it is a defect, and no choice."""
    for step, is_defect in found:
        if step not in _told:
            _told.add(step)
            (warning if is_defect else info)("%s", step)
