//! The kernels against their twins, as their source and as the PTX that is shipped: compiled as C++, with sanitizers
//! where there are some, each kernel runs over random inputs and any grid, and what it leaves is what its twin leaves,
//! to the bit.
//!
//! What this cannot show is that a driver and a device do the same with the PTX; `tests/gpu.rs` asks them.

use super::ptx;
use crate::common::content::first_difference;
use crate::common::passes::RandomPass;
use crate::common::random::Random;
use crate::common::skip;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use uringload::dataset::DType;
use uringload::inspect::twin;
use uringload::inspect::twin::{ImageLayout, ImageParams};

/// In the order of emulate.cpp.
#[derive(Clone, Copy, Debug)]
enum Kernel {
    Gather,
    Fill,
    Pad,
    TokensU16,
    TokensU32,
    ImagesU8,
    ImagesF32,
    ImagesF16,
    ImagesBf16,
    Burn,
    Resample,
}

/// Bytes, at an address so many behind a multiple of 64.
#[derive(Debug, Default)]
struct Memory {
    off: usize,
    bytes: Vec<u8>,
}

/// One launch.
#[derive(Debug)]
struct Launch {
    kernel: Kernel,
    grid: (u32, u32),
    block: u32,
    to: Vec<Memory>,
    from: Vec<Memory>,
    /// Numbers of 8 bytes, the first of each the index of its source.
    records: Vec<Vec<u64>>,
    numbers: Vec<u64>,
}

/// What the destinations hold before a launch, so that an element that is left out shows.
const UNTOUCHED: u8 = 0xee;

/// What kernels are made from.
#[derive(Clone, Copy, Debug)]
enum Form {
    Source,
    Ptx,
    /// The PTX of one kernel that rounds to bfloat16 with another constant.
    Rounding(u32),
}

/// Whether sanitizers watch the PTX as they watch the source, which takes a compiler six times as long and is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Source,
    Both,
}

impl Watched {
    /// Of so many random launches those that are tried: one in five, but all where sanitizers watch both.
    fn cases(self, all: u64) -> u64 {
        match self {
            Watched::Source => all / 5,
            Watched::Both => all,
        }
    }
}

/// Runs each launch by the kernels' source and by their PTX.
struct Emulator([Program; 2]);

/// A program that runs kernels.
struct Program {
    form: Form,
    child: Child,
    to: BufWriter<ChildStdin>,
    from: ChildStdout,
}

impl Emulator {
    /// `None`, said aloud, where it cannot be made.
    fn start(test: &str, watched: Watched) -> Option<Emulator> {
        static PROGRAMS: [OnceLock<Result<[PathBuf; 2], String>>; 2] = [const { OnceLock::new() }; 2];
        let make = |form| compile(form, watched);
        let compiled = PROGRAMS[watched as usize].get_or_init(|| Ok([make(Form::Source)?, make(Form::Ptx)?]));
        match compiled {
            Ok([source, ptx]) => Some(Emulator([Program::start(Form::Source, source), Program::start(Form::Ptx, ptx)])),
            Err(reason) => {
                skip(format!("{test}: {reason}"));
                None
            }
        }
    }

    /// Fails where a destination is not what the twin made of it.
    fn check(&mut self, seed: u64, launch: &Launch, expected: &[Vec<u8>]) {
        self.0.iter_mut().for_each(|program| program.check(seed, launch, expected));
    }
}

impl Program {
    fn start(form: Form, program: &Path) -> Program {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let to = BufWriter::new(child.stdin.take().expect("it is piped"));
        let from = child.stdout.take().expect("it is piped");
        Program { form, child, to, from }
    }

