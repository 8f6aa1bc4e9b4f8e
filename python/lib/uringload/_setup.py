"""A loader's arguments, checked, and what follows from them alone."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _arguments as arguments
from . import _compose, _device, _log, _order, _ranks, _settings, _sources, _tables
from . import _uringload as native
from ._dataset import LISTS, OPTIONS, Dataset
from ._output import OUTPUTS, Raw, as_list, as_tuple, chosen, converter
from .errors import mistyped, refused


class Setup:
    """Of one loader. The dataset is another one where files are indexed anew."""

    def __init__(self, given: Mapping[str, Any], others: Any) -> None:
        asked = types.SimpleNamespace(**given)
        _settings.from_variables(asked)
        source = self.source = _sources.find(asked.dataset, asked.workers)
        is_open = source is not None or isinstance(asked.dataset, Dataset)
        wishes = _others(arguments.ignore(others), is_open, given)
        self.ranks = _ranks.Ranks(
            _settings.optional(arguments.integer, "rank", asked.rank),
            _settings.optional(arguments.integer, "world_size", asked.world_size, 1),
            asked.process_group,
        )
        asked.output = chosen(arguments.text("output", asked.output, ("auto", *OUTPUTS)), asked.device)
        asked.orient = _orientation(asked.orient, source)
        on_way = _device.transforms(asked.transforms, asked.orient)
        if source is not None:
            is_alone = asked.transform is None and asked.collate_fn is None and not callable(asked.collate)
            is_auto = asked.collate == "auto" and asked.packing is None and asked.bucket_boundaries is None
            source.choose(is_alone, is_auto, is_alone and is_auto and asked.batch_transform is None)
            asked.output, asked.pin_memory = _of_source(source, asked.output, asked.pin_memory, asked.device)
            on_way.chains.extend([] if source.chain is None else [source.chain])
        devices = _device.devices(
            asked.device, asked.output, bool(on_way.kernels), asked.device_memory, asked.nvjpeg, asked.device_allocator
        )
        #: What the native loader does not know of its steps down.
        self.steps = _device.steps(asked.device, devices)
        _log.steps([(step, True) for step in self.steps])
        is_pinned = arguments.boolean("pin_memory", asked.pin_memory)
        pin = _device.pin(is_pinned, asked.pin_memory_device, devices, asked.output)
        padding = _settings.padding(asked.pad_value, asked.max_length, asked.pad_multiple)
        asked.collate, function = _collation(asked.collate, asked.collate_fn)
        # What transformed samples become is another matter than what was read for them.
        is_auto = asked.collate == "tuple" or (asked.transform is not None and asked.collate == "list")
        forms, of_columns = _settings.collate("auto" if is_auto else asked.collate, padding)
        packed, bucketed = _settings.rows(
            asked.packing, asked.seq_len, asked.bucket_boundaries, asked.bucket_batch_sizes, asked.row_window,
            padding["value"],
        )  # fmt: skip
        has_sizes = bucketed is not None and asked.batch_size is None and asked.global_batch_size is None
        sizes = (1, None) if has_sizes else (asked.batch_size, asked.global_batch_size)
        self.sizes: tuple[int | None, int | None] = sizes
        self.order: tuple[Any, Any] = (asked.order, asked.sampler)
        self.makes_rows = packed is not None or bucketed is not None
        self.options: dict[str, Any] = {
            **_reading(asked),
            "collate": forms,
            "collate_columns": of_columns,
            "packing": packed,
            "buckets": bucketed,
            "devices": devices,
            "pin": pin,
            **_devices(asked),
            "transforms": on_way.kernels,
            "chains": on_way.chains,
            "apart": [],
        }
        # Python's samples are known by their keys.
        self.options["key"] |= source is not None and source.is_python
        if asked.profile is not None:
            _settings.fill(self.options, asked.profile)
        self.binary = [*arguments.names("binary", asked.binary), *(() if source is None else source.binary)]
        self.output = asked.output
        self.convert = converter(
            asked.output,
            arguments.text("ragged", asked.ragged, ("pair", "nested")) == "nested",
            any(name != "host" for name in devices),
        )
        if source is not None and source.table is not None:
            self.convert = _tables.formatted(self.convert, source.table, asked.collate == "auto")
        self.stream = _device.stream(pin, asked.output)
        scopes = _device.scopes(devices if self.stream is None or pin is None else [pin], asked.output)
        opened = asked.dataset if source is None else source.dataset
        self.dataset = opened if isinstance(opened, Dataset) else Dataset(opened, timeout=asked.timeout, **wishes)
        self.asked_text = None if asked.text is None else arguments.names("text", asked.text)
        if source is None:
            asked.transform = self._recognised(asked.transform, on_way)
        self.options["apart"] = [*on_way.apart, *self._moved(asked.transform, on_way)]
        self.tails = self._checked(on_way, devices)
        self.binary += on_way.stored
        functions = (asked.transform, asked.collate, function, asked.batch_transform)
        self.own = (functions, scopes, asked.worker_init_fn, asked.workers)
        self.reindex = self._make_reindex(asked.reindex, source is not None, asked.sampler)
        self.trace = None if asked.trace is None else _settings.Trace(arguments.paths("trace", asked.trace)[0])
        # The user's form of a batch that no transform processes.
        self.finish: Callable[[Raw], Any] = self.convert
        if asked.collate == "tuple":
            self.finish = as_tuple(self.convert)
        elif source is not None and source.chain is not None:
            self.finish = as_list(self.convert)

    def _make_reindex(self, reindex: Any, is_source: bool, sampler: Any) -> Any:
        if not arguments.boolean("reindex", reindex):
            return None
        if is_source or sampler is not None:
            what = "what Python made of a dataset" if is_source else "a sampler, which has numbers of its samples,"
            raise refused(f"{what} cannot be made anew by reindex", "leave out reindex, or give paths and shuffle")
        from . import _reindex

        return _reindex.Reindex(self.dataset)

    def _recognised(self, transform: Any, on_way: _device.OnWay) -> Any:
        """The transform; or None, if it is a Compose for the dataset's only column of images, which it is added to.

        One of torchvision whose first step is the user's own is left alone: that step may well take samples.
        """
        split = _compose.split(transform)
        if split is None or on_way.chains or on_way.tails:
            return transform
        if split.rest and not split.done and split.form == "pil" and _compose.is_users_own(split.rest[0]):
            return transform
        columns = native.Samples(self.dataset._native).image_columns()
        if len(columns) > 1:
            # It would pass over what is no image to it, encoded ones among it.
            raise refused(f"transform is a Compose, and there are {len(columns)} columns of images",
                          f"name one: transforms={{{columns[0]!r}: ...}}")
        if not columns:
            return transform
        where = f"transform, for the images of column {columns[0]!r}"
        if split.is_whole:
            _log.info("%s: %s in the loader's threads", where, _compose.names(split.done))
        on_way.add(columns[0], where, transform, split)
        return None

    def _moved(self, transform: Any, on_way: _device.OnWay) -> list[tuple[str, str, bool]]:
        """Columns whose images a Compose moves that takes whole samples: masks are no masks to it."""
        split = _compose.split(transform)
        steps = [] if split is None else [*split.done, *split.rest]
        if not steps or _compose.is_users_own(steps[0]):
            return []
        moving = [type(step).__name__ for step in steps if _compose.moves(step)]
        return [(name, moving[0], True) for name, _ in on_way.chains if moving]

    def _checked(self, on_way: _device.OnWay, devices: list[str]) -> list[tuple[str, Any]]:
        """What Python does to images."""
        if on_way.tails and devices:
            raise refused(f"Python does a part of transforms[{on_way.tails[0][0]!r}], which no device can wait for",
                          "leave out the steps that the loader does not do, or copy batches to the device yourself")
        if on_way.tails and self.output == "dlpack":
            raise refused('output="dlpack" is of no use to a Compose that Python does a part of',
                          'give output="torch" or output="numpy"')
        return on_way.tails

    def log(self) -> None:
        """Says what was recognised of another library's object, if it is one."""
        if self.source is not None:
            _sources.log(self.source)

    def text(self) -> list[str]:
        """Columns of text, of the dataset as it is now."""
        declared = [name for name in self.dataset.text_columns if name not in self.binary]
        _device.fit_windows(self.options["transforms"], self.dataset)
        return declared if self.asked_text is None else self.asked_text

    def pool(self, text: list[str]) -> Any:
        """Threads that run the user's functions, if there are any."""
        (transform, how, function, batch_transform), scopes, init, workers = self.own
        for name, value in (("transform", transform), ("batch_transform", batch_transform),
                            ("worker_init_fn", init)):
            if value is not None and not callable(value):
                raise mistyped(f"{name} is a {type(value).__name__}", "give a function")
        many = None
        if self.source is not None:
            from ._transform import threads_of

            count, own = threads_of(self.options["num_threads"]), transform
            transform, function = self.source.functions(
                transform, function, workers, count, how, self.options["timeout"]
            )
            many = self.source.many(own, self.options["on_error"])
        if transform is None and batch_transform is None and function is None and not self.tails:
            if init is not None:
                arguments.ignored("worker_init_fn", "without a transform there are no threads to initialise")
            return None
        if self.options["num_threads"] == 0 and init is not None:
            arguments.ignored("worker_init_fn", "with num_threads=0 there are no threads to initialise")
            init = None
        if self.options["packing"] is not None and (transform is not None or function is not None or self.tails):
            raise refused("packed rows hold pieces of samples, and a transform or collate function takes whole samples",
                          "give batch_transform, which takes the rows")
        from . import _transform

        native_dataset, options = self.dataset._native, self.options
        read = _transform.reader(native_dataset, options, text, self.binary, self.convert)
        samples = _transform.Samples(native_dataset, read, options["on_error"], options["seed"])
        functions = _transform.Own(transform, how, function, batch_transform, self.tails, many)
        work = functions.work(self.convert, self.output, samples)
        return _transform.Pool(work, options["num_threads"], scopes, init)

    def ordered(self, before: Any, world_size: int) -> _order.Distributed | _order.Sampled | None:
        """The order of the ranks' samples, if it is not the loader's own; for a sampler the one `before`."""
        order, sampler = self.order
        if sampler is not None:
            if order is not None or self.options["shuffle"] != "off":
                raise refused("a sampler decides about the order", "leave out shuffle and order")
            if world_size > 1:
                # The sampler has this rank's samples already.
                self.options.update(rank=0, world_size=1)
            return before if isinstance(before, _order.Sampled) else _order.sampled(sampler)
        if order is None:
            return None
        arguments.text("order", order, ("distributed",))
        shuffle, seed = self.options["shuffle"], self.options["seed"]
        if shuffle not in ("off", "auto", "full"):
            raise refused(f'shuffle={shuffle!r} is of no use to order="distributed"', "give True or False")
        return _order.Distributed(len(self.dataset), world_size, seed, shuffle != "off")


