//! What may be asked of a format: declared once, as a struct with setters for Rust and as named options for the command
//! line, Python and C, which derive their arguments from them.

use crate::IndexProgress;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::internal::parse_bytes;
use uringload_core::{DType, Error, ErrorKind, Part, Result};

/// One option of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionSpec {
    /// Its name, in lower case with underscores: `record_bytes`.
    pub name: &'static str,
    /// Other names that it had or has elsewhere.
    pub aliases: &'static [&'static str],
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

/// What was given for an option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionValue {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Number(u64),
    /// Whole numbers.
    Numbers(Vec<u64>),
    /// A text: that of a number, "true" or "false", or texts separated by commas will do where these are wanted.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// A path.
    Path(PathBuf),
}

/// What is asked of a dataset's files: the format, its options by name, and what every format understands.
///
/// ```
/// use uringload_formats::Options;
///
/// let options = Options::new().format("tar").set("fields", ["jpg", "cls"]).set("missing", "empty").threads(8);
/// assert!(options.is_set("fields"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    format: Option<String>,
    values: Vec<(String, OptionValue)>,
    preferred: Vec<(String, OptionValue)>,
    common: Common,
}

/// What every format understands. The formats that keep no indexes beside their files have no use for the last four.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Common {
    /// Threads that look at files; 0 chooses by the machine.
    pub threads: usize,
    /// Whether indexes are written as `SHARD.uidx` beside their shards; those that lie there are used all the same.
    pub sidecars: bool,
    /// Whether files are looked through even where an index lies beside them.
    pub rebuild: bool,
    /// Which of the shards, in their order: for jobs that make indexes together. The dataset has no others.
    pub part: Part,
    /// Whether the dataset is opened to be checked, not to be trained on: nothing is written, and files that are sound
    /// but make no samples together are opened one by one.
    pub verifying: bool,
    /// Told how far looking through the files has come.
    pub progress: Progress,
}

impl Default for Common {
    fn default() -> Common {
        let (part, progress) = (Part::WHOLE, Progress(None));
        Common { threads: 0, sidecars: true, rebuild: false, part, verifying: false, progress }
    }
}

/// Who is told how far looking through files has come, from several threads.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(IndexProgress) + Send + Sync>>);

impl Progress {
    /// `told` is called from several threads.
    pub fn new(told: impl Fn(IndexProgress) + Send + Sync + 'static) -> Progress {
        Progress(Some(Arc::new(told)))
    }

    pub(crate) fn tell(&self, progress: IndexProgress) {
        if let Some(told) = &self.0 {
            told(progress);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(told)" } else { "Progress(nobody)" })
    }
}

impl PartialEq for Progress {
    fn eq(&self, other: &Progress) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        }
    }
}

impl Eq for Progress {}

impl Options {
    /// The format that the files show, with its defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// The format, by its name, instead of the one that the files show.
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Options {
        self.format = Some(name.into());
        self
    }

