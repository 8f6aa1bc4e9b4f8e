#!/usr/bin/env python3
"""Puts together what benches/gpu.sh measured: a table that says what was promised, and one file of JSON.

usage: benches/gpu/merge.py SCRATCH OUT

SCRATCH has suite.json, peers.json, torch.json and steps.tsv (name, exit status, seconds), as far as they came about.
"""

import json
import os
import sys

WORKS = ("small", "records", "large")
# Of PyTorch's and of KvikIO's rate on the same files.
LEAST_OF = {"pytorch": 3.0, "kvikio": 1.0}
NAMES = {"pytorch": "PyTorch DataLoader", "kvikio": "KvikIO"}


def load(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def steps(folder):
    try:
        with open(os.path.join(folder, "steps.tsv"), encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
    except OSError:
        return []
    return [{"name": name, "status": status, "seconds": int(seconds)} for name, status, seconds in rows]


def gb(rate):
    return f"{rate / 1e9:.2f} GB/s"


def against(suite, peers):
    """Lines about the peers: what, measured, promised, verdict."""
    if "skipped" in peers or not peers:
        return [["peers", peers.get("skipped", "not measured"), "", "skipped"]], {}
    lines, ratios = [], {}
    copies = peers.get("copies")
    if copies:
        fastest = max(copies["pinned_bytes_per_s"].values())
        lines.append(["PyTorch's pinned copies; copy within the device",
                      f"{gb(fastest)}; {gb(copies['within_bytes_per_s'])}", "", ""])
    for work in WORKS:
        ours = suite.get("works", {}).get(work, {}).get("gpu", {}).get("bytes_per_s")
        for peer, least in LEAST_OF.items():
            run = peers.get(work, {}).get(peer, {})
            what = f"{work}: of {NAMES[peer]}'s rate"
            if ours is None or "bytes_per_s" not in run:
                lines.append([what, run.get("skipped", "not measured"), f">= {least:.1f}", "skipped"])
                continue
            ratio = ours / run["bytes_per_s"]
            ratios[f"{work}/{peer}"] = ratio
            theirs = gb(run["bytes_per_s"]) + (f", {run['workers']} workers" if "workers" in run else "")
            lines.append([what, f"{gb(ours)} to {theirs} = {ratio:.2f}", f">= {least:.1f}",
                          "reached" if ratio >= least else "MISSED"])
    return lines, ratios


# What benches/gpu/torch_device.py checks, and what is promised of it: a number's name, its least or its most.
CHECKS = ("streams", "dlpack", "backward", "graph", "pinned", "training", "beside")


def with_torch(told):
    """Lines about the Python package on the GPU."""
    if "skipped" in told or not told:
        return [["Python with torch", told.get("skipped", "not measured"), "", "skipped"]]
    lines = []
    for check in CHECKS:
        run = told.get(check)
        if run is None:
            lines.append([f"torch: {check}", "no time left", "", "skipped"])
        elif not run["passed"]:
            lines.append([f"torch: {check}", run["error"], "", "FAILED"])
        elif check == "training":
            lines.append(["torch: a training loop, times as fast as DataLoader", f"{run['times_as_fast']:.2f}", "", ""])
        elif check == "beside":
            for work in ("gemm", "bandwidth"):
                slower = run[work]["slower"]
                lines.append([f"torch: {work} slower beside a loader", f"{slower * 100:.2f} %", "<= 2 %",
                              "reached" if slower <= 0.02 else "MISSED"])
        else:
            lines.append([f"torch: {check}", "right", "", ""])
    return lines


def main():
    scratch, out = sys.argv[1:]
    suite, peers, ran = load(scratch, "suite.json"), load(scratch, "peers.json"), steps(scratch)
    python = load(scratch, "torch.json")
    lines, ratios = against(suite, peers)
    all_lines = [[f"step {step['name']}", f"{step['seconds']} s", "", step["status"]] for step in ran]
    all_lines += [list(line) for line in suite.get("table", [["suite", "not measured", "", "skipped"]])]
    all_lines += lines + with_torch(python)
    widths = [max(len(line[column]) for line in all_lines) for column in range(3)]
    text = "".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[3]]).rstrip() + "\n"
                   for line in all_lines)
    if suite.get("is_mock"):
        text = "A MOCK OF THE DRIVER: NO NUMBER MEANS ANYTHING\n" + text
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"version": 1, "steps": ran, "suite": suite, "peers": peers, "torch": python,
                   "ratios": ratios}, file, indent=1)
    with open(os.path.join(out, "table.txt"), "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