def _reading(asked: Any) -> dict[str, Any]:
    """The settings of the library's table, and what is kept or shared."""
    given = {
        **vars(asked),
        "shuffle": _settings.shuffle(asked.shuffle, asked.shuffle_window),
        "num_threads": _settings.threads(asked.num_threads, asked.num_workers),
        "timeout": _settings.timeout(asked.timeout),
        "trace": None,
    }
    # The ranks decide about them.
    for name in ("batch_size", "rank", "world_size"):
        del given[name]
    return {
        **_settings.settings(given),
        "share_stats": _settings.share_stats(asked.share_stats),
        "cache_images": _settings.optional(arguments.size, "cache_images", asked.cache_images),
        "cache_images_dir": _settings.cache_folder(asked.cache_images, asked.cache_images_dir),
    }


def _devices(asked: Any) -> dict[str, Any]:
    """Options of GPUs."""
    library = asked.cuda_library
    if asked.gds == "on" and str(asked.device) == "cpu":
        raise refused("gds reads into a GPU's memory, and device='cpu' has none", "give a GPU as device")
    return {
        "device_memory": _settings.optional(arguments.size, "device_memory", asked.device_memory),
        "device_allocator": _device.allocator(asked.device_allocator),
        "cuda_library": None if library is None else arguments.paths("cuda_library", library)[0],
        "gds": arguments.text("gds", asked.gds, ("auto", "on", "off")),
        "nvjpeg": arguments.share("nvjpeg", asked.nvjpeg),
        "nvjpeg_places": _device.nvjpeg_places() if asked.nvjpeg else [],
    }


