"""Datasets by URL, against the server of the tests, which fails on purpose: the same samples as from the folder."""

from __future__ import annotations

import importlib.util
import multiprocessing
import pathlib
import pickle
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import uringload

SERVER = pathlib.Path(__file__).parents[2] / "target" / "debug" / "uringload-objects"

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="skipped: the server of the tests is not built")


def started(root: pathlib.Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    server = subprocess.Popen([SERVER, "--root", root, *options], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> Iterator[Callable[..., dict[str, Any]]]:
    for number in range(120):
        path = tmp_path / "bucket" / "train" / f"c{number % 3}" / f"{number:03}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * (1000 + 997 * number))
    servers = []

    def serve(*options: str) -> dict[str, Any]:
        server, url = started(tmp_path, *options)
        servers.append(server)
        return {"endpoint": url, "anonymous": True, "region": "here"}

    yield serve
    for server in servers:
        server.kill()
        server.wait()


def delivered(path: str | pathlib.Path, **given: Any) -> tuple[str, int]:
    """The digest of what an epoch gave, and how many samples."""
    with uringload.DataLoader(path, 16, shuffle=True, seed=3, **given) as loader:
        samples = sum(len(batch.ids) for batch in loader)
        told = loader.state_dict()["delivered"]
        return told["sum"], samples


def test_a_url_gives_what_the_folder_gives(serve: Callable[..., dict[str, Any]], tmp_path: pathlib.Path) -> None:
    near = delivered(tmp_path / "bucket" / "train")
    assert near[1] == 120
    reach = serve()
    assert delivered("s3://bucket/train", **reach) == near
    faults = "503=5:0,reset=5,short=5"
    assert delivered("s3://bucket/train", **serve("--fault", faults, "--attempts", "2", "--seed", "7")) == near
    dataset = uringload.Dataset("s3://bucket/train", **reach)
    assert (len(dataset), dataset.classes) == (120, ["c0", "c1", "c2"])
    assert len(pickle.loads(pickle.dumps(dataset))) == 120
    assert len(uringload.Dataset("s3://bucket/train/c1/*.dat", **reach)) == 40


def test_what_a_server_was_asked_is_counted(serve: Callable[..., dict[str, Any]]) -> None:
    reach = serve("--fault", "503=10:0", "--attempts", "1")
    with uringload.DataLoader("s3://bucket/train", 16, **reach) as loader:
        samples = sum(len(batch.ids) for batch in loader)
        stats = loader.stats()
        (one,) = stats["endpoints"]
        assert samples == 120 and one["endpoint"] == reach["endpoint"].removeprefix("http://")
        assert one["requests"] > 0 and one["bytes"] > 0 and one["throttled"] > 0 and one["connections"] > 0
        assert ("server", one["endpoint"]) in [(name, told.split(": ")[0]) for name, told in stats.rows()]
        if importlib.util.find_spec("prometheus_client"):
            import prometheus_client

            registry = prometheus_client.CollectorRegistry()
            registry.register(uringload.prometheus.Collector([loader]))  # type: ignore[arg-type]
            served = prometheus_client.generate_latest(registry).decode()
            assert f'uringload_store_requests_total{{dataset="s3://bucket/train",endpoint="{one["endpoint"]}"' in served


def test_a_state_goes_from_the_folder_to_the_url(
    serve: Callable[..., dict[str, Any]], tmp_path: pathlib.Path
) -> None:
    with uringload.DataLoader(tmp_path / "bucket" / "train", 16, shuffle=True) as loader:
        ids = [list(batch.ids) for _, batch in zip(range(3), loader, strict=False)]
        state = loader.state_dict()
    with uringload.DataLoader("s3://bucket/train", 16, shuffle=True, **serve()) as loader:
        loader.load_state_dict(state)
        ids += [list(batch.ids) for batch in loader]
    assert sorted(sum(ids, [])) == list(range(120))


def _child(queue: Any, reach: dict[str, Any]) -> None:
    queue.put(delivered("s3://bucket/train", **reach))


def test_a_fork_has_its_own_connections(serve: Callable[..., dict[str, Any]], tmp_path: pathlib.Path) -> None:
    reach = serve()
    mine = delivered("s3://bucket/train", **reach)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=_child, args=(queue, reach)) for _ in range(8)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [mine] * 8
    for child in children:
        child.join()
    assert delivered("s3://bucket/train", **reach) == mine


def test_what_cannot_be_reached_is_told(serve: Callable[..., dict[str, Any]]) -> None:
    reach = serve("--keys", "AKIDEXAMPLE:secret")
    with pytest.raises(uringload.PermissionDeniedError, match="s3://bucket/train"):
        uringload.Dataset("s3://bucket/train", **reach)
    with pytest.raises(uringload.NotFoundError, match="there is no trian in s3://bucket/"):
        uringload.Dataset("s3://bucket/trian", **serve())
    with pytest.raises(uringload.IoError, match="s3://bucket/train"):
        uringload.Dataset("s3://bucket/train", **{**reach, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(uringload.InvalidArgumentError, match="hf download"):
        uringload.Dataset("hf://datasets/a/b")


def test_a_clock_that_is_wrong_is_logged_once_with_both_times(
    serve: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    reach = {**serve("--keys", "AKIDEXAMPLE:secret", "--clock", "3600"), "anonymous": False}
    with caplog.at_level("WARNING", "uringload"):
        assert delivered("s3://bucket/train", **reach)[1] == 120
    (told,) = (one.message for one in caplog.records if "clock" in one.message)
    here, there = told.split("here it is ")[1].split(", and there ")
    assert here.endswith(" GMT") and " GMT; set the clock" in there and here[:25] != there[:25]


def test_what_is_kept_on_a_disk_is_not_asked_for_again(
    serve: Callable[..., dict[str, Any]], tmp_path: pathlib.Path
) -> None:
    near = delivered(tmp_path / "bucket" / "train")
    reach, kept = serve(), tmp_path / "kept"
    for given in ((kept, "64MiB"), (str(kept), 64 << 20), f"{kept}:64MiB"):
        assert delivered("s3://bucket/train", cache_disk=given, **reach) == near
    with uringload.DataLoader("s3://bucket/train", 16, cache_disk=(kept, "64MiB"), **reach) as loader:
        assert sum(len(batch.ids) for batch in loader) == 120
        told = loader.stats()
        assert told["bytes_cached"] == told["bytes_read"] > 0
        assert any(f"kept in {kept}" in one for one in loader.route()["locality"])
    # The state of one goes on in another.
    with uringload.DataLoader("s3://bucket/train", 16, seed=3, shuffle=True, cache_disk=(kept, "1MiB"), **reach) as far:
        first = [number for _, batch in zip(range(3), far) for number in batch.ids]
        state = far.state_dict()
    with uringload.DataLoader(tmp_path / "bucket" / "train", 16, seed=3, shuffle=True) as near_by:
        near_by.load_state_dict(state)
        rest = [number for batch in near_by for number in batch.ids]
    assert sorted(first + rest) == list(range(120))
    for wrong in (3, ("x",), (3, 4), ("x", "much"), "nowhere"):
        with pytest.raises(uringload.InvalidArgumentError, match="cache_disk"):
            uringload.DataLoader("s3://bucket/train", 16, cache_disk=wrong, **reach)


def test_a_bucket_is_packed_and_a_listing_stands_for_it(
    serve: Callable[..., dict[str, Any]], tmp_path: pathlib.Path
) -> None:
    reach = serve()
    (tmp_path / "out").mkdir()
    near = uringload.pack(tmp_path / "bucket" / "train", tmp_path / "near", shard_samples=50)
    # The options that reach the source reach the shards too.
    far = uringload.pack("s3://bucket/train", "s3://out/set", shard_samples=50, staging=tmp_path, **reach)
    assert (far.samples, far.shards, far.bytes_written) == (120, 3, near.bytes_written)
    proof = uringload.pack("s3://bucket/train", "s3://out/set", shard_samples=50, finish=True, **reach)
    assert (proof.samples, proof.lacking) == (120, 0)
    for number in range(3):
        name = f"shard-{number:06}.tar"
        assert (tmp_path / "near" / name).read_bytes() == (tmp_path / "out" / "set" / name).read_bytes()
    listing = tmp_path / "train.uls"
    command = [SERVER.parent / "uringload", "list-objects", "s3://bucket/train", "-o", listing, "--anonymous"]
    if command[0].exists():
        subprocess.run([*command, "--endpoint", reach["endpoint"]], check=True, stdout=subprocess.PIPE)
        assert delivered(listing, **reach) == delivered("s3://bucket/train", **reach)
