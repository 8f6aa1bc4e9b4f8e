#!/usr/bin/env python3
"""Writes the files of lines that tests/lines reads, with Python's own csv and json (no package is needed), some
compressed with Python's gzip and bz2, and with the program zstd.

    python3 tests/data/make_lines.py

Beside them stands expected.json: for each file, the bytes of each column of each sample in hex, made from the values
that were written and not from the files.
"""

import bz2
import csv
import gzip
import json
import shutil
import struct
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "lines"
NAMES = ["plain", "odd \"name\", with a comma", "number", "real"]
ROWS = [
    ["a", "b", 1, 0.5],
    ["", "", -9223372036854775808, -0.0],
    ["two\nlines", "three\r\nlines\nof text", 9223372036854775807, 1e300],
    ['a "quoted" word', '"', 0, 5e-324],
    ['""', ",", 7, 0.1],
    ["tab\there", "semicolon; pipe|", 8, 1.7976931348623157e308],
    [" blanks ", "\r", 9, -1.5],
    ["grüße, 世界", "\ufeffmark", 10, 2.0],
    ["x" * 300, "\n" * 5, 11, 123456789.123456789],
    ['"start', 'end"', 12, 3.0],
]
DIALECTS = {
    "excel.csv": {"dialect": "excel"},
    "excel.tsv": {"dialect": "excel-tab"},
    "unix.csv": {"dialect": "unix"},
    "semicolon.csv": {"dialect": "excel", "delimiter": ";"},
    "nonnumeric.csv": {"quoting": csv.QUOTE_NONNUMERIC, "lineterminator": "\n"},
}
OBJECTS = [
    {"text": "plain", "label": 3, "score": 0.25, "ids": [1, 2, 3], "flag": True, "meta": {"a": [1, None]}},
    {"text": "two\nlines \"and\" quotes \\ /", "label": -1, "score": 1e-7, "ids": [], "flag": False, "meta": []},
    {"text": "世界 \U0001f600", "label": 2**62, "score": 3.0, "ids": [-(2**63)], "flag": True, "meta": None},
    {"text": "", "label": 0, "score": -0.0, "ids": list(range(100)), "flag": False, "meta": {"text": "not at the top"}},
]


def hexed(columns: dict) -> dict:
    return {name: value.hex() for name, value in columns.items()}


def tables(expected: dict) -> None:
    for name, dialect in DIALECTS.items():
        with open(FOLDER / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, **dialect)
            writer.writerow(NAMES)
            writer.writerows(ROWS)
        rows = []
        for plain, odd, number, real in ROWS:
            values = [plain.encode(), odd.encode(), struct.pack("<q", number), struct.pack("<d", real)]
            rows.append(hexed(dict(zip(NAMES, values))))
        expected[name] = rows
    # A lone empty field is quoted, so that its line is not empty.
    with open(FOLDER / "single.csv", "w", newline="") as file:
        csv.writer(file).writerows([["name"], ["a"], [""], ["b"]])
    expected["single.csv"] = [hexed({"name": value}) for value in [b"a", b"", b"b"]]


def objects(expected: dict) -> None:
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    for name, options in {"ascii.jsonl": {}, "unicode.jsonl": compact}.items():
        lines = [json.dumps(value, **options) for value in OBJECTS]
        (FOLDER / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        expected[name] = [
            hexed({
                "text": value["text"].encode(),
                "label": struct.pack("<q", value["label"]),
                "score": struct.pack("<d", value["score"]),
                "ids": struct.pack(f"<{len(value['ids'])}q", *value["ids"]),
                "flag": bytes([value["flag"]]),
                "meta": json.dumps(value["meta"], **options).encode(),
            })
            for value in OBJECTS
        ]
        expected[name + " whole"] = [hexed({"json": line.encode()}) for line in lines]


def packed() -> None:
    """Compressed copies, with the name that such files have; what they hold is what the plain file holds."""
    copies = {"ascii.jsonl": "ascii.jsonl.gz", "unicode.jsonl": "c4.00000-of-00001.json.gz",
              "excel.csv": "excel.csv.gz"}
    for name, copy in copies.items():
        (FOLDER / copy).write_bytes(gzip.compress((FOLDER / name).read_bytes(), mtime=0))
    (FOLDER / "unix.csv.bz2").write_bytes(bz2.compress((FOLDER / "unix.csv").read_bytes()))
    for name in ["unicode.jsonl", "excel.tsv"]:
        subprocess.run(["zstd", "-q", FOLDER / name, "-o", FOLDER / (name + ".zst")], check=True)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    expected: dict = {}
    tables(expected)
    objects(expected)
    packed()
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