    /// The destinations behind the launch.
    fn run(&mut self, launch: &Launch) -> std::io::Result<Vec<Vec<u8>>> {
        let (kernel, (x, y)) = (launch.kernel as u32, launch.grid);
        self.words(&[kernel, x, y, launch.block])?;
        for memories in [&launch.to, &launch.from] {
            self.words(&[memories.len() as u32])?;
            for memory in memories {
                self.numbers(&[memory.bytes.len() as u64, memory.off as u64])?;
                self.to.write_all(&memory.bytes)?;
            }
        }
        let record_bytes = launch.records.first().map_or(8, |record| record.len() * 8);
        self.words(&[launch.records.len() as u32, record_bytes as u32])?;
        launch.records.iter().try_for_each(|record| self.numbers(record))?;
        self.words(&[launch.numbers.len() as u32])?;
        self.numbers(&launch.numbers)?;
        self.to.flush()?;
        let mut results = Vec::new();
        for memory in &launch.to {
            let mut bytes = vec![0; memory.bytes.len()];
            self.from.read_exact(&mut bytes)?;
            results.push(bytes);
        }
        Ok(results)
    }

    fn check(&mut self, seed: u64, launch: &Launch, expected: &[Vec<u8>]) {
        let got = self.run(launch);
        let about = || {
            let to: Vec<_> = launch.to.iter().map(|memory| (memory.off, memory.bytes.len())).collect();
            let from: Vec<_> = launch.from.iter().map(|memory| (memory.off, memory.bytes.len())).collect();
            let Launch { kernel, grid, block, records, numbers, .. } = launch;
            format!(
                "seed {seed}, {:?}: {kernel:?} {grid:?} {block} to {to:?} from {from:?} {records:?} {numbers:?}",
                self.form
            )
        };
        let got = got.unwrap_or_else(|error| panic!("{}: {error}; its report is on stderr", about()));
        for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
            if let Some(at) = first_difference(got, expected) {
                let end = expected.len().min(at + 16);
                let (got, expected) = (&got[at..end], &expected[at..end]);
                panic!("{}: destination {index} has {got:x?} and not {expected:x?} at byte {at}", about());
            }
        }
    }

    fn words(&mut self, words: &[u32]) -> std::io::Result<()> {
        words.iter().try_for_each(|word| self.to.write_all(&word.to_le_bytes()))
    }

    fn numbers(&mut self, numbers: &[u64]) -> std::io::Result<()> {
        numbers.iter().try_for_each(|number| self.to.write_all(&number.to_le_bytes()))
    }
}

/// The PTX that is shipped; or the file that `URINGLOAD_PTX` names, such as what machine code is made of
/// (`sys/kernels/build.py --ptx sm_80`).
fn shipped() -> String {
    let path = std::env::var_os("URINGLOAD_PTX").map_or_else(|| folder().join("kernels.ptx"), PathBuf::from);
    std::fs::read_to_string(path).expect("the PTX is beside its source")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sys/kernels")
}

/// The program. Sanitizers come with libraries of their own, which not every machine with a compiler has.
fn compile(form: Form, watched: Watched) -> Result<PathBuf, String> {
    let kernels = folder();
    let name: String = format!("{form:?}{watched:?}").chars().filter(|letter| letter.is_alphanumeric()).collect();
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-emulated-{name}"));
    std::fs::create_dir_all(&temporary).expect("a folder for the program");
    let program = temporary.join("program");
    let mut flags = vec!["-std=c++17", "-ffp-contract=off", "-Wno-unknown-pragmas"];
    let text = match form {
        Form::Source => None,
        Form::Ptx => Some(shipped()),
        Form::Rounding(constant) => {
            let one = ptx::only(&shipped(), "ur_images_bf16");
            let changed = one.replace(", 32767;", &format!(", {constant};"));
            assert_ne!(one, changed, "the PTX rounds with another constant than this test knows");
            Some(changed)
        }
    };
    let is_watched = text.is_none() || watched == Watched::Both;
    // To optimize functions of thousands of calls takes the compiler minutes.
    let is_plain = text.is_some() || watched == Watched::Source;
    flags.push(if is_plain { "-O0" } else { "-O1" });
    if let Some(text) = text {
        std::fs::write(temporary.join("kernels_ptx.h"), ptx::as_cpp(&text)).expect("there is room for a header");
        flags.push("-DKERNELS_PTX");
    }
    let run = |extra: &[&str]| {
        let mut compiler = Command::new("c++");
        compiler.args(&flags).args(extra).arg("-I").arg(&temporary).arg("-I").arg(&kernels);
        compiler.arg(kernels.join("emulate.cpp")).arg("-o").arg(&program).output()
    };
    let sanitizers: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let made = run(if is_watched { sanitizers } else { &[] });
    let made = made.map_err(|error| format!("no c++ to compile the kernels with: {error}"))?;
    if !made.status.success() {
        let plain = run(&[]).expect("c++ is there");
        assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
        skip("no sanitizers for C++, so what the kernels read is not watched");
    }
    Ok(program)
}

