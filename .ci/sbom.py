#!/usr/bin/env python3
"""A software bill of materials of what a release links: CycloneDX 1.5 as JSON, to stdout. `.ci/sbom.py`.

Its parts are the crates of the command, the wheel and the C library, each with its version, licence and the checksum
that Cargo.lock has; libjpeg-turbo's C code comes within `turbojpeg-sys`, and zstd's within `zstd-sys`. No time and no
random number is in it, so the same commit gives the same bytes.
"""

import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("uringload-cli", "uringload-capi", "uringload-python")
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def linked(metadata):
    """The packages that the linked ones need at run time or to be built, by their id, and what each depends on."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wanted = [package["id"] for package in metadata["packages"] if package["name"] in LINKED]
    needs = {}
    while wanted:
        one = wanted.pop()
        if one in needs:
            continue
        kinds = lambda dependency: {kind["kind"] for kind in dependency["dep_kinds"]}
        needs[one] = sorted(each["pkg"] for each in nodes[one]["deps"] if kinds(each) & {None, "build"})
        wanted += needs[one]
    return needs


def main():
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--features", "uringload-cli/turbojpeg-vendored",
               "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    sums = {(each["name"], each["version"]): each.get("checksum") for each in lock["package"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = linked(metadata)
    reference = lambda of: f"pkg:cargo/{packages[of]['name']}@{packages[of]['version']}"
    components = []
    for of in sorted(needs, key=reference):
        package = packages[of]
        component = {"type": "library", "bom-ref": reference(of), "name": package["name"],
                     "version": package["version"], "purl": reference(of)}
        if package.get("license"):
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := sums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        elif package["source"] == REGISTRY:
            sys.exit(f"sbom.py: Cargo.lock has no checksum of {reference(of)}")
        components.append(component)
    version = next(package["version"] for package in metadata["packages"] if package["name"] == "uringload")
    json.dump({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "metadata": {"component": {"type": "application", "bom-ref": "uringload", "name": "uringload",
                                   "version": version, "licenses": [{"expression": "MIT OR Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": reference(of), "dependsOn": [reference(each) for each in needs[of]]}
                         for of in sorted(needs, key=reference)],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
