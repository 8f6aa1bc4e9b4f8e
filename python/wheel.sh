#!/usr/bin/env bash
# Builds the wheels for PyPI: manylinux2014, one for every Python from 3.10 on. `python/wheel.sh [TARGET...]`; without a
# target it builds for x86-64 and 64-bit ARM. A compiler for a target is the one that is there (`rustup target add
# aarch64-unknown-linux-gnu`, or another that `RUSTC` names), else Debian's, of packages that are unpacked below
# target/.
#
# zig is the linker, because it links against the symbols of an old glibc on any machine; it comes from PyPI, as maturin
# and auditwheel do. libjpeg-turbo is built in: cmake is PyPI's, nasm the machine's or Debian's. A wheel for this
# machine is then installed where there is no Rust, and tested; one for another processor is tried by emulation.
set -euo pipefail
cd "$(dirname "$0")"
exec </dev/null

readonly ROOT=$PWD/..
readonly TOOLS=$ROOT/target/wheel-tools
readonly OUT=$ROOT/target/wheels
# The oldest glibc that Rust's standard library itself can be linked to is 2.17.
readonly POLICY=manylinux2014
# Tests that start no process: an emulated program cannot start another.
readonly EMULATED=(tests/test_{passes,output,arguments,cache,async,built_in}.py)
# shellcheck source-path=SCRIPTDIR
. ./debian.sh

built_for() { ls "$OUT"/uringload-*-abi3-manylinux*"_${1%%-*}.whl"; }

# Prints a folder to look for nasm in, which assembles libjpeg-turbo for x86-64; other processors need none.
assembler() {
    local nasm
    case ${1%%-*} in
        x86_64) nasm=$(command -v nasm || debian_tool nasm) && dirname "$nasm" ;;
        *) echo "$TOOLS/bin" ;;
    esac
}

# That the wheel $1 carries the licences of all that it is linked with, and no path of this machine.
look_into() {
    local names
    names=$("$TOOLS/bin/python" -m zipfile -l "$1")
    for name in LICENSE-MIT LICENSE-APACHE licenses.txt; do
        grep -q "dist-info/licenses/$name" <<<"$names" || { echo "wheel.sh: $1 has no $name" >&2; return 1; }
    done
    if "$TOOLS/bin/python" -c "import sys, zipfile
whole = zipfile.ZipFile(sys.argv[1])
sys.exit(any(sys.argv[2].encode() in whole.read(name) for name in whole.namelist()))" "$1" "$HOME/"; then
        return 0
    fi
    echo "wheel.sh: $1 names $HOME" >&2
    return 1
}

# The source distribution, whose lock file is its own: cargo takes it as it is.
try_source() {
    local at
    at=$(mktemp -d) && trap "rm -rf '$at'" EXIT
    "$TOOLS/bin/pip" install --quiet --disable-pip-version-check build
    PATH=$TOOLS/bin:$PATH "$TOOLS/bin/python" -m build --sdist --no-isolation --outdir "$at" . >/dev/null
    tar xzf "$at"/*.tar.gz -C "$at"
    (cd "$at"/uringload-*/python && cargo metadata --locked --offline --format-version 1 >/dev/null)
    echo "the source distribution's lock file is its own"
}

# The wheel $1, with what pip resolves without a compiler of Rust on the path. $2 is what decodes JPEGs, if it is built
# in.
try() {
    local fresh
    fresh=$(mktemp -d) && trap "rm -rf '$fresh'" EXIT
    python3 -m venv "$fresh"
    env -i HOME="$fresh" PATH=/usr/bin:/bin \
        "$fresh/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: numpy pytest "$1"
    env -i HOME="$fresh" PATH=/usr/bin:/bin "$fresh/bin/uringload" --version
    env -i HOME="$fresh" PATH=/usr/bin:/bin LANG=C.UTF-8 URINGLOAD_BUILT_IN="$2" "$fresh/bin/python" -m pytest -q \
        -p no:cacheprovider
}

