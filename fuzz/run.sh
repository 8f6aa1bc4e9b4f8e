#!/usr/bin/env bash
# Fuzzes every target for a while. Stops with an error at the first input that breaks something, and keeps that input in
# fuzz/artifacts.
#
# usage: fuzz/run.sh [SECONDS] [TARGET...]
#
# Installs cargo-fuzz if it is missing. Unstable compiler features (sanitizers) need RUSTC_BOOTSTRAP.
set -euo pipefail
cd "$(dirname "$0")"
export RUSTC_BOOTSTRAP=1
seconds=${1:-60}
shift || true
# Each process leaves a folder behind.
if [ -d /dev/shm ]; then TMPDIR=$(mktemp -d -p /dev/shm); else TMPDIR=$(mktemp -d); fi
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo fuzz list)
for target in "${targets[@]}"; do
    echo "fuzz: $target for $seconds s"
    # New inputs go to the first folder, which is not kept. An input may take only a few seconds and half a GiB.
    mkdir -p "target/corpus/$target"
    cargo fuzz run "$target" "target/corpus/$target" "corpus/$target" -- -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=1024 -malloc_limit_mb=512 -max_len=65536 -print_final_stats=1 -verbosity=0
done
