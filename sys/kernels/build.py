#!/usr/bin/env python3
"""Compiles the kernels with the compiler library of CUDA 12.0 and the assembler of CUDA 12.8, both from PyPI:

- to sys/kernels/kernels.ptx, for compute capability 7.0 and up, in the version that drivers for CUDA 12.0 accept;
- to sys/kernels/cubins/sm_XY.z, machine code for the devices of ARCHITECTURES, which needs no compiler in the driver;
  compressed by zlib.

    python3 -m venv .venv && .venv/bin/pip install -r sys/kernels/requirements.txt
    .venv/bin/python sys/kernels/build.py

`--check` compiles again and fails if a result differs. Either way it fails if registers are spilled to memory, or if a
kernel has more registers or instructions, or other widths of loads and stores, than BUDGETS says. Neither a GPU nor a
toolkit is needed.

What the machine code of a device is made of can be run without one: `--ptx sm_80` prints it, and
`URINGLOAD_PTX=FILE cargo test --test loaders kernels_emulated` runs it as C++ against the twins.

The PTX starts with two hashes, and cubins/hashes.txt has one of the sources and one of each cubin, which a test
compares (sys/tests/kernels.rs), so that none of them nor a source can change alone.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = pathlib.Path(__file__).parent
PTX = HERE / "kernels.ptx"
CUBINS = HERE / "cubins"
OPTIONS = ["--std=c++17", "--fmad=false", "--device-as-default-execution-space"]
# The devices that have machine code, and what it is compiled for first: the compiler of CUDA 12.0 knows no later ones.
ARCHITECTURES = {"sm_80": "compute_80", "sm_90": "compute_90", "sm_100": "compute_90", "sm_120": "compute_90"}
# The others, for which the driver compiles the PTX: that it can.
OTHERS = ["sm_70", "sm_75", "sm_89"]
INSTRUCTION_BYTES = 16

# What each kernel may have on any of ARCHITECTURES: registers of a thread, instructions, and the bytes of its widest
# load and store: pixels come by 4 bytes, from any address, and records of tables by 8. With up to 64 registers, 1024
# threads fit into a multiprocessor.
BUDGETS = {
    "ur_burn": (24, 130, 4, 4),
    "ur_fill": (32, 190, 0, 16),
    "ur_gather": (64, 600, 16, 16),
    "ur_pad": (64, 700, 16, 16),
    "ur_tokens_u16": (64, 750, 8, 16),
    "ur_tokens_u32": (64, 750, 8, 16),
    "ur_images_u8": (64, 4800, 8, 16),
    "ur_images_f32": (64, 3900, 8, 16),
    "ur_images_f16": (64, 5300, 8, 16),
    "ur_images_bf16": (64, 5400, 8, 16),
    "ur_resample": (40, 370, 8, 1),
}


def wheel(part, pattern):
    """The file of that name in the wheel `nvidia-<part>`."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else []:
        for found in sorted(pathlib.Path(folder, part).glob(pattern)):
            return found
    sys.exit(f"no {pattern} of {part}: pip install -r {HERE / 'requirements.txt'}")


def sources():
    """Every source in order of name."""
    return [(path.name, path.read_bytes()) for path in sorted(HERE.glob("*.cu*")) if path.is_file()]


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

    def compile(self, architecture):
        """The PTX of all sources as one program."""
        files = sources()
        main = "".join(f'#include "{name}"\n' for name, _ in files if name.endswith(".cu")).encode()
        count = len(files)
        contents = (ctypes.c_char_p * count)(*[content for _, content in files])
        names = (ctypes.c_char_p * count)(*[name.encode() for name, _ in files])
        flags = [f"--gpu-architecture={architecture}", *OPTIONS]
        options = (ctypes.c_char_p * len(flags))(*[option.encode() for option in flags])
        program = ctypes.c_void_p()
        wrong = self.call("nvrtcCreateProgram", ctypes.byref(program), main, b"kernels.cu", count, contents, names)
        wrong = wrong or self.call("nvrtcCompileProgram", program, len(flags), options)
        if wrong:
            sys.exit(f"{wrong}\n{self.text(program, 'ProgramLog')}")
        return self.text(program, "PTX")


def with_hashes(body):
    """The content of the PTX file."""
    return f"// sources: {source_hash()}\n// body: {hashlib.sha256(body.encode()).hexdigest()}\n" + body


