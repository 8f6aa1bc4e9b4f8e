#!/usr/bin/env python3
"""The two calls of the GPU suite on the machine with the GPU: see benches/gpu.sh, which is how they are made.

usage: benches/gpu/calls.py correct|figures OUT
"""

import glob
import gzip
import os
import shutil
import signal
import sys
import tempfile
import time
import zipfile

import merge
import steps

FACTS = r"""
cat "$KIT/made-from.txt"
for told in 'ulimit -l' nproc 'uname -a' 'free -g' 'df -hT "$DATA" /dev/shm' 'ls -l /dev/nvidia*' \
    'cat /proc/driver/nvidia/params' 'ldconfig -p | grep -E "lib(cuda|cufile|nvjpeg|nvcuvid|cudart)\."' \
    '"$BIN/uringload" doctor' \
    'nvidia-smi --format=csv --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current' \
    nvidia-smi 'nvidia-smi topo -m' 'nvidia-smi -q -d CLOCK' lscpu 'lsblk -o NAME,MODEL,SIZE,ROTA,SCHED'
do
    echo "== $told"
    timeout --foreground -k 1 3 bash -c "$told"
done
true"""

SUITE = '"$BIN/suite" --dir "$DATA" --json "$SCRATCH/suite.json" --nvjpeg "$NVJPEG" $REQUIRED ${GPU_TRY:+--tiny --mock}'
TORCH = 'python3 benches/gpu/torch_device.py "$DATA" --json "$SCRATCH/torch.json" $REQUIRED ${GPU_TRY:+--tiny}'
PEERS = 'python3 benches/gpu/peers.py "$DATA" --json "$SCRATCH/peers.json" ${GPU_TRY:+--device cpu}'

# Of few cases, because each access of memory is looked at. 9 is the status if something is found. No kernel has shared
# memory, so there is nothing for racecheck.
SANITIZED = """
command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer here"; exit 0; }
URINGLOAD_GPU_CASES=%d compute-sanitizer --tool %s --error-exitcode 9 --target-processes all \\
    "$BIN/tests" kernels:: pictures:: --test-threads 1 --nocapture"""

# The kernels' tests again, in a program whose machine code no driver takes, so that it compiles the PTX.
PTX = """
[ -x "$BIN/tests-ptx" ] || { echo "skipped: the programs have other machine code than sys/kernels/cubins"; exit 0; }
exec "$BIN/tests-ptx" kernels:: pictures:: --test-threads 4 --nocapture"""

# Seconds of each call, and its steps: name, seconds at most, command. The most valuable comes first.
CALLS = {
    "correct": (150, (
        ("machine", 10, FACTS),
        ("tests", 45, '"$BIN/tests" --test-threads 4 --nocapture'),
        ("torch", 40, TORCH),
        ("ptx", 15, PTX),
        ("memcheck", 20, SANITIZED % (49, "memcheck")),
        ("initcheck", 10, SANITIZED % (40, "initcheck")),
    )),
    "figures": (420, (
        ("machine", 10, FACTS),
        ("copies", 20, f"{SUITE} --seconds 12 --only h2d"),
        ("kernels", 20, f"{SUITE} --seconds 12 --only kernels"),
        # The files are made here.
        ("cached", 45, f"{SUITE} --seconds 25 --only cached"),
        ("disk", 75, f"{SUITE} --seconds 62 --only works"),
        ("jpeg", 20, f"{SUITE} --seconds 12 --only jpeg"),
        ("busy", 25, f"{SUITE} --seconds 16 --only busy --only beside"),
        ("trainer", 40, f"{TORCH} --figures"),
        ("torchvision", 40, f"{PEERS} --seconds 18 --only torchvision"),
        ("dataloader", 42, f"{PEERS} --seconds 24 --only pytorch"),
        ("kvikio", 42, f"{PEERS} --seconds 22 --only kvikio"),
    )),
}
# For what is done before and after the steps.
AROUND_S = 10


def unpack(kit, scratch):
    """Puts the kit's programs and wheels where they run: where pip may be absent, an unzipped wheel is installed."""
    for name in ("tests", "suite", "uringload"):
        with gzip.open(f"{kit}/{name}.gz") as packed, open(f"{scratch}/{name}", "wb") as program:
            shutil.copyfileobj(packed, program)
        os.chmod(program.name, 0o755)
    for wheel in glob.glob(f"{kit}/wheels/*.whl"):
        zipfile.ZipFile(wheel).extractall(f"{scratch}/site")
    without_machine_code(f"{scratch}/tests")


def without_machine_code(program):
    """Writes PROGRAM-ptx, in which the kernels' machine code is nothing that can be decompressed, so that the driver
    gets PTX."""
    with open(program, "rb") as file:
        tests = file.read()
    for name in glob.glob("sys/kernels/cubins/*.z"):
        with open(name, "rb") as file:
            code = file.read()
        if code not in tests:
            return
        tests = tests.replace(code, bytes(len(code)))
    with open(f"{program}-ptx", "wb") as file:
        file.write(tests)
    os.chmod(file.name, 0o755)


def main():
    name, out = sys.argv[1:]
    begin = time.monotonic()
    seconds, all_steps = CALLS[name]
    kit = os.environ.get("GPU_KIT", "gpu-kit")
    if not os.path.exists(f"{kit}/tests.gz"):
        sys.exit(f"gpu.sh: {kit} has no programs: run benches/gpu.sh pack where Rust is")
    os.makedirs(out, exist_ok=True)
    # So that what runs is ended, and the data removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scratch = tempfile.mkdtemp()
    data = os.environ.get("GPU_DATA") or tempfile.mkdtemp(prefix="uringload-gpu.", dir="/var/tmp")
    os.makedirs(data, exist_ok=True)
    try:
        unpack(kit, scratch)
        nvjpeg = f"{scratch}/site/nvidia/cu13/lib"
        os.environ.update({
            "KIT": kit, "BIN": scratch, "SCRATCH": scratch, "DATA": data, "NVJPEG": nvjpeg,
            "URINGLOAD_GPU_DIR": data, "URINGLOAD_GPU_NVJPEG": nvjpeg, "PYTHONPATH": f"{scratch}/site",
            "PYTHONUNBUFFERED": "1", "REQUIRED": "",
        })
        # Where there is a GPU, not to open it is a failure.
        if os.path.exists("/dev/nvidiactl"):
            os.environ.update({"REQUIRED": "--required", "URINGLOAD_GPU_REQUIRED": "1"})
        left = seconds - AROUND_S - (time.monotonic() - begin)
        runner = steps.Steps(f"{out}/log.txt", left, lambda told: merge.write(scratch, out, told))
        for step in all_steps:
            runner.run(*step)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if not os.environ.get("GPU_DATA"):
            shutil.rmtree(data, ignore_errors=True)
    with open(f"{out}/table.txt", encoding="utf-8") as table:
        print(table.read())
    sys.exit(0 if runner.is_well() else 1)


if __name__ == "__main__":
    main()
