"""Lightning: a callback that logs what the loader measures."""

from __future__ import annotations

import sys
from typing import Any

from ._loader import DataLoader

# Whichever of its two packages the program uses.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

__all__ = ["Metrics"]


class Metrics(Callback):  # type: ignore[misc]
    """Sends what the loader measures (`DataLoader.metrics`) to the trainer's loggers, as often as they get the others.

    ``Trainer(..., callbacks=[uringload.lightning.Metrics()])``. A training loader that is none of ours is left alone.
    """

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Logs every `log_every_n_steps` steps, on rank 0."""
        step = trainer.global_step
        if not trainer.is_global_zero or not trainer.log_every_n_steps or step % trainer.log_every_n_steps:
            return
        loader = trainer.train_dataloader
        loader = loader if isinstance(loader, DataLoader) else getattr(getattr(loader, "dataset", None), "loader", None)
        metrics = loader.metrics() if isinstance(loader, DataLoader) else {}
        if metrics:
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=step)
