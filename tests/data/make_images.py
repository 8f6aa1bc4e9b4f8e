#!/usr/bin/env python3
"""Writes tests/data/images/cases.json: images as NumPy cuts, mirrors and normalizes them and OpenCV resizes them.

Needs numpy and opencv-python-headless; the tests do not. Run it in a scratch environment and check in what changes:

    python3 -m venv .venv && .venv/bin/pip install numpy opencv-python-headless
    .venv/bin/python tests/data/make_images.py

OpenCV's INTER_LINEAR of floats has half-pixel centres and goes on at the edge, as PyTorch's interpolate with
align_corners=False and antialias=False. What is expected is in single precision, in the layout of the output.
"""

import json
import pathlib

import cv2
import numpy

OUT = pathlib.Path(__file__).parent / "images" / "cases.json"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Height, width, channels; the box's y, x, height and width; the output's height and width.
CASES = [
    ((6, 7, 3), (0, 0, 6, 7), (6, 7)),
    ((6, 7, 3), (1, 2, 4, 5), (4, 5)),
    ((6, 7, 3), (0, 0, 6, 7), (9, 16)),
    ((6, 7, 3), (2, 1, 3, 6), (5, 4)),
    ((9, 8, 1), (0, 0, 9, 8), (3, 3)),
    ((9, 8, 4), (4, 4, 5, 4), (2, 8)),
    ((1, 5, 2), (0, 1, 1, 3), (4, 8)),
    ((5, 24, 3), (1, 3, 4, 16), (4, 16)),
]


def cut(pixels, box, size, flip):
    y, x, h, w = box
    part = pixels[y:y + h, x:x + w].astype(numpy.float32)
    if (h, w) != size:
        part = cv2.resize(part, (size[1], size[0]), interpolation=cv2.INTER_LINEAR).reshape(*size, -1)
    return part[:, ::-1] if flip else part


def case(number, shape, box, size):
    random = numpy.random.default_rng(number)
    pixels = random.integers(0, 256, shape, dtype=numpy.uint8)
    flip, normalize, channels_last = bool(number % 2), number % 3 != 0, number % 4 >= 2
    mean, std = (MEAN + (0.5,), STD + (0.25,)) if normalize else ((), ())
    mean, std = mean[:shape[2]], std[:shape[2]]
    value = cut(pixels, box, size, flip).astype(numpy.float64) / 255
    if normalize:
        value = (value - numpy.array(mean)) / numpy.array(std)
    if not channels_last:
        value = value.transpose(2, 0, 1)
    expected = [float(x) for x in value.astype(numpy.float32).ravel()]
    return {"shape": shape, "box": box, "size": size, "flip": flip, "mean": mean, "std": std,
            "channels_last": channels_last, "pixels": pixels.ravel().tolist(), "expected": expected}


def main():
    OUT.parent.mkdir(exist_ok=True)
    cases = [case(number, *one) for number, one in enumerate(CASES)]
    cases += [case(number + 3, *one) for number, one in enumerate(CASES)]
    OUT.write_text("[\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]\n")


if __name__ == "__main__":
    main()
