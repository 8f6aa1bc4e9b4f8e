"""Checks a loader's arguments and turns them into the dictionary that the native part takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from . import _arguments as arguments
from . import _log
from . import _uringload as native
from .errors import Error, mistyped, refused

FORMS = ("auto", "views", "list", "dense", "ragged", "padded", "tuple")
PACKINGS = ("first_fit", "best_fit", "concat")

#: Samples that are packed or bucketed together by default; the library's default, too.
ROW_WINDOW = 8192


def _path(name: str, value: Any) -> str:
    return arguments.paths(name, value)[0]


def _bytes(name: str, value: Any) -> int | str:
    return value if isinstance(value, str) else arguments.integer(name, value)


def _room(name: str, value: Any) -> str:
    """A folder and the bytes that it may hold: a pair of them, or text that has both."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return _path(name, value)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise mistyped(f"{name} is no folder with its bytes: {value!r}", f'give {name}=("/nvme/cache", "100GiB")')
    return f"{_path(name, value[0])}:{_bytes(name, value[1])}"


def _failures(name: str, value: Any) -> int | float:
    """A number of samples, or a share of an epoch."""
    return value if isinstance(value, float) else arguments.integer(name, value)


#: The type of a setting's value, by what the library's table says that it takes; the library checks the value itself.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "flag": arguments.boolean, "whole": arguments.integer, "count": arguments.integer, "bytes": _bytes,
    "seconds": arguments.number, "word": arguments.text, "path": _path, "room": _room,
    "failures": _failures,
}  # fmt: skip
_TABLE = {name: (_CHECKS[kind], takes_none) for name, kind, takes_none, _ in native.settings()}


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the library's table has, checked."""
    found = {}
    for name, (check, takes_none) in _TABLE.items():
        if name in given:
            value = given[name]
            found[name] = None if value is None and takes_none else check(name, value)
    native.check_settings(found)
    return found


def shuffle(value: Any, window: Any) -> Any:
    """How an epoch is shuffled: "off", "auto", or as the library's table has it; a window may have its own argument."""
    how = ("auto" if value else "off") if value is None or isinstance(value, bool) else value
    if isinstance(how, int):
        how = str(how)  # The library says what a number is.
    if window is None:
        return how
    if how not in ("auto", "window"):
        raise refused(f"shuffle_window is of no use to shuffle={value!r}", 'give shuffle="window"')
    return f"window:{arguments.integer('shuffle_window', window, 1)}"


def cache_folder(images: Any, folder: Any) -> str | None:
    """The folder that decoded images are kept in, if they are."""
    if folder is None:
        return None
    if images is None:
        raise refused("cache_images_dir is a place for cache_images", 'say how much: cache_images="100GiB"')
    return arguments.paths("cache_images_dir", folder)[0]


def batch_size(own: Any, of_all: Any, world_size: int) -> int:
    """Samples per batch on this rank, from the batch size of one rank or of all ranks."""
    if (own is None) == (of_all is None):
        raise refused("give batch_size (of one rank) or global_batch_size (of all ranks), and not both",
                      "DataLoader(path, batch_size=64); for single samples batch_size=1, collate_fn=lambda samples: "
                      "samples[0]")
    if own is not None:
        return arguments.integer("batch_size", own, 1)
    whole = arguments.integer("global_batch_size", of_all, 1)
    if whole % world_size:
        raise refused(f"global_batch_size {whole} is no multiple of the {world_size} ranks", "give one that is")
    return whole // world_size


def threads(num_threads: Any, num_workers: Any) -> int | None:
    """Threads that decode: PyTorch's `num_workers` is taken as `num_threads`, its closest match."""
    given = {name: arguments.integer(name, value) for name, value in
             (("num_threads", num_threads), ("num_workers", num_workers)) if value is not None}
    if len(set(given.values())) > 1:
        raise refused(f"num_threads is {num_threads} and num_workers is {num_workers}", "give one of them")
    return next(iter(given.values()), None)


def seed(value: Any, generator: Any) -> Any:
    """The seed of a torch.Generator. Its state is of no use: the order is a function of seed and epoch, so that a run
    can resume.
    """
    said = getattr(generator, "initial_seed", None)
    if not callable(said):
        arguments.ignored("generator", "it has no initial_seed() to take for seed")
        return value
    own = int(said()) % (1 << 64)
    if value not in (0, own):
        raise refused(f"seed is {value}, and that of generator is {own}", "give one of them")
    arguments.ignored("generator", f"except for its seed: seed={own}, and each epoch has an order of its own")
    return own


def form(name: str, value: Any, padding: dict[str, Any]) -> dict[str, Any]:
    """The form of a column, checked, with its padding."""
    word = arguments.text(name, value, FORMS)
    return {"form": "views" if word == "list" else word, **padding}


