"""Pages of documentation: every name, method and keyword of Python that they name is there, and their code runs."""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import importlib.util
import inspect
import json
import pathlib
import re
import tarfile
import textwrap
import wave
from collections.abc import Iterator
from typing import Any, NamedTuple

import films
import pytest
from conftest import HAS_TORCH, is_there, needs_numpy

import uringload
from uringload import _arguments, _dataset

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "python/README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
#: Pages about Rust or C, whose loader, dataset and batch have other methods.
NOT_OF_PYTHON = {"docs/gpu.md", "docs/images.md", "docs/orders.md", "docs/own-format.md", "docs/c.md", "docs/gds.md",
                 "docs/bench-json.md", "docs/cli.md", "docs/features.md", "docs/settings.md"}  # fmt: skip
OPTIONS = {*_dataset.OPTIONS, *_dataset.LISTS}
#: What pages call objects of ours.
OBJECTS: dict[str, Any] = {
    "loader": uringload.DataLoader, "DataLoader": uringload.DataLoader, "train_loader": uringload.DataLoader,
    "dataset": uringload.Dataset, "Dataset": uringload.Dataset, "batch": uringload.Batch, "Batch": uringload.Batch,
    "reader": uringload.Reader, "Reader": uringload.Reader,
}  # fmt: skip
#: Keywords of other libraries, or of programs, that pages name by themselves.
OTHERS = {"antialias", "batch_first", "memlock", "group_size", "data", "num_outputs", "cycle", "commit", "addr",
          "ignore_data_skip", "resume_from_checkpoint", "use_seedable_sampler", "dataloader_config", "train_dataset",
          "get_train_dataloader", "callbacks", "resampled", "split_by_node", "device_id", "non_blocking", "batch",
          "max_size", "nulls", "record_bytes", "seccomp"}  # fmt: skip


class Code(NamedTuple):
    """A span or a block of code, and where it is."""

    place: str
    language: str
    text: str
    #: What the page says right before it.
    before: str = ""


def code(page: str) -> Iterator[Code]:
    text = (ROOT / page).read_text()
    for match in re.finditer(r"^( *)```(\S*)\n(.*?)^ *```|(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\4(?!`)", text, re.M | re.S):
        place = f"{page}:{text.count(chr(10), 0, match.start()) + 1}"
        if match[4] is None:
            yield Code(place, match[2] or "text", textwrap.dedent(match[3]))
        else:
            yield Code(place, "", " ".join(match[5].split()), text[:match.start()][-30:])


BLOCKS = [block for page in PAGES for block in code(page) if block.language == "python"]
SPANS = [span for page in PAGES for span in code(page) if span.language in ("", "python")]
OF_PYTHON = [span for span in SPANS if span.place.split(":")[0] not in NOT_OF_PYTHON and "Rust" not in span.before]


def lacking(dotted: str) -> str | None:
    """The first name of a dotted one below `uringload` that is not there."""
    found: Any = uringload
    names = dotted.split(".")[1:]
    for depth, name in enumerate(names):
        if not hasattr(found, name):
            module = ".".join(["uringload", *names[: depth + 1]])
            try:
                found = importlib.import_module(module)
                continue
            except (ModuleNotFoundError, uringload.errors.Error) as missing:
                if isinstance(missing, ModuleNotFoundError) and missing.name in (module, None, ""):
                    return name
                # The module is there, and the library that it is for is not.
                return of_source(module, names[depth + 1 :])
        found = getattr(found, name)
    return None


def of_source(module: str, names: list[str]) -> str | None:
    """As `lacking`, by the text of a module that cannot be imported here."""
    base = pathlib.Path(uringload.__file__).parent.joinpath(*module.split(".")[1:])
    source = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
    nodes = ast.parse(source.read_text()).body
    defined = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return next((name for name in names[:1] if name not in defined), None)


def test_names_are_there() -> None:
    pattern = re.compile(r"(?<![\w./-])uringload(?:\.[A-Za-z_]\w*)+")
    named = [(span.place, name) for span in SPANS for name in pattern.findall(span.text)
             if not re.fullmatch(r"uringload\.(h|toml|txt|tar|so|json)", name)]  # fmt: skip
    wrong = [f"{place}: {name} has no {found}" for place, name in named if (found := lacking(name))]
    assert len(named) > 60 and not wrong, "\n".join(wrong)


def methods(text: str) -> Iterator[tuple[str, list[str]]]:
    """`loader.route().fallbacks` as ("loader", ["route()", "fallbacks"])."""
    for match in re.finditer(r"(?<![\w./])(\w+)((?:\.[A-Za-z_]\w*(?:\(\))?)+)", text):
        if match[1] in OBJECTS:
            yield match[1], match[2][1:].split(".")


