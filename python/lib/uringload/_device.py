"""The device that batches go to, and the transforms of images and tokens on the way there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _arguments as arguments
from . import _compose
from . import _dtypes
from . import _log
from . import _uringload as native
from ._compose import Split
from ._dataset import Dataset
from ._tail import Tail, words
from .errors import mistyped, refused, unavailable

CROPS = ("none", "center", "random", "resized")


class Images(NamedTuple):
    """Turns pixels, bytes of shape [height, width] or [height, width, channels], into a tensor of shape [channels,
    height, width]: crops, resizes (bilinear, without antialiasing), flips and scales, in this order.

    The default is what torchvision's ``ToTensor`` does: f32 values from 0 to 1. Random choices are a function of seed,
    epoch and sample, so they are the same on every rank, on every device, and after a resume.
    """

    #: Height and width of the output, or one number for both; None keeps those of the source.
    size: int | tuple[int, int] | None = None
    #: Which part to take: "none" (all of it, resized to `size`), "center" or "random" (as large as `size`), or
    #: "resized" (torchvision's RandomResizedCrop with `scale` and `ratio`).
    crop: str = "none"
    #: Smallest and largest share of the area, for "resized".
    scale: tuple[float, float] = (0.08, 1.0)
    #: Smallest and largest ratio of width to height, for "resized".
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    #: Probability of a horizontal flip.
    flip: float = 0.0
    #: Subtracted from pixels scaled to 0 to 1: one number for all channels, or one per channel.
    mean: float | Sequence[float] = ()
    #: Pixels are divided by this after `mean` is subtracted.
    std: float | Sequence[float] = ()
    #: "f32", "f16", "bf16", or "u8", which keeps pixels from 0 to 255; or a dtype of torch or NumPy.
    dtype: Any = "f32"
    #: Whether the output is [height, width, channels].
    channels_last: bool = False

    def _wishes(self, name: str) -> dict[str, Any]:
        dtype = _dtypes.named(f"{name}.dtype", self.dtype)
        size = self.size
        if size is not None:
            sides = arguments.integers(f"{name}.size", [size, size] if isinstance(size, int) else size)
            if len(sides) != 2:
                raise refused(f"{name}.size has {len(sides)} numbers", "give (height, width), or one number for both")
            size = (_side(name, sides[0]), _side(name, sides[1]))
        return {
            "size": size,
            "crop": arguments.text(f"{name}.crop", self.crop, CROPS),
            "scale": _pair(f"{name}.scale", self.scale),
            "ratio": _pair(f"{name}.ratio", self.ratio),
            "flip": arguments.number(f"{name}.flip", self.flip),
            "mean": _numbers(f"{name}.mean", self.mean),
            "std": _numbers(f"{name}.std", self.std),
            "dtype": arguments.text(f"{name}.dtype", dtype, ("f32", "f16", "bf16", "u8")),
            "channels_last": arguments.boolean(f"{name}.channels_last", self.channels_last),
        }


class Tokens(NamedTuple):
    """Turns tokens of 16 or 32 bits into 64-bit ids in rows of one length, and adds a column "labels": the next token
    of each.
    """

    #: Elements in a row; longer rows are cut to it. None takes the longest row of the batch; of windows
    #: (``window_tokens``) with labels, all tokens but the last, so that each id has a label: `window_tokens=2049` gives
    #: rows of 2048.
    seq_len: int | None = None
    #: Whether to add the labels.
    labels: bool = True
    #: The id that fills up short rows.
    pad_id: int = 0
    #: The label where there is no next token; torch's cross entropy ignores -100.
    ignore_index: int = -100

    def _wishes(self, name: str) -> dict[str, Any]:
        return {
            "labels": arguments.boolean(f"{name}.labels", self.labels),
            "pad_id": _signed(f"{name}.pad_id", self.pad_id),
            "ignore_index": _signed(f"{name}.ignore_index", self.ignore_index),
            "seq_len": None if self.seq_len is None else arguments.integer(f"{name}.seq_len", self.seq_len, 1),
        }


class OnWay(NamedTuple):
    """How columns are transformed on their way to a batch."""

    #: Columns of pixels and tokens, and their checked settings.
    kernels: list[tuple[str, dict[str, Any]]]
    #: Columns of encoded images, and what is done to them, in the loader's threads.
    chains: list[tuple[str, str]]
    #: What Python does to columns after that, or instead of it.
    tails: list[tuple[str, Tail]]
    #: Whether images are turned as they say.
    orient: bool

    def add(self, name: str, where: str, compose: Any, split: Split) -> None:
        """Adds a Compose: a chain, or as much of one as the loader knows."""
        if not split.rest and not split.is_tensor:
            raise refused(f"{where} makes no tensor", "end it with ToTensor, or with ToImage and ToDtype")
        if split.is_whole:
            self.chains.append((name, split.chain))
            return
        _log.info("%s", words(where, split))
        if split.is_partial:
            self.chains.append((name, split.chain))
        self.tails.append((name, Tail(compose, split, self.orient)))

    @property
    def apart(self) -> list[tuple[str, str, bool]]:
        """Columns of images that another step processes after the loader's chains, which step that is, and whether it
        moves pixels.
        """
        kernels = [(name, "Images", True) for name, wishes in self.kernels if _moves(wishes)]
        return [*kernels, *((name, tail.step, tail.moves) for name, tail in self.tails)]

    @property
    def stored(self) -> list[str]:
        """Columns that Python takes as they are stored."""
        return [name for name, tail in self.tails if tail.takes_bytes]


def transforms(value: Any, orient: bool = True) -> OnWay:
    """The transforms by column, checked."""
    made = OnWay([], [], [], orient)
    if value is None:
        return made
    if not isinstance(value, Mapping):
        raise mistyped(f"transforms is a {type(value).__name__}",
                       'give a dictionary by column, such as {"image": uringload.Images(size=224)}')
    for name, transform in value.items():
        where = f"transforms[{arguments.text('transforms', name)!r}]"
        if type(transform) in (list, tuple):
            chain, kernel = _both(where, transform)
            made.chains.append((name, chain))
            made.kernels.append((name, kernel._wishes(where)))
            continue
        if isinstance(transform, str):
            made.chains.append((name, transform))
            continue
        split = _compose.split(transform)
        if split is not None:
            made.add(name, where, transform, split)
            continue
        if not isinstance(transform, (Images, Tokens)):
            raise mistyped(f"{where} is a {type(transform).__name__}",
                           "give uringload.Images, uringload.Tokens, a chain such as 'resize(256), "
                           "center_crop(224)', or a Compose; a function of your own is transform")
        made.kernels.append((name, transform._wishes(where)))
    return made


def _moves(wishes: Mapping[str, Any]) -> bool:
    """Whether `Images` move pixels."""
    return bool(wishes.get("size") or wishes.get("flip")) or wishes.get("crop", "none") != "none"


def _both(where: str, steps: Sequence[Any]) -> tuple[str, Images]:
    """A chain on the host, and what the device makes of its pixels."""
    if len(steps) == 2 and isinstance(steps[0], str) and isinstance(steps[1], Images):
        return steps[0], steps[1]
    raise mistyped(f"{where} is a list of {', '.join(type(step).__name__ for step in steps) or 'nothing'}",
                   'give a chain and then uringload.Images, such as ["resize(256x256), to_tensor(u8, hwc)", '
                   'uringload.Images(size=224)]; the steps of one chain are one text')


def fit_windows(made: list[tuple[str, dict[str, Any]]], dataset: Dataset) -> None:
    """Gives rows of tokens a label for each id where windows are cut: a window has one token more than its row."""
    if dataset.format != "tokens":
        return
    for name, wishes in made:
        shape = dataset.columns.get(name, ("", None))[1]
        if "labels" in wishes and wishes["labels"] and wishes["seq_len"] is None and shape is not None and shape[0] > 1:
            wishes["seq_len"] = shape[0] - 1


def devices(
    value: Any, output: str, has_transforms: bool, memory: Any, nvjpeg: float, allocator: Any = None
) -> list[str]:
    """The devices that batches go to, in turn; empty where batches stay as they were read."""
    names = [_name(item) for item in ([value] if _is_one(value) else _several(value))]
    if names == ["cpu"]:
        if memory is not None:
            raise refused("device_memory is of no use to device='cpu'", "give memory_limit, or a GPU as device")
        if allocator is not None:
            raise refused("device_allocator is of no use to device='cpu'", "give a GPU as device")
        if nvjpeg:
            raise refused("nvjpeg decodes with a GPU, and device='cpu' has none", "give a GPU as device")
        return ["host"] if has_transforms else []
    for name in names:
        if name != "auto" and not _is_gpu(name):
            raise refused(f"device cannot be {name!r}",
                          'give "cpu", "auto", "cuda:0", or several as ["cuda:0", "cuda:1"]')
    if output == "numpy":
        raise refused(f"NumPy has no arrays on device={', '.join(names)!r}",
                      'give output="torch" or "dlpack", or device="cpu"')
    return _for_torch(names) if output == "torch" else names


def steps(value: Any, names: list[str]) -> list[str]:
    """Why batches stay on the host although a GPU would do, where that was decided here."""
    if str(value) != "auto" or names != ["host"]:
        return []
    return ["batches on the host instead of a GPU: torch.cuda.is_available() is False; install a driver and "
            'a torch with CUDA, or give device="cpu"']


def allocator(value: Any) -> native.Allocator | None:
    """Where the GPUs' memory for batches comes from; None: from the driver."""
    if value is None:
        return None
    if isinstance(value, type):
        try:
            return native.Allocator.of_tensors(value)
        except (AttributeError, BufferError) as error:
            raise unavailable(f"{value.__name__} lends no allocator: {error}",
                              "update its library (PyTorch has DLPack's C exchange API since 2.10), or give a pair of "
                              "C functions, (allocate, free)") from error
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        allocate, free = (_address(function) for function in value)
        return native.Allocator.of_functions(allocate, free, value)
    raise mistyped(f"device_allocator is {arguments._typed(value)}",
                   "give a type of tensors, such as torch.Tensor, or a pair of C functions, (allocate, free)")


