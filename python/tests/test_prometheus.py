"""What Prometheus gets, and that docs/metrics.md lists it."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

import pytest
from conftest import RECORDS, needs_numpy, of_records

import uringload

prometheus_client = pytest.importorskip("prometheus_client", reason="skipped: prometheus_client is not installed")
from prometheus_client import parser  # noqa: E402

from uringload import prometheus  # noqa: E402

pytestmark = needs_numpy
METRICS = pathlib.Path(__file__).parents[2] / "docs" / "metrics.md"


def loader_of(records: pathlib.Path, **given: Any) -> uringload.DataLoader:
    return uringload.DataLoader(**of_records(records, **given))


def exposed(loaders: Any = None) -> str:
    """What a registry would serve."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus.Collector(loaders))
    return str(prometheus_client.generate_latest(registry).decode())


def collected(loaders: Any = None) -> dict[tuple[str, ...], float]:
    """What a registry gets: names, values of labels by their names, and numbers."""
    families = parser.text_string_to_metric_families(exposed(loaders))
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, *(each.labels[name] for name in sorted(each.labels))): each.value for each in samples}


def test_what_was_measured(records: pathlib.Path) -> None:
    build = {("uringload_build_info", uringload.__version__): 1}
    with loader_of(records) as loader:
        assert collected([loader]) == {("uringload_loaders", str(os.getpid())): 0, **build}
        for _ in loader:
            pass
        samples, stats = collected([loader]), loader.stats()
    labels = (str(records), "0", "0")
    assert samples["uringload_loaders", str(os.getpid())] == 1 and build.items() <= samples.items()
    assert samples["uringload_samples_total", *labels] == RECORDS
    assert samples["uringload_batches_total", *labels] == stats["batches"] == 32
    assert samples["uringload_bytes_delivered_total", *labels] == RECORDS * 256
    assert samples["uringload_bytes_read_total", *labels] >= RECORDS * 256
    assert samples["uringload_waiting_for_storage", *labels] == 0
    assert samples["uringload_epoch", *labels] == 1
    assert samples["uringload_thread_seconds_total", "plan", *labels, "reactor"] > 0
    (verdict,) = (key for key in samples if key[0] == "uringload_verdict_info")
    assert verdict[1].isalpha() and verdict[2:] == labels


def test_times_are_histograms_that_add_up(records: pathlib.Path) -> None:
    """A sample takes 5 ms, so that the program surely waits."""
    slow = {"transform": lambda sample: time.sleep(0.005) or sample, "num_threads": 1, "batch_size": 100}
    with loader_of(records, **slow) as one, loader_of(records, **slow) as other:
        for loader in (one, other):
            next(iter(loader))
        samples = collected({"train": one, "test": other})
        stats = one.stats()
    bounds = []
    for name, times in (("batch_wait", "batch_wait"), ("read", "read_latency")):
        metric = f"uringload_{name}_seconds"
        for label in ("train", "test"):
            buckets = [(key[2], value) for key, value in samples.items()
                       if key[0] == f"{metric}_bucket" and key[3] == label]
            bounds.append([bound for bound, _ in buckets])
            counts = [value for _, value in buckets]
            assert counts == sorted(counts) and counts[-1] > 0 and bounds[-1][-1] == "+Inf"
            assert samples[f"{metric}_count", str(records), label, "0"] == counts[-1]
        assert samples[f"{metric}_count", str(records), "train", "0"] == stats[times]["count"]
    assert len({*map(tuple, bounds)}) == 1, "buckets of ranks add up where their bounds are the same"
    # 100 samples take half a second.
    waits, train = "uringload_batch_wait_seconds", (str(records), "train", "0")
    assert 0.4 < samples[f"{waits}_sum", *train] <= stats["elapsed_s"]
    assert samples[f"{waits}_bucket", str(records), "0.25", "train", "0"] < samples[f"{waits}_count", *train]


def test_memory_by_its_holders(records: pathlib.Path) -> None:
    with loader_of(records, memory_limit="64MiB") as loader:
        for _ in loader:
            time.sleep(0.001)
        held = collected([loader])
        labels = str(records), "0", "0"
        assert held["uringload_memory_limit_bytes", *labels] == 64 << 20
        holders = {key[2]: value for key, value in held.items() if key[0] == "uringload_memory_bytes"}
    assert "batches" in holders and 0 < sum(holders.values()) <= 64 << 20, holders


