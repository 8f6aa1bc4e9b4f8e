"""Zip archives that Python's zipfile writes, drawn at random: its members, and the classes of the unpacked folder."""

from __future__ import annotations

import pathlib
import random
import zipfile

import pytest
import uringload


@pytest.mark.parametrize("seed", range(12))
def test_members_are_those_of_zipfile(tmp_path: pathlib.Path, seed: int) -> None:
    draw = random.Random(seed)
    top = draw.choice(["", "set/", "a/b/"])
    classes = draw.sample(["cat", "dog", "große Katze", "x.y"], draw.randint(2, 4))
    names = [f"{top}{draw.choice(classes)}/{draw.randrange(10**6)}.jpg" for _ in range(draw.randint(5, 60))]
    names += [f"{top}{name}/0.jpg" for name in classes]
    path = tmp_path / "archive" / "a.zip"
    path.parent.mkdir()
    with path.open("wb") as file:
        # A program that unpacks it may come first.
        file.write(draw.randbytes(draw.choice([0, 7, 5000])))
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = draw.randbytes(draw.choice([0, 300]))
            for name in set(names):
                method = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
                content = draw.randbytes(draw.choice([0, 1, 3000])) * draw.randint(1, 3)
                info = zipfile.ZipInfo(name)
                info.compress_type = method
                with archive.open(info, "w", force_zip64=draw.random() < 0.3) as member:
                    member.write(content)
    with zipfile.ZipFile(path) as archive:
        wanted = {info.filename: archive.read(info) for info in archive.infolist()}
        archive.extractall(tmp_path / "unpacked")
    dataset = uringload.Dataset(path.parent, format="zip")
    folder = uringload.Dataset(tmp_path / "unpacked" / top)
    assert list(dataset.classes) == list(folder.classes)
    got, labels = {}, {}
    for batch in uringload.DataLoader(dataset, batch_size=8, shuffle=True, key=True, output="numpy", collate="list"):
        for key, data, label in zip(batch["key"], batch["data"], batch["label"], strict=True):
            got[key] = bytes(data)
            labels[key] = int(label)
    assert got == wanted
    for batch in uringload.DataLoader(folder, batch_size=8, key=True, output="numpy", collate="list"):
        for key, data, label in zip(batch["key"], batch["data"], batch["label"], strict=True):
            assert (got[top + key], labels[top + key]) == (bytes(data), int(label))
