//! The options of formats. Each option is declared once, as a field of a struct; the command line, Python and C derive
//! their arguments from the same declaration.

use crate::dataset::IndexProgress;
use crate::place::Place;
use crate::watched::LIMIT;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uringload_core::parse_bytes;
use uringload_core::store::Store;
use uringload_core::{DType, Error, ErrorKind, Part, Result};

/// One option of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionSpec {
    /// Its name, in lower case with underscores: `record_bytes`.
    pub name: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// What it is for, in a sentence or two of plain text.
    pub help: &'static str,
}

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionKind {
    /// Yes or no; off by default.
    Flag,
    /// Yes or no; on by default.
    FlagOn,
    /// Yes, no, or nothing said.
    Choose,
    /// A whole number; as text with a unit too: "4KiB".
    Number,
    /// Whole numbers.
    Numbers,
    /// A text.
    Text,
    /// Texts, in order.
    Texts,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A path.
    Path,
}

/// The value of an option, made from a `bool`, a whole number, a text, a path, or an array or `Vec` of these.
///
/// Text is always accepted where it can be parsed: `"4KiB"` as a number, `"a,b"` as a list, `"true"` as a flag.
#[derive(Clone, PartialEq, Eq)]
pub struct OptionValue(Given);

/// What was given for an option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Flag(bool),
    Number(u64),
    Numbers(Vec<u64>),
    Text(String),
    Texts(Vec<String>),
    Path(PathBuf),
}

/// What [`open`](crate::open) is asked for: a format, its options by name, and what all formats share.
///
/// ```
/// use uringload_formats::Options;
///
/// let photos = Options::new().format("tar").set("fields", ["jpg", "cls"]).set("missing", "empty").threads(8);
/// let frames = Options::new().format("records").set("record_bytes", 3 * 64 * 64).set("shape", [3, 64, 64]);
/// ```
///
/// The names are those of the command line, with underscores. `open` checks names and values.
///
#[doc = include_str!("options.md")]
#[derive(Clone, Debug, Default)]
pub struct Options {
    format: Option<String>,
    values: Vec<(String, OptionValue)>,
    preferred: Vec<(String, OptionValue)>,
    common: Common,
}

/// What every format understands. Formats that keep no indexes beside their files ignore all but `threads`.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Threads that look at files; 0 lets the library choose.
    pub(crate) threads: usize,
    /// Whether new indexes are written as `SHARD.uidx` beside their shards. Existing ones are used either way.
    pub(crate) sidecars: bool,
    /// Whether to scan files that already have an index.
    pub(crate) rebuild: bool,
    /// Which of the shards to open.
    pub(crate) part: Part,
    /// Whether the dataset is opened to be checked: nothing is written, and files that are sound but do not fit
    /// together as samples are opened one by one.
    pub(crate) verifying: bool,
    /// How long storage may take to answer one call.
    pub(crate) timeout: Duration,
    pub(crate) progress: Progress,
    /// What the URLs of a store's objects begin with, and the store.
    pub(crate) stores: Vec<(String, Arc<dyn Store>)>,
    /// Whether the environment says how stores are reached.
    pub(crate) environment: bool,
    pub(crate) namer: Namer,
}

impl Default for Common {
    fn default() -> Common {
        let (part, progress, timeout) = (Part::WHOLE, Progress(None), LIMIT);
        Common {
            threads: 0,
            sidecars: true,
            rebuild: false,
            part,
            verifying: false,
            timeout,
            progress,
            stores: Vec::new(),
            environment: false,
            namer: Namer::default(),
        }
    }
}

/// Says which place a path or a URL names.
#[derive(Clone, Default)]
pub(crate) struct Namer(Option<Arc<Naming>>);

type Naming = dyn Fn(&Path) -> Result<Place> + Send + Sync;

