//! COCO's annotations: the boxes, classes and masks of every image, from one JSON file. Source: the format's page at
//! cocodataset.org/#format-data, and pycocotools 2.0 (`coco.py`), which is what tests compare with.

use super::objects::{Objects, columns};
use crate::compose::{KnownColumn, Names, Unlabelled};
use crate::dataset::{DType, Dataset, Skipped};
use crate::place::Place;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// Most bytes of a file of annotations. It is held in memory while it is read; COCO's own has 448 MB.
const FILE_BYTES_MAX: u64 = 8 << 30;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    images: Vec<Image<'a>>,
    #[serde(borrow)]
    annotations: Vec<Annotation<'a>>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct Image<'a> {
    id: i64,
    #[serde(borrow)]
    file_name: Cow<'a, str>,
    width: Option<i64>,
    height: Option<i64>,
}

#[derive(Deserialize)]
struct Annotation<'a> {
    #[serde(default)]
    id: i64,
    image_id: i64,
    category_id: i64,
    bbox: Option<[f32; 4]>,
    area: Option<f32>,
    #[serde(default)]
    iscrowd: i64,
    #[serde(borrow)]
    segmentation: Option<&'a RawValue>,
    keypoints: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

/// Adds the objects that a file of annotations lists to the images of `dataset`.
///
/// # Errors
/// `Corrupt`, with the offset, for what is no such file, and for annotations that contradict it; those of
/// [`Names::onto`]; what the system says of the file.
pub(super) fn onto(place: &Place, dataset: Arc<dyn Dataset>, unlabelled: Unlabelled) -> Result<Arc<dyn Dataset>> {
    let (source, path) = (place.open()?, place.path());
    if source.size() > FILE_BYTES_MAX {
        let what = format!("a file of annotations may have {FILE_BYTES_MAX} bytes, and this has {}", source.size());
        return Err(Error::new(ErrorKind::Unavailable, what).with_path(path));
    }
    // Fits: it was compared above.
    let text = source.bytes(0, source.size() as usize, "the annotations")?;
    let file: File<'_> = serde_json::from_slice(&text).map_err(|error| {
        let offset = offset_of(&text, error.line(), error.column());
        Error::new(ErrorKind::Corrupt, format!("these are no annotations of COCO: {error}"))
            .with_path(path)
            .with_offset(offset)
            .with_remedy("name an instances_*.json, or a .csv with a row name,label for each image")
    })?;
    Read::of(&file, path, unlabelled)?.onto(dataset, unlabelled)
}

/// What a file of annotations says, by image.
struct Read<'a> {
    names: Names,
    images: &'a [Image<'a>],
    objects: Vec<Vec<&'a Annotation<'a>>>,
    /// Positions in the list of classes, which is sorted by number.
    classes: HashMap<i64, i64>,
    class_names: Vec<std::ffi::OsString>,
    /// Annotations of images that the file does not list.
    astray: u64,
    path: PathBuf,
}

