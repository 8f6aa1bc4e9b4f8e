#!/usr/bin/env python3
"""Compiles the kernels to sys/kernels/kernels.ptx, with the compiler library of CUDA 12.0 from PyPI.

    python3 -m venv .venv && .venv/bin/pip install -r sys/kernels/requirements.txt
    .venv/bin/python sys/kernels/build.py

`--check` compiles again and fails if the result differs. Then it assembles for three generations of devices and fails
if registers are spilled to memory. Neither a GPU nor a toolkit is needed.

The PTX is for compute capability 7.0 and up, in the version that drivers for CUDA 12.0 accept. It starts with two
hashes, which a test compares (sys/tests/kernels.rs), so that neither it nor a source can change alone.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PTX = HERE / "kernels.ptx"
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17", "--fmad=false", "--device-as-default-execution-space"]
ARCHITECTURES = ["sm_70", "sm_80", "sm_90"]


def wheel(part, pattern):
    """The file of that name in the wheel `nvidia-<part>`."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else []:
        for found in sorted(pathlib.Path(folder, part).glob(pattern)):
            return found
    sys.exit(f"no {pattern} of {part}: pip install -r {HERE / 'requirements.txt'}")


def sources():
    """Every source in order of name."""
    return [(path.name, path.read_bytes()) for path in sorted(HERE.glob("*.cu*"))]


def source_hash():
    """SHA-256 over the name, a newline, the length, a newline and the content of each source."""
    digest = hashlib.sha256()
    for name, content in sources():
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


class Compiler:
    """NVRTC."""

    def __init__(self):
        self.library = ctypes.CDLL(str(wheel("cuda_nvrtc", "lib/libnvrtc.so.12")))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        return "" if code == 0 else f"{name}: {self.library.nvrtcGetErrorString(code).decode()}"

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, text)
        return text.value.decode()

    def compile(self):
        """The PTX of all sources as one program."""
        files = sources()
        main = "".join(f'#include "{name}"\n' for name, _ in files if name.endswith(".cu")).encode()
        count = len(files)
        contents = (ctypes.c_char_p * count)(*[content for _, content in files])
        names = (ctypes.c_char_p * count)(*[name.encode() for name, _ in files])
        options = (ctypes.c_char_p * len(OPTIONS))(*[option.encode() for option in OPTIONS])
        program = ctypes.c_void_p()
        wrong = self.call("nvrtcCreateProgram", ctypes.byref(program), main, b"kernels.cu", count, contents, names)
        wrong = wrong or self.call("nvrtcCompileProgram", program, len(OPTIONS), options)
        if wrong:
            sys.exit(f"{wrong}\n{self.text(program, 'ProgramLog')}")
        return self.text(program, "PTX")


def made():
    """The file's content."""
    body = Compiler().compile()
    hashes = f"// sources: {source_hash()}\n// body: {hashlib.sha256(body.encode()).hexdigest()}\n"
    return hashes + body


def assemble(architecture):
    """Prints what ptxas says about each kernel; fails if it rejects one or spills registers."""
    ptxas = wheel("cuda_nvcc", "bin/ptxas")
    with tempfile.TemporaryDirectory() as folder:
        command = [ptxas, f"-arch={architecture}", "-v", "-warn-spills", "-o", f"{folder}/kernels.cubin", PTX]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{architecture}: ptxas: {done.stdout}{done.stderr}")
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                       r"(\d+) bytes spill loads.*?Used (\d+) registers", done.stderr, re.DOTALL)
    kernels = PTX.read_text().count(".visible .entry")
    if len(found) != kernels:
        sys.exit(f"{architecture}: ptxas reports {len(found)} kernels, and there are {kernels}:\n{done.stderr}")
    print(f"{architecture}: registers: " + ", ".join(f"{name} {registers}" for name, *_, registers in found))
    wrong = [name for name, *memory, _ in found if any(int(bytes) for bytes in memory)]
    if wrong:
        sys.exit(f"{architecture}: stack or spills: {', '.join(wrong)}\n{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare and assemble, but write nothing")
    check = parser.parse_args().check
    ptx = made()
    if not check:
        PTX.write_text(ptx)
    elif PTX.read_text() != ptx:
        sys.exit(f"{PTX.name} does not match its sources: run sys/kernels/build.py and commit it")
    for architecture in ARCHITECTURES:
        assemble(architecture)
    print(f"{PTX.name}: {len(ptx)} bytes, {ptx.count('.visible .entry')} kernels, matches its sources")


if __name__ == "__main__":
    main()