impl Namer {
    pub(crate) fn new(naming: impl Fn(&Path) -> Result<Place> + Send + Sync + 'static) -> Namer {
        Namer(Some(Arc::new(naming)))
    }

    /// The place that `named` names; without stores, it is a path.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that no store has.
    pub(crate) fn place(&self, named: &Path) -> Result<Place> {
        self.0.as_ref().map_or_else(|| Ok(Place::new(named)), |naming| naming(named))
    }
}

impl fmt::Debug for Namer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Namer(stores)" } else { "Namer(none)" })
    }
}

/// The receiver of a scan's progress, called from several threads.
#[derive(Clone)]
pub(crate) struct Progress(Option<Arc<dyn Fn(IndexProgress) + Send + Sync>>);

impl Progress {
    pub(crate) fn tell(&self, progress: IndexProgress) {
        if let Some(told) = &self.0 {
            told(progress);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(told)" } else { "Progress(none)" })
    }
}

impl Options {
    /// Detects the format and uses its defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Names the format instead of detecting it: "tar", "records", "csv" and so on.
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Options {
        self.format = Some(name.into());
        self
    }

    /// Sets an option of the format by its name. The last value of a name wins.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<OptionValue>) -> Options {
        let name = name.into();
        self.values.retain(|(known, _)| *known != name);
        self.values.push((name, value.into()));
        self
    }

    /// Sets a default of the caller's: it counts if the format has such an option and [`set`](Options::set) does not
    /// name it.
    #[must_use]
    pub fn prefer(mut self, name: impl Into<String>, value: impl Into<OptionValue>) -> Options {
        self.preferred.push((name.into(), value.into()));
        self
    }

    /// Number of threads that open and scan files; 0 lets the library choose.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Options {
        self.common.threads = threads;
        self
    }

    /// How long storage may take to answer one call (a listing, an open, a read); 60 seconds by default. Then
    /// [`open`](crate::open) fails with `Timeout`. Storage that answers slowly, call by call, is waited for. With
    /// `Duration::MAX` there is no limit, and no thread is started to keep one.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.common.timeout = timeout;
        self
    }

    /// Whether indexes of scanned files (tar, TFRecord, lines) are written beside them as `FILE.uidx`. True by default.
    #[must_use]
    pub fn sidecars(mut self, sidecars: bool) -> Options {
        self.common.sidecars = sidecars;
        self
    }

    /// Whether to scan files that already have an index. False by default.
    #[must_use]
    pub fn rebuild(mut self, rebuild: bool) -> Options {
        self.common.rebuild = rebuild;
        self
    }

    /// Opens only this part of the shards, for jobs that build indexes together.
    #[must_use]
    pub fn part(mut self, part: Part) -> Options {
        self.common.part = part;
        self
    }

    /// Opens the dataset to check it, not to read it: no index is written, and files that are sound but do not fit
    /// together as samples are opened as they are.
    #[must_use]
    pub fn verifying(mut self, verifying: bool) -> Options {
        self.common.verifying = verifying;
        self.common.sidecars &= !verifying;
        self
    }

    /// Where objects are whose URLs begin with `start`: their keys are what is behind it. URLs have one of the schemes
    /// `s3`, `gs`, `az`, `abfs`, `http` and `https`. The last store counts whose `start` fits.
    #[must_use]
    pub fn store(mut self, start: impl Into<String>, store: Arc<dyn Store>) -> Options {
        self.common.stores.push((start.into(), store));
        self
    }

    /// Takes credentials, endpoints, regions and proxies of stores from the environment and the user's profile, as the
    /// clouds' own programs do; what is [`set`](Options::set) wins. Else nothing of that is looked at, and requests are
    /// not signed.
    #[must_use]
    pub fn stores_from_environment(mut self) -> Options {
        self.common.environment = true;
        self
    }

    /// Calls `told` with the progress of a scan, from several threads.
    #[must_use]
    pub fn progress(mut self, told: impl Fn(IndexProgress) + Send + Sync + 'static) -> Options {
        self.common.progress = Progress(Some(Arc::new(told)));
        self
    }

    /// The same, without anything but those of these names and the stores.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Options {
        let mut options = Options::new();
        options.values = self.values.iter().filter(|(name, _)| is_wanted(name)).cloned().collect();
        options.common.stores.clone_from(&self.common.stores);
        options.common.environment = self.common.environment;
        options.common.timeout = self.common.timeout;
        options
    }

    pub(crate) fn format_name(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Whether an option was set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.values.iter().any(|(known, _)| known == name)
    }

    /// Whether folders are columns, which [`Pairing::Folder`](crate::Pairing::Folder) makes of them.
    pub(crate) fn pairs_by_folder(&self) -> bool {
        let pairs = self.values.iter().find(|(name, _)| name == "pairs");
        pairs.and_then(|(_, value)| String::of(value)).is_some_and(|by| by == "folder")
    }

    /// The split that was asked for.
    ///
    /// # Errors
    /// `InvalidArgument` if it is no text.
    pub(crate) fn split(&self) -> Result<Option<String>> {
        let given = self.values.iter().chain(&self.preferred).find(|(name, _)| name == "split");
        let text = |value| String::of(value).ok_or_else(|| not_taken("split", OptionKind::Text, value));
        given.map(|(_, value)| text(value)).transpose()
    }

    /// As these, with places that `namer` finds.
    pub(crate) fn with_namer(mut self, namer: Namer) -> Options {
        self.common.namer = namer;
        self
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// The names of the options that were given.
    pub(crate) fn given(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| &**name)
    }

    /// The options of one format, typed. What it does not declare is passed over: the door has refused it.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that the option cannot take.
    pub(crate) fn typed<T: FormatOptions>(&self) -> Result<T> {
        let mut typed = T::default();
        typed.set_common(self.common.clone());
        for (name, value) in self.preferred.iter().chain(&self.values) {
            typed.set_named(name, value)?;
        }
        Ok(typed)
    }
}