def _orientation(orient: Any, source: _sources.Source | None) -> bool:
    """Whether images are turned: as the object does that is read natively, or as is wished."""
    if orient is None:
        # What Pillow opens for torchvision is not turned.
        return source is None or source.chain is None
    if source is not None:
        raise refused("orient is for images that are read by their paths", "give the paths, or leave it out: an "
                      "object of Python turns its images or not, and so does this loader")
    return arguments.boolean("orient", orient)


def _others(others: dict[str, Any], is_open: bool, given: Iterable[str]) -> dict[str, Any]:
    known = [*OPTIONS, *LISTS]
    for name in others:
        if name == "batch_sampler":
            raise refused("batches cannot be made by a batch_sampler",
                          "give sampler, or bucket_boundaries and bucket_batch_sizes for batches of like lengths")
        if name not in known:
            raise arguments.unknown(name, [*given, *known], "DataLoader")
        if is_open:
            raise refused(f"{name} is of use where a path is opened, and this is an open dataset",
                          f"give {name} to Dataset")
    return others


def _collation(collate: Any, collate_fn: Any) -> tuple[Any, Callable[[list[Any]], Any] | None]:
    if collate_fn is not None:
        if not callable(collate_fn):
            raise mistyped(f"collate_fn is a {type(collate_fn).__name__}", "give a function")
        if collate != "auto":
            raise refused("collate and collate_fn are given", "give one of them")
        return "auto", collate_fn
    return ("auto", collate) if callable(collate) else (collate, None)


def _of_source(source: _sources.Source, output: str, pin_memory: bool, device: Any) -> tuple[str, bool]:
    """Output and pinning where samples are made by Python: there are no columns of the loader's to convert."""
    if not source.is_python and not source.works:
        return output, pin_memory
    if str(device) != "cpu":
        remedy = "move batches to the device in the training loop, or in batch_transform"
        if source.table is not None:
            remedy = f'give the dataset with_format("torch"), whose columns need no Python; or {remedy}'
        raise refused(f"device={device!r} is of no use to samples that Python makes", remedy)
    if pin_memory:
        _log.warning("pin_memory is of no use to samples that Python makes: batches are not pinned")
    return "dlpack" if source.is_python else output, False
