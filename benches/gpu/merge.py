"""Puts together what the steps of benches/gpu.sh told: a table that says what was promised, and one file of JSON."""

import json
import os

WORKS = ("small", "records", "large")
# Of PyTorch's and of KvikIO's rate on the same files.
LEAST_OF = {"pytorch": 3.0, "kvikio": 1.0}
NAMES = {"pytorch": "PyTorch DataLoader", "kvikio": "KvikIO"}
# Characters of a cell of the table: an error may be longer than a screen is wide.
CELL = 80


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def replace(path, text):
    """Writes a file that is there whole at any time: whoever writes it may be killed."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(file.name, path)


def gb(rate):
    return f"{rate / 1e9:.2f} GB/s"


def cut(cell):
    return cell if len(cell) <= CELL else cell[:CELL - 3] + "..."


def against(suite, peers):
    """Lines about the peers: what, measured, promised, verdict."""
    if "skipped" in peers:
        return [["peers", peers["skipped"], "", "skipped"]], {}
    lines, ratios = [], {}
    copies = peers.get("copies")
    if copies:
        fastest = max(copies["pinned_bytes_per_s"].values())
        lines.append(["PyTorch's pinned copies; copy within the device",
                      f"{gb(fastest)}; {gb(copies['within_bytes_per_s'])}", "", ""])
        peak = suite.get("h2d", {}).get("peak_bytes_per_s")
        if peak:
            ratios["h2d/torch"] = ratio = peak / fastest
            lines.append(["H2D peak, of PyTorch's", f"{gb(peak)} = {ratio:.3f}", ">= 0.98",
                          "reached" if ratio >= 0.98 else "MISSED"])
    for work in WORKS:
        ours = suite.get("works", {}).get(work, {}).get("gpu", {}).get("bytes_per_s")
        for peer, run in peers.get(work, {}).items():
            least = LEAST_OF[peer]
            what = f"{work}: of {NAMES[peer]}'s rate"
            if ours is None or "bytes_per_s" not in run:
                lines.append([what, run.get("skipped", "not measured"), f">= {least:.1f}", "skipped"])
                continue
            ratio = ours / run["bytes_per_s"]
            ratios[f"{work}/{peer}"] = ratio
            theirs = gb(run["bytes_per_s"]) + (f", {run['workers']} workers" if "workers" in run else "")
            lines.append([what, f"{gb(ours)} to {theirs} = {ratio:.2f}", f">= {least:.1f}",
                          "reached" if ratio >= least else "MISSED"])
    photographs = peers.get("photographs", {})
    runs = sorted(photographs.get("runs", {}).items(), key=lambda run: run[1]["images_per_s"])
    ours, theirs = ([run for run in runs if run[0].startswith("ours") == is_ours] for is_ours in (True, False))
    for name, run in runs:
        cpu = f", {run['cpu_us']:.0f} us of CPU each" if name.startswith("ours") else ""
        lines.append([f"photographs: {name}", f"{run['images_per_s']:.0f} images/s{cpu}", "", ""])
    if ours and theirs:
        (_, best), (name, other) = ours[-1], theirs[-1]
        ratios["photographs/torchvision"] = ratio = best["images_per_s"] / other["images_per_s"]
        lines.append([f"photographs: best of ours, of torchvision's ({name})", f"{ratio:.2f}", "", ""])
    alone = photographs.get("decode_jpeg_per_s")
    engine = suite.get("jpeg", {}).get("resident_per_s", [None])[0]
    if alone and engine:
        ratios["jpeg/decode_jpeg"] = ratio = engine / alone
        measured = f"{engine:.0f} to {alone:.0f} images/s = {ratio:.2f}"
        lines.append(["nvJPEG with a crop, one thread, of torchvision's decode_jpeg", measured, ">= 0.9",
                      "reached" if ratio >= 0.9 else "MISSED"])
    elif "skipped" in photographs:
        lines.append(["photographs: images/s, of torchvision's", photographs["skipped"], "", "skipped"])
    return lines, ratios


# The checks of benches/gpu/torch_device.py that measure something: a label, the figure's name in the check's result,
# and what is promised of it.
FIGURES = {
    "backlog": [("a loader's rate beside a backlog of the default stream, of that alone", "of_alone", 0.75)],
    "busy": [("GPU busy with steps of 1.5 times a batch's load, on the default stream", "busy", 0.99)],
    "beside": [("gemm's rate beside a loader, of that alone", "gemm", 0.98),
               ("a copy's rate beside a loader, of that alone", "bandwidth", 0.98)],
    "training": [("a training loop, times as fast as DataLoader", "times_as_fast", None)],
}


def with_torch(told):
    """Lines about the Python package on the GPU."""
    if "skipped" in told:
        return [["Python with torch", told["skipped"], "", "skipped"]]
    lines = []
    for check in told.get("checks", []):
        run = told.get(check)
        if run is None:
            lines.append([f"torch: {check}", "no time left", "", "skipped"])
        elif not run["passed"]:
            lines.append([f"torch: {check}", run["error"], "", "FAILED"])
        elif "skipped" in run:
            lines.append([f"torch: {check}", run["skipped"], "", "skipped"])
        elif check not in FIGURES:
            lines.append([f"torch: {check}", "right", "", ""])
        else:
            for what, number, least in FIGURES[check]:
                reached = "" if least is None else "reached" if run[number] >= least else "MISSED"
                lines.append([f"torch: {what}", f"{run[number]:.4f}", f">= {least}" if least else "", reached])
    return lines


def write(scratch, out, ran):
    """Writes results.json and table.txt of what is in `scratch`, and of the steps: (name, status, seconds) of each."""
    suite, peers, python = (load(os.path.join(scratch, f"{name}.json")) for name in ("suite", "peers", "torch"))
    lines, ratios = against(suite, peers)
    all_lines = [[f"step {name}", f"{seconds:.0f} s", "", status] for name, status, seconds in ran]
    all_lines += suite.get("table", []) + with_torch(python) + lines
    all_lines = [[cut(cell) for cell in line] for line in all_lines]
    # There is no line while the first step runs.
    widths = [max((len(line[column]) for line in all_lines), default=0) for column in range(3)]
    text = "".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[3]]).rstrip() + "\n"
                   for line in all_lines)
    if suite.get("is_mock"):
        text = "A MOCK OF THE DRIVER: NO NUMBER MEANS ANYTHING\n" + text
    told = [{"name": name, "status": status, "seconds": seconds} for name, status, seconds in ran]
    all_told = {"version": 2, "steps": told, "suite": suite, "peers": peers, "torch": python, "ratios": ratios}
    replace(os.path.join(out, "results.json"), json.dumps(all_told, indent=1))
    replace(os.path.join(out, "table.txt"), text)
