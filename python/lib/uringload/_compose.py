"""Transforms composed by torchvision and Albumentations, as a chain of operations for the loader's own threads.

A step is the loader's where it gives the same result: for its exact class, its parameters, and the kind of value that
it gets there (a PIL image, a tensor of bytes or floats, an array). The rules below say when that is. The first step
without one, and the steps after it, are left to Python. Nothing is imported.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from . import _uringload as native
from .errors import Error

#: Filters, by the values of torchvision's `InterpolationMode` and by Pillow's numbers, which it takes as well.
_FILTERS = {"nearest": "nearest", "nearest-exact": "nearest", "bilinear": "bilinear", "bicubic": "bicubic",
            "lanczos": "lanczos", "box": "box",
            0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}  # fmt: skip

#: Levels of a pixel that a padding may have.
_LEVELS = range(256)

_DTYPES = {"torch.uint8": "u8", "torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16"}


class Split(NamedTuple):
    """A composition of transforms: what runs in the loader's threads, and what is left to Python."""

    #: The operations, or "" if there are none.
    chain: str
    #: The first step that is left, and those after it.
    rest: list[Any]
    #: Whether the chain makes images of one size of all, as a column needs it.
    is_sized: bool
    #: What the first step that is left gets, or what comes out: "pil", "array" (Albumentations'), "tensor" or "image"
    #: (torchvision's).
    form: str
    #: The steps that the chain replaces.
    done: list[Any]
    #: Why the first step that is left is not the loader's.
    reason: str
    #: Whether the channels of its input are apart. torchvision's tensors mostly are views of pixels, and what its
    #: steps make of a few sizes depends on that.
    is_planar: bool

    @property
    def is_tensor(self) -> bool:
        """Whether the result is numbers, and not a PIL image."""
        return self.form != "pil"

    @property
    def is_whole(self) -> bool:
        """Whether the loader can do all of it."""
        return not self.rest and self.is_sized

    @property
    def is_partial(self) -> bool:
        """Whether the loader can do the beginning of it, and Python the rest."""
        return bool(self.rest and self.done and self.is_sized)

    def why(self) -> str:
        """Why not all of it is the loader's, in words."""
        if self.is_sized or not self.done:
            return self.reason
        return "no step makes images of one size" + (f", and {self.reason}" if self.rest else "")


class _Unknown(Exception):
    """A step that the loader does not do, and why, in words."""


def split(value: Any) -> Split | None:
    """The part of a Compose that the loader does; None for anything else."""
    kind = type(value)
    if kind.__name__ != "Compose" or not _is_of_library(kind):
        return None
    made = _Made("array" if kind.__module__.startswith("albumentations") else "pil")
    steps, reason = list(_steps(value)), ""
    if not _is_plain(value):
        return made.split(0, [value], "this Compose does more than its steps")
    for place, step in enumerate(steps):
        try:
            made.add(step)
        except _Unknown as why:
            reason = str(why)
        except (AttributeError, KeyError, TypeError, ValueError):
            reason = f"{type(step).__name__} has parameters that are not the loader's"
        if reason:
            return made.split(place, steps, reason)
    return made.split(len(steps), steps, "")


def is_users_own(step: Any) -> bool:
    """Whether a step's input is unknown: its class or its function is the user's."""
    return type(step).__name__ == "Lambda" or not _is_of_library(type(step))


def moves(step: Any) -> bool:
    """Whether a step may move pixels, so that masks and boxes must go along."""
    kind = type(step)
    if not _is_plain(step):
        return True
    if kind.__name__ in _CONTAINERS:
        return any(map(moves, step.transforms))
    if kind.__module__.startswith("albumentations"):
        return kind.__name__ != "ToTensorV2" and all(base.__name__ != "ImageOnlyTransform" for base in kind.__mro__)
    return kind.__name__ not in _STILL


def _steps(value: Any) -> Iterator[Any]:
    """The steps of a Compose, and of those in it that do nothing else."""
    for step in value.transforms:
        is_within = type(step).__name__ == "Compose" and type(step).__module__.startswith("torchvision.")
        if is_within and _is_plain(step):
            yield from _steps(step)
        else:
            yield step


def _is_of_library(kind: type) -> bool:
    """Whether a class is the one of its name in torchvision or Albumentations."""
    name = kind.__module__
    known = name.partition(".")[0] in ("torchvision", "albumentations")
    return known and getattr(sys.modules.get(name), kind.__qualname__, None) is kind


