"""The draws of a sampler: one for each pass, and what a state keeps of it so that a resume draws the same again.

A state keeps the random generators that the draw moved, as they stood before it: those in the sampler's attributes, and
those that all code shares (`torch`, `random`, `numpy.random`). A digest of the drawn numbers shows whether a resume did
draw the same. So a sampler that keeps its order elsewhere is found out, and refused by name.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from . import _arguments as arguments
from . import _log
from .errors import mismatched, mistyped, refused

#: Samplers within samplers that are looked into.
_DEPTH = 3

_REMEDY = ("give the sampler a generator with the same seed and the arguments that it had, or the method set_epoch; "
           "numbers that it draws must come from a generator in one of its attributes, or from torch, random or numpy")


class Draws:
    """The draws of one sampler, on one rank."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        # The last draw, as states within its epoch keep it.
        self._last: dict[str, Any] | None = None
        # What was drawn to check a state, for the pass that goes on from it.
        self._kept: bytes | None = None

    def of_pass(self, epoch: int, rank: int) -> bytes:
        """The samples of the pass that begins, packed."""
        kept, self._kept = self._kept, None
        if kept is None:
            kept, self._last = self._draw(epoch, rank)
        return kept

    def look(self) -> bytes:
        """What the next pass would draw. Nothing moves."""
        if self._kept is not None:
            return self._kept
        with self._restored():
            return self._draw(0, 0)[0]

    def set_epoch(self, epoch: int) -> None:
        """Passes the sampler an epoch that was set explicitly."""
        self._kept = self._last = None
        told = getattr(self._sampler, "set_epoch", None)
        if callable(told):
            told(epoch)

    def saved(self, epoch: int, rank: int) -> dict[str, Any]:
        """What a state in this epoch keeps of the sampler."""
        if self._last is not None and self._last["epoch"] == epoch:
            return self._last
        return {**self._about(epoch, rank), "generators": _texts(_states(_held(self._sampler)))}

    def unread(self) -> bytes:
        """As many numbers as a pass has, for who only counts them."""
        return bytes(8 * len(self._sampler)) if self._kept is None else self._kept

    @contextmanager
    def resumed(self, state: Mapping[str, Any], rank: int) -> Iterator[bytes | None]:
        """Puts the sampler where it was for a state: within an epoch, what it drew for it, which the next pass takes;
        None between epochs, where nothing is drawn. An error in the block puts everything back.
        """
        before, last, kept = self._all(), self._last, self._kept
        self._last = self._kept = None
        try:
            yield self._resume(state, rank)
            # After the block, which has more to say about a state of something else.
            self._compare(state, rank)
        except BaseException:
            self._put(before)
            self._last, self._kept = last, kept
            raise

    def _resume(self, state: Mapping[str, Any], rank: int) -> bytes | None:
        epoch, is_within = state.get("epoch"), bool(state.get("position") or state.get("rows"))
        saved = state.get("sampler")
        if not isinstance(saved, Mapping) or saved.get("epoch") != epoch:
            if not is_within:
                return None
            if not isinstance(self._sampler, (list, tuple, range)):
                _log.warning("the state does not say what the sampler (%s) had drawn, so that the rest of the epoch is "
                             "what was left of it cannot be checked", self._name())
            saved = {}
        generators, is_other = saved.get("generators") or {}, saved.get("rank", rank) != self._rank(rank)
        if is_other and generators:
            raise refused(f"the state is that of rank {saved.get('rank')}, where the sampler ({self._name()}) has "
                          f"random numbers of its own, and this is rank {self._rank(rank)}",
                          "save a state on each rank, and load each where it was saved")
        told = getattr(self._sampler, "set_epoch", None)
        if callable(told) and isinstance(saved.get("sampler_epoch"), int):
            told(saved["sampler_epoch"])
        held = _held(self._sampler)
        for name, text in generators.items():
            if name in held:
                _put(held[name], text, name)
        digest = saved.get("digest")
        if not is_within and digest is None:
            return None
        shared = _shared()
        before = _states(shared)
        for name, text in generators.items():
            if name in shared:
                _put(shared[name], text, name)
        try:
            drawn, self._last = self._draw(int(epoch or 0), rank, like_torch=False)
        finally:
            for name, was in before.items():
                shared[name].put(was)
        self._kept = drawn
        return drawn

    def _compare(self, state: Mapping[str, Any], rank: int) -> None:
        """Refuses a state for which the sampler had drawn other samples."""
        saved = state.get("sampler")
        if self._last is None or not isinstance(saved, Mapping) or saved.get("rank") != self._rank(rank):
            return
        if saved.get("epoch") == self._last["epoch"] and saved.get("digest") not in (None, self._last["digest"]):
            raise mismatched(f"the sampler ({self._name()}) draws other samples for epoch {self._last['epoch']} than "
                             "it did for the state: some would come twice, and some never", _REMEDY)

    def _draw(self, epoch: int, rank: int, like_torch: bool = True) -> tuple[bytes, dict[str, Any]]:
        torch = sys.modules.get("torch")
        if like_torch and torch is not None:
            # torch's loader draws a seed for its workers first. So a sampler without a generator has the same order.
            torch.empty((), dtype=torch.int64).random_()
        generators = {**_held(self._sampler), **_shared()}
        about, before = self._about(epoch, rank), _states(generators)
        ids = self._numbers()
        after = _states(generators)
        # Here: it loads OpenSSL, which takes a tenth of the time of importing this package.
        import hashlib

        about["digest"] = hashlib.blake2b(ids, digest_size=16).hexdigest()
        about["generators"] = _texts({name: state for name, state in before.items() if state != after[name]})
        return ids, about

    def _numbers(self) -> bytes:
        sampler = self._sampler
        if isinstance(sampler, (list, tuple, range)) or hasattr(sampler, "dtype") or hasattr(sampler, "typecode"):
            return arguments.ids("sampler", sampler)
        count = len(sampler)
        drawn = list(islice(iter(sampler), count + 1))
        if len(drawn) > count:
            raise refused(f"the sampler ({self._name()}) goes on after the {count} samples of its len()",
                          "have __len__ return how many samples __iter__ gives in an epoch; for an endless sampler, "
                          "return the length of an epoch")
        if drawn and isinstance(drawn[0], (list, tuple)):
            raise mistyped(f"the sampler ({self._name()}) gives batches of samples, and not samples",
                           "give the sampler that it takes them from, and batch_size")
        return arguments.ids("sampler", drawn)

    def _about(self, epoch: int, rank: int) -> dict[str, Any]:
        own = getattr(self._sampler, "epoch", None)
        is_told = callable(getattr(self._sampler, "set_epoch", None)) and type(own) is int
        return {"epoch": epoch, "rank": self._rank(rank), **({"sampler_epoch": own} if is_told else {})}

    def _rank(self, rank: int) -> int:
        """The rank that the sampler says it is of, or that of the process."""
        own = getattr(self._sampler, "rank", None)
        return own if type(own) is int else rank

    def _name(self) -> str:
        return type(self._sampler).__qualname__

    def _all(self) -> tuple[Any, dict[str, bytes]]:
        return self._about(0, 0).get("sampler_epoch"), _states({**_held(self._sampler), **_shared()})

    def _put(self, before: tuple[Any, dict[str, bytes]]) -> None:
        epoch, states = before
        if epoch is not None:
            self._sampler.set_epoch(epoch)
        generators = {**_held(self._sampler), **_shared()}
        for name in generators.keys() & states.keys():
            generators[name].put(states[name])

    @contextmanager
    def _restored(self) -> Iterator[None]:
        before = self._all()
        try:
            yield
        finally:
            self._put(before)


