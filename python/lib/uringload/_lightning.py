"""What Lightning counts, where a loader resumes under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _callers, _log
from .errors import refused

if TYPE_CHECKING:
    from ._loader import DataLoader

#: What fits, found on the call stack.
_LOOPS = (("lightning.pytorch.loops.fit_loop", "_FitLoop"), ("pytorch_lightning.loops.fit_loop", "_FitLoop"))


def check(loader: DataLoader, state: dict[str, Any]) -> None:
    """Refuses a state from which Lightning would leave out the rest of the epoch.

    Lightning goes on counting the batches of the epoch from where its checkpoint was, and ends the epoch when there are
    as many as the loader has now. With more samples a batch over all ranks, that is before the epoch's last sample.
    """
    loop = _callers.caller(_LOOPS)
    if loop is None or loop.trainer.limit_train_batches != 1.0:
        return
    try:
        batches = len(loader)
    except TypeError:
        return
    done, remaining = loop.epoch_loop.batch_progress.current.ready, loader._remaining(state)
    if state["position"] and done + remaining > batches:
        raise refused(
            f"Lightning has counted {done} batches of this epoch, which has {remaining} left and {batches} in all with "
            "this batch size and these ranks: it would leave out the last",
            f"resume with global_batch_size={round(state['position'] / done) if done else '...'}, as before",
        )


def warn(loader: DataLoader) -> None:
    """Warns of a pass with which Lightning goes on within an epoch, and that no state says where to begin.

    Lightning warns of that itself, unless a loader has states. A checkpoint that is saved after `fit` has none of them.
    """
    loop = _callers.caller(_LOOPS)
    if loop is None or not loop.restarting or loader._resume is not None or loader._batches is None:
        return
    done = loop.epoch_loop.batch_progress.current.ready
    if 0 < done < loader._batches:
        _log.warning("Lightning goes on after batch %d of an epoch, and its checkpoint has no state of the loader: the "
                     "epoch begins again; save within fit, as ModelCheckpoint does", done)
