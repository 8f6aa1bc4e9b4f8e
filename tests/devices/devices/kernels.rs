//! Kernels, launched as the pipeline does, over random tables: each gives the same result as its host twin, and reads
//! or writes outside the given memory are refused before the launch.

use crate::common::{Mock, Random, within};
use bytes::Bytes;
use std::time::Duration;
use uringload::dataset::DType;
use uringload::inspect::twin;
use uringload::inspect::twin::{ImageLayout, ImageParams, PassParams};
use uringload_sys::cuda::{
    Context, Copies, DeviceMemory, Fill, Image, Images, Kernels, Pass, Piece, PixelType, Row, Span, Stream, TokenType,
    Tokens, Uploaded,
};

const BOUND: Duration = Duration::from_secs(60);
const ROUNDS: usize = 12;

/// A device with source bytes, and a target to write to.
struct Bench {
    kernels: Kernels,
    work: Stream,
    copies: Copies,
    source: Vec<u8>,
    from: Span,
    to: Span,
    tables: Span,
}

const SOURCE_BYTES: usize = 60_000;
const TARGET_BYTES: usize = 200_000;

impl Bench {
    fn new(context: &Context, random: &mut Random) -> Bench {
        let span = |len| Span::new(&DeviceMemory::new(context, len).expect("memory"), 0..len).expect("all of it");
        let mut bench = Bench {
            kernels: Kernels::new(context),
            work: Stream::new(context).expect("a stream"),
            copies: Copies::new(context).expect("a stream"),
            source: random.bytes(SOURCE_BYTES),
            from: span(SOURCE_BYTES),
            to: span(TARGET_BYTES),
            tables: span(1 << 16),
        };
        bench.upload(bench.source.clone(), bench.from.clone());
        bench.upload(vec![0xee; TARGET_BYTES], bench.to.clone());
        bench
    }

    /// Copies bytes to the device and waits for them.
    fn upload(&mut self, bytes: Vec<u8>, to: Span) {
        self.copies.start(Bytes::from(bytes), &to).expect("a copy");
        self.copies.stream().synchronize().expect("no error");
    }

    /// Starts to copy a table; only the kernel that reads it waits for the copy.
    fn table(&mut self, table: Vec<u8>) -> Uploaded {
        // A kernel may still read the previous table.
        self.work.synchronize().expect("no error");
        self.copies.start(Bytes::from(table), &self.tables).expect("a copy")
    }

    /// The first bytes of a span.
    fn read(&self, span: &Span, len: usize) -> Vec<u8> {
        self.work.synchronize().expect("no error");
        let mut bytes = vec![0; len];
        span.slice(0..len).expect("inside").read(&mut bytes).expect("no error");
        bytes
    }

    /// Random ranges of the source, of at most `longest` bytes each, in units of `unit`.
    fn ranges(&self, count: usize, longest: usize, unit: usize, random: &mut Random) -> Vec<(usize, usize)> {
        let range = |_| {
            let len = random.below(longest / unit + 1) * unit;
            (random.below(SOURCE_BYTES - len + 1), len)
        };
        (0..count).map(range).collect()
    }

    fn bytes_of(&self, ranges: &[(usize, usize)]) -> Vec<&[u8]> {
        ranges.iter().map(|&(at, len)| &self.source[at..at + len]).collect()
    }

    fn rows(&self, ranges: &[(usize, usize)]) -> Vec<u8> {
        let row = |&(at, len): &(usize, usize)| Row { source: self.from.address() + at as u64, len: len as u64 };
        ranges.iter().flat_map(|range| row(range).encode()).collect()
    }
}

/// Runs `check` several times, each time with a new device and random numbers.
fn each_round(check: impl Fn(&mut Bench, &mut Random) + Send + 'static) {
    within(BOUND, move || {
        let mock = Mock::new("kernel_us=30,jitter_us=50");
        let context = mock.context();
        for seed in 0..ROUNDS as u64 {
            let mut random = Random::new(seed);
            let mut bench = Bench::new(&context, &mut random);
            check(&mut bench, &mut random);
            assert_eq!(mock.violations(), Vec::<String>::new(), "seed {seed}");
        }
        drop(context);
        assert!(mock.count("kernels") >= ROUNDS as u64 / 2);
        mock.assert_clean();
    });
}

