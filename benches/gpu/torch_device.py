#!/usr/bin/env python3
"""The Python package on a real GPU, with a real PyTorch: what no mock of a driver can show.

usage: benches/gpu/torch_device.py DIR --json FILE [--required] [--figures] [--tiny]

Checks: streams, DLPack, tensors dropped in backward, a graph captured while a loader works, pinned memory. --figures
measures instead: how much a loader slows a matrix product and a copy within the GPU, and a training loop beside
DataLoader's.

Without PyTorch or a GPU it says so and ends well, unless --required says that there is one. A failed check does not
keep the others from running. --tiny is little data, for the gate, which runs this with a mock of the driver
(python/tests/test_gpu_suite.py).
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback

import merge

try:
    import torch

    import uringload
except ImportError as error:
    torch, MISSING = None, str(error)

ELEMENTS, RECORDS, BATCH = 1024, 20_000, 64
LARGE_BYTES, LARGE = 1 << 20, 512
# What is copied within the GPU beside a loader, and the side of a matrix.
COPY_BYTES, SIDE = 1 << 29, 8192


def made(folder):
    """Records that tell their number in every element, and large ones."""
    small, large = os.path.join(folder, "torch-small.bin"), os.path.join(folder, "torch-large.bin")
    numbers = torch.arange(RECORDS, dtype=torch.int32).repeat_interleave(ELEMENTS)
    numbers.numpy().tofile(small)
    with open(large, "wb") as file:
        for number in range(LARGE):
            file.write(bytes([number % 251]) * LARGE_BYTES)
    return small, large


def small_loader(files, **given):
    asked = {"record_bytes": 4 * ELEMENTS, "dtype": "i32", "output": "torch", "batch_size": BATCH, "index": True}
    return uringload.DataLoader(files[0], **{**asked, "device": "cuda:0", **given})


def large_loader(files, **given):
    asked = {"record_bytes": LARGE_BYTES, "dtype": "u8", "output": "torch", "batch_size": 16, "device": "cuda:0"}
    return uringload.DataLoader(files[1], **{**asked, **given})


def is_right(batch):
    """Whether each record is the one that the index says, as a tensor on the GPU."""
    data, index = batch["data"], batch["index"]
    return (data == index.to(data.device, data.dtype).view(-1, 1)).all()


def streams(files):
    """On a stream of its own, with other work before it; and dropped while that is queued."""
    side, wrong = torch.cuda.Stream(), []
    with torch.cuda.stream(side), small_loader(files, shuffle=True) as loader:
        for batch in loader:
            torch.cuda._sleep(200_000)
            wrong.append(~is_right(batch))
            del batch
    torch.cuda.synchronize()
    assert not torch.stack(wrong).any().item(), "a batch was read before it was there, or after it was gone"


def dlpack(files):
    with small_loader(files, output="dlpack") as loader:
        for number, batch in enumerate(loader):
            tensor = torch.from_dlpack(batch["data"])
            assert tensor.is_cuda and tensor.shape[1] == ELEMENTS
            wanted = torch.as_tensor(batch.ids, device="cuda", dtype=torch.int32).view(-1, 1)
            assert (tensor == wanted).all().item(), f"batch {number}"
            if number == 20:
                break


def backward(files):
    """The batch is dropped between forward and backward, which needs it."""
    weight = torch.ones(ELEMENTS, device="cuda", requires_grad=True)
    with small_loader(files) as loader:
        for batch in loader:
            inputs = batch["data"].float()
            wanted = inputs.double().sum(0)
            loss = (inputs * weight).sum()
            del batch, inputs
            loss.backward()
            assert torch.allclose(weight.grad.double(), wanted, rtol=1e-4)
            weight.grad = None


def graph(files):
    """Captured, in the mode global, again and again while loaders of both kinds work; and replayed over their batches.
    """
    for make, check in ((small_loader, True), (large_loader, False)):
        with make(files) as loader:
            steps = iter(loader)
            first = next(steps)["data"]
            static, out = first.clone(), torch.zeros((), dtype=torch.int64, device="cuda")
            side, held = torch.cuda.Stream(), first
            del first
            for step, batch in enumerate(steps):
                data = batch["data"]
                if data.shape != static.shape:
                    continue
                if step % 10 == 0:
                    captured = torch.cuda.CUDAGraph()
                    side.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.graph(captured, stream=side):
                        out.copy_(static.long().sum())
                        # The batch before goes in the capture.
                        held = None
                static.copy_(data)
                captured.replay()
                assert out.item() == data.long().sum().item(), "the graph read something else"
                held = data
                del batch, data
            assert step > 5 or not check


def pinned(files):
    with small_loader(files, device="cpu", pin_memory=True) as loader:
        for number, batch in enumerate(loader):
            assert batch["data"].is_pinned(), "not pinned for torch"
            there = batch["data"].to("cuda", non_blocking=True)
            index = batch["index"].to("cuda", non_blocking=True)
            del batch
            assert (there == index.to(there.dtype).view(-1, 1)).all().item(), f"batch {number}"


def timed(work, count=1):
    """Milliseconds of the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


