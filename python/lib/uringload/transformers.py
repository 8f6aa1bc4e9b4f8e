"""Hugging Face's Trainer: a callback that keeps a loader's state in the checkpoints, and resumes from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from . import _log
from ._loader import DataLoader
from .errors import refused

__all__ = ["LoaderState", "Metrics"]


class Metrics(TrainerCallback):  # type: ignore[misc]
    """Adds what the loader measures (`DataLoader.metrics`) to whatever the Trainer logs.

    ``Trainer(..., callbacks=[uringload.transformers.Metrics()])``. The Trainer's progress line and its later callbacks
    show it. Its own reporters (``report_to``) come before this callback: give ``log``, a function of a dictionary and
    the step, such as ``lambda metrics, step: wandb.log(metrics, step=step)`` or one for `SummaryWriter.add_scalar`.
    """

    def __init__(self, log: Callable[[dict[str, float], int], Any] | None = None) -> None:
        self._log = log

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Any = None, train_dataloader: Any = None, **others: Any
    ) -> None:
        """Adds the loader's numbers to those that are logged."""
        metrics: dict[str, float] = getattr(train_dataloader, "metrics", dict)()
        if not metrics or not state.is_world_process_zero:
            return
        if logs is not None:
            logs.update(metrics)
        if self._log is not None:
            self._log(metrics, state.global_step)


class LoaderState(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves the state of the loader that `get_train_dataloader` returns with each checkpoint, and resumes from it.

    ``Trainer(..., callbacks=[uringload.transformers.LoaderState()])``. The state is in `trainer_state.json`, and serves
    all ranks. ``train(resume_from_checkpoint=...)`` then reads exactly the remaining samples of the epoch, also with
    ``ignore_data_skip=True`` and with another number of ranks.

    The Trainer counts steps, and takes the epoch from them. Where that would leave samples out, because a step has
    another number of samples than before, resuming is refused with `uringload.InvalidArgumentError`.
    """

    def __init__(self) -> None:
        #: The loader of the run.
        self.loader: DataLoader | None = None
        #: The state of the last checkpoint.
        self.saved: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into the checkpoint: our state is among the attributes."""
        if self.loader is not None:
            self.saved = self.loader.state_dict()
        return {"args": {}, "attributes": {"saved": self.saved}}

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **others: Any) -> None:
        """Loads the state of the checkpoint that the run resumes from."""
        if not isinstance(train_dataloader, DataLoader):
            raise refused(f"the Trainer reads from a {type(train_dataloader).__name__}, whose state is not exact here",
                          "return a uringload.DataLoader from get_train_dataloader, and do not prepare it")
        self.loader = train_dataloader
        if state.global_step == 0:
            return
        saved = _saved(state.stateful_callbacks.get(type(self).__name__))
        if saved is None:
            _log.warning("the checkpoint has no state of the loader: the Trainer skips batches by their number, or "
                         "with ignore_data_skip=True none")
            return
        train_dataloader.load_state_dict(saved)
        _check(train_dataloader, saved, args, state.global_step)


def _saved(exported: Any) -> dict[str, Any] | None:
    exported = exported[0] if isinstance(exported, list) else exported
    saved: dict[str, Any] | None = (exported or {}).get("attributes", {}).get("saved")
    return saved


def _check(loader: DataLoader, saved: dict[str, Any], args: Any, steps: int) -> None:
    """Refuses a resume in which the Trainer's steps would leave out a part of the state's epoch."""
    try:
        batches = len(loader)
    except TypeError:
        # Rows are made of samples, and then the Trainer knows no epochs: it ends by max_steps.
        return
    of_epoch = max(-(-batches // args.gradient_accumulation_steps), 1)
    epoch, done = divmod(steps, of_epoch)
    remaining = loader._remaining(saved)
    if epoch != saved["epoch"]:
        wrong = f"the state is in epoch {saved['epoch']}, and the Trainer counts to epoch {epoch}"
    elif not args.ignore_data_skip and remaining > batches - done * args.gradient_accumulation_steps:
        wrong = f"the epoch has {remaining} batches left, and the Trainer counts to its end sooner"
    else:
        return
    remedy = "resume with as many samples a step as before (ranks x batch_size x gradient_accumulation_steps)"
    if epoch == saved["epoch"]:
        remedy += ", or with ignore_data_skip=True"
    raise refused(f"{wrong}: {steps} steps were done, and an epoch has {of_epoch} of them now", remedy)
