//! YOLO's labels: a text file for each image, with a line for each object. Source: Ultralytics 8.3,
//! `data/utils.py` (`img2label_paths`, `verify_image_label`), which tests compare with.
//!
//! The labels of `.../images/train/1.jpg` are in `.../labels/train/1.txt`; where no folder is called images, they are
//! beside the image. An image without such a file has no objects.

use super::description;
use super::objects::{Objects, columns};
use crate::compose::{Unlabelled, WithColumns};
use crate::dataset::{Dataset, FileId, FileTable, Skipped};
use crate::find::paths::header_thread_count;
use crate::parallel::try_in_parallel;
use crate::place::Place;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// How far beyond the image's edge a coordinate may be: Ultralytics' tolerance.
const TOLERANCE: f32 = 0.01;
/// Most bytes of a description and of a file of labels.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// What tools of annotation write among labels: the names of the classes.
const CLASSES: &str = "classes.txt";

/// Adds the objects of its images to a folder. `table` is the `data.yaml` with the names of the classes, or the folder
/// of labels, where they have no names.
///
/// # Errors
/// `Corrupt`, with the offset, for a line that is no object; `Empty` where no image has labels; `InvalidArgument` for
/// labels without an image, unless they are to be left out; what the system says of the files.
pub(super) fn onto(
    table: &Place,
    folder: Arc<dyn Dataset>,
    unlabelled: Unlabelled,
    threads: usize,
) -> Result<Arc<dyn Dataset>> {
    let names = if table.is_folder() { None } else { Some(description::names(&text(table)?, table.path())?) };
    let files = folder.files();
    let labels: Vec<Place> = all(files).map(|file| labels_of(&files.at(file))).collect::<Result<_>>()?;
    let images = try_in_parallel(&labels, header_thread_count(threads), |place| read(place, names.as_deref()))?;
    if images.iter().all(Option::is_none) {
        let what = "no image has a file of labels: the first was looked for here";
        let error = Error::new(ErrorKind::Empty, what).with_path(labels.first().unwrap_or(table));
        return Err(error.with_remedy("lay out images/train/1.jpg and labels/train/1.txt, as YOLO has them"));
    }
    let astray = astray(&labels);
    let objects: Vec<Objects<'_>> = images.into_iter().map(Option::unwrap_or_default).collect();
    let classes = names.unwrap_or_else(|| numbered(&objects));
    let labelled = WithColumns::new(folder, columns(&objects, classes)?)?;
    let Some(first) = astray.first() else { return Ok(Arc::new(labelled)) };
    if unlabelled == Unlabelled::Error {
        let what = format!("{} files of labels have no image, this one first", astray.len());
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(first);
        return Err(error.with_remedy("add the images, or skip what has no partner (unlabelled=\"skip\")"));
    }
    let what = "files of labels without an image";
    let skipped = Skipped { what, count: astray.len() as u64, first: first.path().to_path_buf() };
    Ok(Arc::new(labelled.leaving_out(vec![skipped])))
}

/// The file with the labels of an image.
fn labels_of(image: &Place) -> Result<Place> {
    let image = image.absolute().map_err(|error| Error::io("cannot find", error).with_path(image))?;
    let labels = image.with_extension("txt");
    let bytes = labels.bytes();
    let Some(at) = memchr::memmem::rfind(bytes, b"/images/") else { return Ok(labels) };
    Ok(image.with_bytes([&bytes[..at], b"/labels/", &bytes[at + b"/images/".len()..]].concat()))
}

/// The files in folders of labels that are no labels of an image. Beside images there may be any text.
fn astray(labels: &[Place]) -> Vec<Place> {
    let is_of_labels = |folder: &Place| folder.bytes().split(|&byte| byte == b'/').any(|part| part == b"labels");
    let known: HashSet<&Place> = labels.iter().collect();
    let folders: BTreeSet<Place> = labels.iter().map(Place::folder).filter(is_of_labels).collect();
    let mut astray = Vec::new();
    for folder in folders {
        // A folder without labels is one whose images have no objects.
        let Ok(entries) = folder.list() else { continue };
        let places = entries.flatten().map(|entry| folder.join(entry.name()));
        let is_labels = |place: &Place| place.has_extension("txt") && place.name() != CLASSES.as_bytes();
        astray.extend(places.filter(|place| is_labels(place) && !known.contains(place)));
    }
    astray.sort_unstable();
    astray
}

