"""Ranges of files into the user's own memory: tensors of a checkpoint, arrays, buffers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from . import _arguments as arguments
from . import _uringload as native
from ._reader import options_of
from .errors import mistyped, refused

#: A range's target, path and offset in bytes, and maybe its length in bytes.
Range = tuple[Any, ...]

#: Pinned memory that devices' tensors are read into first, twice: one part is read while another is copied.
STAGE_BYTES = 128 << 20

#: Address, bytes, bytes of an element, and what keeps the memory where it is.
_Memory = tuple[int, int, int, Any]


def read_into(
    target: Any,
    path: str | os.PathLike[str] | None = None,
    offset: int = 0,
    length: int | None = None,
    *,
    engine: str = "auto",
    io: str = "auto",
    queue_depth: int | None = None,
    io_threads: int | None = None,
    memory_limit: int | str | None = None,
    timeout: float | None = None,
    outage_timeout: float | None = 300.0,
) -> None:
    """Reads bytes of files into memory that you have, all of them or an exception: tensors of a checkpoint.

        weights = torch.empty(4096, 4096, dtype=torch.bfloat16)
        uringload.read_into(weights, "model.bin", offset=1 << 20)
        uringload.read_into([(weights, "model.bin", 1 << 20), (bias, "model.bin", 34 << 20)])

    Ranges of any length, at any offset, of one file or of many. Long ones are read in pieces, many at a time, as a
    `DataLoader` reads: io_uring past the page cache, or from it where the files are in it. The bytes are not changed:
    shape, type and byte order are for you to know. Ctrl-C ends it. After an exception, the content of the targets is
    undefined.

    Args:
        target: a NumPy array, a tensor of torch, or anything with the buffer protocol, such as a ``bytearray`` or an
            ``mmap``: writable and contiguous. Or a list of ``(target, path, offset)`` or ``(target, path, offset,
            length)``. What is on a device goes through pinned memory, in the order of the device's current stream,
            and is there when this returns.
        path: the file.
        offset: where in the file to begin, in bytes.
        length: bytes to read, into the first bytes of the target. None: as many as the target has.
        engine: "auto", "uring" or "threads".
        io: "auto" (the page cache if the files are in it), "direct" or "buffered".
        queue_depth: reads in flight at most. None: chosen by what is measured.
        io_threads: threads of the engine "threads".
        memory_limit: bytes of memory that is read into first, where reads go past the page cache.
        timeout: seconds that a read may take before `ReadTimeoutError`. None: no limit.
        outage_timeout: seconds that nothing may come of a folder.
    """
    options = options_of(engine, io, queue_depth, io_threads, memory_limit, timeout, outage_timeout)
    if path is not None:
        ranges: list[Range] = [(target, path, offset, length)]
    elif offset or length is not None:
        raise refused("an offset or a length without a path", "give the path too, or put both into the list")
    else:
        ranges = _listed(target)
    single = path is not None
    found: list[tuple[str, int, int, int]] = []
    staged: list[tuple[str, int, Any]] = []
    kept = []
    for index, (memory, file, start, most) in enumerate(ranges):
        where = "target" if single else f"target {index}"
        address, size, item, keeper = _memory(where, memory)
        if most is not None:
            size = _length(where, arguments.integer("length", most), size, item)
        place = (_path(file), arguments.integer("offset", start))
        if _is_on_device(memory):
            staged.append((*place, keeper.view(-1).view(_torch().uint8)[:size]))
        else:
            found.append((*place, address, size))
        kept.append(keeper)
    _refuse_overlaps(found, staged)
    native.read_into(found, options)
    if staged:
        _read_staged(staged, options, _torch())
    # Until here nothing may take the memory away.
    del kept


def _torch() -> Any:
    return sys.modules["torch"]


def _is_on_device(target: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(target, torch.Tensor) and target.device.type != "cpu"


def _read_staged(staged: list[tuple[str, int, Any]], options: dict[str, Any], torch: Any) -> None:
    """Reads bytes of tensors on devices, by way of the host."""
    size = min(STAGE_BYTES, sum(bytes_.numel() for _, _, bytes_ in staged))
    pinned = all(bytes_.device.type == "cuda" for _, _, bytes_ in staged)
    stages: list[Any] = []
    events: list[list[Any]] = [[], []]
    for number, part in enumerate(_parts(staged, size)):
        if len(stages) < 2:
            stages.append(torch.empty(size, dtype=torch.uint8, pin_memory=pinned))
        stage, under_way = stages[number % 2], events[number % 2]
        # What was copied out of this memory must be gone before it is written again.
        for event in under_way:
            event.synchronize()
        ranges, copies, at = [], [], 0
        for path, offset, bytes_ in part:
            host = stage[at : at + bytes_.numel()]
            ranges.append((path, offset, host.data_ptr(), host.numel()))
            copies.append((bytes_, host))
            at += bytes_.numel()
        native.read_into(ranges, options)
        for bytes_, host in copies:
            bytes_.copy_(host, non_blocking=pinned)
        devices = {bytes_.device for bytes_, _ in copies} if pinned else set()
        under_way[:] = [torch.cuda.current_stream(device).record_event() for device in devices]
    for event in events[0] + events[1]:
        event.synchronize()


def _parts(staged: list[tuple[str, int, Any]], size: int) -> Iterator[list[tuple[str, int, Any]]]:
    """The ranges in parts of at most `size` bytes in all."""
    part: list[tuple[str, int, Any]] = []
    room = size
    for path, offset, bytes_ in staged:
        while bytes_.numel():
            first = bytes_[:room]
            part.append((path, offset, first))
            offset, bytes_, room = offset + first.numel(), bytes_[room:], room - first.numel()
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


def _listed(ranges: Any) -> list[Range]:
    what = "ranges are not (target, path, offset) or (target, path, offset, length)"
    remedy = "give a path after a single target, or a list of such tuples"
    if not isinstance(ranges, Iterable) or isinstance(ranges, (str, bytes, bytearray, memoryview)):
        raise mistyped(what, remedy)
    found = []
    for item in ranges:
        if not isinstance(item, tuple) or len(item) not in (3, 4):
            raise mistyped(what, remedy)
        found.append(item if len(item) == 4 else (*item, None))
    return found


def _path(path: Any) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise mistyped(f"path is a {type(path).__name__}, not a path", "give a str or a pathlib.Path") from None


def _length(where: str, length: int, size: int, item: int) -> int:
    if length > size:
        raise refused(f"length is {length} bytes, and {where} has {size}", "give a longer target, or read less")
    if length % item:
        raise refused(
            f"length is {length} bytes, which is no whole number of the {item} bytes of an element of {where}",
            f"give a multiple of {item}",
        )
    return length


def _refuse_overlaps(found: list[tuple[str, int, int, int]], staged: list[tuple[str, int, Any]]) -> None:
    """Several threads write: what two ranges share would hold a part of each."""
    places = [("", address, size) for _, _, address, size in found]
    places += [(str(bytes_.device), bytes_.data_ptr(), bytes_.numel()) for _, _, bytes_ in staged]
    before, end = "", 0
    for device, address, size in sorted(place for place in places if place[2]):
        if device == before and address < end:
            raise refused("two targets share memory", "give each range memory of its own, or read one after the other")
        before, end = device, max(address + size, end if device == before else 0)


def _memory(where: str, target: Any) -> _Memory:
    """The address of a target's bytes, if they can be written in one piece."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.Tensor):
        return _of_tensor(where, target, torch)
    if numpy is not None and isinstance(target, numpy.ndarray):
        return _of_array(where, target)
    return _of_buffer(where, target)


