#!/usr/bin/env python3
"""Reads files in the order of a sampler, within torchdata's nodes, with 64 reads in flight and no worker processes.

    pip install torchdata
    examples/torchdata_reader.py data/photos --batch-size 64
    examples/torchdata_reader.py data/photos --batch-size 64 --stop 5 --state state.json
    examples/torchdata_reader.py data/photos --batch-size 64 --resume state.json

torchdata owns the order, the batches and the state; `uringload.Reader` reads what the sampler is about to ask for. At
the end it prints how many samples it was given, and a digest of their bytes that does not depend on their order: those
of a run that was stopped and of the one that went on add up to that of an epoch.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import time
from typing import Any

import torchdata.nodes
from torch.utils.data import DistributedSampler

import uringload


class ReadAhead(torchdata.nodes.BaseNode):  # type: ignore[misc]
    """The bytes of what a node of numbers asks for, in its order.

    Args:
        source: a node of sample numbers.
        reader: reads them. It belongs to this node alone.
        spans: file, offset and length in bytes of each sample.
        ahead: samples that are read before they are asked for.

    Returns:
        from each `next`, the sample's number and its bytes as a `uringload.Tensor`.
    """

    def __init__(
        self, source: torchdata.nodes.BaseNode, reader: uringload.Reader, spans: list[tuple[int, int, int]], ahead: int
    ) -> None:
        super().__init__()
        self._source, self._reader, self._spans, self._ahead = source, reader, spans, ahead
        # Requests with their samples' numbers, in order; and the answers that came before their turn.
        self._asked: collections.deque[tuple[int, int]] = collections.deque()
        self._answers: dict[int, Any] = {}
        self._requests = 0

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begins an epoch, or goes on at a state. What is still being read for the last one is taken back."""
        super().reset(initial_state)
        for request, _ in self._asked:
            self._reader.cancel(request)
        self._asked.clear()
        self._answers.clear()
        self._source.reset(None if initial_state is None else initial_state["source"])
        for number in [] if initial_state is None else initial_state["asked"]:
            self._ask(number)

    def _ask(self, number: int) -> None:
        self._reader.submit(self._requests, self._spans[number])
        self._asked.append((self._requests, number))
        self._requests += 1

    def next(self) -> tuple[int, uringload.Tensor]:
        """The next sample. An error of its read is raised in its place; the next call goes on after it."""
        while len(self._asked) < self._ahead:
            try:
                self._ask(next(self._source))
            except StopIteration:
                break
        if not self._asked:
            raise StopIteration
        wanted, number = self._asked.popleft()
        while wanted not in self._answers:
            answer = self._reader.next()
            assert answer is not None, "each request is answered"
            self._answers[answer[0]] = answer[1]
        data = self._answers.pop(wanted)
        if isinstance(data, uringload.Error):
            raise data
        return number, data

    def get_state(self) -> dict[str, Any]:
        """The sampler's state, and what it has asked for that was not handed out yet."""
        return {"source": self._source.state_dict(), "asked": [number for _, number in self._asked]}


def pipeline(paths: list[pathlib.Path], batch_size: int, ahead: int = 64) -> Any:
    """torchdata's loader over shuffled files: batches are lists of numbers and bytes."""
    reader = uringload.Reader(paths)
    spans = [(file, 0, reader.size(file)) for file in range(len(paths))]
    # A sampler whose order follows from the epoch: torch's RandomSampler would draw another one after a resume.
    sampler: Any = DistributedSampler(range(len(paths)), num_replicas=1, rank=0, seed=3)  # type: ignore[arg-type]
    numbers = torchdata.nodes.SamplerWrapper(sampler)
    node = ReadAhead(numbers, reader, spans, ahead)
    return torchdata.nodes.Loader(torchdata.nodes.Batcher(node, batch_size, drop_last=False))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--ahead", type=int, default=64, help="reads in flight")
    parser.add_argument("--stop", type=int, help="batches to read")
    parser.add_argument("--state", type=pathlib.Path, help="where to write the state at the end")
    parser.add_argument("--resume", type=pathlib.Path, help="a state to go on from")
    given = parser.parse_args()
    paths = sorted(path for path in given.folder.rglob("*") if path.is_file())
    loader = pipeline(paths, given.batch_size, given.ahead)
    if given.resume is not None:
        loader.load_state_dict(json.loads(given.resume.read_text()))
    start, batches, samples, read, digest = time.perf_counter(), 0, 0, 0, 0
    for batch in loader:
        for number, data in batch:
            content = paths[number].name.encode() + b"\0" + data.tobytes()
            digest += int.from_bytes(hashlib.sha256(content).digest()[:8], "little")
            samples, read = samples + 1, read + data.shape[0]
        batches += 1
        if batches == given.stop:
            break
    elapsed = time.perf_counter() - start
    if given.state is not None:
        given.state.write_text(json.dumps(loader.state_dict()))
    print(json.dumps({"samples": samples, "bytes": read, "digest": digest % (1 << 64), "seconds": round(elapsed, 3)}))


if __name__ == "__main__":
    main()