impl Drop for Program {
    fn drop(&mut self) {
        // It reads on until its input ends; nothing of it is wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Random {
    fn memory(&mut self, len: usize) -> Memory {
        let off = if self.below(4) == 0 { 0 } else { self.below(64) as usize };
        Memory { off, bytes: self.bytes(len) }
    }

    fn launch(&mut self, kernel: Kernel) -> Launch {
        let grid = (self.one_of(&[1, 2, 3, 7, 40]), self.one_of(&[1, 2, 5]));
        let block = self.one_of(&[1, 32, 33, 96, 256]);
        Launch { kernel, grid, block, to: vec![], from: vec![], records: vec![], numbers: vec![] }
    }

    fn rows(&mut self, launch: &mut Launch, count: u64) {
        for index in 0..count {
            let len = self.length();
            launch.from.push(self.memory(len));
            launch.records.push(vec![index, len as u64]);
        }
    }
}

/// A destination that nothing has been written to.
fn untouched(off: usize, len: usize) -> Memory {
    Memory { off, bytes: vec![UNTOUCHED; len] }
}

fn sources(launch: &Launch) -> impl Iterator<Item = &[u8]> {
    launch.from.iter().map(|memory| &memory.bytes[..])
}

#[test]
fn bytes_are_gathered_filled_and_padded_as_by_the_twins() {
    gather_fill_and_pad(Watched::Source);
}

fn gather_fill_and_pad(watched: Watched) {
    let Some(mut emulator) = Emulator::start("bytes", watched) else { return };
    for seed in 0..watched.cases(250) {
        let mut random = Random::new(seed);
        let off = random.below(64) as usize;

        let mut gather = random.launch(Kernel::Gather);
        let mut end = 0;
        for index in 0..random.below(6) {
            let len = random.length();
            end += random.below(20) as usize;
            gather.from.push(random.memory(len));
            gather.records.push(vec![index, end as u64, len as u64]);
            end += len;
        }
        gather.to.push(untouched(off, end + random.below(20) as usize));
        let mut expected = gather.to[0].bytes.clone();
        let places = gather.records.iter().map(|record| record[1] as usize);
        twin::gather(&mut expected, places.zip(sources(&gather)));
        emulator.check(seed, &gather, &[expected]);

        let (size, pattern) = (random.one_of(&[1, 2, 4, 8]), random.number());
        let mut fill = random.launch(Kernel::Fill);
        let len = random.length() / size as usize * size as usize;
        fill.to.push(untouched(off, len));
        fill.numbers = vec![len as u64, pattern, u64::from(size)];
        let mut expected = vec![0; len];
        twin::fill(&mut expected, pattern, size);
        emulator.check(seed, &fill, &[expected]);

        let mut pad = random.launch(Kernel::Pad);
        let count = random.below(6);
        random.rows(&mut pad, count);
        let longest = sources(&pad).map(<[u8]>::len).max().unwrap_or(0);
        let row_bytes = if random.below(3) == 0 { random.length() } else { longest + random.below(50) as usize };
        pad.to.push(untouched(off, row_bytes * pad.from.len()));
        pad.numbers = vec![row_bytes as u64, pattern, u64::from(size)];
        let mut expected = pad.to[0].bytes.clone();
        twin::pad(&mut expected, sources(&pad), row_bytes, pattern, size);
        emulator.check(seed, &pad, &[expected]);
    }
}

/// A table may change between the host's check and the kernel: a piece that leads outside is left out, and the others
/// are not.
#[test]
fn a_piece_that_leads_outside_its_destination_is_left_out() {
    leave_out(Watched::Source);
}

fn leave_out(watched: Watched) {
    let Some(mut emulator) = Emulator::start("pieces outside", watched) else { return };
    for seed in 0..watched.cases(60) {
        let mut random = Random::new(seed);
        let mut launch = random.launch(Kernel::Gather);
        launch.from.push(random.memory(100));
        launch.to.push(untouched(random.below(64) as usize, 1000));
        let outside = [(1000, 1), (999, 2), (901, 100), (1001, 0), (0, 1001), (u64::MAX, 1), (u64::MAX - 49, 100)];
        launch.records = outside.map(|(target, len)| vec![0, target, len]).to_vec();
        launch.records.insert(random.below(8) as usize, vec![0, 900, 100]);
        let mut expected = launch.to[0].bytes.clone();
        expected[900..].copy_from_slice(&launch.from[0].bytes);
        emulator.check(seed, &launch, &[expected]);
    }
}

#[test]
fn tokens_become_ids_and_labels_as_by_the_twins() {
    make_ids_and_labels(Watched::Source);
}

fn make_ids_and_labels(watched: Watched) {
    let Some(mut emulator) = Emulator::start("tokens", watched) else { return };
    for seed in 0..watched.cases(300) {
        let mut random = Random::new(seed);
        let (kernel, size) = random.one_of(&[(Kernel::TokensU16, 2), (Kernel::TokensU32, 4)]);
        let mut launch = random.launch(kernel);
        let count = random.below(6);
        random.rows(&mut launch, count);
        let longest = sources(&launch).map(<[u8]>::len).max().unwrap_or(0) / size;
        let seq_len = match random.below(4) {
            0 => random.length() / 4,
            1 => longest.saturating_sub(1),
            _ => longest + random.below(5) as usize,
        };
        let (pad_id, ignore) = (random.number() as i64, -100);
        let bytes = seq_len * launch.from.len() * 8;
        launch.to.push(untouched(8 * random.below(8) as usize, bytes));
        if random.below(3) > 0 {
            launch.to.push(untouched(8 * random.below(8) as usize, bytes));
        }
        launch.numbers = vec![seq_len as u64, pad_id as u64, ignore as u64];
        let mut expected: Vec<_> = launch.to.iter().map(|memory| memory.bytes.clone()).collect();
        let (ids, labels) = expected.split_at_mut(1);
        let labels = labels.first_mut().map(|labels| &mut labels[..]);
        match size {
            2 => twin::tokens_u16(&mut ids[0], labels, sources(&launch), seq_len, pad_id, ignore),
            _ => twin::tokens_u32(&mut ids[0], labels, sources(&launch), seq_len, pad_id, ignore),
        }
        emulator.check(seed, &launch, &expected);
    }
}

/// Parameters of each kind: a box as large as the output, in the image or near its edges and between its pixels, a box
/// to be resized, and a box of no sense.
fn random_params(random: &mut Random, layout: &ImageLayout) -> ImageParams {
    let (height, width) = (random.below(60) as u32, random.below(60) as u32);
    let flip = random.below(2) == 0;
    let box_of = |y: u32, x: u32, h: u32, w: u32| {
        let [y, x, h, w] = [y, x, h, w].map(|number| number as f32);
        ImageParams { height, width, x, y, w, h, flip }
    };
    let mut part = |len: u32, whole: u32| if len < whole { 0 } else { random.below(u64::from(len - whole) + 1) as u32 };
    let (y, x) = (part(height, layout.height), part(width, layout.width));
    match random.below(5) {
        kind @ (0 | 1) => {
            // The image grows around it, so that it is not resampled.
            let mut whole = box_of(y, x, layout.height, layout.width);
            (whole.height, whole.width) = (height.max(layout.height), width.max(layout.width));
            if kind == 1 {
                let edge = random.one_of(&[0, whole.width - layout.width]) as f32;
                whole.x = edge + random.one_of(&[-1.0, -0.5, 0.0, 0.5, 1.0]);
            }
            whole
        }
        2 => box_of(y, x, 1 + random.below(60) as u32, 1 + random.below(60) as u32),
        _ => {
            let mut any = || match random.below(8) {
                0 => f32::MAX,
                1 => f32::MIN,
                _ => random.below(10_000) as f32 / 77.0 - 40.0,
            };
            let (x, y, w, h) = (any(), any(), any(), any());
            ImageParams { height, width, x, y, w, h, flip }
        }
    }
}

#[test]
fn images_become_tensors_as_by_the_twin() {
    make_tensors(Watched::Source);
}

fn make_tensors(watched: Watched) {
    let Some(mut emulator) = Emulator::start("images", watched) else { return };
    for seed in 0..watched.cases(600) {
        let mut random = Random::new(seed);
        let (kernel, dtype) = random.one_of(&[
            (Kernel::ImagesU8, DType::U8),
            (Kernel::ImagesF32, DType::F32),
            (Kernel::ImagesF16, DType::F16),
            (Kernel::ImagesBf16, DType::BF16),
        ]);
        let width = random.one_of(&[1, 3, 8, 16, 32, 48, 37]);
        let layout = ImageLayout {
            dtype,
            channels: 1 + random.below(4) as u32,
            height: 1 + random.below(40) as u32,
            width,
            channels_last: random.below(2) == 0,
            mean: [0.0, 0.485, -2.117_904, 1.0e-6].map(|mean| mean * random.below(2) as f32),
            std: [1.0, 0.229, 300.0, 0.017_507].map(|std| std * (1 + random.below(1 << 20)) as f32 / 1e4),
        };
        let mut launch = random.launch(kernel);
        let mut params = Vec::new();
        for index in 0..random.below(5) {
            let one = random_params(&mut random, &layout);
            launch.from.push(random.memory((one.height * one.width * layout.channels) as usize));
            let record = one.to_record(index);
            launch.records.push(record.as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part)).collect());
            params.push(one);
        }
        let off = random.one_of(&[0, 0, 16, dtype.size() as usize]);
        launch.to.push(untouched(off, layout.bytes() * params.len()));
        let words = [layout.channels, layout.height, layout.width, u32::from(layout.channels_last)];
        let inverse = layout.std.map(|std| 1.0 / f64::from(std));
        let low = inverse.map(|inverse| (inverse - f64::from(inverse as f32)) as f32);
        let floats = [layout.mean, inverse.map(|inverse| inverse as f32), low].concat();
        launch.numbers = words.into_iter().chain(floats.iter().map(|float| float.to_bits())).map(u64::from).collect();
        let mut expected = launch.to[0].bytes.clone();
        twin::images(&mut expected, params.into_iter().zip(sources(&launch)), &layout);
        emulator.check(seed, &launch, &[expected]);
    }
}

