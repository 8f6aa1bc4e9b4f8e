"""A node for ``torchdata.nodes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torchdata.nodes

from .._loader import DataLoader

__all__ = ["Node"]


class Node(torchdata.nodes.BaseNode):  # type: ignore[misc]
    """The batches of a `DataLoader` as a node. It takes the arguments of `uringload.DataLoader`.

    Each reset begins the next epoch. The node's state is the loader's, so a restored pipeline goes on at the next batch
    without reading the earlier ones. Batches that later nodes have read ahead count as handed out.
    """

    def __init__(self, dataset: Any, **given: Any) -> None:
        super().__init__()
        #: The loader that reads.
        self.loader = DataLoader(dataset, **given)
        self._batches: Iterator[Any] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begins the next epoch, or goes on at a state."""
        super().reset(initial_state)
        if initial_state is not None:
            self.loader.load_state_dict(initial_state["loader"])
        self._batches = iter(self.loader)

    def next(self) -> Any:
        """The next batch."""
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """The state after the last batch."""
        return {"loader": self.loader.state_dict()}
