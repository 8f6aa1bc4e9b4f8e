"""Defaults from the environment: what is given comes first, then a variable, then a profile."""

from __future__ import annotations

import pathlib
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from conftest import needs_numpy, of_records

import uringload
from uringload import DataLoader, _settings

pytestmark = needs_numpy


@pytest.fixture
def profile(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "profile.toml"
    path.write_text('version = 1\nmemory_limit = "128MiB"\nnum_threads = 2\n')
    return path


def reads_with(records: pathlib.Path, **given: Any) -> tuple[int, int | None]:
    """The memory limit and the threads that a loader has."""
    with DataLoader(**of_records(records, **given)) as loader:
        list(loader)
        assert loader._native is not None
        return loader._native.memory_limit, loader._options["num_threads"]


def test_what_is_given_comes_before_a_variable(
    records: pathlib.Path, profile: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = reads_with(records)
    for name in ("MEMORY_LIMIT", "NUM_THREADS", "PROFILE", "LOG"):
        monkeypatch.setenv(f"URINGLOAD_{name}", "")
    assert reads_with(records) == default, "an empty variable counts as unset"
    monkeypatch.setenv("URINGLOAD_MEMORY_LIMIT", "64MiB")
    monkeypatch.setenv("URINGLOAD_NUM_THREADS", "3")
    assert reads_with(records) == (64 << 20, 3)
    assert reads_with(records, profile=profile) == (64 << 20, 3), "the environment comes before a profile"
    assert reads_with(records, memory_limit="96MiB", num_threads=0) == (96 << 20, 0)
    assert reads_with(records, num_workers=1) == (64 << 20, 1)
    copy = pickle.loads(pickle.dumps(DataLoader(**of_records(records))))
    list(copy)
    assert copy._native.memory_limit == 64 << 20
    monkeypatch.delenv("URINGLOAD_NUM_THREADS")
    monkeypatch.setenv("URINGLOAD_PROFILE", str(profile))
    assert reads_with(records) == (64 << 20, 2)
    report = uringload.bench(records, record_bytes=256, batch_size=32, raw=False)
    assert report["pool_bytes"] == 64 << 20, "functions that measure have them too"


@pytest.mark.parametrize(
    ("name", "value"),
    [("URINGLOAD_NUM_THREADS", "-1"), ("URINGLOAD_NUM_THREADS", "two"), ("URINGLOAD_MEMORY_LIMIT", "lots"),
     ("URINGLOAD_PROFILE", "/no/such.toml"), ("URINGLOAD_LOG", "loud")],
)  # fmt: skip
def test_a_bad_variable_is_named(
    records: pathlib.Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(uringload.InvalidArgumentError, match=f"the variable {name}.*{value}") as error:
        DataLoader(**of_records(records))
    assert error.value.remedy


def test_the_log_is_shown_from_its_level_on(records: pathlib.Path) -> None:
    script = """
        import logging, sys, uringload

        if sys.argv[2] == "own":
            logging.basicConfig(format="own %(levelname)s %(message)s")
        with uringload.DataLoader([0, 1, 2, 3], 2, output="numpy") as loader:
            list(loader)
        with uringload.DataLoader([0, 1, 2, 3], 2, output="numpy") as loader:
            list(loader)
    """.replace("[0, 1, 2, 3]", "type('Four', (), {'__len__': lambda self: 4, '__getitem__': lambda self, i: i})()")
    for level, handler, line in (
        ("info", "", "uringload: a __main__.Four is asked"), ("INFO", "own", "own INFO a __main__.Four is asked"),
        ("warning", "", ""), ("", "", ""),
    ):  # fmt: skip
        command = [sys.executable, "-c", textwrap.dedent(script), str(records), handler]
        done = subprocess.run(command, env={"URINGLOAD_LOG": level, "PYTHONPATH": ":".join(sys.path)}, text=True,
                              capture_output=True, timeout=60, check=True)  # fmt: skip
        told = [one for one in done.stderr.splitlines() if "is asked" in one]
        assert len(told) == (2 if line else 0) and all(one.startswith(line) for one in told), done.stderr


def test_doctor_knows_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line has the same ones."""
    names = [variable for variable, _ in _settings.VARIABLES.values()]
    names += [_settings.LOG_VARIABLE, _settings.SHARE_VARIABLE]
    values = {"URINGLOAD_NUM_THREADS": "2", "URINGLOAD_MEMORY_LIMIT": "1GiB", "URINGLOAD_PROFILE": "/no/such.toml"}
    for name in names:
        monkeypatch.setenv(name, values.get(name, "1"))
    main = "import sys; from uringload._command import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", main, "doctor"], capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    for name in names:
        assert f"{name}={values.get(name, '1')}" in done.stdout, done.stdout
    assert "the variable URINGLOAD_PROFILE" in done.stdout
