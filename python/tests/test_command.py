"""The script `uringload` of the wheel: the whole command line in Python's process."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time
import zipfile

import pytest

import uringload

SCRIPT = pathlib.Path(sys.executable).parent / "uringload"
# From a checkout without an installed wheel, the same function by name.
COMMAND = (
    [str(SCRIPT)]
    if SCRIPT.exists()
    else [sys.executable, "-c", "import sys; from uringload._command import main; sys.exit(main())"]
)


def run(*arguments: object, **given: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **given
    )


def test_version_is_the_packages() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "uringload")


def test_the_module_is_the_same_command(folder: pathlib.Path) -> None:
    for arguments in (["--version"], ["inspect", folder, "--json"], ["inspect", "/nowhere"], ["--help"]):
        command = [sys.executable, "-m", "uringload", *map(str, arguments)]
        done, script = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False), run(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (script.returncode, script.stdout, script.stderr)


def test_inspect_names_sound_wherever_it_lies(tmp_path: pathlib.Path) -> None:
    wav = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + bytes(200)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.wav").write_bytes(wav)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, value in (("a.txt", b"a word"), ("a.wav", wav)):
            member = tarfile.TarInfo(name)
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))
    for name, how in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", how) as zipped:
            zipped.writestr("a.wav", wav)
    paths = [("folder", "data"), ("a.tar", "wav"), ("stored.zip", "data"), ("deflated.zip", "data")]
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow.parquet

        rows = pyarrow.table({"text": ["a"], "audio": [{"bytes": wav, "path": None}]})
        # As Hugging Face declares it.
        audio = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        pyarrow.parquet.write_table(rows.cast(pyarrow.schema([("text", pyarrow.string()), ("audio", audio)])),
                                    tmp_path / "a.parquet")  # fmt: skip
        paths.append(("a.parquet", "audio"))
    for path, column in paths:
        told = json.loads(run("inspect", tmp_path / path, "--json").stdout)
        contents = {one["name"]: one["content"] for one in told["columns"]}
        assert contents.pop(column) == "WAV audio, not decoded", f"{path}: {told}"
        assert not any(contents.values()), f"{path}: {contents}"


def test_all_output_arrives_although_rusts_main_does_not_end(folder: pathlib.Path) -> None:
    done = run("list", folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(lines)) == (0, 200), done.stderr


def test_exit_codes_are_the_commands(tmp_path: pathlib.Path) -> None:
    assert run("bnch").returncode == 2
    absent = run("inspect", tmp_path / "absent")
    assert (absent.returncode, str(tmp_path / "absent") in absent.stderr) == (1, True)
    assert "Traceback" not in absent.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(folder: pathlib.Path, tmp_path: pathlib.Path, number: signal.Signals) -> None:
    child = subprocess.Popen(
        [*COMMAND, "bench", str(folder), "--duration", "600s", f"--share-stats={tmp_path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    end = time.monotonic() + 120
    while not any(json.loads(page.read_text())["batches"] for page in tmp_path.glob("*.json")):
        assert child.poll() is None and time.monotonic() < end, child.communicate()
        time.sleep(0.01)
    child.send_signal(number)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130, told
    assert "Traceback" not in told


def test_a_closed_pipe_is_told_by_its_exit_code(folder: pathlib.Path) -> None:
    shell = f"{' '.join(repr(part) for part in COMMAND)} list {folder} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=True)
    # 200 lines fit into a pipe, so that the writer may have ended before its reader.
    assert done.stdout.splitlines()[-1] in ("0", "141")
    assert done.stderr == ""


def test_building_without_rust_says_so() -> None:
    pytest.importorskip("maturin")
    done = subprocess.run(
        [sys.executable, "-c", "import build_backend; build_backend.get_requires_for_build_wheel()"],
        cwd=pathlib.Path(__file__).resolve().parents[1],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "needs Rust 1.88" in done.stderr, "Traceback" in done.stderr) == (1, True, False)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_packing_of_lists_without_lengths_after_one_pack(tmp_path: pathlib.Path, kind: str) -> None:
    pytest.importorskip("numpy")
    lists = [[1, 2, 3, 4, 5], [6, 7, 8], [*range(300)], [9]]
    source, packed = tmp_path / f"0.{kind}", tmp_path / "packed"
    if kind == "jsonl":
        source.write_text("".join(json.dumps({"id": 1, "tokens": tokens}) + "\n" for tokens in lists))
    else:
        pa = pytest.importorskip("pyarrow", reason="skipped: pyarrow is not installed")
        table = pa.table({"id": [1] * 4, "tokens": pa.array(lists, pa.list_(pa.int64()))})
        if kind == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, source)
        else:
            pytest.importorskip("pyarrow.feather").write_feather(table, source)
    given = {"batch_size": 1, "packing": "first_fit", "seq_len": 8, "output": "numpy"}
    with pytest.raises(uringload.InvalidArgumentError, match="DST --layout mds --columns tokens"):
        next(iter(uringload.DataLoader(source, columns=["tokens"], **given)))
    done = run("pack", source, packed, *"--layout mds --columns tokens".split())
    assert done.returncode == 0, done.stderr
    assert uringload.Dataset(packed).columns == {"tokens": ("i64", None)}
    with uringload.DataLoader(packed, **given) as loader:
        rows = [row for batch in loader for row in batch["tokens"].values.tolist()]
    assert rows[0] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sorted(sum(rows[1:], [])) == sorted([*range(300), 9] + [0] * (8 * len(rows) - 309))