def assemble(architecture, ptx):
    """The machine code of a PTX, and the registers of each kernel; fails if it is rejected or registers are spilled."""
    ptxas = wheel("cuda_nvcc", "bin/ptxas")
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder, "kernels.ptx"), pathlib.Path(folder, "kernels.cubin")
        source.write_text(ptx)
        command = [ptxas, f"-arch={architecture}", "-v", "-warn-spills", "-o", made, source]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{architecture}: ptxas: {done.stdout}{done.stderr}")
        cubin = made.read_bytes()
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                       r"(\d+) bytes spill loads.*?Used (\d+) registers", done.stderr, re.DOTALL)
    kernels = ptx.count(".visible .entry")
    if len(found) != kernels:
        sys.exit(f"{architecture}: ptxas reports {len(found)} kernels, and there are {kernels}:\n{done.stderr}")
    wrong = [name for name, *memory, _ in found if any(int(bytes) for bytes in memory)]
    if wrong:
        sys.exit(f"{architecture}: stack or spills: {', '.join(wrong)}\n{done.stderr}")
    return cubin, {name: int(registers) for name, *_, registers in found}


def instructions(cubin):
    """How many instructions each kernel has: its section in the ELF file holds nothing else."""
    start, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    section = [struct.unpack_from("<IIQQQQ", cubin, start + size * index) for index in range(count)]
    texts = section[names][4]
    found = {}
    for name, _, _, _, _, length in section:
        end = cubin.index(b"\0", texts + name)
        name = cubin[texts + name:end].decode()
        if name.startswith(".text."):
            found[name.removeprefix(".text.")] = length // INSTRUCTION_BYTES
    return found


def widest(ptx, kernel, instruction):
    """Bytes of the widest global load ("ld") or store ("st") of a kernel."""
    body = ptx[ptx.index(f".entry {kernel}("):]
    body = body[:body.index("\n}")]
    found = re.findall(rf"\b{instruction}\.global(?:\.\w+)*?(?:\.v([24]))?\.[bfsu](\d+)\b", body)
    return max((int(vector or 1) * int(bits) // 8 for vector, bits in found), default=0)


def check_budget(architecture, ptx, cubin, registers):
    """Fails if a kernel has more than it may, and prints what it has."""
    counts, wrong, told = instructions(cubin), [], []
    if sorted(counts) != sorted(BUDGETS):
        sys.exit(f"{architecture}: budgets of {sorted(BUDGETS)}, and kernels {sorted(counts)}")
    for name, (registers_max, instructions_max, load, store) in BUDGETS.items():
        has = (registers[name], counts[name], widest(ptx, name, "ld"), widest(ptx, name, "st"))
        told.append(f"{name} {has[0]} {has[1]}")
        if has[0] > registers_max or has[1] > instructions_max or has[2:] != (load, store):
            wrong.append(f"{name} has {has}, and its budget is {BUDGETS[name]}")
    print(f"{architecture}: registers and instructions: {', '.join(told)}")
    if wrong:
        sys.exit(f"{architecture}: (registers, instructions, bytes of the widest load and store): " + "; ".join(wrong))


def hashes(cubins):
    lines = [f"sources: {source_hash()}"]
    lines += [f"{name}: {hashlib.sha256(cubin).hexdigest()}" for name, cubin in cubins.items()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare and assemble, but write nothing")
    parser.add_argument("--ptx", metavar="ARCHITECTURE", help="print the PTX of one of them, and do nothing else")
    arguments = parser.parse_args()
    compiler = Compiler()
    if arguments.ptx:
        print(compiler.compile(ARCHITECTURES[arguments.ptx]), end="")
        return
    body = compiler.compile("compute_70")
    ptx, cubins = with_hashes(body), {}
    for architecture in OTHERS:
        assemble(architecture, body)
    for architecture, virtual in ARCHITECTURES.items():
        own = compiler.compile(virtual)
        cubins[architecture], registers = assemble(architecture, own)
        check_budget(architecture, own, cubins[architecture], registers)
    if not arguments.check:
        PTX.write_text(ptx)
        CUBINS.mkdir(exist_ok=True)
        (CUBINS / "hashes.txt").write_text(hashes(cubins))
        for name, cubin in cubins.items():
            (CUBINS / f"{name}.z").write_bytes(zlib.compress(cubin, 9))
    remedy = "does not match its sources: run sys/kernels/build.py and commit what it writes"
    if PTX.read_text() != ptx:
        sys.exit(f"{PTX.name} {remedy}")
    if (CUBINS / "hashes.txt").read_text() != hashes(cubins):
        sys.exit(f"hashes.txt {remedy}")
    for name, cubin in cubins.items():
        if zlib.decompress((CUBINS / f"{name}.z").read_bytes()) != cubin:
            sys.exit(f"{name}.z {remedy}")
    bytes_of = sum((CUBINS / f"{name}.z").stat().st_size for name in cubins)
    print(f"{PTX.name}: {len(ptx)} bytes, {ptx.count('.visible .entry')} kernels; {len(cubins)} cubins, {bytes_of} "
          "bytes; all match their sources")


if __name__ == "__main__":
    main()
