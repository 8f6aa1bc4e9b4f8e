//! The command line's arguments: one definition for parsing, help, completions and man pages.

mod cache;
mod chosen;
mod compare;
mod device;
mod failing;
mod format;
mod images;
mod list_objects;
mod pack;
mod rows;
mod sheet;
mod source;
mod top;
mod tune;
mod verify;

use crate::failure::EXIT_CODES;
use crate::launchers;
use crate::output::ColorName;
use crate::units::{parse_bytes, parse_len, parse_millis, parse_seconds};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use uringload::Builder;
use uringload::config::{Cache, Config, DiskCache, EngineChoice, IoChoice, Profile, Shuffle};
use uringload_measure::bench::{Way, Workload};

pub use cache::{CacheClear, CacheCommand, CacheFill, CacheFolder};
pub use chosen::Chosen;
pub use compare::{Compare, TableForm};
pub use device::Devices;
pub use failing::{Failing, OnErrorName};
pub use format::{Access, Format};
pub use images::Images;
pub use list_objects::ListObjects;
pub use pack::Pack;
pub use rows::Rows;
pub use sheet::Sheet;
pub use source::Source;
pub use top::Top;
pub use tune::Tune;
pub use verify::Verify;

/// Keeps a GPU fed from NVMe: io_uring, O_DIRECT, no worker processes.
#[derive(Debug, Parser)]
#[command(name = "uringload", version, max_term_width = 110, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Color: where stdout is a terminal and NO_COLOR is not set (auto), always, or never.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: ColorName,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reads a dataset as a training run would, and says how fast it went and what limits it.
    Bench(Box<Bench>),
    /// Says what caches on a disk hold, checks them, or removes what is in them.
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Compares two results of `bench --json`, with an interval for what may be chance.
    ///
    /// Both should have several rounds on one machine: stderr lists the differences of machines and settings. In CI:
    /// `uringload compare main.json this.json --fail-below 5%`.
    Compare(Compare),
    /// Says whether this machine can read in the fastest way, and what to change if it cannot.
    Doctor(Doctor),
    /// Scans archives, TFRecord files or files of lines, and writes an index beside each for later starts.
    Index(Index),
    /// Describes a dataset.
    Inspect(Inspect),
    /// Reads every sample and prints a JSON line for each.
    List(Box<List>),
    /// Lists the objects below a URL into a file, which opens in the URL's place without a listing.
    ///
    /// The file has names, sizes and versions, 20 to 40 bytes an object, and no secrets: options of the store are given
    /// again where it is opened. `uringload bench train.uls` then makes no request to open a folder of objects.
    ListObjects(ListObjects),
    /// Writes a dataset as WebDataset tar shards whose values begin at multiples of 4096 bytes.
    ///
    /// Shards are DST/PREFIX-000000.tar and so on, with an index beside each. The source and the options alone decide
    /// in advance which shard gets which samples, so the result is the same bytes with any number of threads. Each
    /// shard is written under another name, synced and renamed: an interrupted pack leaves no partial shard, and the
    /// same command continues it (DST/pack.json records what the shards are made of).
    ///
    /// Files of a folder keep their paths: the key ends at the first dot of the file name, the rest is the field, files
    /// with the same key are one sample, and class folders become KEY.cls. Samples of archives keep keys and fields.
    /// All other samples are named by number, a field per column; numbers that are not plain bytes become .npy files.
    Pack(Box<Pack>),
    /// Writes the first batch as a picture: each image as it is stored, and as a chain of transforms makes it.
    Show(Box<Sheet>),
    /// Shows a saved state, or makes one for another position.
    #[command(subcommand)]
    State(StateCommand),
    /// Shows running loaders that share their statistics: rates, limit, disk, queue, processors, threads.
    Top(Top),
    /// Finds how to read a dataset fastest on this machine: measures it, and writes a profile for later runs.
    ///
    /// It reads for half a minute at most, in the given order, and changes one setting after the other: reads in
    /// flight, their length, gaps that are read along, engine, page cache, threads, memory. A setting that gains in
    /// pairs of measurements goes into the profile, which `--profile` of bench and list takes, and so do the library
    /// and Python. If another order or layout reads faster, it says so and leaves the choice to you.
    Tune(Box<Tune>),
    /// Checks every checksum and the structure of a dataset, reads every sample, and prints each problem.
    Verify(Box<Verify>),
    /// Proves that no sample is lost or duplicated, for any number of ranks; reads no sample.
    VerifyOrder(VerifyOrder),
    /// Prints a completion script for a shell.
    Completions {
        /// The shell.
        shell: ShellName,
    },
    /// Prints the man page, or writes the pages of all commands to a folder.
    Man {
        /// Write a page for each command into this folder, instead of printing the main one.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: Option<PathBuf>,
    },
    /// Prints the licences of uringload and of all that it is linked with.
    Licenses,
}

