"""The loader: passes over a dataset, one per epoch, with states and statistics."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _arguments as arguments
from . import _accelerate, _lightning, _log, _look, _opened, _order, _ranks, _settings, _states
from . import _uringload as native
from ._output import Batch, Facts, Raw, as_trees
from ._pass import Pass, closed_meanwhile
from ._report import Route, Stats, Verdict, numbers, table, told
from .errors import Error, refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import _draws
    from ._setup import Setup
    from ._show import Sheet
    from ._typed import LoaderOptions

#: An epoch that no pass can be over, because the one after it has no number.
LAST_EPOCH = (1 << 64) - 1


class DataLoader:
    """Batches of a dataset, read ahead by one thread of this process.

    One pass (``for batch in loader``) is an epoch; the next pass is the next epoch, whether or not the last one was
    finished. A batch is a dictionary of columns (`Batch`). Its memory belongs to the loader and returns to it when the
    last array of the batch is gone: if you keep many batches, copy them or raise ``memory_limit``.

    Args:
        dataset: folders, files or patterns, or a `Dataset`. With a path, the arguments of `Dataset`
            (``format``, ``record_bytes``, ``columns``, ...) may be given here as well. Or an object with ``__len__``
            and ``__getitem__``, such as torch's map-style datasets: recognised ones are read natively, others are asked
            sample by sample in threads; a line in the log says which. Batches are then what torch's default_collate
            makes of its samples, if torch is imported, else lists.
        batch_size: samples per batch on this rank. Give either this or ``global_batch_size``, which counts all ranks.
        shuffle: True for a random order that suits how samples are stored: "full", but 16 pieces of about 16 MiB at a
            time if they are in two shards or more (4096 samples or more, of at most 1 MiB), and "shards:4" if they are
            cut from compressed units. Or name it: "full" (of all samples), "window" (of ``shuffle_window`` samples),
            "shards", "shards:4" (4 mixed at a time) or "pieces:128:16" (pieces of 128 neighbours, 16 mixed at a time).
        seed: the seed of random orders, which depend on it and on the epoch.
        drop_last: leave out samples that do not fill a batch on every rank. Without it, a rank that is one sample short
            repeats one, marked in ``batch.padding``. Either way, all ranks have the same number of batches.
        rank, world_size: the rank of this process and the number of ranks. The default is asked for when the first pass
            begins: from torch.distributed or jax.distributed if it is initialized, Ray Train's context, RANK and
            WORLD_SIZE, or the variables of SLURM, Open MPI, MPICH, Lightning or Kubernetes. A line in the log says
            which. Each pass asks again, and is refused if the answer is another one.
        process_group: the process group of torch.distributed, or the device mesh of one dimension, whose ranks share
            the samples, where those are not all ranks: the data-parallel ones beside tensor-parallel ones.
        order: "distributed" for the exact order of torch's DistributedSampler.
        sampler: the numbers of this rank's samples, in order: a torch sampler or a list. Each pass draws from it once,
            as torch's loader does. States keep what a resume needs to draw the same, and identify it by its type, by
            what it drew and by its ``order_id`` (text or a number), if it has one.
        output: "torch", "numpy" or "dlpack"; "auto": the first of them whose package is installed.
        device: "cpu"; "cuda:0", or a list of GPUs that batches go to in turn; "auto" for the first GPU if there is one.
            On a GPU, a column is one tensor where samples have the same shape, else `Ragged`.
        device_memory: memory for batches on each GPU, in bytes or as "4GiB".
        device_allocator: where that memory comes from, instead of the driver: ``torch.Tensor`` for PyTorch's caching
            allocator (2.10 and later), or a pair of C functions as torch's ``CUDAPluggableAllocator`` takes them. It is
            taken once, for as long as the loader or a batch of it lives.
        pin_memory: whether batches on the host are in pinned memory, which a GPU copies from by itself:
            ``tensor.to(device, non_blocking=True)`` returns at once. A batch's memory is reused when its last tensor is
            gone and the stream that was current when you received the batch has finished the work queued by then.
            Without a GPU, memory is not pinned, and the route and the log say so.
        pin_memory_device: the GPU to pin for, such as "cuda:1"; by default torch's current device.
        cuda_library: the CUDA driver, if it is not libcuda.so.1.
        gds: GPUDirect Storage, from files straight into the GPU's memory: "on", "off", or "auto" by a short trial.
        nvjpeg: the share of the JPEGs, 0 to 1, that the GPUs decode (nvJPEG); `num_threads` decode the rest. nvJPEG
            rounds differently than the processor, by a few levels, but which images it decodes depends on them alone:
            runs with one share have the same pixels. It is looked for where torch has it (PyPI's
            ``nvidia-nvjpeg-cu12``); without it the processor decodes, and the route says so.
        transforms: built-in transforms by column. Of encoded images (JPEG, PNG, ...): a chain such as
            "random_resized_crop(224), hflip, normalize(imagenet)", or a Compose of torchvision or Albumentations; they
            run in `num_threads` threads without Python. The first step of a Compose that the loader does not know, and
            the steps after it run in Python's threads, and a line in the log says so. Of what follows encoded images:
            "mask(image, fill=255, dtype=i64)", "boxes(image, format=xyxy)", "labels(boxes)", and of their labels
            "mix(image, classes=1000, mixup=0.2, cutmix=1)", with the names of their columns. Of arrays of numbers:
            "array(random_crop(128x128x128), random_flip(0), cast(bf16))", or
            "json(objects.*.bbox, f32, most=1024)" and "msgpack(..)" for numbers from messages. See
            https://github.com/uringload/uringload/blob/main/docs/images.md. Of pixels and tokens: `Images`, `Tokens`,
            which give the same result on a GPU and without. Both, as [chain, Images(...)]: the threads decode, and the
            GPU, if there is one, crops and scales.
        collate: "auto" (a tensor where samples have the same shape, else a list), "list", "dense", "ragged" (`Ragged`),
            "padded" (`Padded`), or a dictionary of these by column; "tuple" for ``for x, y in loader``: as "auto", a
            tuple of the columns in the order of ``dataset.columns`` (then key and index), or of what the transform
            returned; or a function of a list of samples.
        ragged: "pair" (`Ragged`) or "nested" (torch's nested tensor).
        pad_value, max_length, pad_multiple: the value that fills up padded columns and packed rows; the length to cut
            padded values to; the multiple to round their length up to.
        packing, seq_len: "first_fit", "best_fit" or "concat" packs sequences in rows (`Packed`) of this many elements.
        bucket_boundaries, bucket_batch_sizes: batches of samples of similar length, as in tf.data.
        row_window: samples, over all ranks, that are packed or bucketed together.
        text, binary: columns of bytes to return as lists of str or bytes; some formats declare their text columns.
        key, index: add a column "key" with the samples' names, or "index" with their numbers.
        on_error: what to do about a sample that cannot be read, or that the transform raises an error for: "raise",
            "warn" (skip it and log a line), "skip", or "replace" (by another sample).
        max_failures: how many samples may fail, as a number or as a share of an epoch (0.01).
        quarantine: a file that gets a line for each sample that failed; ``exclude`` reads it.
        memory_limit: most memory for samples, in bytes or as "8GiB".
        num_threads: threads that decompress data and run transforms; ``num_workers`` is the same.
        workers: "threads", or "processes" for a dataset in Python, which pickle can send, whose code holds the
            interpreter's lock: ``num_workers`` processes make its batches.
        transform: a function of one sample (a dictionary); or a Compose, where the dataset has one column of encoded
            images: see ``transforms``. What it returns is stacked as torch's ``default_collate``
            does: dictionaries become a `Batch` of columns, tuples a tuple by position; arrays of different shapes stay
            lists. ``collate="list"`` gives a list of samples instead. A second parameter gets a random generator for
            the sample, keyed by seed, epoch and sample: by its annotation `numpy.random.Generator`,
            `torch.Generator` or `random.Random`; if there is none, torch's where the parameter is called "generator",
            else NumPy's. What it raises is an error of its sample: see ``on_error``.
        batch_transform: a function of one batch. Both kinds of transform run in threads, and batches stay in order.
        worker_init_fn: called once in each of these threads with its number, before its first batch.
        generator: a torch.Generator, whose ``initial_seed()`` is taken for ``seed``.
        timeout: seconds that a read may take, or a worker process for a batch; None or 0 for no limit.
        outage_timeout: seconds to wait for storage that is away (a server that restarts, a lost mount), or for
            descriptors or memory to read with, before an error ends the loader. No sample fails meanwhile, and the
            log reports it. None waits as long as it takes.
        cache: "memory" keeps the dataset's files in memory, within ``memory_limit`` (by default up to half of what is
            available): what fits is read once. The order stays the same; ``route`` says how much fits.
        cache_disk: a folder of a local disk that keeps what is read of objects of a store, and how many bytes of it:
            ``("/nvme/cache", "100GiB")``. Ranks and later runs share it; ``stats()`` counts ``bytes_cached``.
        cache_images: bytes of decoded images to keep from epoch to epoch, as a number or as "8GiB": what comes before
            the first random operation of a chain in ``transforms``. Batches stay the same; ``stats()`` counts
            ``cache_hits`` and ``cache_misses``. In memory, beside ``memory_limit``.
        cache_images_dir: a folder to keep them in instead: other processes and later runs find and share them.
        fast_images: decode large images at a part of their size and repeat chroma: faster by libjpeg-turbo, and not to
            the bit what decoding all of an image makes.
        orient: whether images are turned as their EXIF or XMP orientation says, and what follows them with them: by
            default where paths are given. An object of Python is read as it reads itself.
        engine, io: "uring" or "threads", and "direct" (past the page cache) or "buffered"; "auto": the best there is.
        queue_depth, read_size, io_threads: reads in flight, bytes of the longest, and threads of ``engine="threads"``.
        coalesce_gap: the gap between two samples, in bytes, that is read along to make one read of two; None: by what
            a read costs, where the machine tells (a limit of the container, a disk with heads), and none elsewhere.
        profile: a file that ``uringload tune`` wrote, for what of engine, io, queue_depth, read_size, io_threads,
            coalesce_gap, num_threads, memory_limit and cache is not given.
        share_stats: True shares the loader's statistics with ``uringload top`` while it runs, by a page in /dev/shm (or
            in the folder that is named), which only this user can read; None does if URINGLOAD_SHARE_STATS is 1.
        check_every: seconds for which a look at an open file is believed: what another program writes into a file is
            found out that much later. With 0, each read is followed by a look.
        starved_after: seconds until an error says that the program holds all batches' memory.
        trace: a file with what each thread does when, written meanwhile in Chrome's JSON, for
            https://ui.perfetto.dev. With several ranks, "{rank}" in it becomes the rank. If reading begins anew
            (after a state was loaded, or another epoch was set), a number is added: "run.2.json".
            `merge_traces` puts it beside what torch.profiler exports.
        reindex: look at the files again when an epoch begins, and index the dataset anew if some changed, were added or
            are gone; a line in the log says so. Without it, a file that changed is an error of its samples. For one
            rank: several would look at different moments.

    https://github.com/uringload/uringload/blob/main/docs/python.md has more, with examples.
    """

    #: As torch's loader has it without worker processes. `accelerate.skip_first_batches` copies it.
    prefetch_factor = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool | str | None = False,
        *,
        global_batch_size: int | None = None,
        shuffle_window: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        process_group: Any = None,
        order: str | None = None,
        sampler: Any = None,
        output: str = "auto",
        device: Any = "cpu",
        device_memory: int | str | None = None,
        device_allocator: type | Sequence[Any] | None = None,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        cuda_library: str | os.PathLike[str] | None = None,
        gds: str = "auto",
        nvjpeg: float = 0.0,
        transforms: Mapping[str, Any] | None = None,
        collate: str | Mapping[str, str] | Callable[[list[Any]], Any] = "auto",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        ragged: str = "pair",
        pad_value: int = 0,
        max_length: int | None = None,
        pad_multiple: int = 1,
        packing: str | None = None,
        seq_len: int | None = None,
        row_window: int = _settings.ROW_WINDOW,
        bucket_boundaries: Sequence[int] | None = None,
        bucket_batch_sizes: Sequence[int] | None = None,
        text: str | Sequence[str] | None = None,
        binary: str | Sequence[str] = (),
        key: bool = False,
        index: bool = False,
        on_error: str = "raise",
        max_failures: int | float | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        memory_limit: int | str | None = None,
        num_threads: int | None = None,
        num_workers: int | None = None,
        workers: str = "threads",
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[[Any], Any] | None = None,
        worker_init_fn: Callable[[int], Any] | None = None,
        generator: Any = None,
        timeout: float | None = None,
        outage_timeout: float | None = 300.0,
        engine: str = "auto",
        io: str = "auto",
        queue_depth: int | None = None,
        read_size: int | str | None = None,
        io_threads: int | None = None,
        coalesce_gap: int | str | None = None,
        cache: str | None = None,
        cache_disk: tuple[str | os.PathLike[str], int | str] | str | None = None,
        profile: str | os.PathLike[str] | None = None,
        share_stats: bool | str | os.PathLike[str] | None = None,
        cache_images: int | str | None = None,
        cache_images_dir: str | os.PathLike[str] | None = None,
        fast_images: bool = False,
        orient: bool | None = None,
        check_every: float = 0.004,
        starved_after: float = 10.0,
        trace: str | os.PathLike[str] | None = None,
        reindex: bool = False,
        **others: Unpack[LoaderOptions],
    ) -> None:
        if generator is not None:
            seed, generator = _settings.seed(seed, generator), None
        given = dict(locals())
        self._arguments = {**{name: given[name] for name in _PARAMETERS}, **others}
        from ._setup import Setup

        self._take(Setup({name: given[name] for name in _PARAMETERS}, others))

    def _take(self, setup: Setup) -> None:
        """Does what was asked for."""
        self._setup = setup
        self._source, self._ranks = setup.source, setup.ranks
        self._options, self._binary = setup.options, setup.binary
        self._convert, self._finish, self._stream = setup.convert, setup.finish, setup.stream
        self._sizes, self._asked_order, self._makes_rows = setup.sizes, setup.order, setup.makes_rows
        self._reindex, self._trace = setup.reindex, setup.trace
        self._open(setup)
        # What the ranks decide, which may not be known yet.
        self._order: _order.Distributed | _order.Sampled | None = None
        self._batches: int | None = None
        self._found: _ranks.Found | None = None
        # The ranks when len() was asked, if that was before a pass settled them.
        self._len_found: _ranks.Found | None = None
        self._sampled: weakref.ref[_accelerate.Batches] | None = None
        self._process = os.getpid()
        self._lock = threading.RLock()
        # Checks all other arguments too, so that a bad one is reported here and not at the first pass.
        self._settle(self._ranks.at_first())
        setup.log()
        self._closed = False
        self._native: native.Loader | None = None
        # The epoch at whose start `_native` is; None while it is within an epoch.
        self._stands_at: int | None = None
        self._next_epoch = 0
        # The state that the next pass resumes from, or the position that it begins at.
        self._resume: str | None = None
        self._begin_at = 0
        # The state after the last batch that the user received, where the native loader is further ahead.
        self._state: str | None = None
        # The next epoch's first batch, which came early because an error took the place of this epoch's last batch.
        self._early: Raw | None = None
        self._last: native.Meta | Facts | None = None
        self._pass: object | None = None
        self._number = _opened.next_number()
        _opened.add(self)

    def _open(self, setup: Setup) -> None:
        """Takes the dataset as it is now, and what depends on its columns."""
        self._dataset, self._text = setup.dataset, setup.text()
        self._pool = setup.pool(self._text)

    def _look_again(self) -> None:
        """Has the loader read the object that it was given as it is now, where that has changed."""
        if self._source is None or not self._source.has_changed():
            return
        # If this raises an error, the next look finds the change again.
        made = DataLoader(**self._arguments)
        self._let_go()
        if self._pool is not None:
            self._pool.close()
        self._source.close()
        _opened.discard(made)
        kept = set(_KEPT) | ({"_order"} if isinstance(self._order, _order.Sampled) else set())
        self.__dict__.update({name: value for name, value in made.__dict__.items() if name not in kept})

    def _index_anew(self) -> None:
        """Opens the dataset again if its files have changed since the last epoch began."""
        made = self._reindex.of(self._dataset)
        if made is None:
            return
        self._let_go()
        pool, self._setup.dataset, self._found = self._pool, made, None
        self._open(self._setup)
        if pool is not None:
            pool.close()

    # Ranks.

    def _settle(self, found: _ranks.Found) -> _ranks.Found:
        """Sets all that depends on the ranks."""
        with self._lock:
            if found == self._found:
                return found
            if self._ranks.among is not None and self._sizes[1] is not None:
                raise refused(f"global_batch_size cannot be kept where {self._ranks.among} makes the batches of ranks",
                              "give batch_size")
            if self._reindex is not None and found.world_size > 1:
                raise refused(f"reindex is for one rank, and this is {found.words}: ranks that look at different "
                              "moments may find different files",
                              "open a DataLoader on all ranks after a barrier instead")
            if self._trace is not None:
                self._trace.check(found.world_size)
            size = _settings.batch_size(*self._sizes, found.world_size)
            self._options.update(batch_size=size, rank=found.rank, world_size=found.world_size)
            self._order = self._setup.ordered(self._order, found.world_size)
            total = None if self._order is None else self._order.total()
            self._batches = native.batches(self._dataset._native, self._options, total)
            self._found = found
        if found.source is not None and (found.world_size > 1 or self._ranks.among is not None):
            _log.info("rank %d of %d (from %s)", *found)
        return found

    def _settled(self) -> _ranks.Found:
        """The ranks that passes have, or that a pass would have now."""
        return self._settle(self._ranks.now())

    def _settle_for_pass(self) -> None:
        found, before = self._settle(self._ranks.of_pass()), self._len_found
        self._len_found = None
        if before is not None and before.world_size != found.world_size:
            _log.warning("len() was for %s, and this pass is for %s: it now is %s", before.words, found.words,
                         "unknown" if self._batches is None else self._batches)

    # Properties.

    @property
    def dataset(self) -> Any:
        """The object that was given; of paths, the `Dataset` that was opened."""
        return self._dataset if self._source is None else self._source.given

    @property
    def rank(self) -> int:
        """The rank of this process, as of now until the first pass."""
        return self._settled().rank

    @property
    def world_size(self) -> int:
        """Number of ranks, as of now until the first pass."""
        return self._settled().world_size

    @property
    def batch_size(self) -> int:
        """Samples per batch on this rank."""
        self._settled()
        return int(self._options["batch_size"])

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a batch on every rank are left out."""
        return bool(self._options["drop_last"])

    @property
    def sampler(self) -> Any:
        """The sampler that was given; or what sets the epoch, as a sampler of torch's does: ``set_epoch``."""
        _accelerate.refuse_ray()
        given = self._asked_order[1]
        return _order.Own(self) if given is None else given

    @property
    def num_workers(self) -> int:
        """The threads that were asked for, by ``num_workers`` or ``num_threads``; 0 where the loader chooses."""
        return self._options["num_threads"] or 0

    @property
    def pin_memory(self) -> bool:
        """Whether batches on the host are in pinned memory, where the machine has it."""
        return self._options["pin"] is not None

    @property
    def batch_sampler(self) -> _accelerate.Batches:
        """Replaces the batch sampler of other loaders: `accelerate.skip_first_batches` takes it."""
        # Held weakly, because it holds the loader: a loader that is dropped ends at once.
        batches = None if self._sampled is None else self._sampled()
        if batches is None:
            batches = _accelerate.Batches(self)
            self._sampled = weakref.ref(batches)
        return batches

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """Goes with `batch_sampler`. Your own function is the argument ``collate_fn`` or ``collate``."""
        return self.batch_sampler.next_batch

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._next_epoch

    @property
    def last_batch(self) -> native.Meta | Facts | None:
        """What is known of the samples of the batch that was handed out last: its ``ids``, ``padding``, ``failed``,
        ``epoch`` and ``position``. A batch that is a dictionary, a list or a tuple has them itself; anything else (one
        tensor, an object of a collate function), and what other code makes of a batch, does not. None before the first.
        """
        return self._last

    def __len__(self) -> int:
        """Batches per epoch on this rank; the same number on every rank."""
        self._len_found = self._settled()
        if self._batches is None:
            raise TypeError("how many batches an epoch has is only known at its end, because rows are made of samples")
        return self._batches

    # Passes.

    def __iter__(self) -> Iterator[Any]:
        """Starts a pass over the next epoch, or over what a loaded state leaves of one. It ends the previous pass."""
        return self._begin()

    def _begin(self) -> Pass:
        with self._lock:
            self._check()
            if self._reindex is not None:
                self._index_anew()
            self._look_again()
            self._settle_for_pass()
            _lightning.warn(self)
            as_trees()
            epoch = self._next_epoch
            if epoch >= LAST_EPOCH:
                raise refused(f"epoch cannot be {epoch}", "2**64 - 2 is the last")
            if self._native is None or self._stands_at != epoch or self._begin_at:
                self._let_go()
                self._native = self._build(epoch, self._resume, position=self._begin_at)
            self._resume, self._stands_at, self._begin_at = None, None, 0
            if self._early is None:
                self._state = None
            self._next_epoch = epoch + 1
            self._pass = token = object()
            begun = Pass(self, epoch, token)
            begun.in_pass = _accelerate.told(self, begun)
        return begun

    def __aiter__(self) -> AsyncIterator[Any]:
        """Starts a pass for ``async for``, which leaves the event loop free while it waits."""
        from ._async import AsyncPass

        return AsyncPass(self._begin())

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. Without it, each pass is the epoch after the last."""
        if arguments.integer("epoch", epoch) >= LAST_EPOCH:
            raise refused(f"epoch cannot be {epoch}", "2**64 - 2 is the last")
        with self._lock:
            if isinstance(self._order, _order.Sampled) and (epoch != self._next_epoch or self._resume is None):
                self._order.draws.set_epoch(epoch)
            if epoch != self._next_epoch:
                if self._resume is not None:
                    _log.warning("the state that was loaded is in epoch %d, and set_epoch(%d) leaves it unused",
                                 self._next_epoch, epoch)
                self._next_epoch = epoch
                self._resume = None

    def _begin_after(self, batches: int) -> None:
        """Makes the next pass begin after this many batches of its epoch."""
        with self._lock:
            self._settled()
            self._begin_at = batches * self._options["batch_size"] * self._options["world_size"]

    def _build(
        self,
        epoch: int,
        resume: str | None = None,
        epochs: int | None = None,
        position: int = 0,
        is_pass: bool = True,
        ids: bytes | None = None,
    ) -> native.Loader:
        order: tuple[Any, Any] | None = None
        if isinstance(self._order, _order.Sampled):
            if ids is None:
                ids = self._drawn(self._order.draws, epoch, epochs != 0, is_pass)
            order = (ids, self._order.identity())
        elif self._order is not None:
            order = (self._order.ids(epoch), self._order.identity())
        if epochs is None and self._is_of_one_epoch:
            epochs = 1
        options = self._options
        if epochs == 0 or not is_pass:
            # With epochs=0 the loader reads nothing: it only makes or checks a state. No memory need be pinned.
            options = {**options, "pin": None}
        elif self._trace is not None:
            options = {**options, "trace": self._trace.next(options["rank"], options["world_size"])}
        return native.Loader(
            self._dataset._native,
            options,
            start=(epoch, position),
            resume=resume,
            epochs=epochs,
            order=order,
            text=self._text,
            binary=self._binary,
        )

    def _drawn(self, draws: _draws.Draws, epoch: int, reads: bool, is_pass: bool) -> bytes:
        """What the sampler gives. Only a pass draws from it for good."""
        if not reads:
            return draws.unread()
        return draws.of_pass(epoch, self._rank_now()) if is_pass else draws.look()

    def _rank_now(self) -> int:
        return 0 if self._found is None else self._found.rank

    @property
    def _is_of_one_epoch(self) -> bool:
        """Whether nothing of the next epoch is read before it begins."""
        return self._order is not None or self._reindex is not None

    def _let_go(self) -> None:
        if self._native is not None:
            self._native.close()
        self._native = self._early = self._stands_at = None

    def _check(self) -> None:
        if self._process != os.getpid():
            raise refused(f"a DataLoader of process {self._process} was used in a child that was forked from it",
                          "use it in the process that made it: it needs no workers, so num_workers=0 around it")
        torch_data = sys.modules.get("torch.utils.data")
        if torch_data is not None and torch_data.get_worker_info() is not None:
            raise refused("a DataLoader was used in a worker process of torch, of which each would read every sample",
                          "give num_workers=0 to torch's DataLoader: this one reads ahead by itself")
        if self._closed:
            raise refused("the DataLoader was closed", "make another one")

    def read(self, indices: Iterable[int]) -> Batch:
        """Reads the samples with these numbers as one batch on the host, outside any pass: to look at a few samples.

        Each call sets up its own reader, which takes about a millisecond and works in any process.
        """
        return _look.read(self, indices)

    def show(self, column: str | None = None, samples: int = 16) -> Sheet:
        """The images that the next pass begins with, as they are stored and as the loader gives them: a notebook shows
        them, ``save("sheet.png")`` writes them. The loader stays where it is. Needs NumPy.
        """
        from . import _show

        return _show.of_loader(self, column, arguments.integer("samples", samples, 1), _look.first_batch(self))

    # States.

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, whatever was read ahead.

        A small dictionary of plain values, for `json.dumps`. All of it except ``delivered`` and ``checksum`` is the
        same on every rank, so any rank's state serves all ranks, and a run with more or fewer ranks can resume from it.
        """
        return _states.saved(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Makes the next pass resume from a state of this dataset and this order; the error names what differs."""
        _states.load(self, state_dict)

    def _remaining(self, state_dict: Mapping[str, Any]) -> int:
        """Batches that a pass from this state has left of its epoch, on each rank, where rows are not packed."""
        return _states.remaining(self, state_dict)

    # Reports.

    def stats(self) -> Stats:
        """Counters and times since reading began; empty before."""
        loader = self._native
        return Stats() if loader is None else Stats(loader.stats())

    def verdict(self) -> Verdict:
        """The bottleneck, what it would bring if that part took no time, and what to try."""
        loader = self._native
        return Verdict("unknown", 0.0, "no batch was asked for") if loader is None else told(*loader.verdict())

    def route(self) -> Route:
        """How bytes are actually read, with every fallback; empty before the first pass."""
        loader = self._native
        route = Route((None if loader is None else loader.route()) or {})
        if route:
            route["fallbacks"] = [*self._setup.steps, *route["fallbacks"]]
        return route

    def report(self) -> str:
        """The verdict, the measurements and the way bytes are read, as text for people."""
        shown = [f"verdict: {self.verdict()}", str(self.stats()), str(self.route())]
        return "\n\n".join(text for text in shown if text)

    def metrics(self) -> dict[str, float]:
        """The most important numbers under names for loggers: ``wandb.log(loader.metrics())``; empty before the first
        batch.
        """
        return numbers(self.stats())

    # Closing.

    def close(self) -> None:
        """Stops reading. Batches that were handed out stay valid."""
        # Does not take the lock: a thread that waits for a batch holds it, and this ends its wait.
        self._closed, self._pass = True, None
        loader, self._native = self._native, None
        _opened.discard(self)
        if self._process == os.getpid():
            if loader is not None:
                loader.close()
            if self._pool is not None:
                self._pool.close()
            if self._source is not None:
                self._source.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles as its configuration: a copy starts at its first epoch, and asks for the ranks of its own process.
        if self._arguments["process_group"] is not None:
            raise refused("a DataLoader with a process_group cannot be pickled: the group belongs to this process",
                          "make the DataLoader in the process that uses it, or give rank and world_size")
        return _again, (self._arguments,)

    def __repr__(self) -> str:
        size = self._options["batch_size"]
        shown = f"batch_size={size}, {self._ranks.words()}, epoch {self._next_epoch} next"
        return f"<uringload.DataLoader of {self._dataset!r}, {shown}>"

    def _repr_html_(self) -> str:
        rows = [("dataset", repr(self._dataset).strip("<>")), ("batch size", str(self._options["batch_size"])),
                ("rank", self._ranks.words().removeprefix("rank "))]
        if self._native is not None:
            rows += [*self.stats().rows(), ("verdict", str(self.verdict())), ("route", str(self.route()))]
        return table(rows, "uringload.DataLoader")

    # For `Pass`.

    def _pull(self, epoch: int, wait: bool) -> Raw | None:
        """The next batch of an epoch. None: no batch is ready, or, with `wait`, the epoch has no more."""
        ahead = self._pool is not None
        loader = self._native
        if loader is None:
            raise closed_meanwhile()
        raw, self._early = self._early, None
        if raw is None:
            stream = None if self._stream is None else self._stream()
            try:
                raw = loader.next(stream, ahead) if wait else loader.try_next(stream, ahead)
            except Error:
                self._state = loader.state()
                raise
            if raw is None:
                if self._closed:
                    raise closed_meanwhile()
                return None
            if raw[1].epoch != epoch:
                # An error took the place of the epoch's last batch: this batch belongs to the next pass.
                self._early, self._stands_at = raw, raw[1].epoch
                return None
            self._state = None
        if raw[1].is_last:
            self._stands_at = None if self._is_of_one_epoch else epoch + 1
        if self._options["on_error"] == "warn":
            for _, _, error, _ in raw[1].failed:
                _log.warning("%s", error.headline)
        return raw


_code = DataLoader.__init__.__code__
#: Without `self`.
_PARAMETERS = _code.co_varnames[1 : _code.co_argcount + _code.co_kwonlyargcount]


#: What a loader is, whatever it reads.
_KEPT = (
    "_arguments", "_ranks", "_process", "_lock", "_number", "_next_epoch", "_resume", "_begin_at", "_last", "_trace",
)  # fmt: skip


def _again(given: dict[str, Any]) -> DataLoader:
    return DataLoader(**given)
