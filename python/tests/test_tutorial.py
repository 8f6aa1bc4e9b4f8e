"""The usual tutorials' scripts: at most two lines change, and each sample comes once an epoch, as before."""

from __future__ import annotations

import difflib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import textwrap
from typing import Any

import pytest
from conftest import needs_numpy, needs_torch

pytestmark = [needs_torch, needs_numpy]
COUNT = 24
#: What a tutorial's script may change.
LINES_MAX = 2

needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="skipped: torchvision is not installed"
)
needs_webdataset = pytest.mark.skipif(
    importlib.util.find_spec("webdataset") is None, reason="skipped: webdataset is not installed"
)

IMAGES = """
    import sys
    import torch
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    transform = transforms.Compose([transforms.Resize(16), transforms.CenterCrop(16), transforms.ToTensor()])
    data = datasets.ImageFolder(sys.argv[1], transform)
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        seen = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += [(round(255 * float(image[0, 0, 0])), int(label)) for image, label in zip(images, labels)]
        print(len(loader), sorted(seen))
"""

TENSORS = """
    import sys
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x = torch.from_numpy(np.load(sys.argv[1] + "/x.npy", mmap_mode="c"))
    y = torch.from_numpy(np.load(sys.argv[1] + "/y.npy", mmap_mode="c"))
    data = TensorDataset(x, y)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    model = torch.nn.Linear(8, 1)
    for epoch in range(2):
        seen = []
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs)[:, 0], targets)
            loss.backward()
            seen += zip(inputs[:, 0].tolist(), targets.tolist())
        print(len(loader), sorted(seen))
"""

TOKENS = """
    import sys
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Windows(Dataset):
        def __init__(self, path, length):
            self.tokens, self.length = np.memmap(path, dtype=np.uint16, mode="r"), length

        def __len__(self):
            return (len(self.tokens) - 1) // self.length

        def __getitem__(self, index):
            start = index * self.length
            window = torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))
            return {"tokens": window[:-1], "labels": window[1:]}

    loader = DataLoader(Windows(sys.argv[1] + "/train.bin", 8), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Embedding(512, 16), torch.nn.Linear(16, 512))
    for epoch in range(2):
        seen = []
        for batch in loader:
            logits = model(batch["tokens"])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
            loss.backward()
            seen += zip(batch["tokens"].tolist(), batch["labels"].tolist())
        print(len(loader), sorted(seen))
"""

WEBDATASET = """
    import sys
    import torch
    import webdataset as wds
    from torch.utils.data import DataLoader

    path = sys.argv[1] + "/{000000..000002}.tar"
    data = wds.WebDataset(path, shardshuffle=3).shuffle(100).decode("torchrgb").to_tuple("png", "cls").batched(4)
    loader = DataLoader(data, batch_size=None)
    for epoch in range(2):
        seen = []
        for images, labels in loader:
            seen += [(round(255 * float(image[0, 0, 0])), int(label)) for image, label in zip(images, labels)]
        print(sorted(seen))
"""

#: What changes in each script: lines, and what takes their place.
CHANGES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "images": (IMAGES, [("from torch.utils.data import DataLoader\n", "from uringload import DataLoader\n")]),
    "tensors": (TENSORS, [
        ("from torch.utils.data import DataLoader, TensorDataset\n",
         "from torch.utils.data import TensorDataset\n    from uringload import DataLoader\n"),
    ]),
    "tokens": (TOKENS, [
        ("from torch.utils.data import DataLoader, Dataset\n",
         "from torch.utils.data import Dataset\n    from uringload import DataLoader\n"),
    ]),
    "tokens by path": (TOKENS, [
        ("import numpy as np\n", "import numpy as np, uringload\n"),
        ('loader = DataLoader(Windows(sys.argv[1] + "/train.bin", 8), batch_size=4, shuffle=True)\n',
         'loader = uringload.DataLoader(sys.argv[1] + "/train.bin", 4, True, format="tokens", token_dtype="u16", '
         'window_tokens=9, stride=8, transforms={"tokens": uringload.Tokens()})\n'),
    ]),
    "webdataset": (WEBDATASET, [
        ("import webdataset as wds\n", "import webdataset as wds, uringload.adapters.webdataset as fast\n"),
        ('wds.WebDataset(path, shardshuffle=3).shuffle(100).decode("torchrgb").to_tuple("png", "cls").batched(4)\n',
         'wds.DataPipeline(fast.Samples(path, shuffle=True), wds.decode("torchrgb"), wds.to_tuple("png", "cls"), '
         'wds.batched(4))\n'),
    ]),
}  # fmt: skip


def script(name: str) -> tuple[str, str]:
    """A script before and after."""
    before, changes = CHANGES[name]
    after = before
    for old, new in changes:
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    return textwrap.dedent(before), textwrap.dedent(after)


def changed(before: str, after: str) -> int:
    """Lines that a user has to touch: replaced, added or removed."""
    steps = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
    return sum(max(end - start, to - from_) for step, start, end, from_, to in steps if step != "equal")


def run(text: str, folder: pathlib.Path, tmp_path: pathlib.Path) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(text)
    done = subprocess.run([sys.executable, str(path), str(folder)], capture_output=True, text=True, timeout=300,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def png(shade: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (20, 18), (shade, 0, 0)).save(file, "png")
    return file.getvalue()


def write(name: str, folder: pathlib.Path) -> None:
    """Data as the script wants it."""
    import numpy

    if name == "images":
        for number in range(COUNT):
            place = folder / ("cat" if number % 3 else "dog")
            place.mkdir(exist_ok=True)
            (place / f"{number}.png").write_bytes(png(number * 10))
    elif name == "webdataset":
        for shard in range(3):
            with tarfile.open(folder / f"{shard:06}.tar", "w") as archive:
                for number in range(shard * 8, shard * 8 + 8):
                    for field, data in (("png", png(number * 10)), ("cls", str(number % 3).encode())):
                        member = tarfile.TarInfo(f"{number:04}.{field}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
    elif name == "tensors":
        numpy.save(folder / "x.npy", numpy.arange(COUNT * 8, dtype=numpy.float32).reshape(COUNT, 8))
        numpy.save(folder / "y.npy", numpy.arange(COUNT, dtype=numpy.float32) / 2)
    else:
        (numpy.arange(COUNT * 8 + 1) * 7 % 500).astype(numpy.uint16).tofile(folder / "train.bin")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("images", marks=needs_torchvision),
        "tensors",
        "tokens",
        "tokens by path",
        pytest.param("webdataset", marks=[needs_torchvision, needs_webdataset]),
    ],
)
def test_at_most_two_lines_change_and_the_samples_are_the_same(name: str, tmp_path: pathlib.Path) -> None:
    before, after = script(name)
    assert 1 <= changed(before, after) <= LINES_MAX, changed(before, after)
    folder = tmp_path / "data"
    folder.mkdir()
    write(name, folder)
    was, now = (run(text, folder, tmp_path) for text in (before, after))
    assert len(was) == 2 and was == now, (was, now)


def test_changed_lines_are_counted() -> None:
    lines: Any = "a\nb\nc\n"
    others = ("a\nb\nc\n", "a\nx\nc\n", "a\nb\nx\nc\n", "a\n", "x\ny\nz\n")
    assert [changed(lines, other) for other in others] == [0, 1, 1, 2, 3]
