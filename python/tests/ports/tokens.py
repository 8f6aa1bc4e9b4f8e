"""Trains a language model on packed tokens, saves its state, and resumes. A script as it is written for torch."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import torch
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader

LENGTH = 32


class Windows(Dataset):
    """Windows of a file of tokens, each with its labels."""

    def __init__(self, path: str) -> None:
        self.tokens = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        window = self.tokens[index * LENGTH : (index + 1) * LENGTH + 1].astype(np.int64)
        return {"tokens": torch.from_numpy(window[:-1]), "labels": torch.from_numpy(window[1:])}


def main(path: str, saved: str, out: str, stop: int) -> None:
    torch.manual_seed(0)
    loader = DataLoader(Windows(path), batch_size=4, shuffle=True, drop_last=True)
    epoch, steps, seen = 0, 0, []
    if os.path.exists(saved):
        state = torch.load(saved, weights_only=False)
        loader.load_state_dict(state["loader"])
        epoch, steps = state["epoch"], state["steps"]
    while epoch < 2:
        for batch in loader:
            steps += 1
            seen += [(epoch, row.tolist(), after.tolist()) for row, after in zip(batch["tokens"], batch["labels"])]
            if steps == stop:
                torch.save({"loader": loader.state_dict(), "epoch": epoch, "steps": steps}, saved)
                break
        if steps == stop:
            break
        epoch += 1
    told = {"seen": seen, "steps": steps, "batches": len(loader), "types": [str(one.dtype) for one in batch.values()]}
    with open(out, "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
