#!/usr/bin/env bash
# What capi/install.sh installs, as programs find it: capi/tests/install.sh. By pkg-config, by name, and by CMake where
# it is there; in a folder of libraries of another name. `.ci/slow` runs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
readonly PREFIX=$folder/here
export LIBDIR=$PREFIX/lib64
capi/install.sh "$PREFIX"
export LD_LIBRARY_PATH=$LIBDIR PKG_CONFIG_PATH=$LIBDIR/pkgconfig
head -c 256000 /dev/urandom >"$folder/records.bin"

# What the program makes of a thousand records, which is the same however it was linked.
told() { "$1" "$folder/records.bin"; }

if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2046 # Several words.
    cc capi/examples/train.c $(pkg-config --cflags --libs uringload) -o "$folder/shared"
else
    echo "skipped: no pkg-config"
    cc capi/examples/train.c -I"$PREFIX/include" -L"$LIBDIR" -luringload -o "$folder/shared"
fi
linked=$(ldd "$folder/shared")
[[ $linked == *"liburingload.so.0 => $LIBDIR"* ]] || { echo "another library is found: $linked"; exit 1; }
wanted=$(told "$folder/shared")
[[ $wanted == "sum "* ]]

cc capi/examples/train.c -I"$PREFIX/include" -L"$LIBDIR" -l:liburingload.a -lgcc_s -lpthread -ldl -lm -lrt \
    -o "$folder/static"
linked=$(ldd "$folder/static")
[[ $linked != *liburingload* ]] || { echo "linked to the shared library: $linked"; exit 1; }
[ "$(told "$folder/static")" = "$wanted" ]

if command -v cmake >/dev/null; then
    mkdir "$folder/cmake"
    cat >"$folder/cmake/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.13)
project(train C)
find_package(uringload 0.1 CONFIG REQUIRED)
add_executable(shared $PWD/capi/examples/train.c)
target_link_libraries(shared uringload::uringload)
add_executable(static $PWD/capi/examples/train.c)
target_link_libraries(static uringload::static)
EOF
    cmake -S "$folder/cmake" -B "$folder/cmake/build" -DCMAKE_PREFIX_PATH="$PREFIX" \
        -Duringload_DIR="$LIBDIR/cmake/uringload" >/dev/null
    cmake --build "$folder/cmake/build" >/dev/null
    for program in shared static; do [ "$(told "$folder/cmake/build/$program")" = "$wanted" ]; done
    echo "CMake: both targets link and run"
else
    echo "skipped: no cmake"
fi
echo "what install.sh installs is found, links and runs"
