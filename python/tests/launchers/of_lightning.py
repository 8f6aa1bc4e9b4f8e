"""The classes for Lightning, in a module of their own so that spawned processes can unpickle them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import torch


class Model(lightning.LightningModule):  # type: ignore[misc]
    """Notes which records it was given."""

    def __init__(self, numbers: Callable[[Any], list[int]], note: Callable[[list[int]], None]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)
        self.seen: list[int] = []
        self._numbers, self._note = numbers, note

    def training_step(self, batch: Any, _: int) -> Any:
        """One step."""
        self.seen += self._numbers(batch)
        return self.layer(batch["data"].float()).mean() * 1e-3

    def configure_optimizers(self) -> Any:
        """Any will do."""
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_train_end(self) -> None:
        """Writes down what was seen."""
        self._note(self.seen)


class Saves(lightning.Callback):  # type: ignore[misc]
    """Saves a checkpoint after so many steps."""

    def __init__(self, steps: int, path: str) -> None:
        self._steps, self._path = steps, path

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:
        """Saves, if it is time."""
        if trainer.global_step == self._steps:
            trainer.save_checkpoint(self._path)