def _is_plain(step: Any) -> bool:
    """Whether a step does what its class does in its library, and nothing else: it has no hooks and no methods of its
    own, none of the class was replaced, and a Compose of Albumentations leaves nothing out and moves no boxes.
    """
    kind, own = type(step), getattr(step, "__dict__", {})
    if not _is_of_library(kind) or any(own.get(name) for name in _HOOKS):
        return False
    if any(callable(getattr(kind, name, None)) for name in own):
        return False
    library = kind.__module__.partition(".")[0]
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == library:
            for method in vars(base).values():
                method = getattr(method, "__func__", method)
                if isinstance(method, FunctionType) and method.__module__.partition(".")[0] not in (library, "torch"):
                    return False
    return kind.__name__ != "Compose" or (getattr(step, "p", 1.0) == 1.0 and not getattr(step, "processors", None))


#: What torch's modules keep that runs beside their `forward`, or in its place.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_compiled_call_impl")


class _Made:
    """The chain, step by step, and the kind of its result."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.dtype = "u8"
        self.is_planar = False
        self._ops: list[str] = []
        self._behind: list[str] = []
        self._is_sized = False

    def split(self, place: int, steps: list[Any], reason: str) -> Split:
        is_planar = self.is_planar or (place == len(steps) and self.form in ("tensor", "image"))
        layout = "" if is_planar else ", hwc"
        chain = ", ".join([*self._ops, f"to_tensor({self.dtype}{layout})", *self._behind]) if place else ""
        return Split(chain, steps[place:], self._is_sized, self.form, steps[:place], reason, is_planar)

    def add(self, step: Any) -> None:
        kind, name = type(step), type(step).__name__
        library = kind.__module__.partition(".")[0]
        # Until its second version, Albumentations drew other places.
        is_known = library != "albumentations" or _version(library) == 2
        rules = _RULES.get(library, {}) if is_known and _is_of_library(kind) else {}
        if name not in rules:
            raise _Unknown(f"{name} is a step that the loader does not do itself")
        if not _is_plain(step):
            raise _Unknown(f"this {name} has hooks or methods that are not those of its class")
        if self.form == "image" and not _is_second(step):
            raise _Unknown(f"{name} of the first generation makes something else of an Image of the second")
        rules[name](self, step)

    def needs(self, step: Any, *forms: str, dtype: str = "u8") -> None:
        """Refuses a step that does something else with the kind of value that it gets here."""
        if self.form in forms and self.dtype == dtype:
            return
        words = {"pil": "a PIL image", "array": "an array", "tensor": "a tensor", "image": "an Image"}
        raise _Unknown(f"{type(step).__name__} of {words[self.form]} of {self.dtype} is not what the loader does")

    def moves(self, text: str, pads: bool = False) -> None:
        """A step that moves pixels as they are, so that it may as well come before they become numbers; but for
        padding, which is 0 then.
        """
        if any(step.startswith("random_erasing") or pads for step in self._behind):
            raise _Unknown("the loader does nothing after a normalization or an erasing")
        self.op(text)

    def op(self, text: str) -> None:
        try:
            native.check_chain(text)
        except Error as error:
            raise _Unknown(error.headline) from None
        self._ops.append(text)
        name, _, size = text.partition("(")
        self._is_sized |= "crop" in name or (name == "resize" and "x" in size.partition(",")[0])

    def behind(self, step: Any, text: str) -> None:
        self.needs(step, "tensor", "image", dtype="f32")
        if self._behind and not text.startswith("random_erasing"):
            raise _Unknown("the loader does nothing after a normalization or an erasing")
        native.check_chain(text)
        self._behind.append(text)

    def becomes(self, form: str, dtype: str | None = None) -> None:
        self.form = form
        self.dtype = self.dtype if dtype is None else dtype


def _only(step: Any, **expected: Any) -> None:
    """Refuses a parameter that the loader does not have."""
    for name, value in expected.items():
        given = getattr(step, name, value)
        are_numbers = {type(given), type(value)} <= {int, float}
        if given is not value and not ((are_numbers or type(given) is type(value)) and given == value):
            raise _Unknown(f"{type(step).__name__}({name}={given!r}) is not what the loader does")


def _sides(size: Any) -> str:
    sides = [size, size] if not isinstance(size, Sequence) else [*size, *size] if len(size) == 1 else size
    rows, columns = map(operator.index, sides)
    return f"{rows}x{columns}"


def _range(pair: Any) -> str:
    low, high = (float(number) for number in pair)
    return f"{low!r}..{high!r}"


def _channels(numbers: Any) -> list[float]:
    many = [float(number) for number in ([numbers] if isinstance(numbers, (int, float)) else numbers)]
    if len(many) not in (1, 3):
        raise ValueError
    return many


def _list(numbers: list[float]) -> str:
    return ":".join(map(repr, numbers))


def _same(numbers: Any) -> Any:
    """The number that all of several are."""
    if isinstance(numbers, Sequence):
        (numbers,) = {*numbers}
    return numbers


# torchvision, both generations.


def _is_second(step: Any) -> bool:
    return type(step).__module__.startswith("torchvision.transforms.v2.")


def _resampled(made: _Made, step: Any) -> str:
    """The filter. Of PIL images antialiasing is not a choice; of tensors only this is the same, within 2 levels. The
    first generation makes floats of tensors, with other pixels where a side becomes 1.
    """
    name = _FILTERS[getattr(step.interpolation, "value", step.interpolation)]
    if made.form == "pil":
        if name in ("bicubic", "lanczos") and _version("PIL") < 13:
            # These go beyond black and white between the passes, whose order was another one.
            raise _Unknown(f"{type(step).__name__} by {name} is that of Pillow 13")
    else:
        made.needs(step, "tensor", "image")
        if name != "bilinear" or step.antialias is not True or not _is_second(step):
            raise _Unknown(f"{type(step).__name__} of a tensor is the loader's only as v2 does it if bilinear, with "
                           "antialias=True")
    return name


def _resize(made: _Made, step: Any) -> None:
    _only(step, max_size=None)
    size, name = step.size, _resampled(made, step)
    is_shorter = not isinstance(size, Sequence) or len(size) == 1
    made.op(f"resize({operator.index(_same(size)) if is_shorter else _sides(size)}, {name})")


def _center_crop(made: _Made, step: Any) -> None:
    made.moves(f"center_crop({_sides(step.size)})", pads=True)


def _random_crop(made: _Made, step: Any) -> None:
    _only(step, pad_if_needed=False, padding_mode="constant")
    padding, fill = operator.index(_same(step.padding or 0)), operator.index(step.fill)
    # The second generation looks at its own copy.
    _only(step, _fill={"others": fill})
    if fill not in (_LEVELS if made.dtype == "u8" else (0,)):
        raise _Unknown(f"RandomCrop(fill={fill}) is no level of a pixel")
    made.moves(f"random_crop({_sides(step.size)}, {padding}, {fill})", pads=padding > 0)


def _random_resized_crop(made: _Made, step: Any) -> None:
    name = _resampled(made, step)
    made.op(f"random_resized_crop({_sides(step.size)}, {_range(step.scale)}, {_range(step.ratio)}, {name})")


def _flip(name: str) -> _Step:
    return lambda made, step: made.moves(f"{name}({float(step.p)!r})")


def _jitter(made: _Made, step: Any) -> None:
    made.needs(step, "pil")
    names = ("brightness", "contrast", "saturation", "hue")
    given = [(name, getattr(step, name)) for name in names if getattr(step, name) is not None]
    if given:
        made.op(f"color_jitter({', '.join(f'{name}={_range(pair)}' for name, pair in given)})")


def _gray(made: _Made, step: Any) -> None:
    made.needs(step, "pil")
    _only(step, num_output_channels=3)
    made.op(f"grayscale({float(getattr(step, 'p', 1.0))!r})")


def _blur(made: _Made, step: Any) -> None:
    # PIL images become tensors for it.
    made.needs(step, "pil", "tensor", "image")
    made.op(f"gaussian_blur({operator.index(_same(step.kernel_size))}, {_range(step.sigma)})")


def _augment(made: _Made, step: Any, text: str) -> None:
    made.needs(step, "pil")
    _only(step, num_magnitude_bins=31)
    fills = step.fill.values() if isinstance(step.fill, dict) else [step.fill]
    if getattr(step.interpolation, "value", step.interpolation) != "nearest" or any(fills):
        raise ValueError
    made.op(text)


def _rand_augment(made: _Made, step: Any) -> None:
    magnitude = operator.index(step.magnitude)
    if magnitude % 2 == 0:
        _only_first(step)
    _augment(made, step, f"rand_augment({operator.index(step.num_ops)}, {magnitude})")


def _auto_augment(made: _Made, step: Any) -> None:
    _only_first(step)
    _augment(made, step, f"auto_augment({step.policy.value})")


def _trivial_augment(made: _Made, step: Any) -> None:
    _only_first(step)
    _augment(made, step, "trivial_augment")


def _only_first(step: Any) -> None:
    """Refuses a step of the second generation that solarizes from a whole level on: that level stays, by a rounding."""
    if _is_second(step):
        raise _Unknown(f"{type(step).__name__} of the second generation solarizes levels at the threshold otherwise")


def _to_tensor(made: _Made, step: Any) -> None:
    made.needs(step, "pil")
    made.becomes("tensor", "f32")
    made.is_planar = True


def _pil_to_tensor(made: _Made, step: Any) -> None:
    made.needs(step, "pil")
    made.becomes("tensor")


def _to_pil(made: _Made, step: Any) -> None:
    made.needs(step, "tensor", "image")
    _only(step, mode=None)
    made.becomes("pil")


def _to_dtype(made: _Made, step: Any) -> None:
    dtype = _DTYPES[str(step.dtype)]
    if made.form == "pil" or dtype != made.dtype:
        made.needs(step, "tensor", "image")
        _only(step, scale=True)
        made.becomes(made.form, dtype)


def _normalize(made: _Made, step: Any) -> None:
    mean, std = _channels(step.mean), _channels(step.std)
    if not all(number > 0 for number in std):
        raise ValueError
    made.behind(step, f"normalize({_list(mean)}, {_list(std)})")


def _erasing(made: _Made, step: Any) -> None:
    value = "random" if step.value in (None, "random") else repr(float(_same(step.value)))
    made.behind(step, f"random_erasing({float(step.p)!r}, {_range(step.scale)}, {_range(step.ratio)}, {value})")


_Step = Callable[[_Made, Any], None]

_TORCHVISION: dict[str, _Step] = {
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "RandomHorizontalFlip": _flip("hflip"),
    "RandomVerticalFlip": _flip("vflip"),
    "ColorJitter": _jitter,
    "Grayscale": _gray,
    "RandomGrayscale": _gray,
    "GaussianBlur": _blur,
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial_augment,
    "AutoAugment": _auto_augment,
    "ToTensor": _to_tensor,
    "PILToTensor": _pil_to_tensor,
    "ToImage": lambda made, _: made.becomes("image"),
    "ToPureTensor": lambda made, _: made.becomes("tensor" if made.form == "image" else made.form),
    "ToPILImage": _to_pil,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "Normalize": _normalize,
    "RandomErasing": _erasing,
    # Nothing is to be done: images are decoded so.
    "RGB": lambda made, _: None,
}


# Albumentations, from version 2 on. It resizes, normalizes and finds the middle by an arithmetic of its own.


def _a_crop(made: _Made, step: Any) -> None:
    _only(step, p=1.0, pad_if_needed=False)
    made.moves(f"random_crop({_sides([step.height, step.width])})")


def _a_tensor(made: _Made, step: Any) -> None:
    made.needs(step, "array")
    _only(step, p=1.0)
    made.becomes("tensor")


_ALBUMENTATIONS: dict[str, _Step] = {
    "RandomCrop": _a_crop,
    "HorizontalFlip": _flip("hflip"),
    "VerticalFlip": _flip("vflip"),
    "ToTensorV2": _a_tensor,
}

_RULES = {"torchvision": _TORCHVISION, "albumentations": _ALBUMENTATIONS}


def _version(library: str) -> int:
    """The first number of a version; 0 where there is none."""
    first = str(getattr(sys.modules.get(library), "__version__", "")).partition(".")[0]
    return int(first) if first.isdigit() else 0


#: Steps of torchvision that leave every pixel in its place.
_STILL = frozenset((
    "ColorJitter", "ConvertImageDtype", "GaussianBlur", "GaussianNoise", "Grayscale", "Identity", "JPEG", "Normalize",
    "PILToTensor", "RGB", "RandomAdjustSharpness", "RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize",
    "RandomErasing", "RandomGrayscale", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize", "RandomSolarize",
    "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor",
))  # fmt: skip

#: Steps that do some of theirs.
_CONTAINERS = frozenset(("Compose", "OneOf", "RandomApply", "RandomChoice", "RandomOrder", "Sequential", "SomeOf"))


def names(steps: Sequence[Any]) -> str:
    """Steps in words."""
    return ", ".join(type(step).__name__ for step in steps)
