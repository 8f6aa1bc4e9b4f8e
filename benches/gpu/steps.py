"""Steps of the GPU suite: programs, each with a time limit, whose results are kept even if the caller is killed."""

import os
import re
import signal
import subprocess
import threading
import time
import traceback

# Seconds for a killed program to end. One that a call into the driver holds (state D) does not, and is left behind.
GRACE_S = 3
# A step that gets less is not begun.
LEAST_S = 2
# Of a step's output the log has the begin and the end, so that the logs of all steps stay below 16 MiB.
BEGIN_BYTES = 1 << 20
END_BYTES = 1 << 16


class Steps:
    """Runs one step after the other, and tells `keep` every second and after each what is known: (name, status,
    seconds) of those that ended."""

    def __init__(self, log, seconds, keep):
        # Not buffered: what is in the log is there after a SIGKILL too.
        self.log = open(log, "ab", buffering=0)
        self.end = time.monotonic() + seconds
        self.keep = keep
        self.told = []

    def is_well(self):
        return all(status.startswith(("ok", "skipped")) for _, status, _ in self.told)

    def run(self, name, limit, command):
        """`command` is one of bash. Its process group is its own and ends with it."""
        begin = time.monotonic()
        limit = min(limit, self.end - begin)
        self.say(f"== {name}, {limit:.0f} s at most")
        status = "no time left" if limit < LEAST_S else self.status_of(command, begin + limit)
        self.told.append((name, status, time.monotonic() - begin))
        self.say(f"== {name}: {status}")
        self.save()

    def status_of(self, command, deadline):
        process = subprocess.Popen(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, process_group=0)
        seen = set()
        copier = threading.Thread(target=self.copy, args=(process.stdout, seen), daemon=True)
        copier.start()
        try:
            code = self.wait(process, deadline)
        finally:
            kill(process)
        if code is None:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                return "out of time, and left behind: it does not end"
        # What the log has is complete, unless something left the group with the output.
        copier.join(GRACE_S)
        if code is None:
            return "out of time"
        return f"FAILED ({code})" if code else "ok, with skips" if seen else "ok"

    def wait(self, process, deadline):
        """The exit status; None at the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            try:
                return process.wait(min(left, 1))
            except subprocess.TimeoutExpired:
                self.save()
        return None

    def copy(self, output, skips):
        """Copies output to the log as it comes, and adds to `skips` where a line says that something was skipped."""
        left, last, left_out = BEGIN_BYTES, b"\n", 0
        while piece := os.read(output.fileno(), 1 << 16):
            skips.update(re.findall(rb"(?:\n|\.\.\. )skipped", last[-8:] + piece))
            self.log.write(piece[:left])
            last = (last + piece)[-END_BYTES:]
            left_out += len(piece[left:])
            left -= len(piece[:left])
        if left_out:
            self.log.write(b"\n[%d bytes]\n" % left_out + last[-left_out:] + b"\n")

    def save(self):
        """Without `keep` nothing is kept, but a fault of it costs no step."""
        try:
            self.keep(self.told)
        except Exception:
            self.say(traceback.format_exc())

    def say(self, line):
        print(line, flush=True)
        self.log.write(f"{line}\n".encode())


def kill(process):
    """Ends a program with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