/// Class numbers as names, where no description names them.
fn numbered(images: &[Objects<'_>]) -> Vec<OsString> {
    let most = images.iter().flat_map(|objects| &objects.labels).max().map_or(0, |most| most + 1);
    (0..most).map(|number| number.to_string().into()).collect()
}

/// The objects in a file of labels; `None` if it is not there.
fn read(place: &Place, classes: Option<&[OsString]>) -> Result<Option<Objects<'static>>> {
    let bytes = match whole(place) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut objects = Objects::default();
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let (mut offset, mut has_boxes) = ((bytes.len() - text.len()) as u64, None);
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let refused = |what: String| {
            let remedy = "write class, x, y, width, height for a box, or class, x1, y1, x2, y2, ... for a polygon, in \
                          parts of the image's size";
            Error::new(ErrorKind::Corrupt, what).with_path(place).with_offset(offset).with_remedy(remedy)
        };
        let numbers = std::str::from_utf8(line).map_err(|_| refused("the line is no text".into()))?;
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| refused("the line has something other than numbers".into()))?;
        if let Some((&class, numbers)) = numbers.split_first() {
            let is_box = numbers.len() == 4;
            if *has_boxes.get_or_insert(is_box) != is_box {
                let what = "the file has boxes beside polygons, which trainers read as polygons of two points";
                return Err(refused(what.into()));
            }
            add(class, numbers, classes, &mut objects).map_err(refused)?;
        }
        offset += line.len() as u64;
    }
    Ok(Some(objects))
}

/// Adds the object of one line.
fn add(class: f64, numbers: &[f64], classes: Option<&[OsString]>, objects: &mut Objects<'_>) -> Result<(), String> {
    let most = classes.map_or(i32::MAX as f64, |classes| classes.len() as f64);
    if class < 0.0 || class.fract() != 0.0 || class >= most {
        return Err(format!("{class} is no class: there are {most}"));
    }
    let (is_box, is_polygon) = (numbers.len() == 4, numbers.len() >= 6 && numbers.len().is_multiple_of(2));
    if !is_box && !is_polygon {
        return Err(format!("the line has {} numbers after the class", numbers.len()));
    }
    let [x, y, width, height] = if is_box {
        std::array::from_fn(|at| numbers[at] as f32)
    } else {
        let range = |first: usize| {
            let numbers = numbers.iter().skip(first).step_by(2).map(|&number| number as f32);
            numbers.fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)))
        };
        let ((left, right), (top, bottom)) = (range(0), range(1));
        [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top]
    };
    // NaN is in no range.
    let is_inside = |number: f32, least: f32| (least..=1.0 + TOLERANCE).contains(&number);
    if ![x, y].into_iter().all(|number| is_inside(number, -TOLERANCE))
        || ![width, height].into_iter().all(|number| is_inside(number, 0.0))
        || numbers.iter().any(|number| number.is_nan())
    {
        return Err(format!("the object lies outside of the image: its box is {x} {y} {width} {height}"));
    }
    objects.labels.push(class as i64);
    objects.boxes.extend([x, y, width, height]);
    let polygon = || format!("[[{}]]", numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(","));
    objects.masks.push(is_polygon.then(polygon).map(Cow::Owned));
    Ok(())
}

/// A small file of text.
fn text(place: &Place) -> Result<String> {
    String::from_utf8(whole(place)?).map_err(|_| {
        let error = Error::new(ErrorKind::Corrupt, "the description is not UTF-8").with_path(place);
        error.with_remedy("name the data.yaml of a YOLO dataset")
    })
}

/// The bytes of a small file.
fn whole(place: &Place) -> Result<Vec<u8>> {
    let source = place.open()?;
    if source.size() > FILE_BYTES_MAX {
        return Err(source.unavailable(0, format!("the file has more than {FILE_BYTES_MAX} bytes")));
    }
    // Fits: it was compared above.
    source.bytes(0, source.size() as usize, "the labels")
}

fn all(files: &FileTable) -> impl Iterator<Item = FileId> + use<> {
    // Fits: a table has fewer than 2^32 files.
    (0..files.len() as u32).map(FileId)
}
