"""maturin, behind one question: is there a Rust compiler?

Without one, maturin would download a toolchain, or fail with a page of Python frames that do not mention Rust.
"""

from __future__ import annotations

import os
import shutil
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


build_wheel = maturin.build_wheel
build_editable = maturin.build_editable
build_sdist = maturin.build_sdist
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
