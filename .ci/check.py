"""Checks of .ci/run that read JSON: `msrv` (cargo metadata on stdin) and `bench FILE` (what `bench --json` wrote)."""

import json
import sys

BENCH_KEYS = {
    "version": int, "dataset": dict, "samples_per_s": float, "bytes_per_s": float, "wall_s": float, "cpu_s": float,
    "cpu_s_per_gb": float, "peak_rss_bytes": int, "first_batch_ms": float, "batch_wait_ms": dict,
    "read_latency_us": dict, "read_amplification": float, "raw_read_bytes_per_s": float, "raw_read": dict,
    "route": dict, "verdict": dict, "comparisons": list,
}


def version(text):
    return tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])


def msrv():
    packages = json.load(sys.stdin)["packages"]
    ours = next(package["rust_version"] for package in packages if package["name"] == "uringload")
    newer = [f"{package['name']} {package['version']} wants {package['rust_version']}" for package in packages
             if package["rust_version"] and version(package["rust_version"]) > version(ours)]
    print(f"rust-version {ours}: {len(packages)} packages looked at")
    if newer:
        sys.exit("newer than that:\n  " + "\n  ".join(newer))


def bench(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    wrong = []
    for key, kind in BENCH_KEYS.items():
        allowed = (int, float) if kind is float else kind
        if not isinstance(result.get(key), allowed):
            wrong.append(f"{key} is {result.get(key, 'absent')!r}")
    # A yardstick that was disturbed gives no share.
    share, disturbed = result.get("share_of_raw", "absent"), (result.get("raw_read") or {}).get("disturbed")
    if not (isinstance(share, (int, float)) and share <= 1.05 or share is None and disturbed):
        wrong.append(f"share_of_raw is {share!r}, disturbed {disturbed!r}")
    if "au_percent" not in result:
        wrong.append("au_percent is absent")
    if wrong:
        sys.exit("bench --json: " + "; ".join(wrong))
    print(f"bench --json: version {result['version']}, {len(result)} keys, {result['dataset']['samples']} samples")


if __name__ == "__main__":
    msrv() if sys.argv[1] == "msrv" else bench(sys.argv[2])
