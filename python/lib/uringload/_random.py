"""Random numbers for transforms: a generator for each sample, keyed by seed, epoch and sample.

What a sample draws is then the same for any number of threads and ranks, and after a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._output import _import_torch

#: Sets these draws apart from all others that derive from the seed.
_PERSON = b"uringload rng"

#: Names of a parameter with a default that is a generator all the same.
_NAMES = ("rng", "generator", "torch_generator", "torch_rng", "random")

#: A transform that is called with a sample, its epoch and its number.
Keyed = Callable[[Any, int, int], Any]


def keyed(transform: Callable[..., Any], seed: int) -> Keyed:
    """`transform` as a function of a sample, the epoch and the sample's number.

    If it takes a second argument, that is a generator: of the kind that its annotation names (`numpy.random.Generator`,
    `torch.Generator`, `random.Random`), else torch's if it is called "generator", and `random`'s if it is called
    "random"; of NumPy otherwise, or of `random` where there is no NumPy.
    """
    found = _parameter(transform)
    if found is None:
        return lambda sample, epoch, number: transform(sample)
    name, by_keyword, kind = found
    make = {"numpy": _numpy, "torch": _torch, "random": _python}[kind]()
    if by_keyword:
        return lambda sample, epoch, number: transform(sample, **{name: make(key(seed, epoch, number))})
    return lambda sample, epoch, number: transform(sample, make(key(seed, epoch, number)))


def takes_generator(transform: Callable[..., Any]) -> bool:
    """Whether `transform` takes a second argument, a generator."""
    return _parameter(transform) is not None


def key(seed: int, epoch: int, number: int) -> int:
    """128 bits that all three decide. States and versions rely on them: they never change."""
    import hashlib
    import struct

    packed = struct.pack("<QQQ", seed, epoch, number)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=16, person=_PERSON).digest(), "little")


def _numpy() -> Callable[[int], Any]:
    try:
        from numpy.random import Generator, Philox
    except ImportError:
        return _python()
    return lambda key: Generator(Philox(key=key))


def _torch() -> Callable[[int], Any]:
    torch = _import_torch("a transform with a torch.Generator")

    def make(key: int) -> Any:
        generator = torch.Generator()
        generator.manual_seed(key & ((1 << 63) - 1))
        return generator

    return make


def _python() -> Callable[[int], Any]:
    import random

    return random.Random


def _parameter(transform: Callable[..., Any]) -> tuple[str, bool, str] | None:
    """The parameter that takes a generator: its name, whether it is given by keyword, and the kind of generator."""
    import inspect

    try:
        parameters = list(inspect.signature(transform).parameters.values())
        if all(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            # A module of torch says what it takes in `forward`.
            parameters = list(inspect.signature(transform.forward).parameters.values())  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return None
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    others = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    for parameter, by_keyword in [*((each, False) for each in by_place[1:2]), *((each, True) for each in others)]:
        is_required = parameter.default is parameter.empty
        if not is_required and parameter.default is not None:
            # It has a value, such as a generator of the user's that `functools.partial` binds.
            continue
        annotated = _kind(transform, parameter.annotation)
        if annotated is not None or is_required or parameter.name in _NAMES:
            return parameter.name, by_keyword, annotated or _by_name(parameter.name)
    return None


def _by_name(name: str) -> str:
    if name == "generator" or name.startswith("torch"):
        return "torch"
    return "random" if name == "random" else "numpy"


def _kind(transform: Any, annotation: Any) -> str | None:
    """The kind of generator that an annotation names; it may be text, as all are under `annotations` of __future__."""
    module: str
    name: str | None
    if isinstance(annotation, str):
        spelled = annotation.partition("|")[0].strip()
        module, _, name = spelled.rpartition(".")
        if not module:
            called = transform if hasattr(transform, "__globals__") else getattr(transform, "__call__", None)
            return _kind(transform, getattr(called, "__globals__", {}).get(spelled))
        module = {"np.random": "numpy.random", "th": "torch"}.get(module, module)
    else:
        module, name = getattr(annotation, "__module__", None) or "", getattr(annotation, "__name__", None)
    if name == "Random":
        return "random" if module == "random" else None
    if name != "Generator":
        return None
    # Where a class is imported from and where it was made differ: torch's is of `torch._C`.
    return {"torch": "torch", "numpy": "numpy"}.get(module.partition(".")[0])
