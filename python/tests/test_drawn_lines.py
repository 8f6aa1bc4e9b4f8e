"""Tables and lines that csv and json wrote: the values that they read, or a file that is refused."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import pathlib
import tempfile
from typing import Any

import pytest

if importlib.util.find_spec("hypothesis") is None or importlib.util.find_spec("numpy") is None:
    pytest.skip("skipped: hypothesis or NumPy is not installed", allow_module_level=True)

import hypothesis
import hypothesis.strategies as st
import uringload
from drawn import settings

# A lone carriage return within a field is kept; csv would take it for the end of a row where it is not quoted.
FIELDS = st.text(st.sampled_from("ab\"',;|\t\n é0"), max_size=6)


def read(name: str, file: bytes, **given: Any) -> dict[str, list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_bytes(file)
        dataset = uringload.Dataset(path, **given)
        with uringload.DataLoader(dataset, len(dataset), output="numpy") as loader:
            batch = next(iter(loader))
            return {column: list(batch[column]) for column in batch}


@settings(1)
@hypothesis.given(
    st.integers(1, 4).flatmap(lambda width: st.lists(
        st.lists(FIELDS, min_size=width, max_size=width), min_size=1, max_size=6)),
    st.sampled_from([(",", "csv"), ("\t", "tsv")]), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_tables_of_csv(rows: list[list[str]], kind: tuple[str, str], end: str, has_mark: bool, quotes: bool) -> None:
    # A row of one empty field is an empty line, which is left out.
    hypothesis.assume(all(len(row) > 1 or row[0] for row in rows))
    delimiter, suffix = kind
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end,
                        quoting=csv.QUOTE_ALL if quotes else csv.QUOTE_MINIMAL)  # fmt: skip
    names = [f"c{number}" for number in range(len(rows[0]))]
    writer.writerows([names, *rows])
    stored = file.getvalue().encode("utf-8-sig" if has_mark else "utf-8")
    assert list(csv.reader(io.StringIO(file.getvalue(), newline=""), delimiter=delimiter)) == [names, *rows]
    found = read(f"0.{suffix}", stored)
    assert found == {name: [row[number] for row in rows] for number, name in enumerate(names)}


@settings(1)
@hypothesis.given(
    st.lists(st.dictionaries(st.text(max_size=3), st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
        max_leaves=6)), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_lines_of_json(lines: list[Any], end: str, ascii_only: bool, has_mark: bool) -> None:
    text = "".join(json.dumps(line, ensure_ascii=ascii_only) + end for line in lines)
    try:
        stored = text.encode("utf-8-sig" if has_mark else "utf-8")
    except UnicodeEncodeError:
        hypothesis.reject()
    assert [json.loads(line) for line in read("0.jsonl", stored)["json"]] == lines


@settings(1)
@hypothesis.given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), min_size=1))
def test_numbers_of_csv(rows: list[tuple[int, float]]) -> None:
    stored = "i,f\n" + "".join(f"{one},{other!r}\n" for one, other in rows)
    found = read("0.csv", stored.encode(), columns=["i:i64", "f:f64"])
    assert list(zip(found["i"], found["f"], strict=True)) == rows


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("0.csv", "a,b\n1,x\n2,y\n"), ("0.jsonl", '{"a": 1}\n{"a": 2}\n'), ("0.txt", "one line\nand another\n")],
)
def test_text_of_two_bytes_is_refused(name: str, text: str, codec: str) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="UTF-16"):
        read(name, text.encode(codec))


@pytest.mark.parametrize(
    ("name", "text"), [("0.csv", "a,b\r1,x\r"), ("0.jsonl", '{"a": 1}\r{"a": 2}\r'), ("0.txt", "one\rtwo\r")]
)
def test_lines_that_end_in_a_carriage_return_alone_are_refused(name: str, text: str) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="a carriage return alone"):
        read(name, text.encode())


@pytest.mark.parametrize("text", ['[\n{"a": 1},\n{"a": 2}\n]\n', '[{"a": 1}, {"a": 2}]\n', '{\n "a": 1\n}\n'])
def test_a_document_of_json_is_not_taken_for_lines(text: str) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="one document"):
        read("0.jsonl", text.encode())
