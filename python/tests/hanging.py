"""A filesystem of one folder whose server leaves calls about one file without an answer. Root only, because only root
may mount without ``fusermount``. Source: include/uapi/linux/fuse.h of Linux, protocol 7.31.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import struct
import threading
import time
from types import TracebackType

LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR, READDIR = 1, 2, 3, 14, 15, 26, 27, 28
FORGET_BATCH, INTERRUPT = 42, 36
RELEASE, RELEASEDIR, FLUSH, STATFS = 18, 29, 25, 17
ROOT = 1
FOLDER, FILE = 0o040755, 0o100644
#: How long answers are believed, in nanoseconds.
KEPT_NS = 100_000_000
ENOENT, ENOSYS = 2, 38
#: FUSE_PARALLEL_DIROPS: looking for one name holds up no other.
PARALLEL = 1 << 18
#: FOPEN_DIRECT_IO: reads go past the page cache.
DIRECT = 1
MS_RDONLY_NOSUID_NODEV = 1 | 2 | 4
MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Hanging:
    """The mounted filesystem: file number i is called ``names[i]`` and has ``contents[i]``."""

    def __init__(self, at: pathlib.Path, files: dict[str, bytes]) -> None:
        self.at, self._names, self._contents = at, list(files), list(files.values())
        self._hangs: tuple[int, int] | None = None
        self._left: list[bytes] = []
        self._lock = threading.Lock()
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0"
        if _libc.mount(b"hanging", os.fsencode(at), b"fuse", MS_RDONLY_NOSUID_NODEV, options.encode()) != 0:
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "cannot mount")
        threading.Thread(target=self._serve, daemon=True).start()

    def hang(self, call: int, number: int) -> None:
        """From now on, such calls about this file, or about the folder for READDIR, get no answer."""
        self._hangs = (call, ROOT if call == READDIR else number + ROOT + 1)

    def release(self) -> None:
        """All calls get their answers."""
        with self._lock:
            self._hangs, left, self._left = None, self._left, []
        for request in left:
            self._answer(request)

    def __enter__(self) -> Hanging:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
        _libc.umount2(os.fsencode(self.at), MNT_DETACH)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 1 << 20)
            except InterruptedError:
                continue
            except OSError:
                os.close(self._fd)
                return
            with self._lock:
                hangs = self._hangs is not None and self._about(request) == self._hangs
                if hangs:
                    self._left.append(request)
            if not hangs:
                self._answer(request)

    def _about(self, request: bytes) -> tuple[int, int]:
        call, node = struct.unpack_from("<4xI8xQ", request)
        if call == LOOKUP:
            node = self._node(request[40:-1])
        return call, node

    def _node(self, name: bytes) -> int:
        name_of = {os.fsencode(known): number for number, known in enumerate(self._names)}
        return name_of[name] + ROOT + 1 if name in name_of else 0

    def _attributes(self, node: int) -> bytes:
        size, mode = (0, FOLDER) if node == ROOT else (len(self._contents[node - ROOT - 1]), FILE)
        blocks = (size + 511) // 512
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, blocks, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _answer(self, request: bytes) -> None:
        call, unique, node = struct.unpack_from("<4xIQQ", request)
        body, error = b"", 0
        if call in (FORGET, FORGET_BATCH, INTERRUPT):
            return
        if call == INIT:
            major, minor, ahead, flags = struct.unpack_from("<IIII", request, 40)
            body = struct.pack("<IIIIHHIIHHI28x", 7, 31, ahead, PARALLEL, 64, 48, 1 << 16, 1, 0, 0, 0)
        elif call == LOOKUP:
            node = self._node(request[40:-1])
            body = struct.pack("<QQQQII", node, 0, 0, 0, KEPT_NS, KEPT_NS) + self._attributes(node) if node else b""
            error = 0 if node else ENOENT
        elif call == GETATTR:
            body = struct.pack("<QII", 0, KEPT_NS, 0) + self._attributes(node)
        elif call in (OPEN, OPENDIR):
            body = struct.pack("<QII", 0, DIRECT if call == OPEN else 0, 0)
        elif call == READ:
            offset, size = struct.unpack_from("<8xQI", request, 40)
            body = self._contents[node - ROOT - 1][offset : offset + size]
        elif call == READDIR:
            offset, size = struct.unpack_from("<8xQI", request, 40)
            for number, name in enumerate(self._names[offset:], start=offset):
                entry = struct.pack("<QQII", number + ROOT + 1, number + 1, len(name), 8) + os.fsencode(name)
                entry += bytes(-len(entry) % 8)
                if len(body) + len(entry) > size:
                    break
                body += entry
        elif call not in (RELEASE, RELEASEDIR, FLUSH):
            error = ENOSYS
        try:
            os.write(self._fd, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            # Whoever asked has gone, or the filesystem was unmounted.
            pass


def wait_until_forgotten() -> None:
    """What the kernel knew is no longer believed."""
    time.sleep(1.5 * KEPT_NS / 1e9)