/// An image of one white pixel whose element lies in the middle between two numbers of bfloat16, and what it becomes.
/// The lower of the two is even, or odd.
fn tie(lower_is_even: bool) -> (Launch, Vec<u8>) {
    let mean = 1.0 - f32::from_bits(if lower_is_even { 0x3f80_8000 } else { 0x3f81_8000 });
    let layout = ImageLayout {
        dtype: DType::BF16,
        channels: 1,
        height: 1,
        width: 1,
        channels_last: false,
        mean: [mean; 4],
        std: [1.0; 4],
    };
    let params = ImageParams { height: 1, width: 1, x: 0.0, y: 0.0, w: 1.0, h: 1.0, flip: false };
    let words = [1, 1, 1, 0].into_iter().chain([mean.to_bits(); 4]).chain([1.0_f32.to_bits(); 4]).chain([0; 4]);
    let launch = Launch {
        kernel: Kernel::ImagesBf16,
        grid: (1, 1),
        block: 32,
        to: vec![untouched(0, 2)],
        from: vec![Memory { off: 0, bytes: vec![255] }],
        records: vec![params.to_record(0).as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part)).collect()],
        numbers: words.map(u64::from).collect(),
    };
    let mut expected = vec![0; 2];
    twin::images(&mut expected, [(params, &[255_u8][..])], &layout);
    (launch, expected)
}

