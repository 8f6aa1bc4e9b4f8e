#!/usr/bin/env python3
"""Writes tests/data/tar: small compressed archives by Python's tarfile, which the tests read.

Needs nothing but Python and, for one of them, the zstd program. Run it and check in what changes:

    python3 tests/data/make_tars.py

Sample number n has the field "jpg" of 300 * n bytes, of which byte i is i * (n + 3) % 251, and the field "cls", which
is the digit n. The last one lies in a folder with a long name.
"""

import gzip
import io
import pathlib
import subprocess
import tarfile

OUT = pathlib.Path(__file__).parent / "tar"


def archive(kind):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for n in range(6):
            key = ("d" * 150 + "/" if n == 5 else "") + f"{n:04}"
            image = bytes(i * (n + 3) % 251 for i in range(300 * n))
            for field, content in [("cls", b"%d" % n), ("jpg", image)]:
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size, member.mode, member.uname, member.gname = len(content), 0o444, "bigdata", "bigdata"
                tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def write_bz2(name, kind):
    with tarfile.open(OUT / name, "w:bz2", format=kind) as out, tarfile.open(fileobj=io.BytesIO(archive(kind))) as tar:
        for member in tar:
            out.addfile(member, tar.extractfile(member))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    write_bz2("gnu.tar.bz2", tarfile.GNU_FORMAT)
    # Not by tarfile's "w:gz", which writes the time into gzip's header.
    pax = archive(tarfile.PAX_FORMAT)
    (OUT / "pax.tar.gz").write_bytes(gzip.compress(pax, mtime=0))
    # Two members of gzip, cut within a header.
    (OUT / "members.tgz").write_bytes(gzip.compress(pax[:700], mtime=0) + gzip.compress(pax[700:], mtime=0))
    zstd = subprocess.run(["zstd", "-c", "--single-thread"], input=pax, stdout=subprocess.PIPE, check=True)
    (OUT / "pax.tar.zst").write_bytes(zstd.stdout)