/// A shell with completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ShellName {
    /// GNU Bash.
    Bash,
    /// Elvish.
    Elvish,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
    /// Zsh.
    Zsh,
    /// Nushell.
    Nushell,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Folders, files or patterns; several make one dataset [default: a small one made in a temporary folder].
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub order: Order,
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub means: Means,
    #[command(flatten)]
    pub rows: Rows,
    #[command(flatten)]
    pub failing: Failing,
    #[command(flatten)]
    pub images: Images,
    #[command(flatten)]
    pub devices: Devices,
    #[command(flatten)]
    pub checkpoint: Checkpoint,
    /// Stop reading after this time [default: after --epochs]; with opening, raw reads and all else it takes twice as
    /// long at most, for each round and each --compare.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = "Measuring")]
    pub duration: Option<Duration>,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Measuring",
          help = help("epochs", "the one that it starts in, or no end with --duration"))]
    pub epochs: Option<u64>,
    /// Epochs from where it starts or resumes, instead of --epochs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "epochs",
          help_heading = "Measuring")]
    pub more_epochs: Option<u64>,
    /// Measure this many times and report the round with the median rate; a trace is of the last one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Measuring")]
    pub rounds: u32,
    /// Empty the page cache before each measurement: all of it if that is permitted, else only the dataset's files.
    #[arg(long, help_heading = "Measuring")]
    pub cold: bool,
    /// Emulate a training step of MS milliseconds after each batch, and report how much of the time the accelerator
    /// would have been busy (AU as MLPerf Storage defines it). On a GPU the step is a kernel of that length in its own
    /// stream; the report then also says how busy the GPU was, and what each gap between two steps waited for.
    #[arg(long, value_name = "MS", value_parser = parse_millis, help_heading = "Measuring")]
    pub emulate_step: Option<Duration>,
    /// Emulate the trainer of a workload of MLPerf Storage on an accelerator, such as unet3d:h100 or resnet50:a100: its
    /// batches and steps, full batches only, shuffled, and the bar. The data is DIR's. This is never an MLPerf result.
    #[arg(long, value_name = "WORKLOAD:ACCELERATOR", value_parser = str::parse::<Workload>, help_heading = "Measuring",
          conflicts_with_all = ["emulate_step", "batch_size"])]
    pub mlperf: Option<Workload>,
    /// Emulate this many accelerators on the host, which take batches in turn and compute at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive, conflicts_with = "devices",
          help_heading = "Measuring")]
    pub accelerators: usize,
    /// Read the same samples in other ways too.
    #[arg(
        long,
        value_name = "WAYS",
        value_delimiter = ',',
        conflicts_with_all = ["emulate_step", "resume", "devices", "transform", "transform_column", "decode"],
        help_heading = "Measuring"
    )]
    pub compare: Vec<WayName>,
    /// Skip the raw read of the same files, which the result is compared with.
    #[arg(long, help_heading = "Measuring")]
    pub no_raw: bool,
    /// Also write the result as one page for a browser: verdict, what to try, rates, latencies, threads, machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Measuring")]
    pub html: Option<PathBuf>,
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Measuring",
          help = help("trace", ""))]
    pub trace: Option<PathBuf>,
    /// Also write the result as JSON; "-" writes it to stdout instead of the table.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Measuring")]
    pub json: Option<PathBuf>,
}

