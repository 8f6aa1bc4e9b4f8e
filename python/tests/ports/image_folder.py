"""Trains a classifier on an ImageFolder, in one process for each rank. A script as it is written for torch."""

from __future__ import annotations

import hashlib
import json
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


def work(rank: int, ranks: int, root: str, out: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{out}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train_dataset = datasets.ImageFolder(root, transforms.Compose([
        transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor(), normalize,
    ]))  # fmt: skip
    train_sampler = DistributedSampler(train_dataset)
    train_loader = DataLoader(dataset=train_dataset, batch_size=8, sampler=train_sampler, num_workers=2, drop_last=True)
    model = DistributedDataParallel(nn.Linear(3 * 32 * 32, len(train_loader.dataset.classes)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    seen = []
    for epoch in range(2):
        train_loader.sampler.set_epoch(epoch)
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images.flatten(1)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += [(epoch, int(label), hashlib.blake2b(image.numpy().tobytes(), digest_size=8).hexdigest())
                     for image, label in zip(images, labels)]  # fmt: skip
    told = {"seen": seen, "batches": len(train_loader), "samples": len(train_loader.sampler), "loss": float(loss),
            "workers": train_loader.num_workers, "pinned": train_loader.pin_memory}  # fmt: skip
    with open(f"{out}/{rank}.json", "w") as file:
        json.dump(told, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (2, sys.argv[1], sys.argv[2]), nprocs=2)
