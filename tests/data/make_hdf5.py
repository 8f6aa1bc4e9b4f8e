#!/usr/bin/env python3
"""Writes tests/data/hdf5: small files by h5py, which the tests read.

Needs h5py and hdf5plugin; the tests do not. Run it in a scratch environment and check in what changes:

    python3 -m venv .venv && .venv/bin/pip install h5py hdf5plugin && .venv/bin/python tests/data/make_hdf5.py

Elements are 0, 1, 2, ... in every dataset, modulo 251 and as its type has them, so that a test knows them. With a
folder as argument the files are written there; with a number after it, datasets of random shapes are written too.
`tests/hdf5` does so where h5py is there.
"""

import ctypes
import pathlib
import random
import sys

import h5py
import hdf5plugin
import numpy

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "hdf5"

# Each of these is written in the earliest and in the latest form that the library knows.
FORMS = {"earliest": ("earliest", "v108"), "latest": ("v110", "v110"), "newest": ("latest", "latest")}


def elements(dtype, shape):
    return (numpy.arange(numpy.prod(shape, dtype=int)) % 251).astype(dtype).reshape(shape)


def write(form, name, make, **options):
    with h5py.File(OUT / f"{name}-{form}.h5", "w", libver=FORMS[form], **options) as file:
        make(file)


def dataset(file, name, dtype, shape, **options):
    file.create_dataset(name, data=elements(dtype, shape), **options)


def properties():
    """Of a dataset that does not tell when it was made: the same bytes each time."""
    created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    created.set_obj_track_times(False)
    return created


def types(file):
    for dtype in ["i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]:
        dataset(file, f"numbers/{dtype[-2:]}", dtype, (5, 3))
    file["numbers/bool"] = elements("u1", (5, 2)) % 2 == 0
    colours = h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, basetype="u1")
    file.create_dataset("numbers/enum", data=elements("u1", (5,)), dtype=colours)
    arrays = h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (2, 3))
    arrays = h5py.h5d.create(file["numbers"].id, b"arrays", arrays, h5py.h5s.create_simple((5,)), properties())
    h5py.Dataset(arrays)[...] = elements("<f4", (5, 2, 3))
    file.create_dataset("other/names", data=["a", "b", "c"])
    dataset(file, "other/short", "<i4", (4,))


def layouts(file):
    dataset(file, "contiguous", "<i4", (11, 6, 4))
    dataset(file, "chunked", "<i4", (11, 6, 4), chunks=(4, 6, 4))
    dataset(file, "wide", "<i4", (11, 6, 4), chunks=(4, 8, 4), maxshape=(None, None, 4))
    dataset(file, "split", "<i4", (11, 6, 4), chunks=(4, 4, 3))
    dataset(file, "gzip", "<i4", (11, 6, 4), chunks=(4, 6, 4), compression="gzip", shuffle=True)
    dataset(file, "gzip_split", "<i4", (11, 6, 4), chunks=(3, 4, 3), compression="gzip", shuffle=True)
    dataset(file, "checked", "<i4", (11, 6, 4), chunks=(4, 6, 4), fletcher32=True)
    dataset(file, "all", "<i4", (11, 6, 4), chunks=(4, 3, 4), fletcher32=True, compression="gzip", shuffle=True)
    dataset(file, "lzf", "<i4", (11, 6, 4), chunks=(4, 6, 4), compression="lzf")
    dataset(file, "lz4", "<i4", (11, 6, 4), chunks=(4, 6, 4), **hdf5plugin.LZ4())
    dataset(file, "zstd", "<i4", (11, 6, 4), chunks=(4, 6, 4), **hdf5plugin.Zstd())
    dataset(file, "bzip2", "<i4", (11, 6, 4), chunks=(4, 6, 4), **hdf5plugin.BZip2())
    dataset(file, "labels", "<i8", (11,))
    # The other way around, as netCDF-4 has it: the checksum is shuffled and compressed too.
    checked_first = properties()
    checked_first.set_chunk((4, 6, 4))
    checked_first.set_fletcher32()
    checked_first.set_shuffle()
    checked_first.set_deflate(4)
    space = h5py.h5s.create_simple((11, 6, 4))
    h5py.h5d.create(file.id, b"checked_first", h5py.h5t.STD_I32LE, space, checked_first)
    file["checked_first"][...] = elements("<i4", (11, 6, 4))