#[test]
fn gather_and_fill() {
    each_round(|bench, random| {
        let size = [1, 2, 4, 8][random.below(4)];
        let pattern = random.next();
        let len = TARGET_BYTES / 8 * 8;
        bench
            .kernels
            .fill(&bench.work, &bench.to.slice(0..len).expect("inside"), Fill { pattern, size })
            .expect("started");
        let mut wanted = vec![0; TARGET_BYTES];
        twin::fill(&mut wanted[..len], pattern, size);
        let count = 1 + random.below(40);
        let ranges = bench.ranges(count, 4000, 1, random);
        // Pieces do not overlap; some bytes between them stay untouched.
        let mut at = 0;
        let mut pieces = Vec::new();
        for &(source, len) in &ranges {
            at += random.below(20);
            pieces.push((at, &bench.source[source..source + len]));
            at += len;
        }
        twin::gather(&mut wanted, pieces.iter().copied());
        let row = |(&(source, len), &(target, _)): (&(usize, usize), &(usize, &[u8]))| {
            let source = bench.from.address() + source as u64;
            Piece { source, target: target as u64, len: len as u64 }.encode()
        };
        let table: Vec<u8> = ranges.iter().zip(&pieces).flat_map(row).collect();
        let all = 0..table.len();
        let table = bench.table(table);
        bench.kernels.gather(&bench.work, (&table, all), &bench.from, &bench.to).expect("started");
        assert!(bench.read(&bench.to, len) == wanted[..len]);
    });
}

#[test]
fn pad() {
    each_round(|bench, random| {
        let size = [1, 2, 4, 8][random.below(4)];
        let row_bytes = (1 + random.below(400)) * size;
        let count = 1 + random.below(50);
        let ranges = bench.ranges(count, row_bytes, size, random);
        let fill = Fill { pattern: random.next(), size: size as u32 };
        let table = bench.rows(&ranges);
        let all = 0..table.len();
        let table = bench.table(table);
        let rows = (&table, all);
        bench.kernels.pad(&bench.work, rows, &bench.from, &bench.to, (row_bytes as u64, fill)).expect("started");
        let mut wanted = vec![0; row_bytes * ranges.len()];
        twin::pad(&mut wanted, bench.bytes_of(&ranges), row_bytes, fill.pattern, fill.size);
        assert!(bench.read(&bench.to, wanted.len()) == wanted);
    });
}

#[test]
fn tokens() {
    each_round(|bench, random| {
        let (stored, size) = [(TokenType::U16, 2), (TokenType::U32, 4)][random.below(2)];
        let seq_len = 1 + random.below(300);
        let count = 1 + random.below(30);
        let ranges = bench.ranges(count, seq_len * size * 2, size, random);
        let table = bench.rows(&ranges);
        let all = 0..table.len();
        let table = bench.table(table);
        let half = TARGET_BYTES / 16 * 8;
        let [ids, labels] = [0, half].map(|at| bench.to.slice(at..at + half).expect("inside"));
        let with_labels = random.chance(2);
        let asked = Tokens::new(stored, seq_len as u64).pad_id(random.next() as i64);
        let to = (&ids, with_labels.then_some(&labels));
        bench.kernels.tokens(&bench.work, (&table, all), &bench.from, to, asked).expect("started");
        let len = count * seq_len * 8;
        let (mut wanted_ids, mut wanted_labels) = (vec![0; len], vec![0; len]);
        let run = if size == 2 { twin::tokens_u16 } else { twin::tokens_u32 };
        let rows = bench.bytes_of(&ranges);
        run(&mut wanted_ids, Some(&mut wanted_labels), rows, seq_len, asked.pad_id, asked.ignore);
        assert!(bench.read(&ids, len) == wanted_ids);
        let untouched = vec![0xee; len];
        assert!(bench.read(&labels, len) == if with_labels { wanted_labels } else { untouched });
    });
}

#[test]
fn images() {
    each_round(|bench, random| {
        let channels = 1 + random.below(4) as u32;
        let (pixel, dtype) = [
            (PixelType::U8, DType::U8),
            (PixelType::F32, DType::F32),
            (PixelType::F16, DType::F16),
            (PixelType::BF16, DType::BF16),
        ][random.below(4)];
        let (height, width) = (1 + random.below(12) as u32, 1 + random.below(12) as u32);
        let channels_last = random.chance(2);
        let (mean, std) = ([0.0, -1.5, 3.0, 0.25], [0.5, 1.0, 0.01, 2.0]);
        let images = Images::new(pixel, channels, (height, width)).channels_last(channels_last).normalized(mean, std);
        let layout = ImageLayout { dtype, channels, height, width, channels_last, mean, std };
        let mut pictures = Vec::new();
        for _ in 0..random.below(20) {
            let (height, width) = (1 + random.below(30) as u32, 1 + random.below(30) as u32);
            let at = random.below(SOURCE_BYTES - 30 * 30 * 4);
            let (x, y) = (random.below(width as usize) as f32, random.below(height as usize) as f32);
            let (w, h) = (width as f32 - x, height as f32 - y);
            pictures.push((at, ImageParams { height, width, x, y, w, h, flip: random.chance(2) }));
        }
        let record = |&(at, params): &(usize, ImageParams)| {
            let ImageParams { height, width, x, y, w, h, flip } = params;
            Image { source: bench.from.address() + at as u64, height, width, crop: [x, y, w, h], flip }.encode()
        };
        let table: Vec<u8> = pictures.iter().flat_map(record).collect();
        let all = 0..table.len();
        let table = bench.table(table);
        bench.kernels.images(&bench.work, (&table, all), &bench.from, &bench.to, &images).expect("started");
        let mut wanted = vec![0; layout.bytes() * pictures.len()];
        twin::images(&mut wanted, pictures.iter().map(|&(at, params)| (params, &bench.source[at..])), &layout);
        assert!(bench.read(&bench.to, wanted.len()) == wanted);
    });
}