#[test]
fn ties_round_to_even_and_ptx_that_rounds_otherwise_is_found() {
    round_ties(Watched::Source);
}

fn round_ties(watched: Watched) {
    let Some(mut emulator) = Emulator::start("rounding", watched) else { return };
    let even = [(true, 0x3f80_u16), (false, 0x3f82)];
    for (lower_is_even, bits) in even {
        let (launch, expected) = tie(lower_is_even);
        assert_eq!(expected, bits.to_le_bytes());
        emulator.check(0, &launch, &[expected]);
    }
    for (constant, lower_is_even) in [(32_766, false), (32_768, true)] {
        let form = Form::Rounding(constant);
        let program = compile(form, Watched::Source).expect("the PTX that is shipped compiled");
        let (launch, expected) = tie(lower_is_even);
        let got = Program::start(form, &program).run(&launch).expect("it runs");
        assert_ne!(got, [expected], "the PTX rounds with {constant}, and nothing shows");
    }
}

/// A pass to a place in the destination, and what it makes.
fn random_pass(random: &mut Random, launch: &mut Launch, target: usize) -> Vec<u8> {
    let pass = RandomPass::new(random, 24);
    let place = launch.from.len() as u64;
    let record = pass.params.to_record(place, target as u64, place + 1);
    launch.from.push(Memory { off: random.below(64) as usize, bytes: pass.source.clone() });
    launch.from.push(Memory { off: 8 * random.below(8) as usize, bytes: pass.encoded() });
    launch.records.push(record.as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part)).collect());
    pass.made()
}

