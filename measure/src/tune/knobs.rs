//! What can be changed of how a dataset is read, without a change to which samples come when.

use crate::text::binary;
use uringload::config::Config;
use uringload::config::{EngineChoice, IoChoice, Profile};
use uringload::stats::Bottleneck;

/// One thing to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Reads in flight.
    Depth,
    /// Length of the longest read.
    ReadSize,
    /// Gaps that are read along.
    Gap,
    /// Threads that read, of the engine that has them.
    IoThreads,
    /// Threads that decode.
    Threads,
    /// What reads.
    Engine,
    /// Past the page cache, or through it.
    Io,
    /// Memory for samples.
    Memory,
}

/// What a loader chose where it was free to, which is where a search begins.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Reads in flight.
    pub depth: usize,
    /// Length of the longest read.
    pub read_bytes: usize,
    /// Memory for samples.
    pub memory_limit: u64,
    /// Memory that may be asked for.
    pub memory_most: u64,
    /// Processors of this process.
    pub processors: usize,
    /// Threads that decode.
    pub threads: usize,
    /// Whether threads read one by one.
    pub reads_by_threads: bool,
    /// Whether reads go past the page cache.
    pub is_direct: bool,
    /// Whether the loader itself may read gaps along.
    pub joins: bool,
    /// Whether anything is decoded.
    pub decodes: bool,
}

/// Between neighbouring values.
const FACTOR: u64 = 4;

impl Knob {
    /// All of them, those first that the laws propose against a bottleneck.
    pub fn by(bottleneck: Bottleneck) -> Vec<Knob> {
        use Knob::{Depth, Engine, Gap, Io, IoThreads, Memory, ReadSize, Threads};
        let first: &[Knob] = match bottleneck {
            Bottleneck::Latency => &[Depth, IoThreads, ReadSize, Memory],
            Bottleneck::Bandwidth => &[ReadSize, Depth, Gap],
            Bottleneck::Operations => &[Gap, Depth, IoThreads, ReadSize],
            Bottleneck::Amplification => &[Gap, ReadSize],
            Bottleneck::Memory => &[Memory, Depth, ReadSize],
            Bottleneck::MemoryTaking => &[Memory],
            Bottleneck::Decode | Bottleneck::Transform => &[Threads, Memory],
            Bottleneck::Loader | Bottleneck::Processors => &[Engine, Gap, Io, Threads],
            _ => &[],
        };
        let all = [Depth, IoThreads, Gap, ReadSize, Threads, Engine, Memory, Io];
        let rest = all.into_iter().filter(|knob| !first.contains(knob));
        first.iter().copied().chain(rest).collect()
    }

    /// Whether it does anything here.
    pub fn applies(self, chosen: &Chosen) -> bool {
        match self {
            Knob::IoThreads => chosen.reads_by_threads,
            Knob::Threads => chosen.decodes,
            _ => true,
        }
    }

    /// Its values in ascending order: numbers, or the numbers of choices.
    pub fn values(self, chosen: &Chosen) -> Vec<u64> {
        let ladder = |from: u64, to: u64| {
            std::iter::successors(Some(from), |value| value.checked_mul(FACTOR)).take_while(move |value| *value <= to)
        };
        match self {
            Knob::Depth => ladder(1, 1024).collect(),
            Knob::IoThreads => ladder(1, 256).collect(),
            Knob::ReadSize => ladder(64 << 10, 4 << 20).collect(),
            Knob::Gap => std::iter::once(0).chain(ladder(4 << 10, 1 << 20)).collect(),
            Knob::Threads => {
                let processors = chosen.processors as u64;
                let mut values = vec![0, 1, processors.div_ceil(2), processors, 2 * processors];
                values.dedup();
                values
            }
            Knob::Engine | Knob::Io => vec![0, 1],
            Knob::Memory => {
                let usual = chosen.memory_limit.max(1 << 20);
                ladder(usual / FACTOR, usual * FACTOR).filter(|bytes| *bytes <= chosen.memory_most).collect()
            }
        }
    }

