#!/usr/bin/env bash
# The GPU suite: one command, below 560 seconds, on a machine with a GPU and without Rust.
#
# usage: benches/gpu.sh pack          here: builds what is needed, stripped, into gpu-kit/ (not in git): the binaries, the
#                                     Python wheel, KvikIO's wheels and nvJPEG's; below 50 MB with the repository's
#                                     files
#        benches/gpu.sh [run] [OUT]   there: runs it from the repository's root; OUT is $OUT or gpu-out/
#
# The steps. Each has a time limit of its own, so that a hung step costs only its own time:
#
#   tests      tests/gpu.rs: kernels against their host twins, device loaders against host loaders, consumers
#   suite      benches/gpu: copies, kernels, JPEGs, disk to GPU, overlap; figures by the device's own events
#   torch      the Python wheel with the PyTorch that is installed: streams, DLPack, a captured graph, a training loop
#   peers      PyTorch's DataLoader, KvikIO's best of several settings, plain pinned copies; on the same files
#   memcheck   compute-sanitizer over the kernels, where it is installed
#   racecheck  likewise
#   ncu        Nsight Compute on one kernel, where it is installed
#
# OUT gets table.txt (printed last), results.json and logs.tar.gz with a log of each step. The status is 1 if a
# step failed; a missed target is shown in the table and is no failure. Without a GPU every step says so and the status
# is 0; but where nvidia-smi shows one, not to open it is a failure. If io_uring is missing, the loaders take another route, which results.json names.
#
# From the environment: GPU_DATA, a folder for 9 GB of files (else one below /var/tmp, removed at the end); GPU_SECONDS,
# time for everything (550); GPU_KIT, the folder of the binaries; GPU_SUITE_OPTIONS and GPU_PEERS_OPTIONS, more options
# for these two steps (--tiny --mock and --device cpu, to try this script).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
exec </dev/null

readonly KIT=${GPU_KIT:-gpu-kit}
# 50 MB, with the files that git knows.
readonly KIT_LIMIT_KIB=$((50 * 1000 * 1000 / 1024))
readonly KVIKIO=(kvikio-cu13 libkvikio-cu13 rapids-logger)
readonly NVJPEG=nvidia-nvjpeg

# Builds all at once, so that nothing is built twice, and prints the name, kind and path of each executable's target.
executables() {
    cargo build --release --locked --quiet --message-format=json --test gpu --bench gpu --bin uringload | python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable"):
        target = message["target"]
        print(target["kind"][0], target["name"], message["executable"])'
}