/// A table of one pass that makes `height` rows of `width` pixels of `source`, by two weights each from pixel 4 on.
fn pass(bench: &Bench, pass: Pass) -> (Vec<u8>, PassParams, Vec<[u32; 2]>, Vec<i32>) {
    let Pass { height, width, row_bytes, is_vertical, .. } = pass;
    let params = PassParams { height, width, row_bytes, is_vertical };
    let count = params.taps() as u32;
    let taps: Vec<[u32; 2]> = (0..count).map(|index| [4, 2 * (index + 1)]).collect();
    let weights: Vec<i32> = (0..2 * count as i32).map(|weight| weight << 16).collect();
    let pass = Pass { taps: bench.tables.address() + Pass::BYTES as u64, ..pass };
    let mut table = pass.encode().to_vec();
    table.extend(taps.as_flattened().iter().flat_map(|number| number.to_le_bytes()));
    table.extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
    (table, params, taps, weights)
}

#[test]
fn resample() {
    each_round(|bench, random| {
        let (height, width) = (1 + random.below(20) as u32, 1 + random.below(20) as u32);
        let (at, is_vertical, target) = (random.below(1000), random.chance(2), random.below(100) as u64);
        let source = bench.from.address() + at as u64;
        let asked = Pass { source, target, taps: 0, height, width, row_bytes: 61, is_vertical };
        let (table, params, taps, weights) = pass(bench, asked);
        let mut wanted = vec![0xee; TARGET_BYTES];
        let made = &mut wanted[target as usize..][..params.bytes()];
        twin::resample(made, &bench.source[at..], params, &taps, &weights);
        let table = bench.table(table);
        bench.kernels.resample(&bench.work, (&table, 0..Pass::BYTES), &bench.from, &bench.to).expect("started");
        assert!(bench.read(&bench.to, TARGET_BYTES) == wanted);
    });
}

/// What reads beside the source, by its rows or by its weights, writes beside the target, or has weights elsewhere.
#[test]
fn passes_that_lead_elsewhere_are_refused() {
    each_round(|bench, random| {
        let source = bench.from.address();
        let asked = Pass { source, target: 0, taps: 0, height: 5, width: 4, row_bytes: 18, is_vertical: false };
        let is_vertical = random.chance(2);
        // Six pixels of a row are looked at, so this is the last place that they fit; of columns, six rows.
        let last = if is_vertical { 5 * 18 + 4 * 3 } else { 4 * 18 + 6 * 3 };
        let last = source + SOURCE_BYTES as u64 - last;
        let asked = Pass { is_vertical, ..asked };
        let end = TARGET_BYTES as u64 - 5 * 4 * 3;
        let fitting = Pass { source: last, target: end, ..asked };
        let wrong = [
            Pass { source: last + 1, ..asked },
            Pass { source: source - 1, ..asked },
            Pass { target: end + 1, ..asked },
            Pass { target: u64::MAX, ..asked },
            Pass { row_bytes: u32::MAX, ..asked },
            Pass { height: u32::MAX, ..asked },
        ];
        let tables = [fitting, wrong[random.below(wrong.len())]].map(|asked| pass(bench, asked).0);
        for (table, is_right) in tables.into_iter().zip([true, false]) {
            let cut = table.len() - 1;
            // Without the last byte of the last weight.
            let tables = [(table[..cut].to_vec(), false), (table, is_right)];
            for (table, is_right) in tables {
                let table = bench.table(table);
                let done = bench.kernels.resample(&bench.work, (&table, 0..Pass::BYTES), &bench.from, &bench.to);
                assert_eq!(done.map_err(|error| error.code), if is_right { Ok(()) } else { Err(1) });
            }
        }
    });
}