/// A struct of options that [`options`] has declared.
pub(crate) trait FormatOptions: Default {
    /// Its options, in the order in which they are declared.
    const SPECS: &'static [OptionSpec];

    fn set_common(&mut self, common: Common);

    /// Sets an option by its name; a name that is not declared is passed over.
    fn set_named(&mut self, name: &str, value: &OptionValue) -> Result<()>;
}

/// A type that options have.
pub(crate) trait OptionType: Sized {
    const KIND: OptionKind;

    /// The value, unless it is of another kind.
    fn of(value: &OptionValue) -> Option<Self>;
}

macro_rules! option_types {
    ($($type:ty, $kind:ident: { $($given:pat => $value:expr,)+ })+) => {
        $(impl OptionType for $type {
            const KIND: OptionKind = OptionKind::$kind;

            fn of(value: &OptionValue) -> Option<$type> {
                match &value.0 {
                    $($given => $value,)+
                    _ => None,
                }
            }
        })+
    };
}

option_types! {
    bool, Flag: {
        Given::Flag(flag) => Some(*flag),
        Given::Text(text) => text.parse().ok(),
    }
    u64, Number: {
        Given::Number(number) => Some(*number),
        Given::Text(text) => parse_bytes(text).ok(),
    }
    Vec<u64>, Numbers: {
        Given::Number(number) => Some(vec![*number]),
        Given::Numbers(numbers) => Some(numbers.clone()),
        Given::Text(text) => text.split(',').map(|number| number.trim().parse().ok()).collect(),
    }
    String, Text: {
        Given::Text(text) => Some(text.clone()),
    }
    Vec<String>, Texts: {
        Given::Texts(texts) => Some(texts.clone()),
        Given::Text(text) => Some(text.split(',').map(str::to_owned).collect()),
    }
    PathBuf, Path: {
        Given::Path(path) => Some(path.clone()),
        Given::Text(text) => Some(text.into()),
    }
}

