#!/usr/bin/env python3
"""The licences of all that the command, the wheel and the C library are linked with: `.ci/licenses.py --write|--check`.

They stand in cli/licenses.txt, which `uringload licenses` prints and a wheel carries. A text that several crates share
stands there once. Of a choice, MIT is taken where it is one.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "cli/licenses.txt"
FEATURES = ["remote", "turbojpeg-vendored"]
LINKED = ["uringload-cli", "uringload-capi", "uringload-python"]
# For which text a file stands, best first.
PREFERRED = ("MIT", "ISC", "ZLIB", "BSD", "LICENSE", "COPYING", "APACHE")
# What is more in a crate than its own code.
WITHIN = {"turbojpeg-sys": "libjpeg-turbo/LICENSE.md", "zstd-sys": "zstd/LICENSE"}
INTRODUCTION = """\
uringload is licensed under MIT or Apache-2.0, at your option. The command, the wheels and the C library are linked with
what follows, each under the terms that stand below it. libjpeg-turbo is there only where it is built in
(`turbojpeg-vendored`, as in wheels); this software is then based in part on the work of the Independent JPEG Group.
"""
MIT = """\
MIT License

Copyright (c) {authors}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked():
    """The crates of the registry that end up in what is handed on, as (name, version)."""
    tree = cargo("tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}",
                 "--features", ",".join(f"{name}/{feature}" for name in LINKED for feature in FEATURES),
                 *(word for name in LINKED for word in ("-p", name)))
    lines = {line.removesuffix(" (*)") for line in tree.splitlines()}
    return {tuple(line.split(" v")) for line in lines if line and "(" not in line}


def texts(package, siblings):
    """The licences of a crate, and of what is more in it than its own code."""
    found = own_texts(package, siblings)
    if package["name"] in WITHIN:
        found.append((Path(package["manifest_path"]).parent / WITHIN[package["name"]]).read_text(encoding="utf-8"))
    return found


def own_texts(package, siblings):
    """The licence of a crate: one text, or all where its expression says AND."""
    folder = Path(package["manifest_path"]).parent
    names = [path.name for path in folder.iterdir() if re.match(r"(?i)(un)?licen[sc]e|copying", path.name)]
    if names == ["LICENSES"]:
        folder /= "LICENSES"
        names = [path.name for path in folder.iterdir()]
    if not names:
        same = [one for one in siblings if one["repository"] == package["repository"] and one is not package]
        for other in same:
            if found := own_texts(other, []):
                return found
        if "MIT" in (package["license"] or ""):
            return [MIT.format(authors=", ".join(package["authors"]) or f"the authors of {package['name']}")]
        if not siblings:
            return []
        sys.exit(f"licenses: {package['name']} has no licence file, and {package['license']} no text here")
    rank = {name: next((place for place, word in enumerate(PREFERRED) if word in name.upper()), 99) for name in names}
    chosen = sorted(names, key=lambda name: (rank[name], name))
    if " AND " not in (package["license"] or ""):
        chosen = chosen[:1]
    return [(folder / name).read_text(encoding="utf-8", errors="replace") for name in chosen]


def whole():
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--all-features"))["packages"]
    wanted = linked()
    chosen = [one for one in packages if (one["name"], one["version"]) in wanted]
    if len(chosen) != len(wanted):
        sys.exit(f"licenses: of {len(wanted)} crates, cargo metadata names {len(chosen)}")
    shared = {}
    for package in sorted(chosen, key=lambda one: (one["name"], one["version"])):
        for text in texts(package, packages):
            text = "\n".join(line.rstrip() for line in text.strip().splitlines())
            shared.setdefault(" ".join(text.split()), (text, []))[1].append(f"{package['name']} {package['version']}")
    line = "=" * 100
    parts = [f"{line}\n{', '.join(names)}\n{line}\n\n{text}\n" for text, names in shared.values()]
    return "\n".join([INTRODUCTION, *parts])


def main(mode):
    text = whole()
    if mode == "--write":
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        sys.exit("cli/licenses.txt is not of what Cargo.lock names: run `.ci/licenses.py --write`")
    print(f"cli/licenses.txt: {len(text)} bytes")


main(sys.argv[1] if len(sys.argv) > 1 else "--check")