def missing(of: Any, names: list[str]) -> str | None:
    """The first of these attributes that is not there, through what methods return."""
    for name in names:
        bare = name.removesuffix("()")
        attributes = {attribute for base in getattr(of, "__mro__", ()) for attribute in getattr(base, "__slots__", ())}
        if not hasattr(of, bare) and bare not in attributes:
            return f"{getattr(of, '__name__', of)} has no {bare}"
        found = inspect.getattr_static(of, bare, None)
        function = found.fget if isinstance(found, property) else found
        hint = getattr(function, "__annotations__", {}).get("return", "")
        if hint not in uringload.__all__ or not (name.endswith("()") or isinstance(found, property)):
            return None
        of = getattr(uringload, hint)
    return None


def test_methods_are_there() -> None:
    named = [(span.place, *method) for span in OF_PYTHON for method in methods(span.text)]
    wrong = [f"{place}: {found}" for place, of, names in named if (found := missing(OBJECTS[of], names))]
    assert len(named) > 40 and not wrong, "\n".join(wrong)


def keywords(of: Any) -> set[str]:
    return {name for name, one in inspect.signature(of).parameters.items() if one.kind is not one.VAR_KEYWORD}


#: What takes keywords, by the end of its name in a call.
CALLS = {
    "DataLoader": keywords(uringload.DataLoader.__init__) | OPTIONS | {*_arguments.IGNORED},
    "Dataset": keywords(uringload.Dataset.__init__) | OPTIONS,
    "from_index": keywords(uringload.Dataset.from_index), "mix": keywords(uringload.mix),
    "Images": keywords(uringload.Images), "Tokens": keywords(uringload.Tokens), "pack": keywords(uringload.pack),
    "read_into": keywords(uringload.read_into), "Reader": keywords(uringload.Reader.__init__),
    "watch": keywords(uringload.watch), "merge_traces": keywords(uringload.merge_traces),
    "bench": keywords(uringload.bench) | keywords(uringload.DataLoader.__init__) | OPTIONS,
    "tune": keywords(uringload.tune) | keywords(uringload.DataLoader.__init__) | OPTIONS,
    "next": keywords(uringload.Reader.next), "show": keywords(uringload.Batch.show),
    "__dlpack__": {"stream", "max_version", "dl_device", "copy"},
}  # fmt: skip


