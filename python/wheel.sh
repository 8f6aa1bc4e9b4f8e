#!/usr/bin/env bash
# Builds the wheels for PyPI: manylinux2014, one for every Python from 3.10 on. `python/wheel.sh [TARGET...]`; without a
# target it builds for x86-64. For 64-bit ARM: `rustup target add aarch64-unknown-linux-gnu`, then
# `python/wheel.sh aarch64-unknown-linux-gnu`. `RUSTC` names another compiler than `rustc`.
#
# zig is the linker, because it links against the symbols of an old glibc on any machine; it comes from PyPI, as maturin
# and auditwheel do. A wheel for this machine is then installed where there is no Rust, and tested.
set -euo pipefail
cd "$(dirname "$0")"
exec </dev/null

readonly ROOT=$PWD/..
readonly TOOLS=$ROOT/target/wheel-tools
readonly OUT=$ROOT/target/wheels
# The oldest glibc that Rust's standard library itself can be linked to is 2.17.
readonly POLICY=manylinux2014

built_for() { ls "$OUT"/uringload-*-abi3-manylinux*"_${1%%-*}.whl"; }

# What pip resolves without a compiler of Rust on the path.
try() {
    local fresh
    fresh=$(mktemp -d) && trap "rm -rf '$fresh'" EXIT
    python3 -m venv "$fresh"
    env -i HOME="$fresh" PATH=/usr/bin:/bin \
        "$fresh/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: numpy pytest "$1"
    env -i HOME="$fresh" PATH=/usr/bin:/bin "$fresh/bin/uringload" --version
    env -i HOME="$fresh" PATH=/usr/bin:/bin LANG=C.UTF-8 "$fresh/bin/python" -m pytest -q -p no:cacheprovider
}

[ $# -gt 0 ] || set -- x86_64-unknown-linux-gnu
for target in "$@"; do
    if [ ! -d "$("${RUSTC:-rustc}" --print target-libdir --target "$target" 2>/dev/null)" ]; then
        echo "wheel.sh: Rust's standard library for $target is not installed: rustup target add $target" >&2
        echo "wheel.sh: without rustup, name a compiler that has it as RUSTC. Debian has one: rustc-web, with" \
            "libstd-rust-web-dev of the same version and of the target's architecture" >&2
        exit 1
    fi
done
python3 -m venv "$TOOLS"
"$TOOLS/bin/pip" install --quiet --disable-pip-version-check "maturin>=1.8,<2" "ziglang>=0.13" auditwheel
for target in "$@"; do
    PATH=$TOOLS/bin:$PATH CARGO_TARGET_DIR=$ROOT/target "$TOOLS/bin/maturin" build --quiet --release --locked --zig \
        --target "$target" --compatibility "$POLICY" --out "$OUT"
    wheel=$(built_for "$target")
    "$TOOLS/bin/python" -m auditwheel show "$wheel"
    if [ "${target%%-*}" = "$(uname -m)" ]; then try "$wheel"; fi
done