def _address(function: Any) -> int:
    """The address of a C function: a number, or a function of ctypes."""
    import ctypes
    from _ctypes import CFuncPtr

    if isinstance(function, int) and not isinstance(function, bool):
        address = function
    elif isinstance(function, CFuncPtr):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
    else:
        raise mistyped(f"a function of device_allocator is {arguments._typed(function)}",
                       "give C functions of ctypes, or their addresses: threads call them without Python's lock")
    if not 0 < address < 1 << 64:
        raise refused(f"a function of device_allocator is at address {address}", "give the address of a C function")
    return address


def nvjpeg_places() -> list[str]:
    """The folders in which PyPI's packages have nvJPEG."""
    folders = [os.path.join(path, "nvidia", package, "lib") for path in sys.path if os.path.isabs(path)
               for package in ("cu13", "nvjpeg")]
    return [folder for folder in folders if os.path.isdir(folder)]


def _for_torch(names: list[str]) -> list[str]:
    """The devices as torch sees them: "cuda" is its current device, and a torch without CUDA has none."""
    cuda = _cuda()
    if cuda.is_available():
        return [_numbered(name, cuda) for name in names]
    if names == ["auto"]:
        return ["host"]
    raise unavailable(f"torch finds no CUDA here, which device={', '.join(names)!r} needs",
                      'install a torch with CUDA and see torch.cuda.is_available(), or give device="cpu" or "auto"')


