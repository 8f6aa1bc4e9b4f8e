#!/usr/bin/env python3
"""Measures sound in a folder, decoded by soundfile, against PyTorch's DataLoader at its best number of workers.

usage: benches/audio.py DIR [--files N] [--rounds N]

Makes N FLAC files (2000) of 10 s at 16 kHz under DIR, kept from run to run. Both sides give batches of 16 crops of
f32, [16, 160000], in a random order, from the page cache. Each round runs both, every second round in reverse order;
the numbers of workers are tried twice before the first. Needs numpy, soundfile, torch and uringload.
"""

import argparse
import os
import resource
import statistics
import time

import numpy as np
import soundfile
import torch
import uringload

RATE, SECONDS, BATCH = 16_000, 10, 16
WORKERS = (0, 1, 2, 4)


def make(folder, files):
    os.makedirs(folder, exist_ok=True)
    for number in range(files):
        path = os.path.join(folder, f"{number:05d}.flac")
        if not os.path.exists(path):
            # Some tones and noise: about half of its size is left, as of speech.
            draw = np.random.default_rng(number)
            at = np.arange(RATE * SECONDS) / RATE
            sound = sum(np.sin(2 * np.pi * f * at) for f in draw.uniform(80, 3000, 5)) / 8
            soundfile.write(path, sound + draw.normal(0, 0.01, len(at)), RATE, subtype="PCM_16")


def decoded(data):
    # As in docs/your-data.md: of io.BytesIO, libsndfile would ask Python for every 8 KB, which costs both sides time.
    file = os.memfd_create("sound")
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    return soundfile.read(file, dtype="float32")[0]


class Sounds(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, at):
        with open(self.paths[at], "rb") as file:
            return torch.from_numpy(decoded(file.read()))


def ours(folder):
    # 32 MiB are 8 batches ahead; 256 MiB, the default, would be filled at the start, and the system clears them first.
    return uringload.DataLoader(folder, BATCH, shuffle=True, binary="data", drop_last=True, output="torch",
                                memory_limit="32MiB",
                                transform=lambda sample: {"sound": decoded(sample["data"])})  # fmt: skip


def theirs(folder, workers):
    return torch.utils.data.DataLoader(Sounds(folder), BATCH, shuffle=True, drop_last=True, num_workers=workers)


def used():
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_utime + resource.getrusage(kind).ru_stime for kind in kinds)


def measured(loader):
    """Samples per second of one epoch, and CPU seconds per 1000 samples."""
    cpu, start, samples = used(), time.perf_counter(), 0
    for batch in loader:
        sound = batch["sound"] if isinstance(batch, dict) else batch
        assert sound.shape == (BATCH, RATE * SECONDS) and sound.dtype == torch.float32
        samples += len(sound)
    seconds = time.perf_counter() - start
    del loader
    return samples / seconds, (used() - cpu) / samples * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    folder = os.path.join(args.dir, "flac")
    make(folder, args.files)
    best = max(WORKERS, key=lambda workers: max(measured(theirs(folder, workers))[0] for _ in range(2)))
    sides = {"uringload": lambda: ours(folder), f"torch, {best} workers": lambda: theirs(folder, best)}
    rates, cpus = {name: [] for name in sides}, {name: [] for name in sides}
    for number in range(args.rounds):
        for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
            rate, cpu = measured(sides[name]())
            rates[name].append(rate)
            cpus[name].append(cpu)
    for name in sides:
        least, most = min(rates[name]), max(rates[name])
        rate, cpu = statistics.median(rates[name]), statistics.median(cpus[name])
        print(f"{name}: {rate:.0f} samples/s ({least:.0f} to {most:.0f}), {cpu:.2f} CPU s for 1000")
    mine, other = (statistics.median(rates[name]) for name in sides)
    print(f"ratio {mine / other:.2f}, {os.cpu_count()} processors, {args.rounds} rounds")


if __name__ == "__main__":
    main()
