"""The states of a loader: where its next pass goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _lightning, _order
from .errors import mistyped, refused

if TYPE_CHECKING:
    from ._loader import DataLoader


def saved(loader: DataLoader) -> dict[str, Any]:
    """The position after the last batch that was handed out."""
    import json

    with loader._lock:
        loader._check()
        loader._settled()
        text = loader._state
        if text is None and loader._resume is None and loader._native is not None:
            text = loader._native.state()
        if text is None:
            probe = loader._build(loader._next_epoch, loader._resume, epochs=0)
            text = probe.state()
            probe.close()
        state: dict[str, Any] = json.loads(text or "{}")
        if isinstance(loader._order, _order.Sampled):
            state["sampler"] = loader._order.draws.saved(state["epoch"], loader._rank_now())
    return state


def load(loader: DataLoader, state_dict: Mapping[str, Any]) -> None:
    """Makes the next pass resume from a state."""
    import json

    if not isinstance(state_dict, Mapping):
        raise mistyped(f"state_dict is a {type(state_dict).__name__}", "give what state_dict() returned")
    with loader._lock:
        loader._check()
        loader._look_again()
        loader._settled()
        try:
            text = json.dumps(dict(state_dict))
        except (TypeError, ValueError) as error:
            raise refused(f"the state is not JSON: {error}", "give what state_dict() returned") from None
        epoch = state_dict.get("epoch")
        # What is no epoch is refused with the rest of the state.
        epoch = epoch if isinstance(epoch, int) and 0 <= epoch < 1 << 64 else 0
        # Refuses a state that does not belong here, before the current reader is closed.
        drawn: Any = contextlib.nullcontext()
        if isinstance(loader._order, _order.Sampled):
            drawn = loader._order.draws.resumed(state_dict, loader._rank_now())
        with drawn as ids:
            loader._build(epoch, text, epochs=0, ids=ids).close()
            _lightning.check(loader, dict(state_dict))
        loader._let_go()
        loader._pass, loader._state, loader._begin_at = None, None, 0
        loader._resume, loader._next_epoch = text, epoch


def remaining(loader: DataLoader, state_dict: Mapping[str, Any]) -> int:
    """Batches that a pass from this state has left of its epoch, on each rank, where rows are not packed."""
    left = int(state_dict["length"]) - int(state_dict["position"])
    with loader._lock:
        loader._settled()
        of_all: int = loader._options["batch_size"] * loader._options["world_size"]
    return left // of_all if loader._options["drop_last"] else -(-left // of_all)