# The wheel $1 for the target $2, by emulation; $3 as above.
try_emulated() {
    local at fresh processor=${2%%-*} python
    at=$(debian_python "$2") || { echo "skipped: no emulator for ${2%%-*}, so its wheel is not tried"; return 0; }
    fresh=$(mktemp -d) && trap "rm -rf '$fresh'" EXIT
    python=("$at/run" -E "PYTHONPATH=$fresh" -E PYTHONDONTWRITEBYTECODE=1
        -E "URINGLOAD_BUILT_IN=$3" "$at/usr/bin/python3")
    "$TOOLS/bin/pip" install --quiet --disable-pip-version-check --target "$fresh" --only-binary :all: \
        --platform "manylinux_2_28_$processor" --platform "manylinux_2_27_$processor" \
        --platform "manylinux2014_$processor" \
        --python-version "$("${python[@]}" -c 'import platform; print(platform.python_version())')" numpy pytest "$1"
    "${python[@]}" -c "from uringload._command import main; main()" --version
    "${python[@]}" -m pytest -q -p no:cacheprovider "${EMULATED[@]}"
}

# Prints a compiler for the target $1.
compiler() {
    if [ -d "$("${RUSTC:-rustc}" --print target-libdir --target "$1" 2>/dev/null)" ]; then
        echo "${RUSTC:-rustc}"
    elif ! debian_compiler "$1"; then
        echo "wheel.sh: Rust's standard library for $1 is not installed: rustup target add $1" >&2
        echo "wheel.sh: without rustup, name a compiler that has it as RUSTC. Debian's rustc-web is not available" >&2
        return 1
    fi
}

# Builds a wheel for the target $1 by the compiler $2, with nasm below $3, and with these options. It names no folder of
# this machine in its reports of panics.
build() {
    # Each compiler has a folder of its own, so that none builds anew what another has left.
    local folder=$ROOT/target registry=${CARGO_HOME:-$HOME/.cargo}/registry/src flags
    flags="--remap-path-prefix=$registry=crates --remap-path-prefix=$(cd "$ROOT" && pwd)=uringload"
    case $2 in "$DEBIAN"/*) folder=$ROOT/target/debian/build ;; esac
    RUSTFLAGS="${RUSTFLAGS:-} $flags" PATH=$TOOLS/bin:$PATH:$3 RUSTC=$2 CARGO_TARGET_DIR=$folder \
        "$TOOLS/bin/maturin" build --quiet --profile dist --locked \
        --zig --target "$1" --compatibility "$POLICY" --out "$OUT" "${@:4}"
}

declare -A COMPILERS
if [ $# -eq 0 ]; then
    set -- x86_64-unknown-linux-gnu
    # Not every machine is a Debian.
    if compiler aarch64-unknown-linux-gnu >/dev/null; then
        set -- "$@" aarch64-unknown-linux-gnu
    else
        echo "skipped: no compiler for 64-bit ARM, so it gets no wheel"
    fi
fi
for target in "$@"; do COMPILERS[$target]=$(compiler "$target"); done
python3 -m venv "$TOOLS"
"$TOOLS/bin/pip" install --quiet --disable-pip-version-check "maturin>=1.8,<2" "ziglang>=0.13" auditwheel "cmake>=3.20"
(try_source)
for target in "$@"; do
    built_in=libjpeg-turbo
    nasm=$(assembler "$target") || built_in=
    if [ -z "$built_in" ] ||
        ! build "$target" "${COMPILERS[$target]}" "$nasm" --features remote,turbojpeg-vendored; then
        echo "wheel.sh: libjpeg-turbo is NOT built into the wheel for $target: no nasm, or see above" >&2
        # What this machine has to be able to do.
        [ -z "$built_in" ] || [ "${target%%-*}" != "$(uname -m)" ] || exit 1
        built_in=
        build "$target" "${COMPILERS[$target]}" "$TOOLS/bin" --features remote
    fi
    wheel=$(built_for "$target")
    "$TOOLS/bin/python" -m auditwheel show "$wheel"
    look_into "$wheel"
    if [ "${target%%-*}" = "$(uname -m)" ]; then
        try "$wheel" "$built_in"
    else
        try_emulated "$wheel" "$target" "$built_in"
    fi
done
