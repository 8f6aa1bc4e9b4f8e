#!/usr/bin/env python3
"""A folder of JPEGs to batches of random crops, in Python: this loader beside torch's, tf.data and FFCV's recipe.

    benches/images.py FOLDER [--python VENV/bin/python] [--rounds 5] [--images 4000] [--only CASE ...] [--train]

FOLDER has classes of JPEGs (benches/photographs.py makes one for each). Each run is a process of its own with a warm
page cache, and the cases take turns; printed are medians of images a second of wall time and milliseconds of CPU an
image, all threads and children counted. A case warms up before it is timed, and what it needs is from PyPI: torch,
torchvision, tensorflow-cpu, opencv-python-headless, simplejpeg.

With `--train`, instead, a small network learns the classes for an epoch with torch's loader and with this one, two
lines changed: accuracy, and images a second of the loaders alone.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

SIZE = 224
BATCH = 64
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def threads():
    return len(os.sched_getaffinity(0))


def compose():
    import torch
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.ToImage(),
                       v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])


def files(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".jpg"))


def of_uringload(folder, exact, workers):
    import uringload
    from torchvision.datasets import ImageFolder

    loader = uringload.DataLoader(ImageFolder(folder, transform=compose()), batch_size=BATCH, shuffle=True,
                                  drop_last=True, num_workers=workers, fast_images=not exact)
    while True:
        for images, _ in loader:
            yield len(images)


def of_torch(folder, workers):
    import torch
    from torchvision.datasets import ImageFolder

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(ImageFolder(folder, transform=compose()), batch_size=BATCH, shuffle=True,
                                         drop_last=True, num_workers=workers, persistent_workers=workers > 0)
    while True:
        for images, _ in loader:
            yield len(images)


def of_tf_data(folder):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    mean = tf.constant(MEAN, shape=(3, 1, 1)) * 255
    deviation = tf.constant(DEVIATION, shape=(3, 1, 1)) * 255

    def prepare(path):
        data = tf.io.read_file(path)
        shape = tf.io.extract_jpeg_shape(data)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape, tf.zeros((1, 0, 4)), area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True)
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, (SIZE, SIZE)))
        return (tf.transpose(image, (2, 0, 1)) - mean) / deviation

    paths = files(folder)
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    data = data.map(prepare, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False).batch(BATCH, drop_remainder=True)
    for images in data.prefetch(tf.data.AUTOTUNE):
        yield len(images)


def in_threads(folder, work):
    """Batches of what `work` makes of each file, by as many threads as there are processors."""
    import random
    from concurrent.futures import ThreadPoolExecutor

    import cv2

    cv2.setNumThreads(1)
    paths = files(folder)
    with ThreadPoolExecutor(threads()) as pool:
        waiting = []
        while True:
            random.shuffle(paths)
            for path in paths:
                waiting.append(pool.submit(work, path))
                if len(waiting) == 4 * BATCH:
                    for one in waiting[:BATCH]:
                        one.result()
                    del waiting[:BATCH]
                    yield BATCH


def of_ffcv(folder):
    """What FFCV does for RandomResizedCrop: the whole image by the fast DCT, then the crop by INTER_AREA. Flipped, as
    u8: it normalizes later."""
    import math
    import random

    import cv2
    import simplejpeg

    def work(path):
        with open(path, "rb") as file:
            image = simplejpeg.decode_jpeg(file.read(), fastdct=True, fastupsample=True)
        height, width = image.shape[:2]
        for _ in range(10):
            area = height * width * random.uniform(0.08, 1)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < wide <= width and 0 < tall <= height:
                top, left = random.randint(0, height - tall), random.randint(0, width - wide)
                break
        else:
            top, left, tall, wide = 0, 0, height, width
        crop = cv2.resize(image[top:top + tall, left:left + wide], (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        return cv2.flip(crop, 1) if random.random() < 0.5 else crop

    return in_threads(folder, work)


def of_bare(folder):
    """Whole decoding by libjpeg-turbo and nothing after it."""
    import simplejpeg

    def work(path):
        with open(path, "rb") as file:
            return simplejpeg.decode_jpeg(file.read())

    return in_threads(folder, work)


CASES = {
    "uringload": lambda folder: of_uringload(folder, True, None),
    "uringload, fast": lambda folder: of_uringload(folder, False, None),
    "uringload, fast, 1 thread": lambda folder: of_uringload(folder, False, 1),
    "full decodes, simplejpeg": of_bare,
    "FFCV's recipe": of_ffcv,
    "tf.data": of_tf_data,
    **{f"torch, {workers} workers": lambda folder, workers=workers: of_torch(folder, workers)
       for workers in (0, 2, 3, 4)},
}


def cpu():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def children_cpu():
    """CPU seconds of the children that still run, as torch's workers do."""
    ticks = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                with open(f"/proc/{child}/stat", encoding="ascii") as stat:
                    ticks += sum(int(one) for one in stat.read().rpartition(")")[2].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(name, folder, images):
    """Images a second and CPU milliseconds an image, after a quarter as many that warm up."""
    batches = CASES[name](folder)
    seen = 0
    while seen < images // 4:
        seen += next(batches)
    start, before, seen = time.perf_counter(), cpu() + children_cpu(), 0
    while seen < images:
        seen += next(batches)
    took, used = time.perf_counter() - start, cpu() + children_cpu() - before
    print(json.dumps({"rate": seen / took, "cpu": 1000 * used / seen}), flush=True)
    # Nothing of what is torn down at exit is of interest, and some of it takes long.
    os._exit(0)


def train(which, folder):
    """An epoch of a small network; its accuracy over the same images after it, and the rate of the loader alone."""
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    torch.manual_seed(0)
    if which == "torch":
        from torch.utils.data import DataLoader
    else:
        from uringload import DataLoader
    data = ImageFolder(folder, transform=compose())
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=threads())
    # On small pictures of them: what is wanted is what the loader is worth, not what the processor is.
    model = torch.nn.Sequential(
        torch.nn.AvgPool2d(4), torch.nn.Conv2d(3, 24, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(24, 48, 3, 2),
        torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(3), torch.nn.Flatten(), torch.nn.Linear(432, len(data.classes)))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    start, seen = time.perf_counter(), 0
    for images, labels in loader:
        seen += len(images)
    rate = seen / (time.perf_counter() - start)
    whole = v2.Compose([v2.Resize(SIZE), v2.CenterCrop(SIZE), *compose().transforms[2:]])
    model.eval()
    right = total = 0
    with torch.inference_mode():
        for images, labels in torch.utils.data.DataLoader(ImageFolder(folder, transform=whole), batch_size=BATCH,
                                                          num_workers=threads()):
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    print(json.dumps({"rate": rate, "accuracy": right / total}), flush=True)
    os._exit(0)


def run(python, arguments):
    done = subprocess.run([python, os.path.abspath(__file__), *arguments], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        return None, (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1]), None


def middle(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        one = train if arguments.train else measure
        return one(arguments.case, arguments.folder, *([] if arguments.train else [arguments.images]))
    names = ["torch", "uringload"] if arguments.train else arguments.only
    found = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            more = ["--train"] if arguments.train else ["--images", str(arguments.images)]
            told, error = run(arguments.python, [arguments.folder, "--case", name, *more])
            if error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
            else:
                found[name].append(told)
    print("| | " + ("images/s of the loader alone | accuracy |" if arguments.train else "images/s | CPU ms an image |"))
    print("|---|---|---|")
    for name, seen in found.items():
        if seen:
            second = "accuracy" if arguments.train else "cpu"
            print(f"| {name} | {middle([one['rate'] for one in seen])} | {middle([one[second] for one in seen])} |")
    return None


if __name__ == "__main__":
    main()
