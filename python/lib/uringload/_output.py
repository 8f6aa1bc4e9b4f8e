"""The batch as Python sees it, and how its columns become NumPy arrays or torch tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from . import _log
from . import _uringload as native
from .errors import Error, unavailable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ._show import Sheet

    #: The type of a batch's columns: `Batch[torch.Tensor]`. Plain `Batch` says nothing about them.
    Column = TypeVar("Column", default=Any)
else:
    from typing import TypeVar

    Column = TypeVar("Column")

#: A batch from the native part: its columns as (name, form, payload), and the rest.
Raw = tuple[list[tuple[str, str, Any]], native.Meta]

#: Images that a notebook shows of a batch unasked.
_SHOWN = 8

OUTPUTS = ("torch", "numpy", "dlpack")

#: ml_dtypes' names for types that NumPy lacks. Without ml_dtypes they arrive as unsigned integers of the same size:
#: bf16 as uint16, f8e4m3 and f8e5m2 as uint8.
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}

#: DLPack's device type of the host.
_CPU = 1

#: torch's names for types that DLPack consumers may not know yet.
_TORCH_FLOAT8 = {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


class Ragged(NamedTuple):
    """Values of any length, end to end: sample i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Any
    offsets: Any


class Padded(NamedTuple):
    """Values padded to one length, ``[samples, length]``; ``lengths`` says how much of each row is the sample's."""

    values: Any
    lengths: Any


class Packed(NamedTuple):
    """Sequences packed end to end into rows, ``[rows, seq_len]``.

    ``segment_ids`` and ``positions`` have the same shape: the sequence within its row that each element belongs to,
    from 1 (0 is padding), and the element's index in that sequence. ``cu_seqlens`` is where sequences begin in all rows
    laid end to end.
    """

    values: Any
    segment_ids: Any
    positions: Any
    cu_seqlens: Any


