#!/usr/bin/env bash
# Fuzzes every target for a while, as many at once as there are processors. Ends with an error if an input breaks
# something; such inputs are kept in fuzz/artifacts.
#
# usage: fuzz/run.sh [SECONDS] [TARGET...]
#
# What is found on the way is kept in $FUZZ_CORPUS (target/corpus where it is not set), a folder for each target: the
# next run begins there. The small files in fuzz/corpus are where the first one begins.
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
for target in "${targets[@]}"; do cargo fuzz build "$target"; done
fuzz() {
    echo "fuzz: $2 for $1 s"
    mkdir -p "${FUZZ_CORPUS:-target/corpus}/$2" "artifacts/$2" "corpus/$2"
    # New inputs go to the first folder. An input may take only a few seconds and half a GiB.
    nice -n 10 "$(echo target/*/release/"$2")" "${FUZZ_CORPUS:-target/corpus}/$2" "corpus/$2" \
        -artifact_prefix="artifacts/$2/" -max_total_time="$1" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 \
        -max_len=65536 -print_final_stats=1 -verbosity=0
}
export -f fuzz
# The last sign of a target that fails is its own; the others go on.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c "fuzz $seconds {}"