class Old(torch.utils.data.Dataset if torch else object):
    """What a script has before."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return RECORDS

    def __getitem__(self, number):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        return torch.frombuffer(bytearray(os.pread(self.file, 4 * ELEMENTS, number * 4 * ELEMENTS)), dtype=torch.int32)


def trained(batches):
    """Losses of a model that is trained on the batches, and the seconds that took."""
    torch.manual_seed(1)
    model = torch.nn.Linear(ELEMENTS, 1, device="cuda")
    steps, losses = torch.optim.SGD(model.parameters(), lr=1e-6), []
    begin = time.monotonic()
    for data in batches:
        inputs = data.to("cuda", non_blocking=True).float() / RECORDS
        loss = (model(inputs) - inputs[:, :1]).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), time.monotonic() - begin


def training(files):
    """The same losses as under DataLoader, and the ratio of the times."""
    theirs = torch.utils.data.DataLoader(Old(files[0]), batch_size=BATCH, num_workers=8, pin_memory=True)
    wanted, slow = trained(theirs)
    with small_loader(files) as loader:
        losses, fast = trained(batch["data"] for batch in loader)
    assert torch.allclose(losses, wanted, rtol=1e-4), "other losses"
    return {"seconds": fast, "dataloader_seconds": slow, "times_as_fast": slow / fast}


def beside(files):
    """The rates of a matrix product, and of a copy within the GPU, beside a loader's copies, of those alone."""
    a = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    b = torch.empty(COPY_BYTES, device="cuda", dtype=torch.uint8)
    c = torch.empty_like(b)
    told = {}
    for name, work in {"gemm": lambda: torch.mm(a, a), "bandwidth": lambda: c.copy_(b)}.items():
        timed(work, 10)
        alone, together = [], []
        for _ in range(5):
            alone.append(timed(work, 10))
            with large_loader(files) as loader:
                for batch in loader:
                    together.append(timed(work, 10))
                    del batch
        told[name] = statistics.median(alone) / statistics.median(together)
    return told


CHECKS = (streams, dlpack, backward, graph, pinned)
FIGURES = (beside, training)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--json", required=True)
    parser.add_argument("--required", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    missing = MISSING if torch is None else None if torch.cuda.is_available() else "PyTorch sees no GPU"
    result = {"skipped": missing} if missing else {"torch": torch.__version__, "uringload": uringload.__version__}
    failed = bool(missing) and args.required

    def save():
        merge.replace(args.json, json.dumps(result, indent=1))

    save()
    if missing:
        print(f"skipped: torch: {missing}")
        sys.exit(1 if failed else 0)
    if args.tiny:
        globals().update(RECORDS=1600, LARGE=48, COPY_BYTES=1, SIDE=1)
    files = made(args.dir)
    checks = FIGURES if args.figures else CHECKS
    result["checks"] = [check.__name__ for check in checks]
    for check in checks:
        begin = time.monotonic()
        try:
            told = {"passed": True, **(check(files) or {})}
        except Exception as error:  # The others are not lost.
            traceback.print_exc()
            told, failed = {"passed": False, "error": repr(error)}, True
        result[check.__name__] = {**told, "took_s": time.monotonic() - begin}
        print(check.__name__, json.dumps(result[check.__name__]), flush=True)
        save()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