impl<'a> Read<'a> {
    fn of(file: &'a File<'a>, path: &Path, unlabelled: Unlabelled) -> Result<Read<'a>> {
        let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what).with_path(path);
        let mut categories: Vec<&Category> = file.categories.iter().collect();
        categories.sort_by_key(|category| category.id);
        let classes = categories.iter().zip(0..).map(|(category, place)| (category.id, place)).collect();
        let class_names = categories.iter().map(|category| category.name.as_str().into()).collect();
        let names = file.images.iter().map(|image| image.file_name.as_bytes().to_vec()).collect();
        let names = Names::of(names, Some(path.to_path_buf()))?;
        let places: HashMap<i64, usize> = file.images.iter().zip(0..).map(|(image, place)| (image.id, place)).collect();
        if places.len() < file.images.len() {
            return Err(corrupt("two images have the same id".into()).with_remedy("give each image an id of its own"));
        }
        let images = &file.images[..];
        let (objects, path) = (vec![Vec::new(); images.len()], path.to_path_buf());
        let mut read = Read { names, images, objects, classes, class_names, astray: 0, path };
        for annotation in &file.annotations {
            match places.get(&annotation.image_id) {
                Some(&place) => {
                    read.check(annotation, &images[place])?;
                    read.objects[place].push(annotation);
                }
                None if unlabelled == Unlabelled::Skip => read.astray += 1,
                None => {
                    let what = format!(
                        "annotation {} is of image {}, which the file does not list",
                        annotation.id, annotation.image_id
                    );
                    let remedy = "list the image, or skip such annotations (unlabelled=\"skip\")";
                    return Err(corrupt(what).with_remedy(remedy));
                }
            }
        }
        Ok(read)
    }

    /// Refuses what no image can have: a class that is not listed, no box, a polygon that has no point of the image.
    fn check(&self, annotation: &Annotation<'_>, image: &Image<'_>) -> Result<()> {
        let of = |what: String, remedy: &'static str| {
            let what = format!("annotation {} of {:?} {what}", annotation.id, image.file_name);
            Err(Error::new(ErrorKind::Corrupt, what).with_path(&self.path).with_remedy(remedy))
        };
        if !self.classes.contains_key(&annotation.category_id) {
            let what = format!("is of category {}, which the file does not list", annotation.category_id);
            return of(what, "list it in \"categories\"");
        }
        let Some([x, y, width, height]) = annotation.bbox else {
            return of("has no box".into(), "name a file of objects with a bbox each, such as instances_*.json");
        };
        let size = image.width.zip(image.height).map(|(width, height)| (width as f32, height as f32));
        let is_outside = |x: [f32; 2], y: [f32; 2]| {
            size.is_some_and(|(width, height)| x[1] < 0.0 || y[1] < 0.0 || x[0] > width || y[0] > height)
        };
        let remedy = "compare the size and the name of the image with what the annotation is of";
        if is_outside([x, x + width], [y, y + height]) {
            return of(format!("has a box that lies outside of the image: {:?}", [x, y, width, height]), remedy);
        }
        let Some(text) = annotation.segmentation.map(RawValue::get).filter(|text| text.starts_with('[')) else {
            return Ok(());
        };
        let polygons: Vec<Vec<f32>> = match serde_json::from_str(text) {
            Ok(polygons) => polygons,
            Err(error) => {
                return of(format!("has no polygons of numbers: {error}"), "write a list of lists of numbers");
            }
        };
        for polygon in &polygons {
            let range = |first: usize| {
                let numbers = polygon.iter().skip(first).step_by(2).copied();
                numbers.fold([f32::INFINITY, f32::NEG_INFINITY], |[least, most], number| {
                    [least.min(number), most.max(number)]
                })
            };
            if !polygon.is_empty() && is_outside(range(0), range(1)) {
                return of("has a polygon that lies outside of the image".into(), remedy);
            }
        }
        Ok(())
    }

    fn onto(&self, dataset: Arc<dyn Dataset>, unlabelled: Unlabelled) -> Result<Arc<dyn Dataset>> {
        let labelled = self.names.onto(dataset, unlabelled, |_| None, |rows| self.columns(rows))?;
        if self.astray == 0 {
            return Ok(Arc::new(labelled));
        }
        let what = "annotations of images that are not listed";
        let astray = Skipped { what, count: self.astray, first: self.path.clone() };
        Ok(Arc::new(labelled.leaving_out(vec![astray])))
    }

    /// The columns of the images in these rows.
    fn columns(&self, rows: &[usize]) -> Result<Vec<KnownColumn>> {
        let every = || rows.iter().flat_map(|&row| &self.objects[row]);
        let objects = rows.iter().map(|&row| {
            let mut objects = Objects::default();
            for annotation in &self.objects[row] {
                objects.boxes.extend(annotation.bbox.unwrap_or_default());
                objects.labels.extend(self.classes.get(&annotation.category_id));
                objects.masks.push(annotation.segmentation.map(|text| text.get().into()));
            }
            objects
        });
        let objects: Vec<Objects<'_>> = objects.collect();
        let mut columns = columns(&objects, self.class_names.clone())?;
        drop(objects);
        let lengths: Vec<u64> = rows.iter().map(|&row| self.objects[row].len() as u64).collect();
        if every().any(|annotation| annotation.area.is_some()) {
            let areas = every().flat_map(|annotation| annotation.area.unwrap_or(f32::NAN).to_le_bytes()).collect();
            columns.push(KnownColumn::of_vectors("areas", DType::F32, &lengths, areas)?);
        }
        if every().any(|annotation| annotation.iscrowd != 0) {
            let crowd = every().flat_map(|annotation| annotation.iscrowd.to_le_bytes()).collect();
            columns.push(KnownColumn::of_vectors("crowd", DType::I64, &lengths, crowd)?);
        }
        let points = |annotation: &Annotation<'_>| annotation.keypoints.as_ref().map_or(0, Vec::len) as u64;
        if every().any(|annotation| points(annotation) > 0) {
            let numbers = |annotation: &&'_ Annotation<'_>| annotation.keypoints.clone().unwrap_or_default();
            let keypoints = every().flat_map(numbers).flat_map(f32::to_le_bytes).collect();
            let lengths = |&row: &usize| self.objects[row].iter().map(|annotation| points(annotation)).sum();
            let lengths: Vec<u64> = rows.iter().map(lengths).collect();
            columns.push(KnownColumn::of_vectors("keypoints", DType::F32, &lengths, keypoints)?);
        }
        columns.push(KnownColumn::of_numbers("image_id", rows.iter().map(|&row| self.images[row].id).collect()));
        let sizes = rows.iter().map(|&row| self.images[row].height.zip(self.images[row].width));
        if let Some(sizes) = sizes.collect::<Option<Vec<(i64, i64)>>>() {
            let sizes: Vec<u8> =
                sizes.into_iter().flat_map(|(height, width)| [height, width]).flat_map(i64::to_le_bytes).collect();
            columns.push(KnownColumn::of_bytes("size", DType::I64, vec![2], sizes.into())?);
        }
        Ok(columns)
    }
}

/// The offset of a line and column, both counted from 1.
fn offset_of(text: &[u8], line: usize, column: usize) -> u64 {
    let lines = memchr::memchr_iter(b'\n', text).map(|end| end + 1);
    let start = std::iter::once(0).chain(lines).nth(line.saturating_sub(1)).unwrap_or(text.len());
    (start + column.saturating_sub(1)).min(text.len()) as u64
}