impl Bench {
    /// Applies a workload's settings.
    pub fn emulate(&mut self) {
        if let Some(workload) = self.mlperf {
            self.order.batch_size = workload.batch_size;
            self.order.drop_last = true;
            self.order.shuffle.get_or_insert(Shuffle::Auto);
            self.emulate_step = Some(workload.step());
        }
    }
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Folders, files or patterns to be read; without any, only checks that concern no particular file are made.
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub access: Access,
    /// The CUDA driver to load [default: libcuda.so.1, where the system finds it].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub cuda_library: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `index`.
#[derive(Debug, Args)]
pub struct Index {
    /// Folders, files or patterns of tar archives, compressed (gzip, zstd, bzip2) or not, of TFRecord files, or of
    /// files of lines (jsonl, csv, text).
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// The format of the files: tar, tfrecord, jsonl, csv or text [default: detected; else tar].
    #[arg(long, value_parser = format::Name(|format| format.has_sidecars))]
    pub format: Option<String>,
    /// The delimiter of csv fields: a comma, "tab", ";" or "|" [default: a tab in .tsv, else a comma].
    #[arg(long, value_name = "CHAR")]
    pub delimiter: Option<String>,
    /// Where to put an index if its file's own folder is not writable.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub index_cache: Option<PathBuf>,
    /// Scan files that have an index already.
    #[arg(long)]
    pub rebuild: bool,
    /// Scan only the files I, I + N, I + 2 N ..., from 0: job I of N that run at once. auto takes both from the
    /// variables of SLURM arrays, srun, MPI, AWS Batch or Cloud Run, auto/N takes I (Kubernetes).
    #[arg(long, value_name = "I/N")]
    pub part: Option<launchers::AskedPart>,
    /// Files to scan at once [default: by the machine].
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub means: Means,
    #[command(flatten)]
    pub rows: Rows,
    #[command(flatten)]
    pub checkpoint: Checkpoint,
    /// Print JSON, as it does anyway: for scripts that ask every command.
    #[arg(long)]
    pub json: bool,
    /// Add a digest of each column's bytes.
    #[arg(long, value_name = "HASH")]
    pub digest: Option<Digest>,
}

/// Commands about a state.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Prints what a state says; with DIR, checks that it belongs to that dataset.
    Show(Show),
    /// Writes a state for another position in the same order.
    Seek(Seek),
}

/// Options of `state show`.
#[derive(Debug, Args)]
pub struct Show {
    /// The state; "-" reads stdin.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Folders, files or patterns of the dataset that the state should belong to.
    #[arg(value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `state seek`.
#[derive(Debug, Args)]
pub struct Seek {
    /// The state; "-" reads stdin.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub to: SeekTo,
    /// Where to write the new state; "-" is stdout. It may be the same file.
    #[arg(long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
    /// Print JSON: the place, and the state or where it was written.
    #[arg(long)]
    pub json: bool,
}

/// The new position.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SeekTo {
    /// Samples of the epoch before the position, over all ranks [default with --epoch: 0].
    #[arg(long, value_name = "N")]
    pub position: Option<u64>,
    /// The epoch, from 0 [default: the state's].
    #[arg(long, value_name = "E")]
    pub epoch: Option<u64>,
    /// Move forward or back by this many samples, over all ranks: +1000 or -1000; it may cross the ends of epochs.
    #[arg(long, value_name = "+N|-N", allow_hyphen_values = true, conflicts_with_all = ["position", "epoch"])]
    pub samples: Option<i64>,
}

/// Options of `verify-order`.
#[derive(Debug, Args)]
#[command(mut_arg("rank", |arg| arg.hide(true)))]
#[command(mut_arg("world_size", |arg| arg.help("Number of ranks to play [default: 8]")))]
pub struct VerifyOrder {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub order: Order,
    #[command(flatten)]
    pub chosen: Chosen,
    /// A second number of ranks, which must see the same order.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub vs: u64,
    /// Samples in a batch of the second number of ranks [default: --batch-size].
    #[arg(long, value_name = "N")]
    pub vs_batch_size: Option<u64>,
    /// The epoch to play, from 0.
    #[arg(long, value_name = "E", default_value_t = 0)]
    pub epoch: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Where to resume from, and where to save the state.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "State")]
pub struct Checkpoint {
    /// Resume from a saved state; "-" reads stdin. It must belong to this dataset and this order.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub resume: Option<PathBuf>,
    /// Save the state at the end, even if Ctrl-C or an error ends the run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save_state: Option<PathBuf>,
}