def indices(file):
    """All indices of chunks that the form has, with and without filters."""
    one = {"compression": "gzip"}
    shape, chunks = (40, 3), (2, 3)
    for suffix, filters in [("", {}), ("_gzip", one)]:
        dataset(file, f"single{suffix}", "<u2", shape, chunks=shape, **filters)
        dataset(file, f"fixed{suffix}", "<u2", shape, chunks=chunks, maxshape=(60, 5), **filters)
        dataset(file, f"extensible{suffix}", "<u2", shape, chunks=chunks, maxshape=(None, 3), **filters)
        dataset(file, f"extensible_1{suffix}", "<u2", shape, chunks=(4, 2), maxshape=(100, None), **filters)
        dataset(file, f"tree{suffix}", "<u2", shape, chunks=chunks, maxshape=(None, None), **filters)
    # Allocated at once and without filters: the chunks lie end to end.
    early = properties()
    early.set_chunk(chunks)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    space = h5py.h5s.create_simple(shape, (50, 3))
    h5py.h5d.create(file.id, b"implicit", h5py.h5t.STD_U16LE, space, early)
    file["implicit"][...] = elements("<u2", shape)


def many(file):
    """Indices of several levels, and pages of arrays."""
    for name, maxshape in [("fixed", (3000,)), ("extensible", (None,))]:
        dataset(file, name, "u1", (3000,), chunks=(1,), maxshape=maxshape)
    dataset(file, "tree", "u1", (3000, 1), chunks=(1, 1), maxshape=(None, None))
    # Pages of which only one is there; the blocks of growing arrays have pages where they are large.
    sparse = file.create_dataset("sparse", (3000,), "u1", chunks=(1,), fillvalue=7)
    sparse[2000] = 9
    grown = file.create_dataset("grown", (160000,), "u1", chunks=(1,), maxshape=(None,), fillvalue=7)
    grown[1500] = 8
    grown[159999] = 9


def filled(file):
    partly = file.create_dataset("partly", (10, 4), "<i2", chunks=(3, 3), fillvalue=-5, compression="gzip")
    partly[4, 1] = 77
    file.create_dataset("nothing", (10, 4), "<f4", chunks=(3, 4), maxshape=(None, 4))
    shrunk = file.create_dataset("shrunk", data=elements("<i2", (20, 4)), chunks=(3, 4), maxshape=(None, 4))
    shrunk.resize((10, 4))


def plain_edges(file):
    """Chunks over the end of the dataset do not go through the filters."""
    created = properties()
    created.set_chunk((4, 3))
    created.set_deflate(4)
    # h5py has no name for this option of its library: H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, which is 2.
    library = next(pathlib.Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*"))
    assert ctypes.CDLL(library).H5Pset_chunk_opts(ctypes.c_int64(created.id), ctypes.c_uint(2)) == 0
    h5py.h5d.create(file.id, b"edges", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((10, 4)), created)
    file["edges"][...] = elements("<i4", (10, 4))


def groups(file):
    """More links than fit into the header of a group, and links of all kinds."""
    for number in range(150):
        dataset(file, f"dense/a dataset of number {number:03}", "u1", (3,))
    file["soft"] = h5py.SoftLink("/dense/a dataset of number 017")
    file["dense/up"] = h5py.SoftLink("a dataset of number 018")
    file["circle"] = h5py.SoftLink("/circle")
    file["outside"] = h5py.ExternalLink("other.h5", "/x")
    file["itself"] = file["/"]


def refused(file):
    dataset(file, "big_endian", ">f4", (4,))
    file.create_dataset("strings", data=["a", "b", "c", "d"])
    file.create_dataset("fixed_strings", data=numpy.array([b"a", b"b", b"c", b"d"]))
    file.create_dataset("compound", data=numpy.zeros(4, dtype=[("a", "<i4"), ("b", "<f8")]))
    file.create_dataset("ragged", (4,), dtype=h5py.vlen_dtype("<i4"))
    file.create_dataset("references", data=[file["strings"].ref] * 4, dtype=h5py.ref_dtype)
    file.create_dataset("complex", data=numpy.zeros(4, dtype="<c8"))
    file.create_dataset("never", (4,), "<i4")
    file.create_dataset("scalar", data=7)
    dataset(file, "blosc", "<i4", (4,), chunks=(4,), **hdf5plugin.Blosc())
    dataset(file, "scaled", "<i4", (4,), chunks=(4,), scaleoffset=0)
    file.create_dataset("external", (4,), "u1", external=[("outside.bin", 0, 4)])
    dataset(file, "five", "<i4", (5,))
    layout = h5py.VirtualLayout(shape=(4,), dtype="<i4")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "x", shape=(4,))
    file.create_virtual_dataset("virtual", layout)


