"""Makes JPEGs of photographs, for benches/images.rs: cuts of them, of several sizes, turned and blended two by two, so
that no two images are alike. Quality 90, 4:2:0.

usage: photographs.py DESTINATION WIDTHxHEIGHT COUNT PHOTOGRAPH...

Photographs without copyright are in the wheels of scikit-learn (datasets/images) and scikit-image (data). Takes Pillow.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from PIL import Image


def main() -> None:
    destination, size, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    width, height = (int(side) for side in size.split("x"))
    photographs = [Image.open(path).convert("RGB") for path in sys.argv[4:]]
    rng = random.Random(0)
    destination.mkdir(parents=True, exist_ok=True)

    def cut() -> Image.Image:
        photograph = rng.choice(photographs)
        share = rng.uniform(0.6, 1.0)
        wide = min(photograph.width, photograph.height * width / height) * share
        tall = wide * height / width
        left, top = rng.uniform(0, photograph.width - wide), rng.uniform(0, photograph.height - tall)
        image = photograph.resize((width, height), Image.Resampling.LANCZOS, (left, top, left + wide, top + tall))
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image

    for number in range(count):
        image = Image.blend(cut(), cut(), rng.uniform(0, 0.3))
        image.save(destination / f"{number:05}.jpg", quality=90, subsampling="4:2:0")


if __name__ == "__main__":
    main()
