#!/usr/bin/env bash
# Checks and tests the adapters: formats, lints, documentation, tests, and the examples, which train to an accuracy.
# `adapters/run.sh [CRATE...]` does so for some; uringload-burn needs Rust 1.95 and is left out, aloud, without it.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
crates=("${@:-uringload-arrow uringload-ndarray uringload-candle uringload-cudarc uringload-burn}")
read -ra crates <<<"${crates[*]}"
if [[ " ${crates[*]} " == *" uringload-burn "* ]] && [[ $(printf '%s\n' 1.95.0 "$(rustc --version | cut -d' ' -f2)" | sort -V | head -1) != 1.95.0 ]]; then
    echo "skipped: uringload-burn needs Rust 1.95, and this is $(rustc --version)"
    crates=("${crates[@]/uringload-burn/}")
    read -ra crates <<<"${crates[*]}"
fi
packages=("${crates[@]/#/-p}")

# The mock of the driver, for cudarc, which looks for libcuda.so.
if [[ " ${crates[*]} " == *" uringload-cudarc "* ]] && ! ldconfig -p | grep -q 'libcuda\.so'; then
    (cd .. && cargo build --quiet --locked -p uringload-mock-cuda)
    built=${CARGO_TARGET_DIR:-$PWD/../target}
    mock=$built/adapters-mock
    mkdir -p "$mock"
    cp "$built/debug/liburingload_mock_cuda.so" "$mock/libcuda.so.1"
    # One library of two names, as a driver's is: cudarc and uringload look for different ones.
    ln -sf libcuda.so.1 "$mock/libcuda.so"
    export LD_LIBRARY_PATH=$mock${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

cargo fmt --all --check
cargo clippy --quiet --locked "${packages[@]}" --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --no-deps "${packages[@]}"
cargo test --locked "${packages[@]}"

# What is turned on by features. candle's needs CUDA's compiler to build; what becomes of it is only looked at.
if [[ " ${crates[*]} " == *" uringload-cudarc "* ]]; then
    cargo clippy --quiet --locked -p uringload-cudarc --features f16 --all-targets -- -D warnings
fi
if [[ " ${crates[*]} " == *" uringload-candle "* ]]; then
    if command -v nvcc >/dev/null; then
        cargo clippy --quiet --locked -p uringload-candle --features cuda -- -D warnings
    else
        echo "skipped: no nvcc, so uringload-candle's feature cuda is not checked"
    fi
fi

# Each can be packaged. What it depends on is published first, so only then can it be built from its package.
cargo package --quiet --no-verify --exclude-lockfile --allow-dirty "${packages[@]}"