def collate(value: Any, padding: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """The form of all columns, and the forms of single columns: from one word, or from a dictionary by column."""
    if isinstance(value, Mapping):
        forms = [(arguments.text("collate", name), form(f"collate[{name!r}]", word, padding))
                 for name, word in value.items()]
        return form("collate", "auto", padding), forms
    if isinstance(value, str):
        return form("collate", value, padding), []
    raise mistyped(f"collate is a {type(value).__name__}",
                   "give a word, a dictionary of words by column, or a function of a list of samples")


def padding(pad_value: Any, max_length: Any, pad_multiple: Any) -> dict[str, Any]:
    """How values are padded or cut to one length."""
    sign = -1 if isinstance(pad_value, int) and pad_value < 0 else 1
    value = pad_value if isinstance(pad_value, bool) else abs(pad_value) if isinstance(pad_value, int) else pad_value
    return {
        "value": sign * arguments.integer("pad_value", value),
        "max_length": None if max_length is None else arguments.integer("max_length", max_length, 1),
        "multiple_of": arguments.integer("pad_multiple", pad_multiple, 1),
    }


def rows(
    packing: Any, seq_len: Any, boundaries: Any, sizes: Any, window: Any, value: int
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Packing and buckets; at most one of them is set."""
    window = arguments.integer("row_window", window, 1)
    if (packing is None) != (seq_len is None):
        raise refused("packing and seq_len are of use together", "give both or none")
    if (boundaries is None) != (sizes is None):
        raise refused("bucket_boundaries and bucket_batch_sizes are of use together", "give both or none")
    if packing is not None and sizes is not None:
        raise refused("samples are packed or bucketed, and not both", "leave out packing or the buckets")
    packed = bucketed = None
    if packing is not None:
        packed = {"method": arguments.text("packing", packing, PACKINGS), "window": window, "value": value,
                  "seq_len": arguments.integer("seq_len", seq_len, 1)}
    if sizes is not None:
        bucketed = {"boundaries": arguments.integers("bucket_boundaries", boundaries), "window": window,
                    "batch_sizes": arguments.integers("bucket_batch_sizes", sizes)}
    return packed, bucketed


def fill(options: dict[str, Any], profile: Any) -> None:
    """What a profile of `uringload tune` says, where the arguments leave it open."""
    for name, value in native.profile(arguments.paths("profile", profile)[0]):
        if options[name] in (None, "auto"):
            options[name] = value


def _profile(path: str) -> str:
    native.profile(path)
    return path


#: The variables with defaults of arguments that are not given, and what makes a value of the text.
VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "num_threads": ("URINGLOAD_NUM_THREADS", lambda text: arguments.integer("it", int(text))),
    "memory_limit": ("URINGLOAD_MEMORY_LIMIT", lambda text: native.size("it", text)),
    "profile": ("URINGLOAD_PROFILE", _profile),
}
LOG_VARIABLE = "URINGLOAD_LOG"
_LEVELS = ("debug", "info", "warning", "error")


def from_variables(asked: Any) -> None:
    """Fills in what the environment says, where the arguments leave it open. An empty variable counts as unset."""
    level = os.environ.get(LOG_VARIABLE)
    if level:
        _log.show_from(arguments.text(f"the variable {LOG_VARIABLE}", level.lower(), _LEVELS))
    for name, (variable, made) in VARIABLES.items():
        text = os.environ.get(variable)
        if not text:
            continue
        try:
            value = made(text)
        except (Error, ValueError) as error:
            why = error.headline if isinstance(error, Error) else "not a whole number from 0 on"
            raise refused(f"the variable {variable} is {text!r}: {why}",
                          "set it to what its argument takes, or unset it") from None
        if getattr(asked, name) is None and (name != "num_threads" or asked.num_workers is None):
            setattr(asked, name, value)


#: Where `uringload top` looks, and the variable that asks for it from outside.
SHARED_AT = "/dev/shm"
SHARE_VARIABLE = "URINGLOAD_SHARE_STATS"


def share_stats(value: Any) -> str | None:
    """The folder of the page that `uringload top` reads: by the argument, or by the variable where it says nothing."""
    if value is None:
        said = os.environ.get(SHARE_VARIABLE, "")
        value = {"": False, "0": False, "1": True}.get(said, said)
    if isinstance(value, bool):
        return SHARED_AT if value else None
    return arguments.paths("share_stats", value)[0]


def timeout(value: Any) -> float | None:
    """Seconds; None or 0 (PyTorch's default) means no timeout."""
    made: float | None = settings({"timeout": None if value == 0 else value})["timeout"]
    return made


def optional(check: Any, name: str, value: Any, *more: Any) -> Any:
    """None if `value` is None, else what `check` returns."""
    return None if value is None else check(name, value, *more)


class Trace:
    """The names of the files that a loader's trace is written to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0

    def check(self, world_size: int) -> None:
        """Refuses one name for several ranks, who would write over each other's."""
        if world_size > 1 and "{rank}" not in self._path:
            stem, end = os.path.splitext(self._path)
            raise refused(f"trace={self._path!r} names one file for {world_size} ranks",
                          f"give a file for each, such as {stem + '-{rank}' + end!r}")

    def next(self, rank: int, world_size: int) -> str:
        """The file of the reading that begins now."""
        self.check(world_size)
        self._count += 1
        path = self._path.replace("{rank}", str(rank))
        if self._count == 1:
            return path
        stem, end = os.path.splitext(path)
        return f"{stem}.{self._count}{end}"
