"""TensorBoard: a callback that writes what a loader measures as scalars, and its verdict as text."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from ._loader import DataLoader
from .errors import mistyped, refused

__all__ = ["Metrics"]


class Metrics:
    """Writes what a loader measures (`DataLoader.metrics`) as scalars, and its verdict as text.

        metrics = uringload.tensorboard.Metrics(writer)
        with uringload.watch(loader, log=metrics):   # once a minute; or in the loop, every so many steps:
            metrics.log(loader, step)

    `uringload.transformers.Metrics` takes it as its ``log``. Scalars are grouped as ``loader/...``.

    Args:
        writer: a `SummaryWriter`, of ``torch.utils.tensorboard`` or of tensorboardX; or a folder, to which a new one
            writes, of whichever of the two is installed.
    """

    def __init__(self, writer: Any) -> None:
        writer = _writer(writer) if isinstance(writer, (str, os.PathLike)) else writer
        if not callable(getattr(writer, "add_scalar", None)):
            what = f"writer is a {type(writer).__name__}, without add_scalar"
            raise mistyped(what, "give a SummaryWriter or a folder")
        #: The `SummaryWriter`.
        self.writer = writer

    def __call__(self, metrics: Mapping[str, float], step: int) -> None:
        """Writes numbers of a step."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def log(self, loader: DataLoader, step: int) -> None:
        """Writes what a loader measures, and its verdict."""
        metrics = loader.metrics()
        if metrics:
            self(metrics, step)
            self.writer.add_text("loader/verdict", _paragraphs(str(loader.verdict())), step)


def _paragraphs(text: str) -> str:
    # TensorBoard shows Markdown.
    return "\n\n".join(text.splitlines())


def _writer(folder: str | os.PathLike[str]) -> Any:
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            return importlib.import_module(name).SummaryWriter(os.fspath(folder))
        except ImportError:
            continue
    raise refused("neither torch with tensorboard nor tensorboardX is installed, so nothing can write to a folder",
                  "pip install tensorboard (beside torch), or pip install tensorboardX")