def test_the_loaders_that_are_open(records: pathlib.Path) -> None:
    with loader_of(records) as first, loader_of(records) as loader:
        list(first)
        list(loader)

        def numbers() -> list[str]:
            return [key[2] for key in collected() if key[0] == "uringload_epoch" and key[1] == str(records)]

        before = numbers()
        assert len(before) == len({*before}) == 2
        first.close()
        assert numbers() == before[1:], "a loader keeps its number where another one is closed"
    assert not numbers()
    with pytest.raises(TypeError, match="str"):
        prometheus.Collector(["one"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="int"):
        prometheus.Collector({"train": 1})  # type: ignore[dict-item]


def test_names_of_folders_may_be_anything(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / 'a "quoted"\nback\\slash'
    folder.mkdir()
    (folder / "one.bin").write_bytes(bytes(64))
    with uringload.DataLoader(folder, batch_size=1, output="numpy", format="folder") as loader:
        list(loader)
        samples = collected([loader])
    assert samples["uringload_samples_total", str(folder), "0", "0"] == 1


def test_the_client_is_needed() -> None:
    script = "import sys; sys.modules['prometheus_client'] = None; import uringload.prometheus"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "InvalidArgumentError: prometheus_client is not installed" in done.stderr, done.stderr
    assert "pip install prometheus_client" in done.stderr


def test_each_rank_serves_at_a_port_of_its_own(records: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with loader_of(records) as loader:
        list(loader)
        for rank, name in enumerate(("LOCAL_RANK", "SLURM_LOCALID")):
            monkeypatch.setenv(name, str(rank))
            registry = prometheus_client.CollectorRegistry()
            assert prometheus.serve(port, {"train": loader}, registry=registry) == port + rank
            with urllib.request.urlopen(f"http://127.0.0.1:{port + rank}/metrics", timeout=60) as answer:
                assert re.search(r'uringload_samples_total\{.*loader="train".*\} 1000.0', answer.read().decode())
            monkeypatch.delenv(name)
        with pytest.raises(uringload.UnavailableError, match=f"port {port} of 127.0.0.1 .*in use") as error:
            prometheus.serve(port, [loader], registry=prometheus_client.CollectorRegistry())
        assert "each process of this machine" in str(error.value.remedy)
    for wrong in (0, -1, 65536):
        with pytest.raises(uringload.Error, match="port"):
            prometheus.serve(wrong, registry=prometheus_client.CollectorRegistry())


def test_the_documentation_lists_the_metrics(records: pathlib.Path) -> None:
    """Each with its type, unit, labels and meaning; and none else."""
    with loader_of(records) as loader:
        list(loader)
        text = exposed([loader])
    about = dict(re.findall(r"# HELP (\S+) (.*)", text))
    kinds = dict(re.findall(r"# TYPE (\S+) (.*)", text))
    labels: dict[str, set[str]] = {name: set() for name in about}
    for name, given in re.findall(r"^(uringload_\w+)\{(.*)\} ", text, re.MULTILINE):
        family = name if name in about else re.sub("_(bucket|sum|count)$", "", name)
        labels[family] |= {*re.findall(r'(\w+)="', given)} - {"loader", "dataset", "rank", "le"}
    # Files have no server: test_stores has one.
    for one in prometheus._OF_LOADERS:
        if one.name.startswith("store_"):
            labels[f"uringload_{one.name}_total"] |= {*one.labels}
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \| (.*) \|$", METRICS.read_text(), re.MULTILINE)
    found = {name: (kind, set(re.findall(r"`(\w+)`", extra)), told) for name, kind, _, extra, told in rows}
    # In the text that is served, information is a gauge.
    expected = {name: ("info" if name.endswith("_info") else kind, labels[name], about[name])
                for name, kind in kinds.items()}
    assert found == expected
    units = {f"uringload_{one.name}": one.unit for one in prometheus._OF_LOADERS + prometheus._OF_PROCESSES}
    for name, _, unit, *_ in rows:
        assert unit == (units.get(name) or units.get(re.sub("_(total|info)$", "", name)) or "-"), name