class _Generator:
    """A random generator: functions that return and set its state, as bytes."""

    def __init__(self, told: Callable[[], bytes], put: Callable[[bytes], Any]) -> None:
        self.told, self.put = told, put


def _held(sampler: Any, depth: int = _DEPTH, inside: str = ".") -> dict[str, _Generator]:
    """The generators in the attributes of a sampler, and of the samplers in its attributes, by name."""
    found: dict[str, _Generator] = {}
    kind = getattr(sys.modules.get("torch.utils.data"), "Sampler", None)
    for name, value in sorted(getattr(sampler, "__dict__", {}).items()):
        generator = _generator(value)
        if generator is not None:
            found[inside + name] = generator
        elif depth and kind is not None and isinstance(value, kind):
            found.update(_held(value, depth - 1, f"{inside}{name}."))
    return found


def _shared() -> dict[str, _Generator]:
    """The generators that all code of the process shares, of what is imported."""
    found = {}
    for name, generator in (
        ("torch", getattr(sys.modules.get("torch"), "default_generator", None)),
        ("random", getattr(sys.modules.get("random"), "_inst", None)),
        ("numpy", getattr(getattr(sys.modules.get("numpy.random"), "mtrand", None), "_rand", None)),
    ):
        known = _generator(generator)
        if known is not None:
            found[name] = known
    return found


def _generator(value: Any) -> _Generator | None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None and isinstance(value, torch.Generator):
        return _Generator(
            lambda: bytes(value.get_state().numpy()),
            lambda state: value.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8)),
        )
    kind = getattr(sys.modules.get("random"), "Random", None)
    if kind is not None and type(value) is kind:
        return _Generator(lambda: json.dumps(value.getstate()).encode(), lambda state: value.setstate(_tuples(state)))
    if numpy is None or not isinstance(value, (numpy.Generator, numpy.RandomState)):
        return None
    if isinstance(value, numpy.RandomState):
        return _Generator(lambda: _plain(value.get_state(legacy=False)), lambda state: value.set_state(_arrays(state)))
    bits = value.bit_generator
    return _Generator(lambda: _plain(bits.state), lambda state: setattr(bits, "state", _arrays(state)))


def _tuples(state: bytes) -> Any:
    version, numbers, gauss = json.loads(state)
    return version, tuple(numbers), gauss


def _plain(state: Any) -> bytes:
    return json.dumps(state, default=lambda array: {"dtype": str(array.dtype), "values": array.tolist()}).encode()


def _arrays(state: bytes) -> Any:
    import numpy

    def array(found: dict[str, Any]) -> Any:
        return numpy.array(found["values"], found["dtype"]) if found.keys() == {"dtype", "values"} else found

    return json.loads(state, object_hook=array)


def _states(generators: Mapping[str, _Generator]) -> dict[str, bytes]:
    return {name: one.told() for name, one in generators.items()}


def _texts(states: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(zlib.compress(state)).decode() for name, state in states.items()}


def _put(generator: _Generator, text: Any, name: str) -> None:
    try:
        generator.put(zlib.decompress(base64.b64decode(text)))
    except Exception as error:
        raise mismatched(f"generator {name!r} of the state fits none of the sampler here: {error}", _REMEDY) from error
