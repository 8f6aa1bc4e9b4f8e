"""maturin, behind one question: is there a Rust compiler?

Without one, maturin would download a toolchain, or fail with a page of Python frames that do not mention Rust. And a
source distribution gets a lock file of its own, because it has fewer crates than the workspace.
"""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
from typing import Any

import maturin

_MISSING = """
uringload is built from source here, and that needs Rust 1.88 or later: `cargo` is not on the path.

help: install a wheel, which needs no compiler: pip install --only-binary :all: uringload (Linux, x86-64 or 64-bit ARM,
      Python 3.10 or later, pip 20.3 or later)
help: or install Rust (https://rustup.rs) and run this command again
"""


def _ask() -> None:
    if shutil.which(os.environ.get("CARGO", "cargo")) is None:
        raise SystemExit(_MISSING)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Nothing beyond what pyproject.toml names. Asked for first, so it is where Rust's absence is told."""
    _ask()
    return []


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """As for a wheel."""
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """As for a wheel: cargo lists the files."""
    return get_requires_for_build_wheel(config_settings)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """maturin's, whose lock file names what the workspace has and this has not: `cargo build --locked` refuses that."""
    name: str = maturin.build_sdist(sdist_directory, config_settings)
    whole = pathlib.Path(sdist_directory) / name
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(whole) as archive:
            archive.extractall(folder, filter="data")
        root = pathlib.Path(folder) / name.removesuffix(".tar.gz")
        # Without --locked, cargo takes out of the lock file what nothing needs, and asks no registry for that.
        command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--offline"]
        subprocess.run(command, cwd=root / "python", check=True, stdout=subprocess.DEVNULL)
        _replace(whole, f"{root.name}/Cargo.lock", (root / "Cargo.lock").read_bytes())
    return name


def _replace(whole: pathlib.Path, name: str, content: bytes) -> None:
    """Puts other bytes into a member of an archive, and leaves the rest, times too, as it is."""
    made = io.BytesIO()
    with (
        tarfile.open(whole) as old,
        gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            data = old.extractfile(member)
            bytes_of = content if member.name == name else data.read() if data else b""
            member.size = len(bytes_of)
            new.addfile(member, io.BytesIO(bytes_of))
    whole.write_bytes(made.getvalue())


build_wheel = maturin.build_wheel
build_editable = maturin.build_editable
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
