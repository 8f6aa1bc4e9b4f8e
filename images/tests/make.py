#!/usr/bin/env python3
"""Writes what the tests of this crate hold it against: photographs, small files of every format, and what Pillow and
torchvision make of them.

usage: images/tests/make.py FOLDER

FOLDER is skimage/data of scikit-image's wheel (`pip download --no-deps scikit-image`, unzipped). Its photographs
"chelsea" (Stefan van der Walt) and "coffee" (Rachel Michetti) are in the public domain (CC0). Needs Pillow, numpy,
torch and torchvision; what was used is written to data/versions.txt.
"""

import io
import os
import struct
import sys

import numpy as np
import PIL
import torch
import torchvision
import torchvision.transforms.functional as F
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode as Mode

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def fnv(data):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def put(name, data):
    with open(os.path.join(HERE, name), "wb") as file:
        file.write(data)


def encoded(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif(orientation, endian="<"):
    head = b"II*\0" if endian == "<" else b"MM\0*"
    return b"Exif\0\0" + head + struct.pack(endian + "IHHHIHHI", 8, 1, 0x112, 3, 1, orientation, 0, 0)


def png16(channels, levels):
    """A PNG of 16 bits, which Pillow writes for gray only."""
    import zlib

    height, width = levels.shape[:2]
    raw = b"".join(b"\0" + levels[y].astype(">u2").tobytes() for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    color = {1: 0, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def files(photo):
    """Every format and kind, and the greatest difference that is allowed of each."""
    gray, cmyk = photo.convert("L"), photo.convert("CMYK")
    rgba = photo.copy()
    rgba.putalpha(gray)
    palette = photo.quantize(37)
    bits = gray.convert("1")
    made = {}
    for name, options in {
        "444": {"subsampling": 0},
        "422": {"subsampling": 1},
        "420": {"subsampling": 2},
        "progressive": {"subsampling": 2, "progressive": True},
        "restart": {"subsampling": 2, "restart_marker_blocks": 2},
        "quality30": {"subsampling": 2, "quality": 30},
    }.items():
        made[f"{name}.jpg"] = encoded(photo, "JPEG", **{"quality": 90, **options})
    made["gray.jpg"] = encoded(gray, "JPEG", quality=90)
    made["cmyk.jpg"] = encoded(cmyk, "JPEG", quality=90, subsampling=0)
    for orientation in range(1, 9):
        endian = "<>"[orientation % 2]
        data = encoded(photo, "JPEG", quality=90, subsampling=0, exif=exif(orientation, endian))
        made[f"exif{orientation}.jpg"] = data
    for name, image in {"rgb": photo, "rgba": rgba, "gray": gray, "palette": palette, "bits": bits}.items():
        made[f"{name}.png"] = encoded(image, "PNG", optimize=True)
    made["la.png"] = encoded(rgba.convert("LA"), "PNG")
    made["palette4.png"] = encoded(photo.quantize(13), "PNG", bits=4)
    made["exif6.png"] = encoded(photo, "PNG", exif=exif(6))
    levels = np.asarray(photo).astype(np.uint32) * 257 - np.arange(23)[:, None, None] % 200
    made["rgb16.png"] = png16(3, np.clip(levels, 0, 65535))
    made["gray16.png"] = png16(1, np.clip(levels[..., 1], 0, 65535))
    made["lossy.webp"] = encoded(photo, "WEBP", quality=80)
    made["lossless.webp"] = encoded(photo, "WEBP", lossless=True)
    made["alpha.webp"] = encoded(rgba, "WEBP", lossless=True, exact=True)
    made["moving.webp"] = encoded(photo, "WEBP", lossless=True, save_all=True, append_images=[photo.rotate(90)])
    for name, image in {"rgb": photo, "gray": gray, "palette": palette, "bits": bits}.items():
        made[f"{name}.bmp"] = encoded(image, "BMP")
    made["rgba.bmp"] = encoded(rgba, "BMP")
    made["still.gif"] = encoded(palette, "GIF")
    made["moving.gif"] = encoded(palette, "GIF", save_all=True, append_images=[photo.rotate(90).quantize(9)])
    for name, image in {"rgb": photo, "gray": gray, "bits": bits, "rgba": rgba, "cmyk": cmyk}.items():
        made[f"{name}.tif"] = encoded(image, "TIFF")
    made["lzw.tif"] = encoded(photo, "TIFF", compression="tiff_lzw")
    made["deflate.tif"] = encoded(photo, "TIFF", compression="tiff_adobe_deflate")
    made["gray16.tif"] = encoded(Image.fromarray(np.clip(levels[..., 1], 0, 65535).astype(np.uint16)), "TIFF")
    made["exif6.tif"] = encoded(photo, "TIFF", tiffinfo={274: 6})
    return made


def rgb_of(data):
    """As torchvision's loader, and turned as EXIF says."""
    image = Image.open(io.BytesIO(data))
    if image.mode.startswith("I;16"):
        # Pillow clips 16 bits to 255 here, which no one wants: the upper 8 bits, as it does with colours of 16 bits.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return ImageOps.exif_transpose(image).convert("RGB")


def decoding(photo):
    everything, lines = b"", []
    for name, data in files(photo).items():
        pixels = np.asarray(rgb_of(data))
        # Byte by byte, or what two decoders of one lossy stream may differ by: measured, and not to grow.
        put(name, data)
        lines.append(f"{name} {pixels.shape[0]} {pixels.shape[1]} {len(everything)}")
        everything += pixels.tobytes()
    put("decoded.bin", everything)
    put("decoded.txt", "\n".join(lines).encode() + b"\n")


FILTERS = {
    "nearest": Mode.NEAREST,
    "box": Mode.BOX,
    "bilinear": Mode.BILINEAR,
    "bicubic": Mode.BICUBIC,
    "lanczos": Mode.LANCZOS,
}


def chains():
    """A chain of ours, and the same in torchvision on images of Pillow."""
    # Sizes that Pillow makes columns first of, as we always do: from version 13 on it makes rows first of some.
    for name, mode in FILTERS.items():
        for height, width in ((50, 70), (150, 200), (224, 224), (120, 31), (17, 20), (1, 1)):
            yield f"resize({height}x{width}, {name})", lambda i, h=height, w=width, m=mode: F.resize(i, [h, w], m)
        cut = lambda i, m=mode: F.resize(F.center_crop(i, [70, 90]), [64, 64], m)
        yield f"center_crop(70x90), resize(64x64, {name})", cut
        both = lambda i, m=mode: F.hflip(F.center_crop(F.resize(i, 80, m), [64, 64]))
        yield f"resize(80, {name}), center_crop(64), hflip(1)", both
    yield "center_crop(63x41)", lambda i: F.center_crop(i, [63, 41])
    yield "center_crop(133x201)", lambda i: F.center_crop(i, [133, 201])
    yield "pad(3:5:7:9, fill=200), hflip(1)", lambda i: F.hflip(F.pad(i, [3, 5, 7, 9], fill=200))
    yield "pad(4, fill=9), center_crop(120x100), vflip(1), pad(2, fill=9)", lambda i: F.pad(
        F.vflip(F.center_crop(F.pad(i, 4, fill=9), [120, 100])), 2, fill=9
    )
    yield "pad(4, fill=9), pad(4, fill=50)", lambda i: F.pad(F.pad(i, 4, fill=9), 4, fill=50)
    yield "hflip(1), resize(50x70)", lambda i: F.resize(F.hflip(i), [50, 70])
    yield "resize(200x150), resize(50x70, bicubic)", lambda i: F.resize(F.resize(i, [200, 150]), [50, 70], Mode.BICUBIC)
    yield "pad(10), resize(50x70)", lambda i: F.resize(F.pad(i, 10), [50, 70])
    for degrees in (-30, 17.5, 90, 180, 270, 359):
        for name in ("nearest", "bilinear"):
            turned = lambda i, d=degrees, m=FILTERS[name]: F.rotate(i, d, m, fill=7)
            yield f"rotate({degrees}..{degrees}, {name}, fill=7)", turned
    for name in ("nearest", "bilinear"):
        mode = FILTERS[name]
        yield f"affine(10..10, scale=0.75..0.75, shear=12..12, filter={name})", lambda i, m=mode: F.affine(
            i, 10, [0, 0], 0.75, [12, 0], m
        )
        yield (f"affine(0..0, scale=1.25..1.25, filter={name})",
               lambda i, m=mode: F.affine(i, 0, [0, 0], 1.25, [0, 0], m))
    yield "grayscale", lambda i: F.to_grayscale(i, 3)
    for factor in (0, 0.4, 0.77, 1.3, 2.5):
        yield f"color_jitter(brightness={factor}..{factor})", lambda i, f=factor: F.adjust_brightness(i, f)
        yield f"color_jitter(contrast={factor}..{factor})", lambda i, f=factor: F.adjust_contrast(i, f)
        yield f"color_jitter(saturation={factor}..{factor})", lambda i, f=factor: F.adjust_saturation(i, f)
    for turn in (-0.5, -0.1, 0.05, 0.3):
        yield f"color_jitter(hue={turn}..{turn})", lambda i, t=turn: F.adjust_hue(i, t)


def colors():
    for factor in (0, 0.3, 1.9):
        yield f"sharpness {factor}", lambda i, f=factor: F.adjust_sharpness(i, f)
    for bits in (1, 3, 8):
        yield f"posterize {bits}", lambda i, b=bits: F.posterize(i, b)
    for threshold in (0, 128, 170.5):
        yield f"solarize {threshold}", lambda i, t=threshold: F.solarize(i, t)
    yield "autocontrast 0", F.autocontrast
    yield "equalize 0", F.equalize
    yield "invert 0", F.invert


def tensors():
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    normalized = lambda i: F.normalize(F.to_tensor(i), mean, std)
    yield "to_tensor", F.to_tensor
    yield "normalize(imagenet)", normalized
    yield "normalize(imagenet), to_tensor(bf16)", lambda i: normalized(i).to(torch.bfloat16)
    yield "normalize(imagenet), to_tensor(f16, hwc)", lambda i: normalized(i).to(torch.float16).permute(1, 2, 0)
    yield "to_tensor(u8)", F.pil_to_tensor
    resized = lambda i: normalized(F.hflip(F.resize(i, [33, 44])))
    yield "resize(33x44), hflip(1), normalize(imagenet)", resized


def bytes_of(tensor):
    tensor = tensor.contiguous()
    return tensor.view(torch.uint8).numpy().tobytes()


def operations(photos):
    lines, blurred = [], b""
    for name, photo in photos.items():
        image = photo.convert("RGB")
        for chain, function in chains():
            made = np.asarray(function(image))
            lines.append(f"pixels|{name}|{chain}|{made.shape[0]} {made.shape[1]}|{fnv(made.tobytes())}")
        for call, function in colors():
            made = np.asarray(function(image))
            lines.append(f"color|{name}|{call}|{made.shape[0]} {made.shape[1]}|{fnv(made.tobytes())}")
        for chain, function in tensors():
            made = function(image)
            lines.append(f"tensor|{name}|{chain}|{made.numel()} 0|{fnv(bytes_of(made))}")
        # No two sums of floats are in one order: what torch makes of it, to compare with.
        small = F.resize(image, [30, 40])
        for kernel, sigma in ((3, 0.5), (9, 1.7), (23, 5.0)):
            made = np.asarray(F.gaussian_blur(small, [kernel, kernel], [sigma, sigma]))
            lines.append(f"blur|{name}|resize(30x40), blur({kernel}, {sigma})|30 40|{len(blurred)}")
            blurred += made.tobytes()
    put("operations.txt", "\n".join(lines).encode() + b"\n")
    put("blurred.bin", blurred)


def main():
    os.makedirs(HERE, exist_ok=True)
    chelsea = Image.open(os.path.join(sys.argv[1], "chelsea.png")).convert("RGB")
    coffee = Image.open(os.path.join(sys.argv[1], "coffee.png")).convert("RGB")
    photos = {"chelsea.png": chelsea.crop((90, 60, 250, 180)), "coffee.png": coffee.crop((200, 60, 331, 157))}
    for name, photo in photos.items():
        put(name, encoded(photo, "PNG", optimize=True))
    operations(photos)
    decoding(coffee.resize((33, 23)))
    put("photo.jpg", encoded(chelsea, "JPEG", quality=90, subsampling=2))
    # Its tables have no codes but those that it needs.
    put("optimized.jpg", encoded(chelsea, "JPEG", quality=40, subsampling=2, optimize=True))
    versions = f"Pillow {PIL.__version__}\ntorch {torch.__version__}\ntorchvision {torchvision.__version__}\n"
    put("versions.txt", versions.encode())


main()