    /// So many values in a row may bring nothing before it is given up: what an engine rounds to the same gives the
    /// same, and a gap is of no use until it is as long as those that there are.
    pub fn patience(self) -> usize {
        if self == Knob::Gap { 4 } else { 1 }
    }

    /// Whether there is something between two values that is worth a try.
    pub fn has_between(self) -> bool {
        matches!(self, Knob::Depth | Knob::IoThreads | Knob::ReadSize)
    }

    /// Its value, where one was set.
    pub fn of(self, config: &Config) -> Option<u64> {
        match self {
            Knob::Depth => config.queue_depth.map(|depth| depth as u64),
            Knob::IoThreads => config.io_threads.map(|threads| threads as u64),
            Knob::ReadSize => config.read_size.map(|bytes| bytes as u64),
            Knob::Gap => config.coalesce_gap,
            Knob::Threads => config.num_threads.map(|threads| threads as u64),
            Knob::Engine => match config.engine {
                EngineChoice::Uring => Some(0),
                EngineChoice::Threads => Some(1),
                _ => None,
            },
            Knob::Io => match config.io {
                IoChoice::Direct => Some(0),
                IoChoice::Buffered => Some(1),
                _ => None,
            },
            Knob::Memory => config.memory_limit,
        }
    }

    /// A configuration with another value; `None` leaves it to the loader.
    pub fn with(self, config: &Config, value: Option<u64>) -> Config {
        let mut config = config.clone();
        let number = value.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
        match self {
            Knob::Depth => config.queue_depth = number,
            Knob::IoThreads => config.io_threads = number,
            Knob::ReadSize => config.read_size = number,
            Knob::Gap => config.coalesce_gap = value,
            Knob::Threads => config.num_threads = number,
            Knob::Engine => {
                config.engine = match value {
                    None => EngineChoice::Auto,
                    Some(0) => EngineChoice::Uring,
                    Some(_) => EngineChoice::Threads,
                }
            }
            Knob::Io => {
                config.io = match value {
                    None => IoChoice::Auto,
                    Some(0) => IoChoice::Direct,
                    Some(_) => IoChoice::Buffered,
                }
            }
            Knob::Memory => config.memory_limit = value,
        }
        config
    }

    /// The value that the loader itself chose, or one to begin at.
    pub fn chosen(self, chosen: &Chosen) -> u64 {
        self.default_of(chosen).unwrap_or(0)
    }

    /// The value that means the same as to leave it to the loader, where it chose this; `None`: no single one does.
    pub fn default_of(self, chosen: &Chosen) -> Option<u64> {
        Some(match self {
            Knob::Depth | Knob::IoThreads => chosen.depth as u64,
            Knob::ReadSize => chosen.read_bytes as u64,
            Knob::Threads => chosen.threads as u64,
            Knob::Engine => u64::from(chosen.reads_by_threads),
            Knob::Memory => chosen.memory_limit,
            Knob::Io => u64::from(!chosen.is_direct),
            Knob::Gap if chosen.joins => return None,
            Knob::Gap => 0,
        })
    }
}

/// What was set, in words: `queue_depth = 64, read_size = 512 KiB`.
pub fn words(config: &Config) -> String {
    let settings = Profile::of(config).settings();
    if settings.is_empty() {
        return "all automatic".to_owned();
    }
    let word = |(key, value): &(&str, String)| {
        let is_size = matches!(*key, "read_size" | "coalesce_gap" | "memory_limit");
        let value = if is_size { value.parse().map_or_else(|_| value.clone(), binary) } else { value.clone() };
        format!("{key} = {value}")
    };
    settings.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A configuration in which how it is read is left to the loader.
pub fn automatic(config: &Config) -> Config {
    let automatic = Config::default();
    Config {
        engine: automatic.engine,
        io: automatic.io,
        queue_depth: None,
        read_size: None,
        io_threads: None,
        num_threads: None,
        coalesce_gap: None,
        memory_limit: None,
        ..config.clone()
    }
}