def calls(text: str) -> Iterator[tuple[str, str]]:
    """The name of each call that is known here, with each of its keywords."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from ((name, word.arg) for word in node.keywords if word.arg)


def test_keywords_are_there() -> None:
    wrong, count = [], 0
    anywhere = set().union(*CALLS.values()) | OTHERS
    for place, _, text, _ in OF_PYTHON:
        # torch's loader and sampler have the names of ours, in calls that replace them.
        named = [] if "torch.utils.data.DataLoader" in text else [*calls(text)]
        count += len(named)
        ours = [(name, word) for name, word in named if name in CALLS]
        wrong += [f"{place}: {name} has no {word}=" for name, word in ours if word not in CALLS[name]]
        alone = re.match(r"([a-z_]+)=", text)
        if alone and not named:
            count += 1
            wrong += [f"{place}: nothing takes {alone[1]}="] if alone[1] not in anywhere else []
    assert count > 120 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("block", BLOCKS, ids=[block.place for block in BLOCKS])
def test_code_compiles(block: Code) -> None:
    compile(block.text, block.place, "exec")


def test_messages_are_said() -> None:
    """What troubleshooting.md quotes, up to the first thing that differs, is in the sources."""
    rows = [line.split("|")[1] for line in (ROOT / "docs/troubleshooting.md").read_text().splitlines() if "|" in line]
    quoted = [re.split(r'["0-9]', one)[0].strip() for row in rows for one in re.findall(r"`([^`]+ [^`]+)`", row)]
    folders = ("core/src", "formats/src", "src", "python/lib")
    files = [path for folder in folders for kind in ("rs", "py") for path in (ROOT / folder).rglob(f"*.{kind}")]
    # A text that goes on in the next line of the source is one.
    sources = re.sub(r"\\\n\s*", "", "".join(path.read_text() for path in files))
    missing = [one for one in quoted if one not in sources]
    assert len(quoted) > 5 and not missing, missing


#: Blocks that do not run here, by a part of them: one needs several GPUs, one leaves a function to the reader, and
#: those of JAX and Keras are in test_jax_keras.py.
CANNOT_RUN = ("dist.init_process_group", "mine(decode_jpeg", "train_step(state", "keras.Batches(loader)")
RUN = [block for block in BLOCKS if not any(part in block.text for part in CANNOT_RUN)]


HAS_TORCHVISION, HAS_PILLOW = (importlib.util.find_spec(name) is not None for name in ("torchvision", "PIL"))
NEEDS = {"soundfile": ("import soundfile",), "soxr": ("import soxr",), "torchcodec.decoders": ("torchcodec",),
         "av": ("import av", "/data/films"), "pyarrow": ("/data/lerobot",), "lmdb": ("import lmdb",),
         "prometheus_client": ("uringload.prometheus",),
         "torch": ("torch.", "import torch"),
         "torchvision": ("v2.", "transforms.", "torchvision."),
         "PIL": ("imagenet", "photos", "train.tar", "scenes", "coco")}  # fmt: skip


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """What the pages' paths name, small."""
    for number in range(40):
        place = tmp_path / "train" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.dat").write_bytes(bytes([number]) * 3000)
    (tmp_path / "pixels.bin").write_bytes(bytes(range(256)) * (256 * 3 * 8))
    (tmp_path / "px.bin").write_bytes(bytes(range(256)) * (256 * 3 * 8))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.bin").write_bytes(bytes(range(256)) * 200)
    for name in ("scans/images/a.jpg", "scans/masks/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    for name, channels, rate in (("yes/1.wav", 1, 16000), ("no/2.wav", 2, 8000)):
        path = tmp_path / "audio" / name
        path.parent.mkdir(parents=True)
        with wave.open(str(path), "wb") as sound:
            sound.setparams((channels, 2, rate, 0, "NONE", ""))
            sound.writeframes(bytes(range(250)) * 200)
    if HAS_PILLOW:
        pictures(tmp_path)
    (tmp_path / "train.csv").write_text("1.jpg,0\n2.jpg,1\n3.jpg,0\n4.jpg,1\n")
    for name in ("a.bin", "b.bin", "model.bin"):
        (tmp_path / name).write_bytes(bytes(range(256)) * 64)
    return tmp_path


def pictures(data: pathlib.Path) -> None:
    """Photographs: in class folders, in one folder, and in an archive."""
    from PIL import Image

    with tarfile.open(data / "train.tar", "w") as archive:
        for number in range(4):
            name = f"{number % 2}/{number}.jpg"
            for root in ("imagenet/train", "photos"):
                path = data / root / (name if "/" in root else f"{number + 1}.jpg")
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (300, 280), (60 * number, 20, 200)).save(path, "JPEG")
            archive.add(data / "imagenet/train" / name, f"{number}.jpg")
            images = (("scenes/images", "masks/0.png"), ("yolo/images", "labels/0.txt"),
                      ("coco/train2017", "annotations/0"))  # fmt: skip
            for root, beside in images:
                for path in (data / root / f"{number}.jpg", (data / root).parent / beside):
                    path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (60, 48)).save(data / root / f"{number}.jpg")
            Image.new("L", (60, 48), number).save(data / "scenes" / "masks" / f"{number}.png")
            (data / "yolo" / "labels" / f"{number}.txt").write_text("0 .5 .5 .1 .2\n" * (1 + number % 2))
    (data / "yolo" / "data.yaml").write_text("train: images\nnames: [cat]\n")
    listed = [{"id": number, "file_name": f"{number}.jpg", "width": 60, "height": 48} for number in range(4)]
    boxes = [{"image_id": number // 2, "category_id": 1, "bbox": [number, 3, 20, 10]} for number in range(6)]
    table = {"images": listed, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (data / "coco" / "annotations" / "instances_train2017.json").write_text(json.dumps(table))


def photos_in_lmdb(data: pathlib.Path) -> None:
    import lmdb

    with lmdb.open(str(data / "photos.lmdb")) as env, env.begin(write=True) as changes:
        for photo in (data / "photos").iterdir():
            changes.put(photo.stem.encode(), photo.read_bytes())


def steps_of_robots(data: pathlib.Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    (data / "lerobot" / "data").mkdir(parents=True)
    six = pa.list_(pa.float32(), 6)
    for episode in range(3):
        states = pa.array([[0.5] * 6] * 4, six)
        rows = pa.table({"observation.state": states, "action": states, "episode_index": [episode] * 4})
        pa.parquet.write_table(rows, data / "lerobot" / "data" / f"{episode}.parquet")


def prepared(data: pathlib.Path, counted: collections.Counter[str], text: str) -> dict[str, Any]:
    """What the code of a page finds: names that a script has by then."""
    import numpy as np

    def count(name: str) -> Any:
        return lambda values, *_: counted.update({name: len(values)})

    def save(model: Any, state: Any) -> None:
        counted.update(states=1)

    collate: Any = "tuple" if "for images, labels in loader" in text else "auto"
    loader = uringload.DataLoader(data / "train", 8, collate=collate, output="torch" if HAS_TORCH else "numpy")
    names: dict[str, Any] = {"uringload": uringload, "numpy": np, "json": json, "DataLoader": uringload.DataLoader,
                             "loader": loader, "model": None, "step": count("samples"), "train": count("samples"),
                             "save": save, "weights": np.zeros(1024, np.uint8), "bias": np.zeros(512, np.uint8),
                             "files": [data / "a.bin"] * 2, "offsets": [0, 8], "lengths": [8, 8], "labels": [1, 2],
                             "decode": bytes, "right": 0}  # fmt: skip
    if HAS_TORCH:
        import torch

        class Model(torch.nn.Module):
            def forward(self, images: Any) -> Any:
                return torch.zeros(len(images), 2)

        names |= {"torch": torch, "model": Model()}
    if HAS_TORCHVISION:
        import torchvision
        from torchvision import transforms
        from torchvision.transforms import v2

        names |= {"torchvision": torchvision, "transforms": transforms, "v2": v2}
        names["normalize"] = transforms.Normalize([0.5] * 3, [0.5] * 3)
    return names


@needs_numpy
@pytest.mark.parametrize("block", RUN, ids=[block.place for block in RUN])
def test_code_runs(block: Code, data: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, parts in NEEDS.items():
        if any(part in block.text for part in parts) and not is_there(name):
            pytest.skip(f"skipped: {name} cannot be imported")
    monkeypatch.chdir(data)
    if "import lmdb" in block.text:
        photos_in_lmdb(data)
    if "/data/films" in block.text:
        films.folder(data / "films")
    if "/data/lerobot" in block.text:
        films.lerobot(data / "lerobot") if "import av" in block.text else steps_of_robots(data)
    if not HAS_TORCH:
        monkeypatch.setattr(uringload, "DataLoader", functools.partial(uringload.DataLoader, output="numpy"))
    counted: collections.Counter[str] = collections.Counter()
    names = prepared(data, counted, block.text)
    # The machine may have no GPU, and the host gives the same bytes.
    text = block.text.replace('"/data/', f'"{data}/').replace('"cuda:0"', '"cpu"')
    exec(compile(text, block.place, "exec"), names)
    if "range(90)" in text:
        assert counted["samples"] == 90 * 40 and counted["states"] in (0, 90)
    if isinstance(names["loader"], OBJECTS["loader"]):
        names["loader"].close()


def test_what_is_wrong_is_found() -> None:
    assert lacking("uringload.DataLoader.state_dict") is None and lacking("uringload.torch.Dataset") is None
    assert lacking("uringload.lightning.Metrics") is None and lacking("uringload.lightning.Metric") == "Metric"
    assert lacking("uringload.Dataloader") == "Dataloader" and lacking("uringload.none.x") == "none"
    (found,) = methods("print(loader.route().fallbacks)")
    assert missing(OBJECTS[found[0]], found[1]) == "Route has no fallbacks"
    assert missing(uringload.Batch, ["ids"]) is None and missing(uringload.Batch, ["id"])
    assert [*calls("uringload.DataLoader(path, batchsize=3)")] == [("DataLoader", "batchsize")]
    assert "batch_size" in CALLS["DataLoader"] and "batchsize" not in CALLS["DataLoader"]


def test_metrics_of_dashboard_and_alerts_are_there(data: pathlib.Path) -> None:
    pytest.importorskip("prometheus_client", reason="skipped: prometheus_client is not installed")
    import prometheus_client
    from uringload.prometheus import Collector

    with uringload.DataLoader(data / "train", 8, output="dlpack") as loader:
        list(loader)
        registry = prometheus_client.CollectorRegistry()
        registry.register(Collector([loader]))  # type: ignore[arg-type]
        served = prometheus_client.generate_latest(registry).decode()
    there = set(re.findall(r"^(uringload_\w+)", served, re.M))
    for name in ("deploy/dashboard.json", "deploy/alerts.yaml"):
        named = set(re.findall(r"uringload_\w+", (ROOT / name).read_text()))
        assert len(named) > 5 and not named - there, f"{name}: {named - there}"
    json.loads((ROOT / "deploy/dashboard.json").read_text())