TEXTS = ["", "a", "zwei", "drei drei", "\u4e16\u754c", "x" * 300, "last"]


def texts(file):
    """Strings and lists, of fixed and of any length."""
    file.create_dataset("fixed", data=numpy.array([text.encode()[:7] for text in TEXTS], dtype="S7"))
    file.create_dataset("variable", data=TEXTS)
    file.create_dataset("chunked", data=TEXTS, chunks=(3,), maxshape=(None,))
    file.create_dataset("packed", data=TEXTS, chunks=(2,), compression="gzip", shuffle=True)
    for name, base, options in [("ints", "<i4", {}), ("floats", ">f8", {"chunks": (4,), "compression": "lzf"})]:
        lists = file.create_dataset(name, (len(TEXTS),), dtype=h5py.vlen_dtype(numpy.dtype(base)), **options)
        for row in range(len(TEXTS)):
            lists[row] = numpy.arange(row, dtype=base)
    partly = file.create_dataset("partly", (len(TEXTS),), dtype=h5py.string_dtype(), chunks=(2,))
    partly[4] = "only"


def endings(file):
    """Big endian numbers, in every layout."""
    for dtype in [">i2", ">i4", ">u8", ">f4", ">f8", ">f2"]:
        dataset(file, f"contiguous_{dtype[1:]}", dtype, (11, 6, 4))
    dataset(file, "chunked", ">i4", (11, 6, 4), chunks=(4, 6, 4))
    dataset(file, "split", ">i2", (11, 6, 4), chunks=(4, 4, 3), compression="gzip", shuffle=True)
    filled = file.create_dataset("zfilled", (11, 3), ">i4", chunks=(2, 2), fillvalue=7, compression="gzip")
    filled[0, 0] = 9


def scaled(file):
    """The filter scaleoffset, of which `*_read` is what h5py reads."""
    for dtype in ["i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", ">i4"]:
        name = dtype.replace("<", "").replace(">", "big_")
        dataset(file, name, dtype, (11, 6, 4), chunks=(4, 6, 4), scaleoffset=0)
    dataset(file, "gzip", "<i4", (11, 6, 4), chunks=(4, 4, 3), scaleoffset=0, compression="gzip")
    dataset(file, "narrow", "<i4", (11, 6, 4), chunks=(4, 6, 4), scaleoffset=8)
    dataset(file, "floats", "<f4", (11, 6, 4), chunks=(4, 6, 4), scaleoffset=2)
    for name, values in [
        ("same", numpy.full(11, -3, "<i8")),
        ("extremes", numpy.array([-(2**31), 2**31 - 1] + [0] * 9, "<i4")),
        ("decimals4", numpy.linspace(-3, 7, 11, dtype="<f4")),
        ("decimals8", numpy.linspace(-1e6, 7, 11, dtype="<f8")),
    ]:
        options = {"chunks": (4,), "scaleoffset": 3 if name.startswith("decimals") else 0}
        file.create_dataset(name, data=values, **options)
        file.create_dataset(name + "_read", data=file[name][...])
    for name, dtype in [("part", "<i2"), ("part_float", "<f8")]:
        digits = 2 if dtype == "<f8" else 0
        partly = file.create_dataset(name, (11,), dtype, chunks=(4,), fillvalue=-5, scaleoffset=digits)
        partly[2:6] = [1, 2, -5, 9]
        file.create_dataset(name + "_read", data=partly[...])


