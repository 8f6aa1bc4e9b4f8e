#!/usr/bin/env python3
"""Holds the functions and numbers of sys/src/nvjpeg/table.rs against NVIDIA's header.

    python3 sys/kernels/headers.py nvjpeg.h...

Without a header, that of the wheel `nvidia-nvjpeg-cu12` is taken. Each function must have the same types in the same
order, each constant that has a name of the header its number, and the struct its fields. Fails if anything differs, and
if nothing was compared.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
TABLE = HERE.parent / "src" / "nvjpeg" / "table.rs"

# C's types as the table writes them. Handles and streams are pointers to something opaque.
TYPES = {
    "int": "c_int", "unsigned int": "c_uint", "size_t": "usize", "unsigned char": "u8", "libraryPropertyType": "c_int",
    "nvjpegBackend_t": "c_int", "nvjpegOutputFormat_t": "c_int", "nvjpegChromaSubsampling_t": "c_int",
    "nvjpegHandle_t": "Handle", "nvjpegJpegState_t": "Handle", "nvjpegJpegStream_t": "Handle",
    "cudaStream_t": "Handle", "nvjpegImage_t": "Image",
    "nvjpegDevAllocatorV2_t": "Allocator", "nvjpegPinnedAllocatorV2_t": "Allocator",
}


def plain(text):
    """Without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def rust_type(parameter):
    """The type of a C parameter: `const T *const *name` is read from right to left."""
    words = re.findall(r"\w+|\*", parameter)
    stars = [index for index, word in enumerate(words) if word == "*"]
    base = [word for word in words[:stars[0] if stars else len(words) - 1] if word != "const"]
    is_const = "const" in words[:stars[0]] if stars else False
    kind = TYPES[" ".join(base)]
    for number, star in enumerate(stars):
        kind = f"*{'const' if is_const else 'mut'} {kind}"
        end = stars[number + 1] if number + 1 < len(stars) else len(words)
        is_const = "const" in words[star + 1:end]
    return kind


def functions_of(header):
    found = re.findall(r"nvjpegStatus_t\s+NVJPEGAPI\s+(\w+)\s*\(([^)]*)\)\s*;", header)
    return {name: parameters for name, parameters in found}


def compare(table, header):
    """The differences, and how many things were compared."""
    wrong, count = [], 0
    functions = functions_of(header)
    listed = table[table.index("\ntable! {"):]
    for name, arguments in re.findall(r"^    (\w+)\(([^)]*)\);", listed, flags=re.MULTILINE):
        ours = [argument.strip() for argument in arguments.split(",")]
        theirs = [rust_type(parameter) for parameter in functions.get(name, "").split(",") if parameter.strip()]
        count += 1
        if ours != theirs:
            wrong.append(f"{name}: {ours}, and the header has {theirs}")
    numbers = dict(re.findall(r"(NVJPEG_\w+)\s*=\s*(-?\d+)", header))
    defines = re.findall(r"#define\s+(NVJPEG_\w+)\s+(\d+)(?:\s*<<\s*(\d+))?\s*$", header, flags=re.MULTILINE)
    numbers.update({name: str(int(number) << int(shift or 0)) for name, number, shift in defines})
    absent = []
    for name, number in re.findall(r"const (NVJPEG_\w+): \w+ = (\d+);", table):
        count += name in numbers
        if name not in numbers:
            absent.append(name)
        elif numbers[name] != number:
            wrong.append(f"{name} is {number}, and {numbers[name]} in the header")
    # Older headers do not name it, and the library refuses what it does not know.
    wrong += [f"{name} is not in the header" for name in absent if name != "NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION"]
    for of, name in ("Dev", "dev"), ("Pinned", "pinned"):
        allocator = (rf"typedef int \(\*t{of}MallocV2\)"
                     r"\(void\s*\* ctx, void \*\*ptr, size_t size, cudaStream_t stream\);\s*"
                     rf"typedef int \(\*t{of}FreeV2\)"
                     r"\(void\s*\* ctx, void \*ptr, size_t size, cudaStream_t stream\);"
                     rf".*typedef struct\s*\{{\s*t{of}MallocV2 {name}_malloc;\s*t{of}FreeV2 {name}_free;"
                     rf"\s*void \*{name}_ctx;\s*\}}\s*nvjpeg{of}AllocatorV2_t;")
        if not re.search(allocator, header, flags=re.DOTALL):
            wrong.append(f"nvjpeg{of}AllocatorV2_t has other fields")
    image = re.search(r"typedef struct\s*\{\s*unsigned char \* channel\[NVJPEG_MAX_COMPONENT\];\s*size_t\s+"
                      r"pitch\[NVJPEG_MAX_COMPONENT\];\s*\}\s*nvjpegImage_t;", header)
    if not image or numbers.get("NVJPEG_MAX_COMPONENT") != "4":
        wrong.append("nvjpegImage_t has other fields")
    return wrong, count + 1


def wheels():
    """The header of the wheel, if it is installed."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    return [str(found) for folder in (spec.submodule_search_locations if spec else [])
            for found in pathlib.Path(folder).glob("*/include/nvjpeg.h")]


def main():
    headers = sys.argv[1:] or wheels()
    if not headers:
        sys.exit(f"no nvjpeg.h: pip install -r {HERE / 'requirements.txt'}")
    table = plain(TABLE.read_text())
    for path in headers:
        wrong, count = compare(table, plain(pathlib.Path(path).read_text()))
        if wrong or count < 20:
            sys.exit("\n".join([f"{TABLE.name} against {path}:", *wrong, f"{count} things compared"]))
        print(f"{TABLE.name} matches {path} ({count} things compared)")


if __name__ == "__main__":
    main()
