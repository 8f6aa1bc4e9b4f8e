#!/usr/bin/env bash
# Checks and tests the adapters: formats, lints, documentation, tests, and the examples, which train to an accuracy.
# `adapters/run.sh [CRATE...]` does so for some; uringload-burn needs Rust 1.95 and is left out, aloud, without it.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
crates=("${@:-uringload-arrow uringload-ndarray uringload-candle uringload-cudarc uringload-burn}")
read -ra crates <<<"${crates[*]}"
oldest=$(printf '%s\n' 1.95.0 "$(rustc --version | cut -d' ' -f2)" | sort -V | sed -n 1p)
if [[ " ${crates[*]} " == *" uringload-burn "* && $oldest != 1.95.0 ]]; then
    echo "skipped: uringload-burn needs Rust 1.95, and this is $(rustc --version)"
    crates=("${crates[@]/uringload-burn/}")
    read -ra crates <<<"${crates[*]}"
fi
packages=("${crates[@]/#/-p}")

# The mock of the driver, for cudarc, which looks for libcuda.so.
if [[ " ${crates[*]} " == *" uringload-cudarc "* ]] && [[ $(ldconfig -p) != *libcuda.so* ]]; then
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

# What is turned on by features. candle's has CUDA's compiler build its kernels: this machine's, or PyPI's with the
# headers that they take, for the device of CUDA_COMPUTE_CAP. They are neither run nor linked, so they need not be fast.
if [[ " ${crates[*]} " == *" uringload-cudarc "* ]]; then
    cargo clippy --quiet --locked -p uringload-cudarc --features f16 --all-targets -- -D warnings
fi
if [[ " ${crates[*]} " == *" uringload-candle "* ]]; then
    cuda=${CARGO_TARGET_DIR:-$PWD/../target}/cuda
    if ! command -v nvcc >/dev/null && python3 -m venv "$cuda" && "$cuda/bin/pip" install --quiet \
        --disable-pip-version-check --retries 1 "cuda-toolkit[nvcc,cccl]==13.0.*"; then
        CUDA_HOME=$(echo "$cuda"/lib/python3*/site-packages/nvidia/cu13)
        export CUDA_HOME PATH=$CUDA_HOME/bin:$PATH
    fi
    if command -v nvcc >/dev/null; then
        export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90} NVCC_APPEND_FLAGS="-Xcicc -O0 -Xptxas -O0"
        cargo clippy --quiet --locked -p uringload-candle --features cuda -- -D warnings
    else
        echo "skipped: no nvcc here or in PyPI, so uringload-candle's feature cuda is not checked"
    fi
fi

# Each can be packaged. What it depends on is published first, so only then can it be built from its package.
cargo package --quiet --no-verify --exclude-lockfile --allow-dirty "${packages[@]}"