#[test]
fn burn() {
    each_round(|bench, random| {
        let numbers: Vec<u8> = (0..1000).flat_map(|number| (number as f32).to_le_bytes()).collect();
        let place = bench.to.slice(0..numbers.len()).expect("inside");
        bench.upload(numbers.clone(), place.clone());
        let rounds = random.below(50) as u32;
        bench.kernels.burn(&bench.work, &place, rounds).expect("started");
        let mut wanted = numbers;
        twin::burn(&mut wanted, rounds);
        assert!(bench.read(&place, wanted.len()) == wanted);
    });
}

/// The copy of the table takes so long that no machine is too busy to see it, and only the launch waits for it.
#[test]
fn a_launch_waits_for_the_copy_of_its_table() {
    within(BOUND, || {
        for mock in [Mock::new(""), Mock::without("cuStreamWriteValue32_v2", "")] {
            let context = mock.context();
            let mut bench = Bench::new(&context, &mut Random::new(1));
            let from = bench.from.address();
            let piece = |at, target| Piece { source: from + at, target, len: 1000 }.encode().to_vec();
            // What the kernel would find if it did not wait.
            bench.table(piece(0, 0));
            bench.copies.stream().synchronize().expect("no error");
            mock.configure("copy_us=1000000");
            let table = bench.table(piece(3000, 5000));
            bench.kernels.gather(&bench.work, (&table, 0..Piece::BYTES), &bench.from, &bench.to).expect("started");
            assert!(!bench.copies.stream().is_idle().expect("no error"), "the copy has not begun");
            mock.configure("copy_us=0");
            let mut wanted = vec![0xee; TARGET_BYTES];
            wanted[5000..6000].copy_from_slice(&bench.source[3000..4000]);
            assert!(bench.read(&bench.to, TARGET_BYTES) == wanted);
            assert_eq!(mock.violations(), Vec::<String>::new());
        }
    });
}

/// A table can be overwritten through its span between the check and the launch: the kernel still stays in its target.
#[test]
fn a_kernel_writes_inside_its_target_whatever_its_table_holds() {
    each_round(|bench, random| {
        let from = bench.from.address();
        let piece = |target, len| Piece { source: from, target, len }.encode();
        let to = bench.to.slice(100..1100).expect("inside");
        let table = bench.table([piece(0, 10), piece(10, 20), piece(30, 30)].concat());
        let beyond = 1 + random.below(1000) as u64;
        let outside = [(1000, beyond), (1000 - beyond + 1, beyond), (u64::MAX - 50, 100)][random.below(3)];
        let rows = [piece(500, 7), piece(outside.0, outside.1), piece(0, 3)].concat();
        bench.upload(rows, bench.tables.clone());
        bench.kernels.gather(&bench.work, (&table, 0..3 * Piece::BYTES), &bench.from, &to).expect("started");
        let mut wanted = vec![0xee; TARGET_BYTES];
        wanted[600..607].copy_from_slice(&bench.source[..7]);
        wanted[100..103].copy_from_slice(&bench.source[..3]);
        assert!(bench.read(&bench.to, TARGET_BYTES) == wanted);
    });
}

#[test]
fn what_lies_elsewhere_is_refused() {
    each_round(|bench, random| {
        let inside = bench.from.address();
        let end = inside + SOURCE_BYTES as u64;
        let wrong = [(end - 10, 11), (inside - 1, 2), (u64::MAX - 3, 8), (end + 1000, 1)];
        let (source, len) = wrong[random.below(wrong.len())];
        let row = Row { source, len }.encode().to_vec();
        let piece = [Piece { source, target: 0, len }.encode(), Piece { source: inside, target: 0, len: 1 }.encode()];
        let outside = Piece { source: inside, target: TARGET_BYTES as u64 - 3, len: 4 }.encode().to_vec();
        let (rows, pieces) = (bench.table(row), piece.concat());
        let fill = Fill { pattern: 0, size: 1 };
        let refused = bench.kernels.pad(&bench.work, (&rows, 0..16), &bench.from, &bench.to, (64, fill));
        assert_eq!(refused.unwrap_err().code, 1);
        let asked = Tokens::new(TokenType::U16, 8);
        let refused = bench.kernels.tokens(&bench.work, (&rows, 0..16), &bench.from, (&bench.to, None), asked);
        assert_eq!(refused.unwrap_err().code, 1);
        for table in [pieces, outside] {
            let all = 0..table.len();
            let table = bench.table(table);
            let refused = bench.kernels.gather(&bench.work, (&table, all), &bench.from, &bench.to);
            assert_eq!(refused.unwrap_err().code, 1);
        }
        // A valid launch works, too.
        bench.kernels.fill(&bench.work, &bench.to, fill).expect("started");
        assert_eq!(bench.read(&bench.to, 9), [0; 9]);
    });
}