def tables(file):
    """Compounds, whose fields are columns; beside them what no column can hold."""
    inner = numpy.dtype([("u", "<u2"), ("v", ">f4")])
    of = numpy.dtype([("id", "<i8"), ("name", "S5"), ("box", "<f4", (2, 2)), ("inner", inner), ("flag", "?")])
    rows = numpy.zeros(9, of)
    rows["id"] = elements("<i8", 9)
    rows["name"] = [b"row %d" % row for row in range(9)]
    rows["box"] = elements("<f4", (9, 2, 2))
    rows["inner"]["u"] = elements("<u2", 9)
    rows["inner"]["v"] = elements(">f4", 9)
    rows["flag"] = elements("u1", 9) % 2 == 0
    file.create_dataset("contiguous", data=rows)
    file.create_dataset("chunked", data=rows, chunks=(4,))
    file.create_dataset("packed", data=rows, chunks=(4,), compression="gzip", shuffle=True)
    mixed = file.create_dataset("mixed", (9,), numpy.dtype([("text", h5py.string_dtype()), ("n", "<i4")]))
    mixed["n"] = elements("<i4", 9)
    partly = file.create_dataset("partly", (9,), of, chunks=(4,), compression="gzip", fillvalue=rows[3])
    partly[0] = rows[0]
    dataset(file, "beside", "<i4", (9, 2))
    file.create_dataset("references", data=[file["beside"].ref] * 9, dtype=h5py.ref_dtype)
    file.create_dataset("never", (9,), "<i4")
    dataset(file, "blosc", "<i4", (9,), chunks=(9,), **hdf5plugin.Blosc())


def named_type(file):
    file["type"] = numpy.dtype("<f8")
    file.create_dataset("x", data=elements("<f8", (4, 2)), dtype=file["type"])


def compact(file):
    created = properties()
    created.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((4, 2)), created)
    file["x"][...] = elements("<i4", (4, 2))


def small(file):
    dataset(file, "x", "<i2", (5, 4), chunks=(2, 3), compression="gzip", fletcher32=True)
    dataset(file, "y", "u1", (5,))


def anything(file):
    """Datasets of random types, shapes, chunks and filters, whose names tell type and shape."""
    for number in range(40):
        shape = [random.randint(1, 40)] + [random.randint(1, 9) for _ in range(random.randint(0, 3))]
        dtype = random.choice(["i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"])
        options = {}
        if random.random() < 0.9:
            options["chunks"] = tuple(random.randint(1, length) for length in shape)
            if random.random() < 0.5:
                options["maxshape"] = tuple(random.choice([None, length, length + 7]) for length in shape)
            options["fletcher32"] = random.random() < 0.3
            options["shuffle"] = random.random() < 0.4
            compressions = [{}, {"compression": "gzip"}, {"compression": "lzf"}, hdf5plugin.LZ4(), hdf5plugin.Zstd()]
            options.update(random.choice(compressions))
        name = "_".join([str(number), dtype[-2:], *map(str, shape)])
        dataset(file, name, dtype, shape, **options)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for form in ["earliest", "latest"]:
        for make in [types, layouts, indices, filled, groups, named_type, compact, small, texts, endings, scaled,
                     tables]:
            write(form, make.__name__, make)
    write("latest", "many", many)
    write("latest", "plain_edges", plain_edges)
    write("latest", "refused", refused)
    write("newest", "small", small)
    write("newest", "indices", indices)
    # MATLAB's files have something of their own in front.
    write("earliest", "user_block", small, userblock_size=1024)
    write("latest", "user_block", small, userblock_size=512)
    if len(sys.argv) > 2:
        random.seed(int(sys.argv[2]))
        for form in FORMS:
            write(form, "anything", anything)
            with h5py.File(OUT / f"anything-{form}.h5") as file:
                (OUT / f"anything-{form}.names").write_text("\n".join(file))
