#!/usr/bin/env bash
# What a wheel for another processor needs and this machine does not have, from Debian's packages: a compiler with
# Rust's standard library for it, and an emulator with a Python to try the wheel in; and nasm, where it is missing. They
# are unpacked below target/, and nothing is installed. `wheel.sh` reads this file; it has set ROOT.

readonly DEBIAN=$ROOT/target/debian

# Debian's name of the architecture of a target of Rust.
debian_of() { case ${1%%-*} in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) return 1 ;; esac; }

# apt-get with lists of its own, for these architectures, the first of which is "this machine's".
apt() {
    local -a all=()
    local each
    for each in $1; do all+=(-o "APT::Architectures::=$each"); done
    mkdir -p "$DEBIAN"/{lists,cache/archives}/partial
    touch "$DEBIAN/status"
    apt-get -qq -o "Dir::State::lists=$DEBIAN/lists" -o "Dir::Cache=$DEBIAN/cache" -o APT::Sandbox::User=root \
        -o "APT::Architecture=${1%% *}" -o APT::Architectures= "${all[@]}" "${@:2}" >&2
}

unpack() {
    local each
    mkdir -p "$2"
    for each in "$1"/*.deb; do dpkg-deb -x "$each" "$2" || return 1; done
    rm -rf "$1"
}

# Prints the path of a compiler that has the standard library of the target $1 and of this machine.
debian_compiler() {
    local own arm at=$DEBIAN/compiler-$1 driver
    own=$(dpkg --print-architecture 2>/dev/null) && arm=$(debian_of "$1") || return 1
    if [ ! -x "$at/rustc" ]; then
        apt "$own $arm" update || return 1
        rm -rf "$at" && mkdir -p "$at/debs"
        # The driver's package and LLVM's have their version in their names.
        driver=$(apt_names "$own" rustc-web '^lib(std-rust-web-|llvm)[0-9]') || return 1
        # shellcheck disable=SC2086 # Several names.
        (cd "$at/debs" && apt "$own $arm" download rustc-web "libstd-rust-web-dev:$own" "libstd-rust-web-dev:$arm" \
            $driver) || return 1
        unpack "$at/debs" "$at" || return 1
        printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s/usr/bin/rustc" "$@"\n' \
            "$(echo "$at"/usr/lib/*-linux-gnu)" "$at" >"$at/rustc"
        chmod +x "$at/rustc"
    fi
    "$at/rustc" --version >/dev/null && echo "$at/rustc"
}

# Prints the path of the program $1, of Debian's package of that name for this machine, which needs nothing else.
debian_tool() {
    local own at=$DEBIAN/tool-$1
    own=$(dpkg --print-architecture 2>/dev/null) || return 1
    if [ ! -x "$at/usr/bin/$1" ]; then
        apt "$own" update || return 1
        rm -rf "$at" && mkdir -p "$at/debs"
        (cd "$at/debs" && apt "$own" download "$1") || return 1
        unpack "$at/debs" "$at" || return 1
    fi
    "$at/usr/bin/$1" --version >/dev/null && echo "$at/usr/bin/$1"
}

# The names of the packages that $2 depends on, directly or not, that match $3.
apt_names() {
    apt-cache -o "Dir::State::lists=$DEBIAN/lists" -o "Dir::Cache=$DEBIAN/cache" -o "APT::Architecture=$1" \
        depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$2" |
        grep -E "$3" | sort -u
}

# Prints a folder with `run`, which runs a program of the target $1 by emulation, and with a Python in usr/bin.
debian_python() {
    local own arm at=$DEBIAN/python-$1 name
    own=$(dpkg --print-architecture 2>/dev/null) && arm=$(debian_of "$1") || return 1
    if [ ! -x "$at/run" ]; then
        apt "$own $arm" update || return 1
        rm -rf "$at" "$DEBIAN/cache/archives" && mkdir -p "$at/debs"
        # With a status file that is empty, all that it needs is fetched.
        apt "$arm" -o "Dir::State::status=$DEBIAN/status" -o Debug::NoLocking=1 install --download-only -y \
            --no-install-recommends python3 libstdc++6 || return 1
        unpack "$DEBIAN/cache/archives" "$at" || return 1
        (cd "$at/debs" && apt "$own $arm" download "qemu-user-static:$own") || return 1
        name=qemu-${1%%-*}-static
        dpkg-deb --fsys-tarfile "$at"/debs/*.deb | tar -x -C "$at" "./usr/bin/$name" || return 1
        rm -rf "$at/debs"
        printf '#!/bin/sh\nexec "%s/usr/bin/%s" -L "%s" "$@"\n' "$at" "$name" "$at" >"$at/run"
        chmod +x "$at/run"
    fi
    echo "$at"
}
