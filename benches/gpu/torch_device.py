#!/usr/bin/env python3
"""The Python package on a real GPU, with a real PyTorch: what no mock of a driver can show.

usage: benches/gpu/torch_device.py DIR --json FILE [--required] [--figures] [--tiny]

Checks: streams, DLPack, tensors dropped in backward, a graph captured while a loader works, pinned memory, memory of
torch's allocator, alone and beside a trainer on the default stream, images against torchvision's, JPEGs decoded by the
GPU, and loaders ended while it does. --figures measures instead: how busy a trainer on the default stream is, how much
a loader slows a matrix product and a copy within the GPU, and a training loop beside DataLoader's.

Without PyTorch or a GPU it says so and ends well, unless --required says that there is one. A failed check does not
keep the others from running. --tiny is little data, for the gate, which runs this with a mock of the driver
(python/tests/test_gpu_suite.py).
"""

import argparse
import gc
import itertools
import json
import os
import pathlib
import shutil
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
# Over the large records: one takes 10 ms on an H100, which is too short for a rate.
PASSES = 20
# What a loader takes of torch's memory, and what is copied within the GPU beside one.
MEMORY_BYTES, COPY_BYTES = 64 << 20, 1 << 29
# Of a matrix.
SIDE = 8192
PHOTO = pathlib.Path(__file__).parents[2] / "images/tests/data/photo.jpg"
PHOTOS = 256
# Images, with their rows, columns and channels.
PIXELS = (64, 40, 36, 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def made(folder):
    """Records that tell their number in every element, large ones, and photographs."""
    small, large, photos = (os.path.join(folder, f"torch-{name}") for name in ("small.bin", "large.bin", "photos"))
    numbers = torch.arange(RECORDS, dtype=torch.int32).repeat_interleave(ELEMENTS)
    numbers.numpy().tofile(small)
    with open(large, "wb") as file:
        for number in range(LARGE):
            file.write(bytes([number % 251]) * LARGE_BYTES)
    os.makedirs(photos, exist_ok=True)
    for number in range(PHOTOS):
        shutil.copy(PHOTO, os.path.join(photos, f"{number:03}.jpg"))
    return small, large, photos


def small_loader(files, **given):
    asked = {"record_bytes": 4 * ELEMENTS, "dtype": "i32", "output": "torch", "batch_size": BATCH, "index": True}
    return uringload.DataLoader(files[0], **{**asked, "device": "cuda:0", **given})


def large_loader(files, **given):
    asked = {"record_bytes": LARGE_BYTES, "dtype": "u8", "output": "torch", "batch_size": 16, "index": True}
    return uringload.DataLoader(files[1], **{**asked, "device": "cuda:0", **given})


def is_right(batch, modulus=1 << 30):
    """Whether each record is the one that the index says, as a tensor on the GPU."""
    data, index = batch["data"], batch["index"] % modulus
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


def comes_back(before):
    """Fails unless torch soon has no more memory in use than before."""
    gc.collect()
    deadline = time.monotonic() + 10
    while torch.cuda.memory_allocated() > before:
        assert time.monotonic() < deadline, f"{torch.cuda.memory_allocated() - before} bytes did not come back"
        time.sleep(0.01)


def allocator(files):
    """Memory of torch's allocator, which gives out what work queued in the default stream has yet to read."""
    before = torch.cuda.memory_allocated()
    earlier = torch.ones(MEMORY_BYTES, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(200_000_000)
    total, wrong = earlier.sum(), []
    del earlier
    with small_loader(files, shuffle=True, device_memory=MEMORY_BYTES, device_allocator=torch.Tensor) as loader:
        for batch in loader:
            wrong.append(~is_right(batch))
            assert torch.cuda.memory_allocated() >= before + MEMORY_BYTES, "the memory is not torch's"
        assert not torch.stack(wrong).any().item(), "a batch was not right"
    assert total.item() == MEMORY_BYTES, "the loader wrote where others had yet to read"
    del batch, loader, total, wrong
    comes_back(before)


def timed(work, count=1):
    """Milliseconds of the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def cycles(seconds):
    """How long to sleep, for as many seconds."""
    timed(lambda: torch.cuda._sleep(1_000_000))
    return int(seconds * 1e3 / timed(lambda: torch.cuda._sleep(10_000_000)) * 10_000_000)


def stepped(loader, step, passes=1):
    """Seconds of all batches, each with a step of so many cycles in the current stream, which the host is ahead of."""
    wrong, batches = [], itertools.chain.from_iterable(itertools.repeat(loader, passes))
    first = next(batches)
    begin = time.monotonic()
    wrong.append(~is_right(first, 251))
    del first
    for batch in batches:
        torch.cuda._sleep(step)
        wrong.append(~is_right(batch, 251))
        del batch
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    assert not torch.stack(wrong).any().item(), "a batch was not right"
    return took


def backlog(files):
    """A trainer on the default stream, where work is always queued, beside a loader in torch's memory."""
    before, alone, beside = torch.cuda.memory_allocated(), [], []
    for _ in range(4):
        for took, step in ((alone, 0), (beside, 1)):
            # Steps as long as a batch takes: one after the other, they would halve the rate.
            step = step and cycles(alone[-1] / (PASSES * LARGE // 16))
            with large_loader(files, device_allocator=torch.Tensor) as loader:
                took.append(stepped(loader, step, PASSES))
    del loader
    comes_back(before)
    of_alone = statistics.median(alone[1:]) / statistics.median(beside[1:])
    return {"of_alone": of_alone, "alone_s": alone, "beside_s": beside}


def images(files):
    """What the device makes of pixels is what torchvision does."""
    path = os.path.join(os.path.dirname(files[0]), "torch-pixels.bin")
    count, height, width, channels = PIXELS
    pixels = os.urandom(count * height * width * channels)
    with open(path, "wb") as file:
        file.write(pixels)
    asked = [{}, {"size": (24, 20), "mean": MEAN, "std": STD, "flip": 1.0}, {"size": (50, 61)},
             {"size": (32, 20), "crop": "center"}]
    found = []
    for given in asked:
        transforms = {"data": uringload.Images(**given)}
        with uringload.DataLoader(path, record_bytes=height * width * channels, shape=PIXELS[1:], batch_size=count,
                                  output="torch", device="cuda:0", transforms=transforms) as loader:
            found.append(next(iter(loader))["data"])
    try:
        from torchvision.transforms.v2 import functional
    except ImportError as error:
        return {"skipped": str(error)}
    plain = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(PIXELS).permute(0, 3, 1, 2)
    plain = functional.to_dtype(plain.to("cuda"), torch.float32, scale=True)

    def resized(size):
        return functional.resize(plain, size, antialias=False)

    wanted = [plain, functional.normalize(functional.horizontal_flip(resized((24, 20))), MEAN, STD), resized((50, 61)),
              functional.center_crop(plain, (32, 20))]
    for given, ours, theirs in zip(asked, found, wanted):
        apart = (ours - theirs).abs().max().item() if ours.shape == theirs.shape else ours.shape
        assert ours.shape == theirs.shape and apart < 1e-4, f"{given}: {apart}"


def nvjpeg(files):
    """Pixels of JPEGs that the GPU decodes are those of the processor, but for a few levels; those that stay too."""
    told = {}
    stays = "center_crop(288), to_tensor(u8, hwc)"
    chains = {"center_crop(288), to_tensor(u8)": 1, "resize(200x160), to_tensor(u8)": 1, stays: 255}
    for chain, levels in chains.items():
        def pixels(chain=[chain, uringload.Images()] if chain == stays else chain, **given):
            with uringload.DataLoader(files[2], batch_size=32, output="torch", device="cuda:0", num_threads=1,
                                      transforms={"data": chain}, **given) as loader:
                batches = [batch["data"].clone() for batch in loader]
                return batches, loader.stats()["samples_decoded_on_device"], loader.route()["text"]
        # Ours first: memory of the device that the other one gave back would have its pixels.
        (ours, count, route), (theirs, *_) = pixels(nvjpeg=1), pixels()
        assert count > 0, f"the GPU decoded none: {route}"
        mean = levels * max((a.float() - b.float()).abs().mean().item() for a, b in zip(ours, theirs))
        assert len(ours) == len(theirs) and mean < 2, f"{chain}: {mean} levels apart"
        told[chain] = {"decoded": count, "levels_apart": mean}
    return told


def ended(files):
    """Loaders that are ended while the GPU decodes, one after the other."""
    chain = "random_resized_crop(224), hflip, normalize(imagenet)"
    for number in range(6):
        with uringload.DataLoader(files[2], batch_size=32, output="torch", device="cuda:0", nvjpeg=(1, 0.5)[number % 2],
                                  transforms={"data": chain}) as loader:
            for batch, _ in zip(loader, range(1 + number % 3)):
                batch["data"].sum()
    torch.cuda.synchronize()


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


def busy(files):
    """How busy a trainer on the default stream is, with steps of 1.5 times a batch's load, and of 2 ms at least."""
    with large_loader(files) as loader:
        stepped(loader, 0)
    with large_loader(files) as loader:
        load = stepped(loader, 0) / (LARGE // 16)
    step, shares = cycles(max(1.5 * load, 0.002)), []
    for _ in range(5):
        steps = []
        with large_loader(files) as loader:
            for batch in loader:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                is_right(batch, 251)
                torch.cuda._sleep(step)
                end.record()
                steps.append((begin, end))
                del batch
        torch.cuda.synchronize()
        worked = sum(begin.elapsed_time(end) for begin, end in steps)
        shares.append(worked / steps[0][0].elapsed_time(steps[-1][1]))
    return {"busy": statistics.median(shares), "shares": shares, "load_s": load}


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


CHECKS = (streams, dlpack, backward, graph, pinned, allocator, backlog, images, nvjpeg, ended)
FIGURES = (busy, beside, training)


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
        globals().update(RECORDS=1600, LARGE=48, PASSES=2, COPY_BYTES=1, SIDE=1,
                         PHOTO=PHOTO.with_name("422.jpg"), PHOTOS=64)
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
        if "skipped" in told:
            print(f"skipped: torch: {check.__name__}: {told['skipped']}", flush=True)
        save()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
