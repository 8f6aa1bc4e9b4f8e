"""Weights & Biases: a callback that logs what a loader measures, and keeps its last verdict in the run's summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._loader import DataLoader
from .errors import mistyped, refused

__all__ = ["Metrics"]

#: The axis of the loader's charts: the run's own count goes on with every row that is logged.
_STEP = "loader/step"


class Metrics:
    """Logs what a loader measures (`DataLoader.metrics`) to a run of W&B, and its verdict to the run's summary.

        metrics = uringload.wandb.Metrics()
        with uringload.watch(loader, log=metrics):   # once a minute; or in the loop, every so many steps:
            metrics.log(loader, step)

    `uringload.transformers.Metrics` takes it as its ``log``. Charts are ``loader/...`` over ``loader/step``.

    Args:
        run: the run; None: the one of ``wandb.init``.
        commit: whether each time makes a row of its own. False: the numbers go into the row that the program logs next,
            so that its count of rows stays its own.
    """

    def __init__(self, run: Any = None, *, commit: bool = False) -> None:
        if run is None:
            import wandb

            run = wandb.run
        if run is None:
            raise refused("there is no run of W&B", "call wandb.init first, or give a run")
        if not callable(getattr(run, "log", None)):
            raise mistyped(f"run is a {type(run).__name__}, without log", "give what wandb.init returned")
        #: The run.
        self.run = run
        self._commit = commit
        run.define_metric(_STEP, hidden=True)
        run.define_metric("loader/*", step_metric=_STEP)

    def __call__(self, metrics: Mapping[str, float], step: int) -> None:
        """Logs numbers of a step."""
        self.run.log({**metrics, _STEP: step}, commit=self._commit)

    def log(self, loader: DataLoader, step: int) -> None:
        """Logs what a loader measures, and its verdict."""
        metrics = loader.metrics()
        if metrics:
            self(metrics, step)
            self.run.summary["loader/verdict"] = str(loader.verdict())