def _of_tensor(where: str, tensor: Any, torch: Any) -> _Memory:
    if tensor.device.type == "meta":
        raise refused(f"{where} is on meta and has no memory", "make it with torch.empty_like(tensor, device='cpu')")
    plain = (torch.Tensor, torch.nn.Parameter)
    if type(tensor) not in plain or tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise refused(
            f"{where} is a {type(tensor).__name__} whose values are not simply its memory",
            "read into torch.empty(tensor.shape, dtype=tensor.dtype), then tensor.copy_(it)",
        )
    if not tensor.is_contiguous():
        raise _not_contiguous(where, "torch.empty(tensor.shape, dtype=tensor.dtype)", "tensor.copy_(it)")
    item = tensor.element_size()
    return tensor.data_ptr(), tensor.numel() * item, item, tensor.detach()


def _of_array(where: str, array: Any) -> _Memory:
    if array.dtype.hasobject:
        raise refused(f"{where} is an array of Python objects, not of bytes", "give an array of numbers")
    if not array.flags.writeable:
        raise _read_only(where, "array.copy()")
    if not array.flags.c_contiguous:
        raise _not_contiguous(where, "numpy.empty(array.shape, array.dtype)", "array[...] = it")
    # Those without bytes say 0 for an element of nothing.
    return array.__array_interface__["data"][0], array.nbytes, max(1, array.itemsize), array


def _of_buffer(where: str, target: Any) -> _Memory:
    try:
        view = memoryview(target)
    except (TypeError, ValueError, BufferError):
        raise mistyped(
            f"{where} is a {type(target).__name__}, which has no memory to read into",
            "give a NumPy array, a tensor of torch, or a bytearray; another tensor's host memory by numpy.from_dlpack",
        ) from None
    if view.readonly:
        raise _read_only(where, "bytearray(target)")
    if not view.c_contiguous:
        raise _not_contiguous(where, "bytearray(target.nbytes)", "target[:] = it")
    if set(view.format) & set("OPnN&X"):
        raise refused(f"{where} holds objects or addresses, not bytes", "give a buffer of numbers")
    if not view.nbytes:
        return 0, 0, max(1, view.itemsize), view
    # Importing it takes as long as the package: only those who need it pay.
    import ctypes

    # It holds the buffer, so that a bytearray cannot move.
    held = ctypes.c_char.from_buffer(view if view.ndim == 1 and view.format == "B" else view.cast("B"))
    return ctypes.addressof(held), view.nbytes, view.itemsize, held


def _read_only(where: str, instead: str) -> Exception:
    return refused(f"{where} is read-only", f"read into a copy, such as {instead}")


def _not_contiguous(where: str, instead: str, then: str) -> Exception:
    return refused(f"{where} is not contiguous in memory (row-major)", f"read into it = {instead}, then {then}")