/// The order of samples, and this rank's share of them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Order")]
pub struct Order {
    #[arg(long, value_name = "N", default_value_t = 64, help = help("batch_size", ""))]
    pub batch_size: u64,
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          value_parser = str::parse::<Shuffle>, help = help("shuffle", ""), long_help = long_shuffle())]
    pub shuffle: Option<Shuffle>,
    #[arg(long, value_name = "N", default_value_t = 0, help = help("seed", ""))]
    pub seed: u64,
    #[arg(long, value_name = "N", help = help("rank", "from torchrun, SLURM, MPI or LSF, else 0"))]
    pub rank: Option<u64>,
    #[arg(long, value_name = "N", help = help("world_size", "from torchrun, SLURM, MPI or LSF, else 1"))]
    pub world_size: Option<u64>,
    #[arg(long, help = help("drop_last", ""))]
    pub drop_last: bool,
}

/// How bytes are read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reading")]
pub struct Means {
    #[arg(long, default_value = "auto", help = help("engine", ""))]
    pub engine: EngineName,
    #[arg(long, default_value = "auto", help = help("io", ""))]
    pub io: IoName,
    #[arg(long, value_name = "N", value_parser = positive, help = help("queue_depth", "by the device"))]
    pub queue_depth: Option<usize>,
    #[arg(long, value_name = "BYTES", value_parser = positive_len, help = help("read_size", "by the device"))]
    pub read_size: Option<usize>,
    #[arg(long, value_name = "N", value_parser = positive, help = help("io_threads", "by the machine"))]
    pub io_threads: Option<usize>,
    #[arg(long, value_name = "N", help = help("num_threads", "by the machine"))]
    pub num_threads: Option<usize>,
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help = help("memory_limit", "by the batch"))]
    pub memory_limit: Option<u64>,
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes,
          help = help("coalesce_gap", "by what a read costs, where the machine tells"))]
    pub coalesce_gap: Option<u64>,
    #[arg(long, help = help("cache", ""))]
    pub cache: Option<CacheName>,
    #[arg(long, value_name = "DIR:BYTES", value_parser = parse_cache_disk, help = help("cache_disk", ""))]
    pub cache_disk: Option<DiskCache>,
    /// Share the loader's statistics with `uringload top` while it runs, in this folder.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "/dev/shm",
          value_hint = ValueHint::DirPath)]
    pub share_stats: Option<PathBuf>,
    /// Read with the settings of this profile, which `uringload tune` wrote; arguments override it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = parse_profile)]
    pub profile: Option<Profile>,
}

/// Parses the folder and the bytes of a cache. Errors are reported with the argument, in one line.
fn parse_cache_disk(given: &str) -> Result<DiskCache, String> {
    let mut config = Config::default();
    let set = config.set("cache_disk", &given.into());
    set.map_err(|error| error.remedy().map_or_else(|| error.headline().to_string(), str::to_owned))?;
    config.cache_disk.ok_or_else(String::new)
}

/// Loads a profile. Errors are reported with the argument, in one line.
pub fn parse_profile(path: &str) -> Result<Profile, String> {
    Profile::load(path).map_err(|error| {
        let remedy = error.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
        format!("{}{remedy}", error.headline())
    })
}

/// The library's configuration for the requested order; ranks come from the arguments alone.
pub fn ordered(order: &Order) -> Config {
    Config {
        batch_size: order.batch_size,
        shuffle: order.shuffle.unwrap_or_default(),
        seed: order.seed,
        rank: order.rank.unwrap_or(0),
        world_size: order.world_size.unwrap_or(1),
        drop_last: order.drop_last,
        ..Config::default()
    }
}

impl Means {
    /// Applies the arguments to a configuration.
    pub fn apply(&self, config: &mut Config) {
        config.engine = match self.engine {
            EngineName::Auto => EngineChoice::Auto,
            EngineName::Uring => EngineChoice::Uring,
            EngineName::Threads => EngineChoice::Threads,
            EngineName::Sim => EngineChoice::Sim,
        };
        config.io = match self.io {
            IoName::Auto => IoChoice::Auto,
            IoName::Direct => IoChoice::Direct,
            IoName::Buffered => IoChoice::Buffered,
        };
        config.queue_depth = self.queue_depth;
        config.read_size = self.read_size;
        config.io_threads = self.io_threads;
        config.num_threads = self.num_threads;
        config.memory_limit = self.memory_limit;
        config.coalesce_gap = self.coalesce_gap;
        config.cache = self.cache.map_or(Cache::Off, |CacheName::Memory| Cache::Memory);
        config.cache_disk.clone_from(&self.cache_disk);
        config.share_stats.clone_from(&self.share_stats);
        self.profile.iter().for_each(|profile| profile.fill(config));
    }
}