def pin(wished: bool, device: Any, devices: list[str], output: str) -> str | None:
    """The GPU to pin host memory for; None: memory is not pinned."""
    name = "cuda" if device is None or device == "" else str(device)
    if not _is_gpu(name):
        raise refused(f"pin_memory_device cannot be {name!r}", 'give a GPU, such as "cuda:0"')
    if not wished:
        return None
    if any(other != "host" for other in devices):
        arguments.ignored("pin_memory", "batches are on a GPU already, and what they are copied from is pinned")
        return None
    if output == "torch" and _cuda().is_available():
        return _numbered(name, _cuda())
    # The first GPU, if there is one: the user named no number, so none is required.
    return "auto" if name == "cuda" else name


def stream(pinned: str | None, output: str) -> Callable[[], int] | None:
    """A function that returns the stream of copies out of pinned memory; None: the default stream."""
    if pinned is None or output != "torch" or not _cuda().is_available():
        return None
    cuda = _cuda()
    number = int(pinned.partition(":")[2] or 0)
    return lambda: int(cuda.current_stream(number).cuda_stream) or 1


def scopes(names: list[str], output: str) -> Callable[[], Any] | None:
    """A function that captures the calling thread's streams as a context for another thread; None: none is needed."""
    if output != "torch" or all(name == "host" for name in names):
        return None
    import contextlib

    cuda = _cuda()
    numbers = [int(name.partition(":")[2] or 0) for name in names]

    def here() -> Any:
        streams = [cuda.current_stream(number) for number in numbers]

        @contextlib.contextmanager
        def on_streams() -> Any:
            with contextlib.ExitStack() as stack:
                # The first stream last, so that its device becomes the current one.
                for stream in reversed(streams):
                    stack.enter_context(cuda.stream(stream))
                yield

        return on_streams()

    return here


def _cuda() -> Any:
    """The module ``torch.cuda``."""
    from ._output import _import_torch

    return _import_torch('output="torch"').cuda


def _is_gpu(name: str) -> bool:
    kind, _, number = name.partition(":")
    return kind == "cuda" and (":" not in name or number.isdigit())


def _numbered(name: str, cuda: Any) -> str:
    """The GPU's name with its number: "cuda" is torch's current device."""
    return f"cuda:{cuda.current_device()}" if name == "cuda" else name


def _is_one(value: Any) -> bool:
    return isinstance(value, str) or type(value).__name__ == "device"


def _several(value: Any) -> list[Any]:
    if isinstance(value, Iterable):
        items = list(value)
        if items and all(map(_is_one, items)):
            return items
    raise mistyped(f"device is {arguments._typed(value)}", 'give "cpu", "auto", "cuda:0", or a list of GPUs')


def _name(value: Any) -> str:
    name = str(value)
    return "cpu" if name == "host" else name


def _side(name: str, value: int) -> int:
    number = arguments.integer(f"{name}.size", value, 1)
    if number >= 1 << 32:
        raise refused(f"{name}.size cannot be {number}", "give a height and a width in pixels")
    return number


def _pair(name: str, value: Any) -> tuple[float, float]:
    numbers = _numbers(name, value)
    if len(numbers) != 2:
        raise refused(f"{name} has {len(numbers)} numbers", "give the least and the largest")
    return numbers[0], numbers[1]


def _numbers(name: str, value: Any) -> list[float]:
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [arguments.number(f"{name}[{index}]", item) for index, item in enumerate(value)]
    return [arguments.number(name, value)]


def _signed(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return -arguments.integer(name, -value)
    return arguments.integer(name, value)
