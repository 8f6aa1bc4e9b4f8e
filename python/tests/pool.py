"""Memory of the mock of CUDA's driver for others to give out: by a pair of C functions, or by a type of tensors."""

from __future__ import annotations

import ctypes
from typing import Any

from mock_cuda import Mock

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)


class Pool:
    """The mock's memory. What was taken is counted, by address."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.taken: dict[int, int] = {}
        self.most = 1 << 40
        self.wrong: list[object] = []
        self.functions = (ALLOCATE(self.allocate), FREE(self.free))

    def take(self, length: int) -> int:
        if length > self.most:
            return 0
        address = ctypes.c_uint64()
        self.mock.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(length))
        self.taken[address.value] = length
        return address.value

    def allocate(self, length: int, device: int, stream: int | None) -> int:
        self.wrong += [seen for seen in (device, stream) if seen]
        return self.take(length)

    def give(self, address: int) -> int:
        length = self.taken.pop(address)
        self.mock.call("cuMemFree_v2", ctypes.c_uint64(address))
        return length

    def free(self, address: int, length: int, device: int, stream: int | None) -> None:
        self.wrong += [seen for seen in (device, stream, length - self.give(address)) if seen]


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("number", ctypes.c_int32), ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    )


class Table(ctypes.Structure):
    """``DLPackExchangeAPI``."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p), ("others", ctypes.c_void_p * 3), ("current_stream", ctypes.c_void_p),
    )


TELL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
MAKE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, TELL
)
DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CURRENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


def tensors(pool: Pool, major: int = 1, has_allocator: bool = True) -> type:
    """A type of tensors whose memory is the pool's."""
    made: dict[int, Managed] = {}

    @MAKE
    def make(asked: Any, to: Any, context: int, tell: Any) -> int:
        wanted = asked[0]
        element = (wanted.code, wanted.bits, wanted.lanes)
        if (wanted.kind, wanted.number, wanted.dimensions, *element) != (2, 0, 1, 1, 8, 1):
            pool.wrong.append("a prototype")
        address = pool.take(wanted.shape[0])
        if address == 0:
            tell(context, b"MemoryError", b"the pool is empty")
            return -1
        # Somewhere within an allocation, as a tensor may be.
        tensor = Tensor(address - 512, 2, 0, 1, 1, 8, 1, None, None, 512)
        managed = Managed(1, 1, None, ctypes.cast(delete, ctypes.c_void_p), 0, tensor)
        made[ctypes.addressof(managed)] = managed
        to[0] = ctypes.addressof(managed)
        return 0

    @DELETE
    def delete(managed: int) -> None:
        tensor = made.pop(managed).tensor
        pool.give(tensor.data + tensor.offset)

    @CURRENT
    def current(kind: int, device: int, stream: Any) -> int:
        stream[0] = None
        return 0

    functions = [ctypes.cast(function, ctypes.c_void_p) for function in (make, current)]
    table = Table(major, 3, None, functions[0] if has_allocator else None)
    table.current_stream = functions[1]
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api = capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return type("Tensors", (), {"__dlpack_c_exchange_api__": api, "kept": (table, make, delete, current, made)})
