//! The one entrance: from paths to a dataset. Every format is one entry here; the command line, Python and C open paths
//! through it and derive their arguments from it.

use crate::dataset::{Dataset, FileTable};
use crate::detect::{decide, nearest};
use crate::find::absent::advised;
use crate::find::paths::FoundFiles;
use crate::format::{Format, Paths};
use crate::formats::folder::Folder;
use crate::formats::records::Records;
use crate::named::{self, StoreOptions};
use crate::options::{FormatOptions, OptionKind, OptionSpec, Options};
use crate::watched::watched;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

#[cfg(not(feature = "parquet"))]
use crate::formats::columnar_absent::{ARROW, PARQUET};
#[cfg(feature = "parquet")]
use crate::{formats::arrow::FORMAT as ARROW, formats::parquet::FORMAT as PARQUET};

/// Every format, in the order in which files are held against them; the last takes whatever no other one did.
pub const FORMATS: &[Format] = &[
    crate::formats::records::FORMAT,
    crate::formats::lines::JSONL,
    crate::formats::lines::CSV,
    crate::formats::lines::TEXT,
    crate::formats::mds::FORMAT,
    crate::formats::litdata::FORMAT,
    crate::formats::idx::FORMAT,
    crate::formats::beton::FORMAT,
    crate::formats::arrays::NPY,
    crate::formats::arrays::NPZ,
    crate::formats::arrays::SAFETENSORS,
    crate::formats::hdf5::FORMAT,
    crate::formats::tokens::FORMAT,
    PARQUET,
    ARROW,
    crate::formats::tar::FORMAT,
    crate::formats::zip::FORMAT,
    crate::formats::array_record::FORMAT,
    crate::formats::tfrecord::FORMAT,
    crate::formats::folder::FORMAT,
];

/// Opens folders, files and patterns as one dataset, in the format that they show or that `options` name.
///
/// ```
/// use uringload_formats::{Dataset, Options, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// for name in ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"] {
///     std::fs::create_dir_all(folder.path().join(name).parent().unwrap())?;
///     std::fs::write(folder.path().join(name), name)?;
/// }
/// let photos = open(&[folder.path()], &Options::new())?;
/// assert_eq!((photos.format(), photos.len()), ("folder", 3));
/// assert_eq!(photos.index().classes, ["cat", "dog"]);
///
/// let error = open(&[folder.path()], &Options::new().set("feilds", ["jpg"])).unwrap_err();
/// assert!(error.to_string().contains("no format has an option \"feilds\""));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - `InvalidArgument` for an unknown format or option, an option that the format does not have, a value that an option
///   does not take, a bad pattern, and columns that are not there or do not fit together.
/// - `NotFound`, `PermissionDenied`, `WrongFileType`: a path that does not exist, a pattern without a match, a folder
///   that cannot be listed, a FIFO, socket or device.
/// - `Empty` if there is no sample.
/// - `Corrupt` and `Truncated`, with file and offset, for files that break their format.
/// - `Unavailable` for what is sound but cannot be read, such as an unsupported compression.
pub fn open<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<Arc<dyn Dataset>> {
    asked(paths, options, |mut paths, options| {
        let format = decide(&mut paths, options)?;
        check(format, options)?;
        (format.open)(paths, options)
    })
}

/// What `ask` finds out about paths, or that storage does not answer.
fn asked<P: AsRef<Path>, T: Send + 'static>(
    paths: &[P],
    options: &Options,
    ask: impl FnOnce(Paths, &Options) -> Result<T> + Send + 'static,
) -> Result<T> {
    let options = options.clone();
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_path_buf()).collect();
    let timeout = options.common().timeout;
    if timeout.is_zero() {
        let error = Error::new(ErrorKind::InvalidArgument, "no storage answers within a timeout of 0");
        return Err(error.with_remedy("give a longer one, or none"));
    }
    watched(timeout, move || {
        let (places, options) = named::places(&paths, &options)?;
        let paths = Paths::new(places, FORMATS);
        // Here and not in each format, so that a missing path has the same error everywhere.
        ask(paths, &options).map_err(advised)
    })
}

/// A dataset of files that are known already, without a look at them: as "records" or "folder", whichever `options`
/// name.
///
/// # Errors
/// As [`open`].
pub fn of_files(files: FileTable, options: &Options) -> Result<Arc<dyn Dataset>> {
    let found = FoundFiles { files, ..FoundFiles::default() };
    Ok(match options.format_name() {
        Some("records") => Arc::new(Records::from_index(found, &options.typed()?)?),
        _ => Arc::new(Folder::from_index(found, &options.typed()?)?),
    })
}

/// The format that `options` name, or that all paths show.
///
/// # Errors
/// `InvalidArgument` for a name that no format has; what the system says of paths that cannot be listed.
pub fn detect<P: AsRef<Path>>(paths: &[P], options: &Options) -> Result<&'static Format> {
    asked(paths, options, |mut paths, options| decide(&mut paths, options))
}

