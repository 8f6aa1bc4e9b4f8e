#!/usr/bin/env bash
# The GPU suite, for a machine with a GPU and without Rust: two calls, of 150 and of 420 seconds at most.
#
# usage: benches/gpu.sh pack            here: builds what is needed into gpu-kit/ (not in git): the programs, stripped
#                                       and compressed, our Python wheel, KvikIO's and nvJPEG's; with the repository's
#                                       files 60 MiB at most
#        benches/gpu.sh correct [OUT]   there, from the repository's root: whether all is right
#        benches/gpu.sh figures [OUT]   there: how fast it is, and how fast others are
#
# OUT is $OUT or gpu-out/. It gets table.txt (printed last), results.json and log.txt, which has what all steps print.
# They are kept up while steps run and after each, so a killed call has reported every step that had ended.
# benches/gpu/calls.py has the steps. Each has a time limit and a process group of its own, so a hung one costs only
# its own time. The most valuable come first:
#
#   correct: the machine; tests/gpu.rs (kernels against their host twins, device loaders against host loaders,
#   consumers); our wheel with the PyTorch that is there (benches/gpu/torch_device.py); kernels and images once more by
#   PTX; compute-sanitizer's memcheck and initcheck over the kernels, where it is installed.
#
#   figures: the machine; copies; kernels; page cache to GPU; disk to GPU; JPEGs; how busy a trainer keeps the GPU, on a
#   stream of its own and on PyTorch's default stream; PyTorch's DataLoader, torchvision, and KvikIO on the same files.
#
# The status is 1 if a step failed; a missed target is shown in the table and is no failure. Without a GPU every step
# says so and the status is 0; where /dev has one, not to open it is a failure. If io_uring is missing, the loaders take
# another route, which results.json names.
#
# From the environment: GPU_DATA, a folder for 10 GB of files (else one below /var/tmp, removed at the end); GPU_KIT,
# the folder of the kit; GPU_TRY=1, little data and no GPU, to try these scripts.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
exec </dev/null

readonly KIT=${GPU_KIT:-gpu-kit}
# With the files that git knows.
readonly KIT_LIMIT_KIB=$((60 << 10))
# The CUDA of the driver there, as `nvidia-smi` prints it: a driver 580 has 13.0. nvJPEG is of that version exactly,
# because an older driver need not know what a newer one's libraries call; PyPI's cuda-toolkit names it.
readonly CUDA=13.0
readonly KVIKIO=(kvikio-cu13 libkvikio-cu13 rapids-logger)
# The Python there, for wheels that depend on it.
readonly PYTHON=3.12

# Builds all at once, so that nothing is built twice, and prints the name, kind and path of each executable's target.
# libjpeg-turbo is linked: the machine there may have none, and its processor is measured against nvJPEG.
executables() {
    cargo build --release --locked --quiet --message-format=json --features uringload/turbojpeg-vendored \
        --test gpu --bench gpu --bin uringload | python3 -c '
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
        echo "newest symbols: $(cat "$KIT"/{tests,suite,uringload} | grep -ao 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1)"
    } >"$KIT/made-from.txt"
    cat "$KIT/made-from.txt"
    # To two fifths of what they are.
    gzip -9 "$KIT"/{tests,suite,uringload} || return 1
    local kib
    kib=$(($(du -sk "$KIT" | cut -f1) + $(git ls-files -z | du -ck --files0-from=- | tail -n 1 | cut -f1)))
    du -sh "$KIT"
    echo "$((kib >> 10)) MiB with the repository's files, of $((KIT_LIMIT_KIB >> 10))"
    [ "$kib" -le "$KIT_LIMIT_KIB" ] || { echo "gpu.sh: the kit is too large" >&2; return 1; }
}

# The wheels: missing ones are named, and their steps are skipped there.
wheels() {
    mkdir -p "$KIT/wheels"
    python3 -m maturin build --quiet --release --locked --strip --features turbojpeg-vendored \
        --manifest-path python/Cargo.toml --out "$KIT/wheels" ||
        echo "gpu.sh: no wheel of ours (pip install maturin): the step torch will be skipped" >&2
    download --no-deps --python-version "$PYTHON" --implementation cp --platform manylinux_2_28_x86_64 \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_24_x86_64 "${KVIKIO[@]}" ||
        echo "gpu.sh: no wheels of KvikIO: its rows will be skipped" >&2
    download --platform manylinux2014_x86_64 --platform manylinux_2_27_x86_64 "cuda-toolkit[nvjpeg]==$CUDA.*" ||
        echo "gpu.sh: no wheel of nvJPEG: its rows are skipped where the machine has none" >&2
}

download() {
    python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --dest "$KIT/wheels" "$@"
}

case ${1:-} in
pack) pack ;;
correct | figures) exec python3 benches/gpu/calls.py "$1" "${2:-${OUT:-gpu-out}}" ;;
*) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; [[ ${1:-} == -h || ${1:-} == --help ]] ;;
esac
