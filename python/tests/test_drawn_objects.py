"""Objects of images, drawn at random: those of pycocotools in COCO's annotations, of Ultralytics in YOLO's labels."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import tempfile
from typing import Any

import numpy as np
import pytest
import uringload

IMAGES = 500
has_coco = importlib.util.find_spec("pycocotools") is not None
needs_coco = pytest.mark.skipif(not has_coco, reason="skipped: pycocotools is not installed")


def write(path: pathlib.Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def annotation(draw: random.Random, number: int, image: dict[str, Any]) -> dict[str, Any]:
    """A box, and for a mask polygons (some reach over the edge), an RLE of either kind, or none."""
    width, height = image["width"], image["height"]
    x, y = draw.uniform(0, width - 1), draw.uniform(0, height - 1)
    box = [round(x, 2), round(y, 2), round(draw.uniform(1, width), 2), round(draw.uniform(1, height), 2)]
    of = {"id": number, "image_id": image["id"], "category_id": draw.choice([1, 3, 90]), "bbox": box}
    of |= {"area": round(box[2] * box[3], 4), "iscrowd": 0}
    kind = draw.choice(["polygons", "counts", "compressed", "none"])
    if kind == "polygons":
        corners = [[(x, y), *((draw.uniform(-3, width + 3), draw.uniform(-3, height + 3)) for _ in range(3))]
                   for _ in range(draw.randint(1, 3))]  # fmt: skip
        of["segmentation"] = [[round(number, 2) for point in polygon for number in point] for polygon in corners]
    elif kind != "none":
        from pycocotools import mask as masks

        pixels = np.asfortranarray(np.random.default_rng(number).integers(0, 2, (height, width), dtype=np.uint8))
        rle = masks.encode(pixels)
        if kind == "compressed":
            rle = {"size": rle["size"], "counts": rle["counts"].decode()}
        else:
            flat = pixels.flatten(order="F")
            ends = [*(np.flatnonzero(np.diff(flat)) + 1).tolist(), len(flat)]
            runs = [ends[0], *(b - a for a, b in zip(ends, ends[1:], strict=False))]
            rle = {"size": [height, width], "counts": runs if flat[0] == 0 else [0, *runs]}
        of |= {"segmentation": rle, "iscrowd": 1}
    return of


@needs_coco
@pytest.mark.parametrize("indent", [None, 1])
def test_boxes_and_masks_are_those_of_pycocotools(tmp_path: pathlib.Path, indent: int | None) -> None:
    from pycocotools import mask as masks
    from pycocotools.coco import COCO

    draw = random.Random(7 if indent else 8)
    names = draw.sample(range(10**6), IMAGES)
    images = [
        {"id": number, "file_name": f"{name:012d}.jpg", "width": draw.randint(2, 90), "height": draw.randint(2, 90)}
        for number, name in enumerate(names, 5)
    ]
    annotations = [annotation(draw, number, draw.choice(images)) for number in range(4 * IMAGES)]
    categories = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 3, "name": "car"}]
    table = {"images": images, "annotations": annotations, "categories": categories, "info": {}}
    path = tmp_path / "annotations" / "instances_train2017.json"
    write(path, json.dumps(table, indent=indent))
    for image in images:
        write(tmp_path / "train2017" / str(image["file_name"]), str(image["id"]))

    coco = COCO(str(path))
    dataset = uringload.Dataset(tmp_path, label_file=path)
    assert list(dataset.classes) == ["person", "car", "toothbrush"]
    by_name = {image["file_name"]: image for image in images}
    seen = 0
    for batch in uringload.DataLoader(dataset, batch_size=16, output="numpy", collate="list"):
        for at in range(len(batch["image_id"])):
            image = next(iter(coco.loadImgs(int(batch["image_id"][at]))))
            assert by_name[image["file_name"]]["id"] == int(bytes(batch["data"][at])), "the file of the image"
            want = coco.loadAnns(coco.getAnnIds(image["id"]))
            boxes = np.array([one["bbox"] for one in want], np.float32).reshape(-1, 4)
            np.testing.assert_array_equal(batch["boxes"][at].reshape(-1, 4), boxes)
            ids = np.array(sorted(coco.getCatIds()))[batch["labels"][at]]
            assert ids.tolist() == [one["category_id"] for one in want]
            np.testing.assert_array_equal(batch["areas"][at], np.array([one["area"] for one in want], np.float32))
            assert batch["crowd"][at].tolist() == [one["iscrowd"] for one in want]
            height, width = batch["size"][at]
            got = json.loads(batch["segmentation"][at])
            assert len(got) == len(want)
            for mask, one in zip(got, want, strict=True):
                if mask is None:
                    assert "segmentation" not in one
                    continue
                rle = masks.frPyObjects(mask, height, width) if "counts" not in mask or type(mask["counts"]) is list \
                    else mask  # fmt: skip
                mine = masks.decode(masks.merge(rle) if type(rle) is list else rle)
                np.testing.assert_array_equal(mine, coco.annToMask(one))
            seen += 1
    assert seen == IMAGES


def has_ultralytics() -> bool:
    # It writes its settings where it is imported.
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
    return importlib.util.find_spec("ultralytics") is not None


def line(draw: random.Random, kind: str) -> str:
    label = draw.randint(0, 2)
    if draw.random() < 0.03:
        label = draw.choice([-1, 3])
    most = 1.2 if draw.random() < 0.02 else 1.0
    count = 4 if kind == "box" else 2 * draw.randint(3, 6)
    numbers = [format(draw.uniform(0, most), draw.choice([".6f", "g", ".3f"])) for _ in range(count)]
    return " ".join([str(label), *numbers])


@pytest.mark.skipif(not has_ultralytics(), reason="skipped: ultralytics is not installed")
def test_labels_are_those_of_ultralytics(tmp_path: pathlib.Path) -> None:
    from PIL import Image
    from ultralytics.data.utils import img2label_paths, verify_image_label

    draw = random.Random(3)
    write(tmp_path / "data.yaml", "path: .\ntrain: images/train\nnames:\n  0: cat\n  1: 'dog: big'\n  2: 7\n")
    good, refused = 0, 0
    for number in range(IMAGES):
        root = tmp_path / str(number)
        image = root / "images" / "train" / "one.jpg"
        image.parent.mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(image)
        kind = draw.choice(["box", "polygon"])
        lines = [line(draw, kind) for _ in range(draw.randint(0, 4))]
        if draw.random() < 0.03:
            lines.append("0 .1 .2")
        label = root / "labels" / "train" / "one.txt"
        assert img2label_paths([str(image)]) == [str(label)]
        if draw.random() < 0.9:
            write(label, draw.choice(["\n", "\r\n"]).join([*lines, draw.choice(["", " "])]))
        theirs = verify_image_label((str(image), str(label), "", False, 3, 0, 2, False))
        path, boxes, segments, message = theirs[0], theirs[1], theirs[3], theirs[-1]
        if not label.exists() or not label.read_text().strip():
            # Alone it would be refused: no image has labels. It is an image without objects.
            assert len(boxes) == 0
            continue
        try:
            dataset = uringload.Dataset(root / "images", label_file=tmp_path / "data.yaml")
        except uringload.Error as error:
            assert error.kind == "Corrupt", error
            # A polygon of one point is refused; they read it as a box without a size.
            assert path is None or "0 .1 .2" in label.read_text(), f"they read it: {label.read_text()!r}: {error}"
            refused += 1
            continue
        assert path is not None, f"they refuse it: {message}: {label.read_text()!r}"
        assert list(dataset.classes) == ["cat", "dog: big", "7"]
        (batch,) = uringload.DataLoader(dataset, batch_size=1, output="numpy", collate="list")
        mine = np.column_stack([batch["labels"][0], batch["boxes"][0].reshape(-1, 4)]).astype(np.float32)
        if len(mine) > len(boxes):
            # They drop lines that come twice, and sort the others.
            mine = np.unique(mine, axis=0)
        np.testing.assert_allclose(mine, boxes, atol=1e-7)
        if segments:
            masks = json.loads(batch["segmentation"][0])
            for mask, want in zip(masks, segments, strict=True):
                np.testing.assert_array_equal(np.array(mask[0], np.float32).reshape(-1, 2), want)
        good += 1
    assert good > IMAGES // 2 and refused > IMAGES // 20, (good, refused)


def test_boxes_follow_their_image(tmp_path: pathlib.Path) -> None:
    """A step that flips an image flips the boxes that COCO has for it."""
    Image = pytest.importorskip("PIL.Image")
    write(tmp_path / "a" / "1.png", b"")
    Image.new("RGB", (40, 20)).save(tmp_path / "a" / "1.png")
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 5]}]
    table = {"images": [{"id": 1, "file_name": "1.png", "width": 40, "height": 20}], "annotations": boxes,
             "categories": [{"id": 1, "name": "cat"}]}  # fmt: skip
    write(tmp_path / "instances.json", json.dumps(table))
    dataset = uringload.Dataset(tmp_path / "a", label_file=tmp_path / "instances.json")
    transforms = {"data": "hflip(1.0), resize(20x40)", "boxes": "boxes(data, format=xywh)"}
    (batch,) = uringload.DataLoader(dataset, batch_size=1, transforms=transforms, output="numpy", collate="list")
    np.testing.assert_array_equal(batch["boxes"][0], np.array([30, 0, 10, 5], np.float32))