/// The options that every format has.
const SPLIT: OptionSpec = OptionSpec {
    name: "split",
    kind: OptionKind::Text,
    help: " The split to open, where folders or files are called train, val, test and the like; \"all\" for all of \
           them together.",
};

fn common() -> impl Iterator<Item = &'static OptionSpec> {
    [&SPLIT].into_iter().chain(StoreOptions::SPECS)
}

/// The options of all formats, each name once, in the order of the formats.
pub fn all_options() -> Vec<OptionSpec> {
    let mut all: Vec<OptionSpec> = common().copied().collect();
    for spec in FORMATS.iter().flat_map(|format| format.options) {
        if !all.iter().any(|known| known.name == spec.name) {
            all.push(*spec);
        }
    }
    all
}

/// The names of the formats that have an option of that name.
pub fn formats_with(option: &str) -> Vec<&'static str> {
    let is_common = common().any(|spec| spec.name == option);
    let has = |format: &&Format| is_common || format.options.iter().any(|spec| spec.name == option);
    FORMATS.iter().filter(has).map(|format| format.name).collect()
}

/// Refuses options that the format has no use for.
fn check(format: &Format, options: &Options) -> Result<()> {
    let has = |name: &str| common().chain(format.options).any(|spec| spec.name == name);
    let Some(idle) = options.given().find(|name| !has(name)) else { return Ok(()) };
    let which = formats_with(idle);
    if which.is_empty() {
        let error = Error::new(ErrorKind::InvalidArgument, format!("no format has an option {idle:?}"));
        let names: Vec<&str> = all_options().iter().map(|spec| spec.name).collect();
        return Err(error.with_remedy(nearest(idle, &names)));
    }
    let what = format!("{idle} is only for {}, and the format is {}", which.join(", "), format.name);
    Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("leave it out, or name the format"))
}

#[cfg(test)]
mod listings;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::ELSEWHERE;
    use crate::place::Place;

    #[test]
    fn no_time_at_all_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(&[folder.path()], &Options::new().timeout(std::time::Duration::ZERO)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }

    #[test]
    fn formats_are_known_by_what_others_call_them() {
        let said = |name: &str| {
            let error = detect(&["."], &Options::new().format(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.remedy().unwrap_or_default().to_owned()
        };
        for (given, meant) in [
            ("webdataset", "\"tar\""),
            ("WebDataset", "\"tar\""),
            ("wds", "\"tar\""),
            ("ImageFolder", "\"folder\""),
            ("torchvision", "\"folder\""),
            ("hf", "\"parquet\" or \"arrow\""),
            ("hugging-face", "\"parquet\" or \"arrow\""),
            ("mosaicml-streaming", "\"mds\""),
            ("lerobot", "\"parquet\""),
            ("megatron", "\"tokens\""),
            ("ffcv", "\"beton\""),
            ("json", "\"jsonl\""),
            ("Parquet", "\"parquet\""),
            ("ArrayRecord", "\"array_record\""),
            ("parqet", "\"parquet\""),
        ] {
            assert!(said(given).starts_with(&format!("did you mean {meant}? There are records, ")), "{}", said(given));
        }
        assert!(said("quux").starts_with("There are "));
        for (others, ours) in ELSEWHERE {
            let is_ours = |name: &&str| FORMATS.iter().any(|format| format.name == *name);
            assert!(ours.iter().all(is_ours) && !others.iter().any(is_ours), "{others:?} are {ours:?}");
        }
    }

    #[test]
    fn files_are_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "a").unwrap();
        let mut paths = Paths::new(vec![Place::new(folder.path())], FORMATS);
        assert_eq!(decide(&mut paths, &Options::new()).unwrap().name, "folder");
        std::fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(paths.files(1).unwrap().files.len(), 1, "what detection has listed");
    }

    /// The table of options that users of Rust read is that of the formats: of every feature.
    #[test]
    #[cfg(feature = "parquet")]
    fn all_options_are_documented() {
        let mut wanted = "| option | value | formats | what it is for |\n|---|---|---|---|\n".to_owned();
        for spec in all_options() {
            let value = match spec.kind {
                OptionKind::Flag => "yes or no".to_owned(),
                OptionKind::FlagOn => "yes (the default) or no".into(),
                OptionKind::Choose => "yes, no or not given".into(),
                OptionKind::Number => "a number".into(),
                OptionKind::Numbers => "numbers".into(),
                OptionKind::Text => "a text".into(),
                OptionKind::Texts => "texts".into(),
                OptionKind::OneOf(names) => format!("`{}`", names.join("`, `")),
                OptionKind::Path => "a path".into(),
            };
            let of = formats_with(spec.name);
            let of = if of.len() == FORMATS.len() { "all".to_owned() } else { of.join(", ") };
            let (value, help) = (value.replace('|', "\\|"), spec.help.trim().replace('|', "\\|").replace('[', "\\["));
            wanted += &format!("| `{}` | {value} | {of} | {help} |\n", spec.name);
        }
        let here = include_str!("options.md");
        assert!(here == wanted, "formats/src/options.md should be:\n{wanted}");
    }
}