pack() {
    local kind name made
    mkdir -p "$KIT" || return 1
    rm -rf "${KIT:?}"/*
    while read -r kind name made; do
        case $kind:$name in
        test:gpu) strip -o "$KIT/tests" "$made" ;;
        bench:gpu) strip -o "$KIT/suite" "$made" ;;
        bin:uringload) strip -o "$KIT/uringload" "$made" ;;
        esac
    done < <(executables)
    for name in tests suite uringload; do
        [ -x "$KIT/$name" ] || { echo "gpu.sh: $name was not built" >&2; return 1; }
    done
    wheels
    {
        echo "commit $(git rev-parse HEAD), $(git status --porcelain -uno | wc -l) changed files"
        rustc --version
        echo "newest symbols: $(cat "$KIT"/tests "$KIT"/suite "$KIT"/uringload | grep -ao 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1)"
    } >"$KIT/made-from.txt"
    cat "$KIT/made-from.txt"
    # To two fifths of what they are.
    gzip -9 "$KIT"/tests "$KIT"/suite "$KIT"/uringload || return 1
    du -sh "$KIT"
    [ $(($(du -sk "$KIT" | cut -f1) + $(git ls-files -z | du -ck --files0-from=- | tail -n 1 | cut -f1))) -lt \
        "$KIT_LIMIT_KIB" ] || { echo "gpu.sh: the kit is too large" >&2; return 1; }
}

# The wheels: what is not to be had is said, and its step is skipped there.
wheels() {
    mkdir -p "$KIT/wheels"
    python3 -m maturin build --quiet --release --locked --strip --manifest-path python/Cargo.toml --out "$KIT/wheels" ||
        echo "gpu.sh: no wheel of ours (pip install maturin): the step torch will be skipped" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_24_x86_64 --dest "$KIT/wheels" "${KVIKIO[@]}" ||
        echo "gpu.sh: no wheels of KvikIO: its rows will be skipped" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --platform manylinux2014_x86_64 --dest "$KIT/wheels" "$NVJPEG" ||
        echo "gpu.sh: no wheel of nvJPEG: its rows are skipped where the machine has none" >&2
}

# Puts the kit's binaries where they can be run.
unpack() {
    local name
    mkdir -p "$BIN" || return 1
    for name in tests suite uringload; do
        gunzip -c "$KIT/$name.gz" >"$BIN/$name" && chmod +x "$BIN/$name" || return 1
    done
}

# Puts the kit's wheels where Python finds them, without a network.
install_wheels() {
    python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
        --target "$SCRATCH/site" "$KIT"/wheels/*.whl || echo "skipped: the wheels cannot be installed here"
    ls "$SCRATCH/site" 2>/dev/null
}

# ncu on the kernel that cuts and scales images, the slowest of ours by instructions.
profiled() {
    if ! command -v ncu >/dev/null; then
        echo "skipped: no ncu here"
        return 0
    fi
    ncu --clock-control none --set basic --launch-count 3 --kernel-name regex:ur_images \
        "$BIN/suite" --dir "$DATA" --seconds 20 --only kernels
}

# step NAME SECONDS COMMAND...: its output goes to OUT/NAME.log.
step() {
    local name=$1 limit=$2 begin=$SECONDS left=$((END - SECONDS)) status
    shift 2
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        echo "skipped: no time was left" >"$OUT_DIR/$name.log"
        printf '%s\tno time left\t0\n' "$name" >>"$SCRATCH/steps.tsv"
        ALL_WELL=1
        return
    fi
    echo "gpu.sh: $name, $limit s at most" >&2
    timeout --kill-after=5 "$limit" "$@" >"$OUT_DIR/$name.log" 2>&1
    status=$?
    case $status in
    0) status=ok ;;
    124 | 137) status="out of time" ALL_WELL=1 ;;
    *) status="FAILED ($status)" ALL_WELL=1 ;;
    esac
    grep -aq '^skipped' "$OUT_DIR/$name.log" && [ "$status" = ok ] && status="ok, with skips"
    printf '%s\t%s\t%s\n' "$name" "$status" $((SECONDS - begin)) >>"$SCRATCH/steps.tsv"
}

# sanitized TOOL CASES: the kernels' tests under compute-sanitizer. It exits with 9 if it finds something.
sanitized() {
    if ! command -v compute-sanitizer >/dev/null; then
        echo "skipped: no compute-sanitizer here"
        return 0
    fi
    URINGLOAD_GPU_CASES=$2 compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all \
        "$BIN/tests" kernels:: pictures:: --test-threads 1 --nocapture
}

machine() {
    cat "$KIT/made-from.txt"
    uname -a
    nproc
    free -g
    df -hT "$DATA"
    for command in "nvidia-smi" "nvidia-smi topo -m" "nvidia-smi -q -d PCIE,CLOCK" "lscpu" "lsblk -o NAME,MODEL,SIZE,ROTA,SCHED" \
        "$BIN/uringload doctor"; do
        echo "== $command"
        timeout 15 $command 2>&1 || true
    done
}

cleanup() {
    rm -rf "$SCRATCH"
    [ -n "${GPU_DATA:-}" ] || rm -rf "$DATA"
}

run() {
    OUT_DIR=${1:-${OUT:-gpu-out}}
    mkdir -p "$OUT_DIR" || return 1
    [ -f "$KIT/tests.gz" ] || { echo "gpu.sh: $KIT has no binaries: run benches/gpu.sh pack where Rust is" >&2; return 1; }
    SCRATCH=$(mktemp -d) || return 1
    BIN=$SCRATCH/bin
    DATA=${GPU_DATA:-$(mktemp -d /var/tmp/uringload-gpu.XXXXXX)} || return 1
    mkdir -p "$DATA"
    trap cleanup EXIT
    END=$((SECONDS + ${GPU_SECONDS:-550}))
    ALL_WELL=0
    unpack || return 1
    export KIT BIN DATA SCRATCH URINGLOAD_GPU_DIR=$DATA PYTHONUNBUFFERED=1 PYTHONPATH=$SCRATCH/site
    export URINGLOAD_GPU_NVJPEG=$SCRATCH/site/nvidia/cu13/lib
    export -f sanitized machine install_wheels profiled
    local required=
    if nvidia-smi -L >/dev/null 2>&1; then
        required=--required
        export URINGLOAD_GPU_REQUIRED=1
    fi
    step machine 25 bash -c machine
    step wheels 15 bash -c install_wheels
    step tests 75 "$BIN/tests" --test-threads 4 --nocapture
    # shellcheck disable=SC2086
    step suite 195 "$BIN/suite" --dir "$DATA" --json "$SCRATCH/suite.json" --seconds 165 \
        --nvjpeg "$URINGLOAD_GPU_NVJPEG" $required ${GPU_SUITE_OPTIONS:-}
    # shellcheck disable=SC2086
    step torch 65 python3 benches/gpu/torch_device.py "$DATA" --json "$SCRATCH/torch.json" $required
    # shellcheck disable=SC2086
    step peers 110 python3 benches/gpu/peers.py "$DATA" --json "$SCRATCH/peers.json" --seconds 90 ${GPU_PEERS_OPTIONS:-}
    step memcheck 35 bash -c "sanitized memcheck 12"
    step racecheck 20 bash -c "sanitized racecheck 6"
    step ncu 20 bash -c profiled
    python3 benches/gpu/merge.py "$SCRATCH" "$OUT_DIR" || cp "$SCRATCH"/* "$OUT_DIR"
    # Few files, so that all of them come back from wherever this ran.
    (cd "$OUT_DIR" && tar -czf logs.tar.gz ./*.log && rm -f ./*.log)
    cat "$OUT_DIR/table.txt"
    return $ALL_WELL
}

case ${1:-run} in
pack) pack ;;
run) run "${2:-}" ;;
-h | --help) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' ;;
*) run "$1" ;;
esac
