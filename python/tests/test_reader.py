"""`uringload.Reader`: bytes in an order of the user's own."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
import threading

import pytest

import uringload

SIZES = [5_000, 0, 123_457, 70_000]


def content(number: int) -> bytes:
    return bytes((number * 37 + at * 11) % 256 for at in range(256)) * (SIZES[number] // 256 + 1)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    root = tmp_path_factory.mktemp("reader")
    found = []
    for number, size in enumerate(SIZES):
        found.append(root / f"{number}.bin")
        found[-1].write_bytes(content(number)[:size])
    return found


def wanted(request: int) -> list[tuple[int, int, int]]:
    files = [0, 2, 3]
    pieces = []
    for piece in range(request % 3 + 1):
        file = files[(request + piece) % 3]
        offset = request * 97 % 4_000
        pieces.append((file, offset, min(request * 211 % 60_000, SIZES[file] - offset)))
    return pieces


def expected(request: int) -> bytes:
    return b"".join(content(file)[offset : offset + length] for file, offset, length in wanted(request))


@pytest.mark.parametrize("io", ["auto", "direct", "buffered"])
@pytest.mark.parametrize("engine", ["auto", "uring", "threads"])
def test_answers_are_the_bytes(paths: list[pathlib.Path], engine: str, io: str) -> None:
    try:
        reader = uringload.Reader(paths, engine=engine, io=io, memory_limit="1MiB")
    except uringload.UnavailableError as error:
        pytest.skip(f"skipped: {error}")
    with reader:
        for request in range(200):
            reader.submit(request, wanted(request))
        assert reader.in_flight == 200 and reader.cancel(7) and not reader.cancel(7)
        came = {}
        for request, data in reader:
            assert isinstance(data, uringload.Tensor), data
            came[request] = data.tobytes()
        assert came == {request: expected(request) for request in range(200) if request != 7}
        assert reader.in_flight == 0 and reader.next() is None and reader.try_next() is None
        assert reader.read((2, 5, 100)).tobytes() == content(2)[5:105]
        assert reader.read([(2, 5, 100), (0, 0, 3)]).tobytes() == content(2)[5:105] + content(0)[:3]
        assert reader.size(2) == SIZES[2] and "fallbacks" in reader.route
    with pytest.raises(uringload.InvalidArgumentError, match="closed"):
        reader.submit(1, (0, 0, 1))


def test_an_answer_is_an_array_that_outlives_the_reader(paths: list[pathlib.Path]) -> None:
    numpy = pytest.importorskip("numpy", reason="skipped: NumPy is not installed")
    with uringload.Reader(paths[0]) as reader:
        reader.submit(5, (0, 1, 4_000))
        request, data = reader.next() or (None, None)
    array = numpy.from_dlpack(data)
    del data
    assert request == 5 and array.dtype == numpy.uint8 and array.tobytes() == content(0)[1:4_001]


@pytest.mark.parametrize(
    "spans",
    [(9, 0, 1), (0, 0, 5_001), (0, 5_000, 1), [(0, 0, 1), (1, 0, 1)], (0, 2**63, 1), (2**40, 0, 1)],
)
def test_what_is_not_in_a_file_is_refused(paths: list[pathlib.Path], spans: object) -> None:
    with uringload.Reader(paths) as reader:
        for ask in (lambda: reader.submit(1, spans), lambda: reader.read(spans)):  # type: ignore[arg-type]
            with pytest.raises(uringload.InvalidArgumentError, match="span"):
                ask()
        assert reader.in_flight == 0


def test_what_is_no_span_is_refused(paths: list[pathlib.Path]) -> None:
    with uringload.Reader(paths) as reader:
        for spans in (7, (1, 2), [(1, 2)], ["abc"], (0, -1, 5), (0, 1.5, 5)):
            with pytest.raises((uringload.ArgumentTypeError, uringload.InvalidArgumentError)):
                reader.submit(1, spans)  # type: ignore[arg-type]
        reader.submit(1, (0, 0, 1))
        with pytest.raises(uringload.InvalidArgumentError, match="in flight"):
            reader.submit(1, (0, 0, 1))
        with pytest.raises(uringload.MemoryLimitError):
            uringload.Reader(paths, memory_limit=64 << 10).submit(1, (2, 0, SIZES[2]))
    with pytest.raises(uringload.NotFoundError):
        uringload.Reader("/nowhere/at/all")
    with pytest.raises(uringload.InvalidArgumentError):
        uringload.Reader(paths, engine="steam")


def test_an_error_is_the_answer_of_its_request(tmp_path: pathlib.Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"x" * 1_000)
    with uringload.Reader([tmp_path / "a", tmp_path / "b"]) as reader:
        (tmp_path / "a").write_bytes(b"short")
        reader.submit(1, (0, 0, 1_000))
        reader.submit(2, (1, 0, 1_000))
        answers = dict(reader)
    assert isinstance(answers[1], uringload.Error) and answers[1].file == str(tmp_path / "a")
    assert isinstance(answers[2], uringload.Tensor) and answers[2].tobytes() == b"x" * 1_000


def test_spans_of_a_dataset(folder: pathlib.Path) -> None:
    dataset = uringload.Dataset(folder, format="folder")
    with uringload.Reader(dataset) as reader:
        reader.submit(0, (3, 0, reader.size(3)))
        _, data = reader.next() or (None, None)
        with uringload.DataLoader(dataset, 1, output="dlpack", sampler=[3], binary="data") as loader:
            (batch,) = loader
        assert data is not None and data.tobytes() == batch["data"][0]


def test_waits_end(paths: list[pathlib.Path]) -> None:
    with uringload.Reader(paths) as reader:
        assert reader.next(timeout=5.0) is None, "nothing is in flight"

        async def all_of_them() -> list[int]:
            for request in range(30):
                reader.submit(request, wanted(request))
            found = []
            while (answer := await reader.next_async()) is not None:
                found.append(answer[0])
            return found

        assert sorted(asyncio.run(all_of_them())) == list(range(30))


def test_threads_share_a_reader(paths: list[pathlib.Path]) -> None:
    with uringload.Reader(paths) as reader:
        came: list[int] = []

        def work(first: int) -> None:
            for request in range(first, first + 50):
                reader.submit(request, wanted(request))
                answer = reader.next()
                if answer is not None:
                    came.append(answer[0])

        threads = [threading.Thread(target=work, args=(1_000 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        came.extend(request for request, _ in reader)
    assert sorted(came) == sorted(1_000 * number + k for number in range(4) for k in range(50))


def test_a_forked_child_is_told(paths: list[pathlib.Path]) -> None:
    program = """if True:
        import os, sys, uringload
        reader = uringload.Reader(sys.argv[1:])
        reader.submit(1, (0, 0, 10))
        child = os.fork()
        if child == 0:
            try:
                reader.submit(2, (0, 0, 10))
            except uringload.InvalidArgumentError as error:
                assert "forked" in str(error)
                os._exit(0 if reader.read((0, 0, 10)).tobytes() == reader.read((0, 0, 10)).tobytes() else 3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert reader.next()[0] == 1
    """
    found = subprocess.run(
        [sys.executable, "-c", program, *map(os.fspath, paths)], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
