#!/usr/bin/env bash
# Builds the C library and installs it: capi/install.sh PREFIX (such as /usr/local). DESTDIR goes before PREFIX, for
# packages. Header, shared library with its soname, static library, and a file for pkg-config.
# URINGLOAD_FEATURES=turbojpeg-vendored builds libjpeg-turbo in, which takes cmake, nasm and a C compiler.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: capi/install.sh PREFIX" >&2; exit 2; }
readonly PREFIX=$1 ROOT=${DESTDIR:-}$1 ABI=0
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
profile=${URINGLOAD_PROFILE:-release}
# shellcheck disable=SC2086 # Several words.
cargo build --locked --quiet -p uringload-capi --profile "$profile" ${URINGLOAD_FEATURES:+--features $URINGLOAD_FEATURES}
built=target/${profile/dev/debug}
install -d "$ROOT/include" "$ROOT/lib/pkgconfig"
install -m 644 capi/include/uringload.h "$ROOT/include/"
install -m 644 "$built/liburingload_capi.a" "$ROOT/lib/liburingload.a"
install -m 755 "$built/liburingload_capi.so" "$ROOT/lib/liburingload.so.$version"
ln -sf "liburingload.so.$version" "$ROOT/lib/liburingload.so.$ABI"
ln -sf "liburingload.so.$ABI" "$ROOT/lib/liburingload.so"
sed -e "s|@PREFIX@|$PREFIX|" -e "s|@VERSION@|$version|" capi/uringload.pc.in >"$ROOT/lib/pkgconfig/uringload.pc"
echo "installed uringload $version below $ROOT"
