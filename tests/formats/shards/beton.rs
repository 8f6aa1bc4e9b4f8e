//! FFCV's .beton. FFCV itself needs a compiler and OpenCV, so the files are made here, from the description of the
//! format: header, descriptors, a NumPy structure with align=True, pages, and the table of allocations.

use super::*;
use std::os::unix::fs::FileExt as _;
use uringload::dataset::{self, DType, Dataset, Options, Shape};

const PAGE: u64 = 2 << 20;

/// A field's type number, its arguments, and what its place in a record is a multiple of.
#[derive(Clone)]
pub struct Field {
    name: &'static str,
    number: u8,
    arguments: Vec<u8>,
}

/// A value as the writer gets it.
#[derive(Clone)]
pub enum Given {
    Int(i64),
    Float(f64),
    /// Mode, width, height, bytes.
    Image(u8, u16, u16, Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<u8>),
}

pub fn field(name: &'static str, number: u8) -> Field {
    Field { name, number, arguments: Vec::new() }
}

fn array(name: &'static str, number: u8, dtype: &str, shape: &[u64]) -> Field {
    let descr = format!("[[\"\", \"{dtype}\"]]");
    let mut dims = [0_u64; 33];
    dims[..shape.len()].copy_from_slice(shape);
    dims[32] = descr.len() as u64;
    let arguments = dims.iter().flat_map(|dim| dim.to_le_bytes()).chain(descr.bytes()).collect();
    Field { name, number, arguments }
}

/// The parts of a file; the pages are written sparsely.
pub struct Made {
    /// Header, descriptors and records.
    pub head: Vec<u8>,
    pub record_bytes: u64,
    /// What lies in the pages, by place.
    values: Vec<(u64, Vec<u8>)>,
    pub allocations: Vec<[u64; 3]>,
    /// Where the allocations begin.
    pub end: u64,
}

