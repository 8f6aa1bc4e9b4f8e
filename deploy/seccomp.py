#!/usr/bin/env python3
"""Writes a container engine's default seccomp profile with the three calls of io_uring allowed too.

    deploy/seccomp.py > uringload.json                 # from the profile of this machine's engine (containers-common)
    deploy/seccomp.py default.json > uringload.json    # from Docker's: moby/profiles, seccomp/default.json on GitHub
    docker run --security-opt seccomp=uringload.json ...

Nothing else changes, so the profile goes on denying whatever the engine denies.
"""

import json
import pathlib
import sys

INSTALLED = ("/usr/share/containers/seccomp.json", "/etc/containers/seccomp.json")
CALLS = ["io_uring_enter", "io_uring_register", "io_uring_setup"]


def main() -> None:
    given = sys.argv[1:] or [path for path in INSTALLED if pathlib.Path(path).exists()]
    if not given:
        sys.exit("seccomp.py: no profile is installed here: give Docker's, seccomp/default.json of moby/profiles")
    profile = json.loads(pathlib.Path(given[0]).read_text(encoding="utf-8"))
    for rule in profile["syscalls"]:
        if rule["action"] != "SCMP_ACT_ALLOW":
            rule["names"] = [name for name in rule["names"] if name not in CALLS]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": CALLS, "action": "SCMP_ACT_ALLOW"})
    json.dump(profile, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
