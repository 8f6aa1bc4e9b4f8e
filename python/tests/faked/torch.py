"""torch on the mock of CUDA's driver, in so far as benches/gpu/torch_device.py needs it to ask for loaders and to look
at their batches: tensors are NumPy's arrays, copied from where they lie, and what is put into a stream is done at once.

What is not here, such as gradients and graphs, raises ``AttributeError``, which names it.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from typing import Any

import numpy
import pool
from mock_cuda import Mock

__version__ = "faked"


class Driver(Mock):
    """The driver that the loaders of this process find too. Its context is this thread's."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.enter()


driver = Driver()
taken = pool.Pool(driver)
lenders = pool.tensors(taken)

int32, int64, float32, uint8, bfloat16 = (numpy.dtype(name) for name in ("i4", "i8", "f4", "u1", "f4"))


class Tensor(numpy.ndarray):  # type: ignore[type-arg]
    __dlpack_c_exchange_api__ = lenders.__dlpack_c_exchange_api__
    #: Where the memory of a batch is, of which this is a copy.
    address: int | None = None
    device = "cpu"

    def __array_finalize__(self, base: Any) -> None:
        self.device = getattr(base, "device", "cpu")

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def is_pinned(self) -> bool:
        found = ctypes.c_uint64()
        return driver.library.cuMemHostGetDevicePointer_v2(ctypes.byref(found), ctypes.c_void_p(self.address), 0) == 0

    def to(self, *wanted: Any, non_blocking: bool = False) -> Tensor:
        made = self
        for one in wanted:
            made = put(made.astype(one), made.device) if isinstance(one, numpy.dtype) else put(made.copy(), one)
        return made

    def view(self, *shape: Any) -> Any:
        return super().view(*shape) if isinstance(shape[0], type) else self.reshape(shape)

    def float(self) -> Tensor:
        return self.to(float32)

    def clone(self) -> Tensor:
        return put(self.copy(), self.device)

    def copy_(self, other: Any) -> None:
        self[...] = other

    def abs(self) -> Tensor:
        return put(numpy.abs(self), self.device)

    def numel(self) -> int:
        return self.size

    def numpy(self) -> Any:
        return numpy.asarray(self)

    def repeat_interleave(self, count: int) -> Tensor:
        return put(self.repeat(count), self.device)


def put(array: Any, device: Any = "cpu") -> Tensor:
    tensor = numpy.asarray(array).view(Tensor)
    tensor.device = str(device)
    return tensor


def of_shape(make: Any) -> Any:
    def made(*shape: int, dtype: Any = float32, device: Any = "cpu", requires_grad: bool = False) -> Tensor:
        return put(make(shape[0] if isinstance(shape[0], tuple) else shape, dtype), device)

    return made


empty = zeros = randn = of_shape(numpy.zeros)
ones = of_shape(numpy.ones)


def as_tensor(values: Any, device: Any = "cpu", dtype: Any = None) -> Tensor:
    return put(numpy.asarray(values, dtype), device)


def arange(count: int, dtype: Any = int64) -> Tensor:
    return put(numpy.arange(count, dtype=dtype))


def empty_like(other: Tensor) -> Tensor:
    return other.clone()


def full_like(other: Tensor, value: Any) -> Tensor:
    return put(numpy.full_like(other, value), other.device)


def stack(tensors: Any) -> Tensor:
    return put(numpy.stack(tensors), tensors[0].device)


def mm(a: Tensor, b: Tensor) -> Tensor:
    return a


def from_dlpack(lent: Any) -> Tensor:
    """A copy of what a loader's tensor, or its capsule, lends."""
    stream = current[-1].cuda_stream or 1
    if hasattr(lent, "__dlpack__"):
        lent = lent.__dlpack__(stream=stream) if lent.__dlpack_device__()[0] == 2 else lent.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = pool.Tensor.from_address(pointer(lent, b"dltensor"))
    dtype = numpy.dtype(f"{'iuf'[found.code]}{found.bits // 8}")
    made, address = numpy.empty(found.shape[: found.dimensions], dtype), found.data + found.offset
    if found.kind == 2:
        to, length = made.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(made.nbytes)
        driver.call("cuMemcpyDtoHAsync_v2", to, ctypes.c_uint64(address), length, ctypes.c_size_t(stream))
        driver.call("cuStreamSynchronize", ctypes.c_size_t(stream))
    else:
        ctypes.memmove(made.ctypes.data, address, made.nbytes)
    tensor = put(made, f"cuda:{found.number}" if found.kind == 2 else "cpu")
    tensor.address = address
    return tensor


class Stream:
    def __init__(self, number: int | None = None) -> None:
        self.cuda_stream = driver.stream() if number is None else number


class Event:
    def __init__(self, enable_timing: bool = False) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return 1.0


def module(name: str, **members: Any) -> types.ModuleType:
    """A module of torch, which `import` finds."""
    made = types.ModuleType(f"torch.{name}")
    made.__dict__.update(members)
    sys.modules[made.__name__] = made
    return made


current = [Stream(0)]


@contextlib.contextmanager
def on_stream(stream: Stream) -> Any:
    current.append(stream)
    yield
    current.pop()


cuda = module(
    "cuda", is_available=lambda: True, current_device=lambda: 0, current_stream=lambda number=0: current[-1],
    stream=on_stream, Stream=Stream, Event=Event, synchronize=lambda: driver.call("cuCtxSynchronize"),
    _sleep=lambda cycles: None, memory_allocated=lambda: sum(taken.taken.values()),
)  # fmt: skip
utils = module("utils", data=module("utils.data", Dataset=object, get_worker_info=lambda: None),
               dlpack=module("utils.dlpack", from_dlpack=from_dlpack))  # fmt: skip