impl Made {
    pub fn write(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.write_all_at(&self.head, 0).unwrap();
        self.values.iter().for_each(|(offset, bytes)| file.write_all_at(bytes, *offset).unwrap());
        let table: Vec<u8> = self.allocations.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&table, self.end).unwrap();
        file.set_len(self.end + table.len() as u64).unwrap();
    }

    fn opened(&self) -> Result<Arc<dyn Dataset>, Error> {
        let root = tempfile::tempdir().unwrap();
        self.write(&root.path().join("x.beton"));
        // The folder may go: nothing is read of it any more.
        open(root.path().join("x.beton"))
    }

    /// The same with other bytes at a place of the head.
    fn with(mut self, at: usize, bytes: &[u8]) -> Made {
        self.head[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

pub fn open(path: impl AsRef<Path>) -> Result<Arc<dyn Dataset>, Error> {
    dataset::open(&[path], &Options::new().format("beton"))
}

/// Makes a file; each sample begins a new page where `new_page` says so.
pub fn make(fields: &[Field], samples: &[Vec<Given>], new_page: impl Fn(usize) -> bool) -> Made {
    let descriptors_end = 24 + 1041 * fields.len();
    // Place of each field in a record: numbers and arrays are multiples of 8, structures are packed.
    let (mut places, mut at, mut aligned) = (Vec::new(), 0_usize, 1);
    for field in fields {
        let (size, alignment) = match field.number {
            2 => (13, 1),
            3 | 5 => (16, 1),
            _ => (8, 8),
        };
        at = at.next_multiple_of(alignment);
        aligned = aligned.max(alignment);
        places.push(at);
        at += size;
    }
    let record = at.next_multiple_of(aligned);
    let pages = ((descriptors_end + record * samples.len()) as u64).next_multiple_of(PAGE);
    let (mut records, mut values, mut allocations) = (vec![0; record * samples.len()], Vec::new(), Vec::new());
    let (mut next, mut page_end) = (pages, pages + PAGE);
    for (number, sample) in samples.iter().enumerate() {
        if new_page(number) {
            (next, page_end) = (page_end, page_end + PAGE);
        }
        for (given, place) in sample.iter().zip(&places) {
            let mut put = |bytes: &[u8]| {
                let here = next;
                next += bytes.len() as u64;
                assert!(next <= page_end, "a sample fits into a page");
                values.push((here, bytes.to_vec()));
                allocations.push([number as u64, here, bytes.len() as u64]);
                here.to_le_bytes()
            };
            let bytes = match given {
                Given::Int(value) => value.to_le_bytes().to_vec(),
                Given::Float(value) => value.to_le_bytes().to_vec(),
                Given::Image(mode, width, height, bytes) => {
                    [&[*mode], &width.to_le_bytes()[..], &height.to_le_bytes(), &put(bytes)].concat()
                }
                Given::Bytes(bytes) => [put(bytes), (bytes.len() as u64).to_le_bytes()].concat(),
                Given::Array(bytes) => put(bytes).to_vec(),
            };
            let at = number * record + place;
            records[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
    let mut head = [&2_u16.to_le_bytes()[..], &(fields.len() as u16).to_le_bytes()].concat();
    head.extend((PAGE as u32).to_le_bytes());
    head.extend((samples.len() as u64).to_le_bytes());
    head.extend(page_end.to_le_bytes());
    for field in fields {
        let mut descriptor = [0; 1041];
        descriptor[0] = field.number;
        descriptor[1..1 + field.name.len()].copy_from_slice(field.name.as_bytes());
        descriptor[17..17 + field.arguments.len()].copy_from_slice(&field.arguments);
        head.extend(descriptor);
    }
    head.extend(records);
    Made { head, record_bytes: record as u64, values, allocations, end: page_end }
}

/// Every kind of field, five samples in three pages; and what a loader has to give.
pub fn all_fields() -> (Made, Vec<Row>) {
    let fields = [
        field("image", 2),
        field("label", 1),
        field("score", 0),
        field("raw", 3),
        array("vector", 4, "<f4", &[3]),
        field("text", 5),
        array("tensor", 6, "|u1", &[2, 2]),
        field("n234567890123456", 1),
    ];
    let mut samples = Vec::new();
    let mut rows = Vec::new();
    for n in 0..5_u8 {
        let image = if n % 2 == 0 { vec![n; 100 + usize::from(n)] } else { vec![n; 2 * 3 * 3] };
        let vector: Vec<u8> = (0..3).flat_map(|k| (f32::from(n) + k as f32).to_le_bytes()).collect();
        let text = format!("{{\"n\": {n}}}");
        let bytes = vec![n; usize::from(n)];
        samples.push(vec![
            Given::Image(n % 2, 2, 3, image.clone()),
            Given::Int(i64::from(n) - 2),
            Given::Float(f64::from(n) / 4.0),
            Given::Bytes(bytes.clone()),
            Given::Array(vector.clone()),
            Given::Bytes([text.as_bytes(), b"\0"].concat()),
            Given::Array(vec![n; 4]),
            Given::Int(i64::MIN),
        ]);
        rows.push(row(&[
            ("image", &image),
            ("image.height", &3_i64.to_le_bytes()),
            ("image.width", &2_i64.to_le_bytes()),
            ("image.mode", &i64::from(n % 2).to_le_bytes()),
            ("label", &(i64::from(n) - 2).to_le_bytes()),
            ("score", &(f64::from(n) / 4.0).to_le_bytes()),
            ("raw", &bytes),
            ("vector", &vector),
            ("text", text.as_bytes()),
            ("tensor", &[n; 4]),
            ("n234567890123456", &i64::MIN.to_le_bytes()),
        ]));
    }
    (make(&fields, &samples, |number| number == 2 || number == 3), rows)
}

#[test]
fn every_field_is_read() {
    let (made, rows) = all_fields();
    let root = folder(&[]);
    made.write(&root.path().join("x.beton"));
    let beton = open(root.path().join("x.beton")).unwrap();
    assert_eq!((beton.len(), beton.shards(), beton.index().plain_field), (5, &[5][..], None));
    let sizes: Vec<u64> = (0..5)
        .map(|id| {
            let mut spans = Vec::new();
            beton.spans(SampleId(id), &mut spans);
            spans.iter().map(|span| span.len).sum()
        })
        .collect();
    assert_eq!((beton.bytes(), beton.largest(1)), (sizes.iter().sum(), *sizes.iter().max().unwrap()));
    let vector = &beton.schema().fields[7];
    assert_eq!((&*vector.name, vector.dtype, &vector.shape), ("vector", DType::F32, &Shape::Fixed(vec![3])));
    assert_eq!(samples(&*beton).into_iter().collect::<Result<Vec<_>, _>>().unwrap(), rows);
    assert_eq!(key(&*beton, 3), "x.beton#3");
    assert!(["x.beton", "*.beton", ""].iter().all(|name| shows(root.path().join(name), "beton")));
    put(root.path(), "other", b"");
    assert!(!shows(root.path(), "beton") && !shows(root.path().join("other"), "beton"));
    loads(&beton, &rows);
}

/// The examples of the format's description: places in a record, and its size.
#[test]
fn records_are_laid_out_as_numpy_aligns_them() {
    let rgb = Given::Image(1, 1, 1, vec![1, 2, 3]);
    for (fields, given, size) in [
        (vec![field("i", 2), field("n", 1)], vec![rgb.clone(), Given::Int(7)], 24),
        (
            vec![field("i", 2), field("x", 0), field("b", 3)],
            vec![rgb.clone(), Given::Float(7.0), Given::Bytes(vec![9])],
            40,
        ),
        (vec![field("i", 2)], vec![rgb.clone()], 13),
        (vec![field("b", 3), field("n", 1)], vec![Given::Bytes(vec![9]), Given::Int(7)], 24),
    ] {
        let made = make(&fields, &[given.clone(), given], |_| false);
        assert_eq!(made.record_bytes, size);
        assert_eq!(made.opened().unwrap().len(), 2);
    }
}

#[test]
fn raw_images_of_one_size_are_one_tensor() {
    let image = |mode, width, height, len| vec![Given::Image(mode, width, height, vec![7; len]), Given::Int(1)];
    let fields = [field("image", 2), field("label", 1)];
    let beton = make(&fields, &[image(1, 4, 2, 24), image(1, 4, 2, 24)], |_| false).opened().unwrap();
    assert_eq!(beton.schema().fields[0].shape, Shape::Fixed(vec![2, 4, 3]));
    assert_eq!((beton.index().plain_field, beton.schema().fields.len()), (Some(0), 2));
    for samples in [[image(1, 4, 2, 24), image(1, 2, 4, 24)], [image(0, 4, 2, 30), image(0, 4, 2, 30)]] {
        let beton = make(&fields, &samples, |_| false).opened().unwrap();
        assert_eq!(beton.schema().fields[0].shape, Shape::Ragged);
        let names: Vec<&str> = beton.schema().fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["image", "image.height", "image.width", "image.mode", "label"]);
        assert_eq!(beton.index().encodings.len(), names.len());
    }
}

#[test]
fn fields_that_cannot_be_read_are_refused_by_name() {
    let one = |field: Field| make(&[field], &[vec![Given::Array(vec![0; 8])]], |_| false).opened();
    for (bad, kind, what) in [
        (field("own", 255), ErrorKind::Unavailable, "class that the writer defined"),
        (field("odd", 7), ErrorKind::Corrupt, "the unknown type 7"),
        (array("a", 4, ">f4", &[2]), ErrorKind::Unavailable, ">f4"),
        (array("a", 4, "|O", &[1]), ErrorKind::Unavailable, "|O"),
        (array("a", 4, "<f4", &[1 << 40, 1 << 40]), ErrorKind::Corrupt, "impossible shape"),
        (array("a", 4, "<f4", &[0, 1]), ErrorKind::Corrupt, "impossible shape"),
        (array("a", 4, "<f4", &[1 << 60]), ErrorKind::Corrupt, "allocated"),
    ] {
        assert_error(one(bad), kind, &[what, "x.beton"]);
    }
    let two = [field("a", 1), field("a", 0)];
    assert_error(
        make(&two, &[vec![Given::Int(1), Given::Float(1.0)]], |_| false).opened(),
        ErrorKind::Corrupt,
        &["two fields are called \"a\""],
    );
    let text = vec![Given::Bytes(b"{}".to_vec())];
    let root = folder(&[]);
    make(&[field("t", 5)], &[text], |_| false).write(&root.path().join("x.beton"));
    let beton = open(root.path().join("x.beton")).unwrap();
    assert_error(sample(&*beton, 0), ErrorKind::Corrupt, &["does not end in a NUL", "\"t\""]);
}

#[test]
fn heads_that_lie_are_refused() {
    let made = || all_fields().0;
    let records = 24 + 1041 * 8;
    let kind = |made: Made, kind, what: &str| assert_error(made.opened(), kind, &[what, "x.beton"]);
    kind(made().with(0, &[1, 0]), ErrorKind::Unavailable, "version 1");
    kind(made().with(2, &[0, 0]), ErrorKind::Corrupt, "no fields");
    kind(made().with(2, &[255, 255]), ErrorKind::Truncated, "65535 fields");
    kind(made().with(4, &3_000_000_u32.to_le_bytes()), ErrorKind::Corrupt, "pages cannot have 3000000 bytes");
    kind(made().with(4, &4096_u32.to_le_bytes()), ErrorKind::Corrupt, "pages cannot have 4096 bytes");
    for samples in [1 << 60, u64::MAX, 1 << 40] {
        kind(made().with(8, &u64::to_le_bytes(samples)), ErrorKind::Truncated, "samples does not fit");
    }
    kind(made().with(8, &0_u64.to_le_bytes()), ErrorKind::Corrupt, "allocations for 0 values");
    kind(made().with(16, &u64::MAX.to_le_bytes()), ErrorKind::Truncated, "past the end");
    kind(made().with(16, &(made().end - 8).to_le_bytes()), ErrorKind::Truncated, "ends in 8 bytes");
    kind(made().with(records, &[2]), ErrorKind::Corrupt, "mode 2");
    kind(made().with(records + 5, &u64::MAX.to_le_bytes()), ErrorKind::Corrupt, "\"image\" of sample 0");
    kind(
        made().with(records + 5, &(made().end + (1 << 30)).to_le_bytes()),
        ErrorKind::Corrupt,
        "nothing was allocated",
    );
    let moved = |number: usize, entry: [u64; 3]| {
        let mut made = made();
        made.allocations[number] = entry;
        made
    };
    let [sample, offset, len] = made().allocations[0];
    kind(moved(0, [sample + 1, offset, len]), ErrorKind::Corrupt, "nothing was allocated for it");
    kind(moved(0, [99, offset, len]), ErrorKind::Corrupt, "outside of a page");
    kind(moved(0, [sample, offset, len + 1]), ErrorKind::Corrupt, "share bytes");
    kind(moved(0, [sample, offset - 1, len]), ErrorKind::Corrupt, "outside of a page");
    kind(moved(0, [sample, offset, 1 << 60]), ErrorKind::Corrupt, "outside of a page");
    kind(moved(0, [sample, offset + PAGE - 1, 2]), ErrorKind::Corrupt, "outside of a page");
    let array = made().allocations.iter().position(|entry| entry[2] == 12).unwrap();
    let [sample, offset, _] = made().allocations[array];
    kind(moved(array, [sample, offset, 11]), ErrorKind::Corrupt, "12 bytes, and 11 were allocated");
    let mut fewer = made();
    fewer.allocations.remove(0);
    kind(fewer, ErrorKind::Corrupt, "nothing was allocated");
    assert_small();
}

#[test]
fn several_files_are_one_row() {
    let root = folder(&[]);
    let (made, rows) = all_fields();
    made.write(&root.path().join("a.beton"));
    made.write(&root.path().join("b.beton"));
    let both = open(root.path()).unwrap();
    assert_eq!((both.len(), both.shards(), key(&*both, 6)), (10, &[5, 10][..], "b.beton#1".into()));
    assert_eq!(sample(&*both, 7).unwrap(), rows[2]);
    make(&[field("x", 1)], &[vec![Given::Int(1)]], |_| false).write(&root.path().join("c.beton"));
    assert_error(open(root.path()), ErrorKind::Corrupt, &["c.beton", "fields"]);
    put(root.path(), "c.beton", b"no beton, whatever its name says");
    assert_error(open(root.path()), ErrorKind::Unavailable, &["c.beton", "version"]);
    assert!(!shows(root.path().join("c.beton"), "beton"));
}

#[test]
fn numbers_alone_need_no_read() {
    let fields = [field("x", 1), field("y", 0)];
    let samples: Vec<_> = (0..10).map(|n| vec![Given::Int(n), Given::Float(n as f64)]).collect();
    let root = folder(&[]);
    make(&fields, &samples, |_| false).write(&root.path().join("x.beton"));
    let beton = open(root.path().join("x.beton")).unwrap();
    assert_eq!((beton.bytes(), beton.largest(3)), (0, 0));
    // From an implementation in another language: a checkpoint stays valid in every later version.
    assert_eq!(beton.fingerprint(), 0x6097_8181_02e8_4d50);
    let row = |n: i64| row(&[("x", &n.to_le_bytes()), ("y", &(n as f64).to_le_bytes())]);
    loads(&beton, &(0..10).map(row).collect::<Vec<_>>());
}
