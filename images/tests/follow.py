"""Writes follow.txt: what torchvision makes of masks and boxes, for operations whose parameters are fixed. The tests
make the same of them. Takes torch, torchvision and Pillow: python images/tests/follow.py

A mask's line has the chain, rows and columns of what comes out, and the FNV-1a hash of its bytes. A box's line has the
chain and, of each box that `SanitizeBoundingBoxes` leaves, its number and its edges.

Masks are resized by `NEAREST_EXACT`, which is Pillow's `NEAREST`: torchvision's default for them, `NEAREST`, looks up
pixels half a step towards the first row and column. Rotations and affine maps are Pillow's, of masks that are images of
Pillow, because torch's look up other pixels where a place is half way between two.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as f

HEIGHT, WIDTH = 90, 121
BOXES = [[0, 0, 121, 90], [10, 5, 40, 60], [100.5, 70.25, 120, 89], [0, 0, 3, 3], [60, 40, 61.5, 80],
         [30, 30, 30.5, 60]]
EXACT = v2.InterpolationMode.NEAREST_EXACT


def mask() -> torch.Tensor:
    rows = torch.arange(HEIGHT).unsqueeze(1)
    columns = torch.arange(WIDTH).unsqueeze(0)
    return ((rows * 5 // 7 + columns * columns // 11) % 19 + 1).to(torch.uint8).unsqueeze(0)


def crop_resized(value):
    value = f.center_crop(value, [60, 80])
    return f.resize(value, [32, 48], interpolation=EXACT) if not isinstance(value, tv_tensors.BoundingBoxes) \
        else f.resize(value, [32, 48])


def affine(value, **how):
    return f.affine(value, **({"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]} | how))


def resized(*size):
    return lambda value: (f.resize(value, list(size), interpolation=EXACT)
                          if not isinstance(value, tv_tensors.BoundingBoxes) else f.resize(value, list(size)))


STEPS = {
    "identity": lambda value: value,
    "hflip(1)": f.horizontal_flip,
    "vflip(1)": f.vertical_flip,
    "center_crop(50x70)": lambda value: f.center_crop(value, [50, 70]),
    "center_crop(100x130)": lambda value: f.center_crop(value, [100, 130]),
    "pad(3:4:5:6)": lambda value: f.pad(value, [3, 4, 5, 6]),
    "resize(45x64)": resized(45, 64),
    "resize(60)": resized(60),
    "resize(180x200)": resized(180, 200),
    "center_crop(60x80), resize(32x48)": crop_resized,
    "center_crop(60x80), resize(32x48), hflip(1)": lambda value: f.horizontal_flip(crop_resized(value)),
    "pad(10), center_crop(64), vflip(1)": lambda value: f.vertical_flip(f.center_crop(f.pad(value, [10]), [64, 64])),
}
WARPS = {
    "rotate(30..30)": lambda value: f.rotate(value, 30.0),
    "rotate(90..90)": lambda value: f.rotate(value, 90.0),
    "affine(degrees=15..15)": lambda value: affine(value, angle=15.0),
    "affine(degrees=0, scale=1.3..1.3)": lambda value: affine(value, scale=1.3),
    "affine(degrees=0, scale=0.7..0.7, shear=12..12)": lambda value: affine(value, scale=0.7, shear=[12.0, 0.0]),
    "rotate(30..30), center_crop(50)": lambda value: f.center_crop(f.rotate(value, 30.0), [50, 50]),
}


def fnv(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def main() -> None:
    lines = []
    for chain, step in (STEPS | WARPS).items():
        if chain in WARPS:
            made = f.pil_to_tensor(step(Image.fromarray(mask()[0].numpy())))[0]
        else:
            made = step(tv_tensors.Mask(mask()))[0]
        # Places midway between two pixels, of which float32 chooses: only the boxes are held against it.
        if "scale=1.3" not in chain:
            pixels = made.contiguous().numpy().tobytes()
            lines.append(f"mask | {chain} | {made.shape[0]} {made.shape[1]} | {fnv(pixels)}")
        boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES, dtype=torch.float32), format="XYXY",
                                         canvas_size=(HEIGHT, WIDTH))
        sample = {"boxes": step(boxes), "labels": torch.arange(len(BOXES))}
        sample = v2.SanitizeBoundingBoxes(min_size=1)(sample)
        kept = ["{}:{}".format(int(number), ",".join(f"{edge:.4f}" for edge in box.tolist()))
                for number, box in zip(sample["labels"], sample["boxes"])]
        lines.append(f"boxes | {chain} | {' '.join(kept)}")
    (Path(__file__).parent / "data" / "follow.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
