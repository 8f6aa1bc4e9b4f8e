"""Mistakes that people make at first: each answer names what it found, and what it says to do works."""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import tarfile
import zipfile
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import unlike_python

import uringload


class Mistake(NamedTuple):
    """What was asked for, words of the answer, and what the answer says to ask for instead: how many samples it has."""

    name: str
    path: str
    options: dict[str, Any]
    says: tuple[str, ...]
    instead: tuple[str, dict[str, Any], int] | None = None


def write(path: pathlib.Path, content: bytes | str = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Datasets as people have them, small."""
    root = tmp_path_factory.mktemp("data")
    for split in ("train", "val"):
        for name in ("cat/1.jpg", "cat/2.jpg", "dog/3.jpg"):
            write(root / "splits" / split / name)
    boxes = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}]
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in (1, 2)]
    coco = json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]})
    write(root / "coco" / "annotations" / "instances_train2017.json", coco)
    for number in (1, 2):
        write(root / "coco" / "train2017" / f"{number}.jpg")
        write(root / "yolo" / "images" / f"{number}.jpg")
        write(root / "yolo" / "labels" / f"{number}.txt", "0 .5 .5 .1 .1\n")
        write(root / "lerobot" / "videos" / f"{number}.mp4")
        write(root / "captions" / f"{number}.jpg")
        write(root / "captions" / f"{number}.txt", "a cat")
        write(root / "scans" / f"{number}.dcm", bytes(128) + b"DICM")
        write(root / "avif" / f"{number}.avif")
        write(root / "zarr" / "x" / str(number))
        write(root / "raw" / f"{number}.bin", bytes(64))
    write(root / "yolo" / "data.yaml", "names: [cat]\n")
    write(root / "lerobot" / "meta" / "info.json", "{}")
    write(root / "lerobot" / "data" / "rows.jsonl", '{"a": 1}\n{"a": 2}\n')
    write(root / "zarr" / ".zgroup", "{}")
    write(root / "lmdb" / "data.mdb", bytes(64))
    write(root / "labels.csv", "1.jpg,3\n9.jpg,4\n")
    write(root / "some" / "1.jpg")
    write(root / "pickles" / "a.pkl", pickle.dumps([1]))
    with io.BytesIO() as objects:
        np.save(objects, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        write(root / "objects" / "a.npy", objects.getvalue())
    write(root / "seven" / "a.7z", b"7z\xbc\xaf\x27\x1c")
    write(root / "lines" / "a.jsonl", "[\n{},\n{}\n]\n")
    write(root / "empty" / ".hidden")
    header = b'{"lm_head.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    write(root / "weights" / "model.safetensors", len(header).to_bytes(8, "little") + header + bytes(4))
    with tarfile.open(root / "cut.tar", "w") as archive:
        archive.add(root / "splits" / "train" / "cat" / "1.jpg", "1.jpg")
    (root / "cut.tar").write_bytes((root / "cut.tar").read_bytes()[:600])
    with zipfile.ZipFile(root / "tables.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    (root / "page.tar").write_bytes(b"<!DOCTYPE html><html>not found</html>")
    return root


WHOLE: dict[str, Any] = {"format": "folder"}
MISTAKES = [
    Mistake("a wrong path", "splitz", {}, ("cannot find", "no splitz in"), ("splits", {"split": "all"}, 6)),
    Mistake("a folder without files", "empty", {}, ("the folder has no file", "1 hidden names")),
    Mistake("a wrong format", "some", {"format": "folders"}, ("no format", "folder"), ("some", WHOLE, 1)),
    Mistake("a wrong option", "some", {"label": True}, ("no argument 'label'", "'labels'"),
            ("some", {"labels": False}, 1)),
    Mistake("an option of another format", "some", {"fields": "jpg"}, ("fields", "leave out"), ("some", {}, 1)),
    Mistake("a URL", "hdfs://bucket/train", {}, ("not on a file system", "hdfs dfs -get")),
    Mistake("the name of a dataset", "hf://datasets/mnist", {}, ("not on a file system", "hf download")),
    Mistake("several splits", "splits", {}, ("several splits", "train", "val"), ("splits", {"split": "val"}, 3)),
    Mistake("a wrong split", "splits", {"split": "trian"}, ("trian", "train"), ("splits", {"split": "val"}, 3)),
    Mistake("COCO", "coco", {}, ("annotations of COCO", "label_file", "instances_train2017.json"),
            ("coco", {"label_file": "coco/annotations/instances_train2017.json"}, 2)),
    Mistake("COCO, images alone", "coco", {}, ("labels (--labels) false",), ("coco", {"labels": False}, 2)),
    Mistake("YOLO", "yolo", {}, ("labels of YOLO", "data.yaml"), ("yolo", {"label_file": "yolo/data.yaml"}, 2)),
    Mistake("labels of other images", "some", {"label_file": "labels.csv"}, ("1 labels have no sample", '"skip"'),
            ("some", {"label_file": "labels.csv", "unlabelled": "skip"}, 1)),
    Mistake("images and captions", "captions", {}, ("several kinds", "2 documents"),
            ("captions", {"pairs": "extension"}, 2)),
    Mistake("LeRobot", "lerobot", {}, ("several kinds", "LeRobot", "data"), ("lerobot/data", {}, 2)),
    Mistake("LMDB", "lmdb", {}, ("LMDB", "tar archives")),
    Mistake("Zarr", "zarr", {}, ("Zarr", "HDF5")),
    Mistake("DICOM", "scans", {}, ("DICOM", "folder takes every file"), ("scans", WHOLE, 2)),
    Mistake("AVIF", "avif", {}, ("AVIF", "convert it to JPEG"), ("avif", WHOLE, 2)),
    Mistake("pickles", "pickles", {}, ("pickle", "run a program")),
    Mistake("objects in .npy", "objects", {}, ("Python objects", "arrays of numbers")),
    Mistake("7-Zip", "seven", {}, ("7-Zip", "unpack it"), ("seven", WHOLE, 1)),
    Mistake("a zip of tables", "tables.zip", {}, ("of the format csv", "unpack it")),
    Mistake("a document called .jsonl", "lines", {}, ("one document", "jq")),
    Mistake("weights of a model", "weights", {}, ("weights of a model",), ("weights", {"format": "safetensors"}, 1)),
    Mistake("raw bytes", "raw", {}, ("raw bytes", "record_bytes"), ("raw", {"record_bytes": 32}, 4)),
    Mistake("an archive that was cut", "cut.tar", {}, ("claims", "cut short")),
    Mistake("a page in place of an archive", "page.tar", {}, ("ends within a header", "no tar archive")),
]  # fmt: skip


def given(data: pathlib.Path, options: dict[str, Any]) -> dict[str, Any]:
    return {name: data / value if name == "label_file" else value for name, value in options.items()}


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_the_answer_says_what_to_do(data: pathlib.Path, mistake: Mistake) -> None:
    path = mistake.path if "://" in mistake.path else data / mistake.path
    with pytest.raises(uringload.Error) as error:
        uringload.Dataset(path, **given(data, mistake.options))
    answer = str(error.value)
    assert all(words in answer for words in mistake.says), answer
    assert "help: " in answer and not unlike_python(error.value.remedy or ""), answer
    if mistake.instead is not None:
        path, options, samples = mistake.instead
        assert len(uringload.Dataset(data / path, **given(data, options))) == samples