/// Names of element types; a type that grows must be added here.
const DTYPES: &[&str] =
    &["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "bool"];

impl OptionType for DType {
    const KIND: OptionKind = OptionKind::OneOf(DTYPES);

    fn of(value: &OptionValue) -> Option<DType> {
        DType::named(&String::of(value)?)
    }
}

impl<T: OptionType> OptionType for Option<T> {
    const KIND: OptionKind = match T::KIND {
        OptionKind::Flag => OptionKind::Choose,
        kind => kind,
    };

    fn of(value: &OptionValue) -> Option<Option<T>> {
        T::of(value).map(Some)
    }
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionKind::Flag | OptionKind::FlagOn | OptionKind::Choose => f.write_str("true or false"),
            OptionKind::Number => f.write_str("a whole number"),
            OptionKind::Numbers => f.write_str("whole numbers"),
            OptionKind::Text => f.write_str("a text"),
            OptionKind::Texts => f.write_str("a list of names"),
            OptionKind::OneOf(known) => {
                let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
                write!(f, "one of {}", known.join(", "))
            }
            OptionKind::Path => f.write_str("a path"),
        }
    }
}

impl fmt::Debug for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Given::Flag(flag) => flag.fmt(f),
            Given::Number(number) => number.fmt(f),
            Given::Numbers(numbers) => numbers.fmt(f),
            Given::Text(text) => text.fmt(f),
            Given::Texts(texts) => texts.fmt(f),
            Given::Path(path) => path.fmt(f),
        }
    }
}

/// The error of a value that an option cannot take.
pub(crate) fn not_taken(name: &str, kind: OptionKind, value: &OptionValue) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("{name} cannot be {value:?}"));
    error.with_remedy(format!("give {kind}"))
}

macro_rules! into_value {
    ($($from:ty => $value:expr;)+) => {
        $(impl From<$from> for OptionValue {
            fn from(given: $from) -> OptionValue {
                let value: fn($from) -> Given = $value;
                OptionValue(value(given))
            }
        })+
    };
}

into_value! {
    bool => Given::Flag;
    u64 => Given::Number;
    u32 => |number| Given::Number(number.into());
    // Fits: no machine has longer pointers.
    usize => |number| Given::Number(number as u64);
    // What a literal is. No option takes a negative number: it is refused as the text that it is.
    i32 => |number| u64::try_from(number).map_or_else(|_| Given::Text(number.to_string()), Given::Number);
    Vec<u64> => Given::Numbers;
    &[u64] => |numbers| Given::Numbers(numbers.to_vec());
    String => Given::Text;
    &str => |text| Given::Text(text.to_owned());
    DType => |dtype| Given::Text(dtype.name().to_owned());
    Vec<String> => Given::Texts;
    &[&str] => |texts| Given::Texts(texts.iter().map(|&text| text.to_owned()).collect());
    PathBuf => Given::Path;
    &Path => |path| Given::Path(path.to_owned());
}

impl<const N: usize> From<[u64; N]> for OptionValue {
    fn from(given: [u64; N]) -> OptionValue {
        given.as_slice().into()
    }
}

impl<const N: usize> From<[&str; N]> for OptionValue {
    fn from(given: [&str; N]) -> OptionValue {
        given.as_slice().into()
    }
}

