#!/usr/bin/env python3
"""A wheel of an extension module that is built already: `.ci/wheel.py LIBRARY OUT`.

maturin asks cargo for other features than the tests do, so that all would be compiled twice. What maturin makes of
pyproject.toml, `python/wheel.sh` tests; the layout is that of the binary distribution format (PyPA's specification).
"""

import base64
import hashlib
import platform
import sys
import zipfile
from pathlib import Path

try:
    import tomllib
except ImportError:  # Before Python 3.11; pytest brings this along there.
    import tomli as tomllib

PYTHON = Path(__file__).resolve().parent.parent / "python"


def main(library, out):
    with open(PYTHON / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    with open(PYTHON.parent / "Cargo.toml", "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    info = f"{project['name']}-{version}.dist-info"
    files = {str(path.relative_to(PYTHON / "lib")): path.read_bytes() for path in sorted((PYTHON / "lib").rglob("*"))
             if path.is_file() and path.suffix in (".py", ".pyi", ".typed")}
    files["uringload/_uringload.abi3.so"] = Path(library).read_bytes()
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n".encode()
    tag = f"cp310-abi3-linux_{platform.machine()}"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: ci\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    rows = [f"{name},sha256={digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    Path(out).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(out) / f"{project['name']}-{version}-{tag}.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


main(*sys.argv[1:])
