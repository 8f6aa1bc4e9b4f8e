"""Trains a segmentation model on images and masks, with Albumentations. A script as it is written for torch."""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys

import albumentations as A
import numpy as np
import torch
from albumentations.pytorch import ToTensorV2
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset


class Scans(Dataset):
    """Images and their masks."""

    def __init__(self, root: str, transform: A.Compose) -> None:
        self.images = sorted(pathlib.Path(root, "images").iterdir())
        self.masks = sorted(pathlib.Path(root, "masks").iterdir())
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = np.array(Image.open(self.images[index]).convert("RGB"))
        made = self.transform(image=image, mask=np.array(Image.open(self.masks[index])))
        return made["image"], made["mask"].long()


def main(root: str, out: str) -> None:
    torch.manual_seed(0)
    scans = Scans(root, A.Compose([A.Resize(32, 32), A.Normalize(), ToTensorV2()]))
    train_loader = DataLoader(scans, batch_size=8, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    model = nn.Conv2d(3, 2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    seen = []
    for epoch in range(2):
        for images, masks in train_loader:
            loss = nn.functional.cross_entropy(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            both = [image.numpy().tobytes() + mask.numpy().tobytes() for image, mask in zip(images, masks)]
            seen += [(epoch, hashlib.blake2b(one, digest_size=8).hexdigest()) for one in both]
    with open(out, "w") as file:
        json.dump({"seen": seen, "batches": len(train_loader), "types": [str(images.dtype), str(masks.dtype)]}, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
