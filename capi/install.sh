#!/usr/bin/env bash
# Builds the C library and installs it: capi/install.sh PREFIX (such as /usr/local). Header, shared library with its
# soname, static library, and what pkg-config and CMake look for. LIBDIR is where libraries go (PREFIX/lib; such as
# /usr/lib64); DESTDIR goes before both, for packages. URINGLOAD_PROFILE=dist links with LTO, as releases are.
# URINGLOAD_FEATURES=turbojpeg-vendored builds libjpeg-turbo in, which takes cmake, nasm and a C compiler.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: capi/install.sh PREFIX" >&2; exit 2; }
readonly PREFIX=$1 LIBDIR=${LIBDIR:-$1/lib} ABI=0
readonly ROOT=${DESTDIR:-}$PREFIX LIBRARIES=${DESTDIR:-}$LIBDIR
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
profile=${URINGLOAD_PROFILE:-release}
# shellcheck disable=SC2086 # Several words.
cargo build --locked --quiet -p uringload-capi --profile "$profile" \
    ${URINGLOAD_FEATURES:+--features $URINGLOAD_FEATURES}
built=${CARGO_TARGET_DIR:-target}/${profile/dev/debug}
install -d "$ROOT/include" "$LIBRARIES/pkgconfig" "$LIBRARIES/cmake/uringload"
install -m 644 capi/include/uringload.h "$ROOT/include/"
install -D -m 644 cli/licenses.txt "$ROOT/share/doc/uringload/licenses.txt"
install -m 644 "$built/liburingload_capi.a" "$LIBRARIES/liburingload.a"
install -m 755 "$built/liburingload_capi.so" "$LIBRARIES/liburingload.so.$version"
ln -sf "liburingload.so.$version" "$LIBRARIES/liburingload.so.$ABI"
ln -sf "liburingload.so.$ABI" "$LIBRARIES/liburingload.so"
fill() { sed -e "s|@PREFIX@|$PREFIX|" -e "s|@LIBDIR@|$LIBDIR|" -e "s|@VERSION@|$version|" -e "s|@ABI@|$ABI|" "$1"; }
fill capi/uringload.pc.in >"$LIBRARIES/pkgconfig/uringload.pc"
for name in uringload-config uringload-config-version; do
    fill "capi/$name.cmake.in" >"$LIBRARIES/cmake/uringload/$name.cmake"
done
echo "installed uringload $version: $ROOT/include, $LIBRARIES"
# The loader of shared libraries reads a list of them, which only root can renew.
if [ -z "${DESTDIR:-}" ]; then
    [ "$(id -u)" -eq 0 ] && PATH=$PATH:/sbin:/usr/sbin ldconfig ||
        echo "ldconfig was not run: as root, run it if $LIBDIR is a folder of the system," \
            "or set LD_LIBRARY_PATH=$LIBDIR"
fi