class Facts:
    """What is known of a batch's samples, as plain values: where it is not as the native part made it."""

    __slots__ = ("ids", "padding", "failed", "epoch", "position")

    def __init__(
        self,
        ids: list[int],
        padding: list[bool] | None,
        failed: list[tuple[int, int, Error, int | None]],
        epoch: int,
        position: int,
    ) -> None:
        self.ids = ids
        self.padding = padding
        self.failed = failed
        self.epoch = epoch
        self.position = position

    def __len__(self) -> int:
        return len(self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return Facts, (self.ids, self.padding, self.failed, self.epoch, self.position)


class Told:
    """What is known of the samples of a batch, beside its columns.

    A batch that other code builds from this one (a copy on a device, say) has the same columns, and nothing of this:
    `DataLoader.last_batch` has it then.
    """

    __slots__ = ()

    _meta: native.Meta | Facts | None

    @property
    def ids(self) -> list[int]:
        """The samples' numbers in the dataset."""
        return [] if self._meta is None else self._meta.ids

    @property
    def padding(self) -> list[bool] | None:
        """Which samples are repeats that keep the ranks at the same number of samples; None: none is."""
        return None if self._meta is None else self._meta.padding

    @property
    def failed(self) -> list[tuple[int, int, Error, int | None]]:
        """Samples that failed: number, position, error, and the number of the sample in its place, if there is one."""
        return [] if self._meta is None else self._meta.failed

    @property
    def epoch(self) -> int | None:
        """The epoch, from 0."""
        return None if self._meta is None else self._meta.epoch

    @property
    def position(self) -> int | None:
        """Samples of the epoch, over all ranks, before this batch."""
        return None if self._meta is None else self._meta.position

    def _facts(self) -> Facts | None:
        """The same, as something that can be pickled."""
        meta = self._meta
        if meta is None or isinstance(meta, Facts):
            return meta
        return Facts(meta.ids, meta.padding, meta.failed, meta.epoch, meta.position)


class ListBatch(list[Any], Told):
    """A batch that is a list: what torch's default_collate makes of tuples, say."""

    def __init__(self, columns: Iterable[Any] = (), meta: native.Meta | Facts | None = None) -> None:
        super().__init__(columns)
        self._meta = meta

    def __reduce__(self) -> tuple[Any, ...]:
        return ListBatch, (list(self), self._facts())


class TupleBatch(tuple[Any, ...], Told):
    """A batch that is a tuple: ``for x, y in loader``."""

    def __new__(cls, columns: Iterable[Any] = (), meta: native.Meta | Facts | None = None) -> TupleBatch:
        made = super().__new__(cls, columns)
        made._meta = meta
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return TupleBatch, (tuple(self), self._facts())


class Batch(dict[str, Column], Told, Generic[Column]):
    """A batch: a dictionary of its columns by name, with facts about its samples.

    A batch that other code builds from this mapping (such as a copy on a device) has the same columns but no facts
    about its samples.
    """

    __slots__ = ("_meta",)

    def __init__(self, columns: Any = (), meta: native.Meta | Facts | None = None) -> None:
        super().__init__(columns)
        self._meta = meta

    def samples(self) -> Iterator[dict[str, Any]]:
        """Iterates over the samples: a dictionary each, with the sample's value of every column."""
        split = {name: _split(column) for name, column in self.items()}
        known = None if self._meta is None else len(self._meta)
        count = min((len(column) for column in split.values()), default=0) if known is None else known
        for index in range(count):
            yield {name: column[index] for name, column in split.items()}

    def show(self, column: str | None = None, samples: int = 16) -> Sheet:
        """The images of the first samples, small, with what other columns say of them: a notebook shows them,
        ``save("sheet.png")`` writes them. ``column`` names the images, where several columns have some. Needs NumPy.
        """
        from . import _show

        return _show.of_batch(self, column, samples)

    def _repr_html_(self) -> str:
        from . import _report, _show

        known = f" of {len(self._meta)} samples" if self._meta is not None else ""
        told = _report.table(_show.facts(self), f"uringload.Batch{known}")
        try:
            return told + self.show(samples=_SHOWN)._repr_html_() if _show.has_images(self) else told
        except Error:
            # An image that cannot be decoded, or no NumPy: the batch is what was asked for.
            return told

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays pickle in their own way.
        return Batch, (dict(self), self._facts())


#: Plain containers, and the classes that replace them because they hold facts about samples.
_TELLING: dict[type, Callable[[Any, Any], Any]] = {dict: Batch, list: ListBatch, tuple: TupleBatch}


def told(batch: Any, meta: native.Meta | Facts) -> Any:
    """A batch with what is known of its samples beside it, if it is a plain dictionary, list or tuple."""
    telling = _TELLING.get(type(batch))
    return batch if telling is None else telling(batch, meta)


def _split(column: Any) -> Any:
    """A sequence with one value per sample."""
    if isinstance(column, Ragged):
        ends = column.offsets.tolist()
        return [column.values[start:end] for start, end in zip(ends, ends[1:])]
    if isinstance(column, Padded):
        return [row[:length] for row, length in zip(column.values, column.lengths.tolist())]
    if isinstance(column, Packed):
        return column.values
    if isinstance(column, dict):
        names, columns = column.keys(), [_split(part) for part in column.values()]
        return [dict(zip(names, parts)) for parts in zip(*columns)]
    if isinstance(column, tuple):
        return list(zip(*map(_split, column)))
    return column


def as_list(convert: Callable[[Raw], Batch]) -> Callable[[Raw], ListBatch]:
    """A function that gives the columns of a batch as a list."""

    def columns(raw: Raw) -> ListBatch:
        return ListBatch(convert(raw).values(), raw[1])

    return columns


def as_tuple(convert: Callable[[Raw], Batch]) -> Callable[[Raw], TupleBatch]:
    """A function that gives the columns of a batch as a tuple. The log reports their order, once."""
    has_logged = False

    def columns(raw: Raw) -> TupleBatch:
        nonlocal has_logged
        batch = convert(raw)
        if not has_logged:
            has_logged = True
            _log.info('collate="tuple" gives (%s)', ", ".join(batch))
        return TupleBatch(batch.values(), raw[1])

    return columns


def converter(output: str, nested: bool, on_device: bool = False) -> Callable[[Raw], Batch]:
    """A function that turns raw batches into batches of the arrays that `output` names; with `on_device` on a GPU too.

    Raises `UnavailableError` if the package for these arrays cannot be imported.
    """
    if on_device and output == "torch":
        tensor, several = _torch_on_device()
    else:
        tensor = {"torch": _torch, "numpy": _numpy, "dlpack": _plain}[output]()

        def several(payload: Any) -> Any:
            return map(tensor, payload)

    tensors = _torch_tensors() if output == "torch" and not on_device else lambda payload: list(map(tensor, payload))

    ragged: Callable[[Any, Any], Any] = _nested() if nested else Ragged

    def convert(raw: Raw) -> Batch:
        columns, meta = raw
        batch = Batch((), meta)
        for name, form, payload in columns:
            if form == "dense":
                batch[name] = tensor(payload)
            elif form == "list":
                is_array = payload and isinstance(payload[0], native.Tensor)
                batch[name] = tensors(payload) if is_array else payload
            elif form == "ragged":
                batch[name] = ragged(*several(payload))
            elif form == "padded":
                batch[name] = Padded(*several(payload))
            else:
                batch[name] = Packed(*several(payload))
        return batch

    return convert


def chosen(output: str, device: Any) -> str:
    """The arrays that "auto" means: torch's, or NumPy's on the host, where the package is installed."""
    if output != "auto":
        return output
    import importlib.util

    suited = ("torch", "numpy") if str(device) == "cpu" else ("torch",)
    return next((name for name in suited if importlib.util.find_spec(name) is not None), "dlpack")


def array_of(output: str) -> Callable[[native.Tensor], Any]:
    """A function that turns one value into the array that `output` names; a NumPy scalar where it has no dimension.

    Raises `UnavailableError` if the package for these arrays cannot be imported.
    """
    made = {"torch": _torch, "numpy": _numpy, "dlpack": _plain}[output]()
    if output != "numpy":
        return made
    return lambda tensor: made(tensor)[()]


def _plain() -> Callable[[native.Tensor], Any]:
    return lambda tensor: tensor


def _numpy() -> Callable[[native.Tensor], Any]:
    try:
        import numpy
    except ImportError as error:
        raise unavailable('output="numpy" needs NumPy', "pip install numpy") from error
    try:
        import ml_dtypes

        named = {name: numpy.dtype(getattr(ml_dtypes, its)) for name, its in _ML_DTYPES.items()}
    except ImportError:
        named = {}
    asarray = numpy.asarray

    def array(tensor: native.Tensor) -> Any:
        if not tensor.nbytes:
            # NumPy accepts no null pointer, and an empty tensor has nothing to share.
            made = numpy.zeros(tensor.shape, tensor.__array_interface__["typestr"])
        else:
            # Through the array interface, because NumPy before 2.1 makes DLPack arrays read-only.
            made = asarray(tensor)
        dtype = named.get(tensor.dtype)
        return made if dtype is None else made.view(dtype)

    return array


def _torch() -> Callable[[native.Tensor], Any]:
    tensors = _torch_tensors()
    return lambda tensor: tensors((tensor,))[0]


def _torch_tensors() -> Callable[[Sequence[native.Tensor]], list[Any]]:
    """Converts tensors of one type together: a batch may have thousands, so their common work is done once."""
    torch = _import_torch('output="torch"')
    from_dlpack, exchange = torch.utils.dlpack.from_dlpack, _exchange(torch)

    def arrays(tensors: Sequence[native.Tensor]) -> list[Any]:
        name = _TORCH_FLOAT8.get(tensors[0].dtype)
        if name is None and exchange is not None:
            return exchange.tensors(tensors)
        if name is None:
            return [from_dlpack(tensor.__dlpack__()) for tensor in tensors]
        dtype = getattr(torch, name)
        return [from_dlpack(tensor.as_unsigned().__dlpack__()).view(dtype) for tensor in tensors]

    return arrays


def _exchange(torch: Any) -> native.Exchange | None:
    """DLPack's C exchange API of torch 2.10 and later, which takes a tenth of the time of a capsule."""
    try:
        return native.Exchange(torch.Tensor)
    except (AttributeError, BufferError):
        # An older torch, or one with a later version of the API: capsules, which both know.
        return None


def _torch_on_device() -> tuple[Callable[[native.Tensor], Any], Callable[[Any], Any]]:
    """Two converters: for one tensor, on a GPU or not; and for the tensors of one column, whose offsets or lengths are
    made on the host and follow the values to their device.
    """
    torch = _import_torch('output="torch"')
    from_dlpack, on_host = torch.utils.dlpack.from_dlpack, _torch()
    current_stream, exchange = torch.cuda.current_stream, _exchange(torch)

    def array(tensor: native.Tensor) -> Any:
        kind, number = tensor.__dlpack_device__()
        if kind == _CPU:
            return on_host(tensor)
        if exchange is not None and tensor.dtype not in _TORCH_FLOAT8:
            return exchange.tensor(tensor)
        # torch's default stream is 0, which DLPack does not allow; DLPack's number for it is 1.
        stream = current_stream(number).cuda_stream or 1
        name = _TORCH_FLOAT8.get(tensor.dtype)
        if name is not None:
            return from_dlpack(tensor.as_unsigned().__dlpack__(stream=stream)).view(getattr(torch, name))
        return from_dlpack(tensor.__dlpack__(stream=stream))

    def several(payload: Any) -> Any:
        values, *others = map(array, payload)
        if values.is_cuda:
            # Pinned, because a copy from pageable memory waits for all work in the stream.
            others = [other.pin_memory().to(values.device, non_blocking=True) for other in others]
        return values, *others

    return array, several


def _nested() -> Callable[[Any, Any], Any]:
    torch = _import_torch('ragged="nested"')

    def nested(values: Any, offsets: Any) -> Any:
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    return nested


#: Modules whose trees know our batches.
_trees: set[str] = set()


def as_trees() -> None:
    """Has the trees of torch and JAX, where they are imported, look into batches, as they do into a plain dictionary,
    list or tuple.
    """
    for name in ("torch.utils._pytree", "jax.tree_util"):
        register = getattr(sys.modules.get(name), "register_pytree_node", None)
        # Before torch 2.2 it was private.
        if register is None or name in _trees:
            continue
        _trees.add(name)
        is_jax = name.startswith("jax")

        def known(kind: Any, taken: Callable[[Any], Any], made: Callable[[Any, Any], Any]) -> None:
            # JAX gives the names first.
            register(kind, taken, (lambda names, values: made(values, names)) if is_jax else made)

        known(Batch, lambda batch: ([*batch.values()], (*batch,)), lambda values, names: Batch(zip(names, values)))
        known(ListBatch, lambda batch: ([*batch], None), lambda values, _: ListBatch(values))
        known(TupleBatch, lambda batch: ([*batch], None), lambda values, _: TupleBatch(values))


def _import_torch(what: str) -> Any:
    try:
        import torch
        import torch.utils.dlpack
    except ImportError as error:
        raise unavailable(f"{what} needs torch", 'pip install torch, or give output="numpy" or "dlpack"') from error
    return torch
