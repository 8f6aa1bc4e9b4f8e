"""The samples in every format of benches/formats.py: the same bytes every time."""

import math
import random

SEED = "uringload formats 1"
SAMPLES = 20_000
MEAN_BYTES = 110_000
SIGMA = 0.5
CLASSES = 1000
SHARD_BYTES = 1 << 26
SHARD_SAMPLES = 600


def sizes():
    """Lengths of all payloads: log-normal, like photos (ImageNet's law)."""
    law = random.Random(f"{SEED}/sizes")
    mu = math.log(MEAN_BYTES) - SIGMA**2 / 2
    return [max(1, int(law.lognormvariate(mu, SIGMA))) for _ in range(SAMPLES)]


def samples():
    """Yields (number, payload, label) of each sample; random bytes, so that nothing compresses."""
    for number, size in enumerate(sizes()):
        law = random.Random(f"{SEED}/{number}")
        yield number, law.randbytes(size), law.randrange(CLASSES)