#[test]
fn images_are_resampled_as_by_the_twin() {
    resample(Watched::Source);
}

fn resample(watched: Watched) {
    let Some(mut emulator) = Emulator::start("resampling", watched) else { return };
    for seed in 0..watched.cases(400) {
        let mut random = Random::new(seed);
        let mut launch = random.launch(Kernel::Resample);
        let (mut expected, mut places) = (Vec::new(), Vec::new());
        for _ in 0..random.below(6) {
            expected.resize(expected.len() + random.below(20) as usize, UNTOUCHED);
            let made = random_pass(&mut random, &mut launch, expected.len());
            places.push(expected.len());
            expected.extend(made);
        }
        expected.resize(expected.len() + random.below(20) as usize, UNTOUCHED);
        launch.to.push(untouched(random.below(64) as usize, expected.len()));
        if let Some(last) = places.last().filter(|_| seed % 4 == 0) {
            // The table may change between the host's check and the kernel: one that leads outside is left out.
            let record = launch.records.last_mut().expect("one for each place");
            record[1] = random.one_of(&[expected.len() as u64 + 1, u64::MAX, u64::MAX - 100, 1 << 63]);
            if seed % 8 == 0 {
                (record[1], record[3]) = (0, u64::MAX);
            }
            expected[*last..].fill(UNTOUCHED);
        }
        emulator.check(seed, &launch, &[expected]);
    }
}

/// What is run above is all that is shipped.
#[test]
fn every_kernel_of_the_ptx_is_run() {
    let (ptx, emulator) = (shipped(), std::fs::read_to_string(folder().join("emulate.cpp")).expect("its source"));
    let names = ptx::names(&ptx);
    assert_eq!(names.len(), Kernel::Resample as usize + 1, "{names:?}");
    for name in names {
        assert!([format!("return {name}("), format!("images({name})")].iter().any(|call| emulator.contains(call)));
    }
}

#[test]
fn compute_steps_take_their_time_as_the_twins() {
    burn(Watched::Source);
}

fn burn(watched: Watched) {
    let Some(mut emulator) = Emulator::start("burn", watched) else { return };
    for seed in 0..watched.cases(20) {
        let mut random = Random::new(seed);
        let (count, rounds) = (random.below(2_000), random.below(40));
        let mut launch = random.launch(Kernel::Burn);
        let floats = (0..count).flat_map(|_| (random.below(1 << 20) as f32 / 1024.0).to_le_bytes());
        launch.to.push(Memory { off: 0, bytes: floats.collect() });
        launch.numbers = vec![count, rounds];
        let mut expected = launch.to[0].bytes.clone();
        twin::burn(&mut expected, rounds as u32);
        emulator.check(seed, &launch, &[expected]);
    }
}

/// All of the above, with an eye on what the PTX reads.
#[test]
#[ignore = "slow: its compiler takes half a minute"]
fn sanitizers_watch_the_ptx() {
    gather_fill_and_pad(Watched::Both);
    leave_out(Watched::Both);
    make_ids_and_labels(Watched::Both);
    make_tensors(Watched::Both);
    round_ties(Watched::Both);
    resample(Watched::Both);
    burn(Watched::Both);
}