/// Declares the options of a format: a struct, and the same options by name. The documentation of a field is the
/// option's help, so it is plain text.
///
/// A field is `name: Type`, with `= value` where its default is not the type's own.
macro_rules! options {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident {
            $( $(#[doc = $help:literal])+ $field:ident: $type:ty $(= $default:tt)?, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $( $(#[doc = $help])+ pub(crate) $field: $type, )*
            pub(crate) common: $crate::options::Common,
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $( $field: $crate::options::default_of!($($default)?), )*
                    common: $crate::options::Common::default(),
                }
            }
        }

        impl $crate::options::FormatOptions for $name {
            const SPECS: &'static [$crate::options::OptionSpec] = &[$( $crate::options::OptionSpec {
                name: stringify!($field),
                kind: $crate::options::kind_of!($type $(, $default)?),
                help: concat!($($help),+),
            }, )*];

            fn set_common(&mut self, common: $crate::options::Common) {
                self.common = common;
            }

            fn set_named(&mut self, name: &str, value: &$crate::options::OptionValue) -> uringload_core::Result<()> {
                $(
                    if name == stringify!($field) {
                        let kind = <$type as $crate::options::OptionType>::KIND;
                        self.$field = <$type as $crate::options::OptionType>::of(value)
                            .ok_or_else(|| $crate::options::not_taken(name, kind, value))?;
                    }
                )*
                let _ = (name, value);
                Ok(())
            }
        }
    };
}

/// Declares the words that an option takes, each for a value of its type.
macro_rules! words {
    ($type:ident { $($word:literal => $value:ident,)+ }) => {
        impl $crate::options::OptionType for $type {
            const KIND: $crate::options::OptionKind = $crate::options::OptionKind::OneOf(&[$($word),+]);

            fn of(value: &$crate::options::OptionValue) -> Option<$type> {
                match &*String::of(value)? {
                    $($word => Some($type::$value),)+
                    _ => None,
                }
            }
        }
    };
}

macro_rules! default_of {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// A flag that is on by default is of another kind than one that is off.
macro_rules! kind_of {
    ($type:ty, true) => {
        $crate::options::OptionKind::FlagOn
    };
    ($type:ty $(, $default:expr)?) => {
        <$type as $crate::options::OptionType>::KIND
    };
}

pub(crate) use {default_of, kind_of, options, words};

/// What happens to a sample that lacks a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The sample is an error that names the field; the loader's `on_error` decides.
    #[default]
    Error,
    /// The field is empty.
    Empty,
}

words!(Missing { "error" => Error, "empty" => Empty, });

#[cfg(test)]
mod tests {
    use super::*;

    options! {
        /// Of a made-up format.
        pub struct MadeOptions {
            /// Bytes of a frame,
            /// header included.
            frame_bytes: u64,
            /// Whether sums are compared.
            verify: bool = true,
            /// Columns.
            columns: Vec<String>,
            /// Type.
            dtype: Option<DType>,
        }
    }

    #[test]
    fn an_option_is_declared_once() {
        let [frame, verify, columns, dtype] = MadeOptions::SPECS else { panic!("{:?}", MadeOptions::SPECS) };
        assert_eq!((frame.name, frame.kind), ("frame_bytes", OptionKind::Number));
        assert_eq!(frame.help, " Bytes of a frame, header included.");
        assert_eq!((verify.kind, columns.kind), (OptionKind::FlagOn, OptionKind::Texts));
        assert_eq!(dtype.kind, OptionKind::OneOf(DTYPES));
        assert!(DTYPES.iter().eq(DType::ALL.map(DType::name).iter()), "every type has its name among the options'");

        let named = Options::new().set("frame_bytes", "4KiB").set("columns", "a,b").set("verify", false).threads(3);
        let made: MadeOptions = named.typed().unwrap();
        assert_eq!((made.frame_bytes, made.verify, made.dtype, made.common.threads), (4096, false, None, 3));
        assert_eq!(made.columns, ["a", "b"]);

        let refused = |name, value: OptionValue| {
            let error = Options::new().set(name, value).typed::<MadeOptions>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            (error.to_string(), error.remedy().unwrap().to_owned())
        };
        assert!(refused("dtype", "u7".into()).1.contains("bf16"));
        let (what, remedy) = refused("frame_bytes", (-1).into());
        assert!(what.contains("frame_bytes cannot be \"-1\"") && remedy.contains("a whole number"), "{what}");
    }
}