/// The configuration for order, reading, form of batches, and handling of failed samples.
pub fn config(order: &Order, means: &Means, rows: &Rows, failing: &Failing) -> Config {
    let mut config = ordered(order);
    means.apply(&mut config);
    rows.apply(&mut config);
    failing.apply(&mut config);
    config
}

/// Names of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// io_uring if it is allowed, else threads.
    Auto,
    /// io_uring.
    Uring,
    /// Threads that call pread.
    Threads,
    /// A simulated disk on a virtual clock: the same output on every machine.
    #[value(hide = true)]
    Sim,
}

/// Names of the ways to use the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoName {
    /// Through the page cache where the files are in it, else past it.
    Auto,
    /// O_DIRECT.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Names of the things that are kept in memory from epoch to epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheName {
    /// The files.
    Memory,
}

/// Names of other ways to read the same samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WayName {
    /// Threads that call pread past the page cache, at their best count.
    Threads,
    /// Threads that call pread through the page cache, at their best count.
    Buffered,
    /// Threads that map files and touch every page, at their best count.
    Mmap,
}

impl WayName {
    /// What it names.
    pub fn way(self) -> Way {
        match self {
            WayName::Threads => Way::Threads,
            WayName::Buffered => Way::Buffered,
            WayName::Mmap => Way::Mmap,
        }
    }
}

/// Names of digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Digest {
    /// SHA-256.
    Sha256,
}

/// The help of a setting, by the library's table, and what its default is where that is no value.
pub(crate) fn help(setting: &str, default: &str) -> String {
    let row = Builder::settings().iter().find(|row| row.name == setting);
    let help = row.map_or("", |row| row.help.trim().trim_end_matches('.'));
    if default.is_empty() { help.to_owned() } else { format!("{help} [default: {default}]") }
}

fn long_shuffle() -> String {
    let auto = "auto is full, but 16 pieces of about 16 MiB at a time if samples lie in two shards or more";
    let units = "and shards:4 if they are cut from units that are decoded as a whole";
    format!("{}.\n\n{auto} (4096 samples or more, of at most 1 MiB), {units}.", help("shuffle", ""))
}

fn positive_len(text: &str) -> Result<usize, String> {
    match parse_len(text)? {
        0 => Err("it must be at least 1".into()),
        bytes => Ok(bytes),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("it must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use uringload::config::Value;

    #[test]
    fn definitions_are_sound() {
        Arguments::command().debug_assert();
    }

    /// Settings of the library's table that are no flags of `bench`, and why.
    const OTHERWISE: [(&str, &str); 5] = [
        ("orient", "the command line shows images as a trainer gets them"),
        ("check_every", "a command reads files that no program writes"),
        ("starved_after", "a command holds no batches"),
        ("key", "list prints the key of each sample"),
        ("index", "list prints the number of each sample"),
    ];

    #[test]
    fn every_setting_is_a_flag_with_its_name_help_and_default() {
        let command = Arguments::command();
        let bench = command.find_subcommand("bench").expect("bench is a command");
        for setting in Builder::settings() {
            let (name, face) = (setting.name, format!("the command line: {}", setting.name));
            let flag = bench.get_arguments().find(|flag| flag.get_id() == name);
            assert_ne!(flag.is_some(), OTHERWISE.iter().any(|(other, _)| *other == name), "{face}");
            let Some(flag) = flag else { continue };
            assert_eq!(flag.get_long(), Some(&*name.replace('_', "-")), "{face}");
            let shown = flag.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(shown.starts_with(&help(name, "")) && !shown.is_empty(), "{face}: {shown}");
            let by_table = match setting.default() {
                Value::Text(text) => text,
                other => other.to_string(),
            };
            let defaults = flag.get_default_values().iter().filter(|_| flag.get_action().takes_values());
            assert!(defaults.into_iter().all(|value| *value == *by_table), "{face}: {by_table}");
        }
    }

    #[test]
    fn defaults_are_the_librarys() {
        let arguments = Arguments::try_parse_from(["uringload", "list", "somewhere"]).unwrap();
        let Command::List(list) = arguments.command else { panic!("list is list") };
        assert_eq!(config(&list.source.order, &list.means, &list.rows, &list.source.failing), Config::default());
    }
}