    /// Gives an option of the format by its name. The last value of a name counts.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<OptionValue>) -> Options {
        let name = name.into();
        self.values.retain(|(known, _)| *known != name);
        self.values.push((name, value.into()));
        self
    }

    /// As [`set`](Options::set), where the format has such an option and it is not given: a default of the caller's.
    #[must_use]
    pub fn prefer(mut self, name: impl Into<String>, value: impl Into<OptionValue>) -> Options {
        self.preferred.push((name.into(), value.into()));
        self
    }

    /// Threads that look at files; 0 chooses by the machine.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Options {
        self.common.threads = threads;
        self
    }

    /// Whether indexes are written beside their shards.
    #[must_use]
    pub fn sidecars(mut self, sidecars: bool) -> Options {
        self.common.sidecars = sidecars;
        self
    }

    /// Whether files are looked through even where an index lies beside them.
    #[must_use]
    pub fn rebuild(mut self, rebuild: bool) -> Options {
        self.common.rebuild = rebuild;
        self
    }

    /// Which of the shards, for jobs that make indexes together.
    #[must_use]
    pub fn part(mut self, part: Part) -> Options {
        self.common.part = part;
        self
    }

    /// Whether the dataset is opened to be checked: see [`Common::verifying`].
    #[must_use]
    pub fn verifying(mut self, verifying: bool) -> Options {
        self.common.verifying = verifying;
        self.common.sidecars &= !verifying;
        self
    }

    /// Who is told how far looking through the files has come.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Options {
        self.common.progress = progress;
        self
    }

    /// The format that was named.
    pub fn format_name(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Whether an option was given, by the name that it is declared under.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.iter().any(|(known, _)| known == name)
    }

    /// What every format understands.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The names of the options that were given.
    pub(crate) fn given(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(name, _)| &**name)
    }

    /// Calls every option by the name that it is declared under.
    pub(crate) fn with_declared_names(mut self, declared: &[OptionSpec]) -> Options {
        for (name, _) in &mut self.values {
            if let Some(spec) = declared.iter().find(|spec| spec.aliases.contains(&&**name)) {
                *name = spec.name.to_owned();
            }
        }
        self
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

impl OptionType for bool {
    const KIND: OptionKind = OptionKind::Flag;

    fn of(value: &OptionValue) -> Option<bool> {
        match value {
            OptionValue::Flag(flag) => Some(*flag),
            OptionValue::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl OptionType for u64 {
    const KIND: OptionKind = OptionKind::Number;

    fn of(value: &OptionValue) -> Option<u64> {
        match value {
            OptionValue::Number(number) => Some(*number),
            OptionValue::Text(text) => parse_bytes(text).ok(),
            _ => None,
        }
    }
}

impl OptionType for Vec<u64> {
    const KIND: OptionKind = OptionKind::Numbers;

    fn of(value: &OptionValue) -> Option<Vec<u64>> {
        match value {
            OptionValue::Number(number) => Some(vec![*number]),
            OptionValue::Numbers(numbers) => Some(numbers.clone()),
            OptionValue::Text(text) => text.split(',').map(|number| number.trim().parse().ok()).collect(),
            _ => None,
        }
    }
}

impl OptionType for String {
    const KIND: OptionKind = OptionKind::Text;

    fn of(value: &OptionValue) -> Option<String> {
        match value {
            OptionValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl OptionType for Vec<String> {
    const KIND: OptionKind = OptionKind::Texts;

    fn of(value: &OptionValue) -> Option<Vec<String>> {
        match value {
            OptionValue::Texts(texts) => Some(texts.clone()),
            OptionValue::Text(text) => Some(text.split(',').map(str::to_owned).collect()),
            _ => None,
        }
    }
}

impl OptionType for PathBuf {
    const KIND: OptionKind = OptionKind::Path;

    fn of(value: &OptionValue) -> Option<PathBuf> {
        match value {
            OptionValue::Path(path) => Some(path.clone()),
            OptionValue::Text(text) => Some(text.into()),
            _ => None,
        }
    }
}

/// Names of element types; a type that grows must be added here.
const DTYPES: &[&str] =
    &["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "bool"];

impl OptionType for DType {
    const KIND: OptionKind = OptionKind::OneOf(DTYPES);

    fn of(value: &OptionValue) -> Option<DType> {
        match value {
            OptionValue::Text(text) => DType::named(text),
            _ => None,
        }
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

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Flag(flag) => write!(f, "{flag}"),
            OptionValue::Number(number) => write!(f, "{number}"),
            OptionValue::Numbers(numbers) => write!(f, "{numbers:?}"),
            OptionValue::Text(text) => write!(f, "{text:?}"),
            OptionValue::Texts(texts) => write!(f, "{texts:?}"),
            OptionValue::Path(path) => write!(f, "{path:?}"),
        }
    }
}

/// The error of a value that an option cannot take.
pub(crate) fn not_taken(name: &str, kind: OptionKind, value: &OptionValue) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("{name} cannot be {value}"));
    error.with_remedy(format!("give {kind}"))
}

macro_rules! into_value {
    ($($from:ty => $value:ident($convert:expr);)*) => {
        $(impl From<$from> for OptionValue {
            fn from(given: $from) -> OptionValue {
                let convert: fn($from) -> _ = $convert;
                OptionValue::$value(convert(given))
            }
        })*
    };
}

into_value! {
    bool => Flag(|flag| flag);
    u64 => Number(|number| number);
    Vec<u64> => Numbers(|numbers| numbers);
    &str => Text(str::to_owned);
    String => Text(|text| text);
    Vec<String> => Texts(|texts| texts);
    PathBuf => Path(|path| path);
    &Path => Path(Path::to_path_buf);
    DType => Text(|dtype| dtype.name().to_owned());
}

impl<const N: usize> From<[&str; N]> for OptionValue {
    fn from(texts: [&str; N]) -> OptionValue {
        OptionValue::Texts(texts.map(str::to_owned).into())
    }
}

/// Names, in order: what setters of lists take, so that `["jpg", "cls"]` will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl std::ops::Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl OptionType for Names {
    const KIND: OptionKind = OptionKind::Texts;

    fn of(value: &OptionValue) -> Option<Names> {
        Vec::of(value).map(Names)
    }
}

/// What the setter of an option of type `T` takes: a `T`, for an optional one what is in it, and whatever makes names.
pub trait Given<T> {
    /// As the option has it.
    fn given(self) -> T;
}

impl<T> Given<T> for T {
    fn given(self) -> T {
        self
    }
}

impl<T> Given<Option<T>> for T {
    fn given(self) -> Option<T> {
        Some(self)
    }
}

impl<const N: usize> Given<Vec<u64>> for [u64; N] {
    fn given(self) -> Vec<u64> {
        self.into()
    }
}

impl Given<Option<PathBuf>> for &Path {
    fn given(self) -> Option<PathBuf> {
        Some(self.to_path_buf())
    }
}

impl Given<Names> for Vec<String> {
    fn given(self) -> Names {
        Names(self)
    }
}

impl Given<Names> for &[&str] {
    fn given(self) -> Names {
        Names(self.iter().map(|&name| name.to_owned()).collect())
    }
}

impl<const N: usize> Given<Names> for [&str; N] {
    fn given(self) -> Names {
        self.as_slice().given()
    }
}

/// Declares the options of a format: a struct with setters, and the same options by name. The documentation of a field
/// is the option's help, so it is plain text.
///
/// A field is `name: Type`, with `= value` where its default is not the type's own, and with `[alias]` behind its name
/// where it is or was called otherwise.
macro_rules! options {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $( $(#[doc = $help:literal])+ $field:ident $([$($alias:literal),+])?: $type:ty $(= $default:tt)?, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[doc = $help])+ pub $field: $type, )*
            /// What every format understands.
            pub common: $crate::options::Common,
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $( $field: $crate::options::default_of!($($default)?), )*
                    common: $crate::options::Common::default(),
                }
            }
        }

        impl $name {
            /// The defaults.
            pub fn new() -> $name {
                $name::default()
            }

            $(
                $(#[doc = $help])+
                #[must_use]
                pub fn $field(mut self, $field: impl $crate::options::Given<$type>) -> $name {
                    self.$field = $field.given();
                    self
                }
            )*

            /// What every format understands: threads, indexes, progress.
            #[must_use]
            pub fn common(mut self, set: impl FnOnce(&mut $crate::options::Common)) -> $name {
                set(&mut self.common);
                self
            }
        }

        impl $crate::options::FormatOptions for $name {
            const SPECS: &'static [$crate::options::OptionSpec] = &[$( $crate::options::OptionSpec {
                name: stringify!($field),
                aliases: &[$($($alias),+)?],
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

pub(crate) use {default_of, kind_of, options};

#[cfg(test)]
mod tests {
    use super::*;

    options! {
        /// Of a made-up format.
        pub struct MadeOptions {
            /// Bytes of a frame,
            /// header included.
            frame_bytes["frame-size"]: u64,
            /// Whether sums are compared.
            verify: bool = true,
            /// Columns.
            columns: Names,
            /// Type.
            dtype: Option<DType>,
        }
    }

    #[test]
    fn an_option_is_declared_once() {
        let [frame, verify, columns, dtype] = MadeOptions::SPECS else { panic!("{:?}", MadeOptions::SPECS) };
        assert_eq!((frame.name, frame.aliases, frame.kind), ("frame_bytes", &["frame-size"][..], OptionKind::Number));
        assert_eq!(frame.help, " Bytes of a frame, header included.");
        assert_eq!((verify.kind, columns.kind), (OptionKind::FlagOn, OptionKind::Texts));
        assert_eq!(dtype.kind, OptionKind::OneOf(DTYPES));
        assert!(DTYPES.iter().eq(DType::ALL.map(DType::name).iter()), "every type has its name among the options'");

        let named = Options::new().set("frame-size", "4KiB").set("columns", "a,b").set("verify", false).threads(3);
        let named = named.with_declared_names(MadeOptions::SPECS).typed::<MadeOptions>().unwrap();
        let typed = MadeOptions::new().dtype(None).frame_bytes(4096).columns(["a", "b"]).verify(false);
        assert_eq!(named, typed.common(|common| common.threads = 3));

        let error = Options::new().set("dtype", "u7").typed::<MadeOptions>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.remedy().unwrap().contains("bf16"), "{error}");
    }
}
