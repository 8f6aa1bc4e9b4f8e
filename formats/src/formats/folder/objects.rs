//! The objects of images, as columns: what COCO and YOLO have in common.

use crate::compose::KnownColumn;
use crate::dataset::DType;
use std::borrow::Cow;
use std::ffi::OsString;
use uringload_core::Result;

/// The objects of one image.
#[derive(Debug, Default)]
pub(super) struct Objects<'a> {
    /// Four numbers each.
    pub(super) boxes: Vec<f32>,
    /// Positions in the list of classes.
    pub(super) labels: Vec<i64>,
    /// What each has for a mask, as JSON text.
    pub(super) masks: Vec<Option<Cow<'a, str>>>,
}

/// `boxes` (four `f32` an object), `labels` (an `i64` an object), and, if any object has one, `segmentation`: a JSON
/// list with the mask of each object, `null` where it has none.
pub(super) fn columns(images: &[Objects<'_>], classes: Vec<OsString>) -> Result<Vec<KnownColumn>> {
    let lengths: Vec<u64> = images.iter().map(|objects| objects.boxes.len() as u64).collect();
    let boxes = images.iter().flat_map(|objects| &objects.boxes).flat_map(|number| number.to_le_bytes()).collect();
    let mut columns = vec![KnownColumn::of_vectors("boxes", DType::F32, &lengths, boxes)?];
    let lengths: Vec<u64> = images.iter().map(|objects| objects.labels.len() as u64).collect();
    let labels = images.iter().flat_map(|objects| &objects.labels).flat_map(|label| label.to_le_bytes()).collect();
    columns.push(KnownColumn::of_vectors("labels", DType::I64, &lengths, labels)?.with_classes(classes));
    if images.iter().flat_map(|objects| &objects.masks).any(Option::is_some) {
        let list = |objects: &Objects<'_>| {
            let masks: Vec<&str> = objects.masks.iter().map(|mask| mask.as_deref().unwrap_or("null")).collect();
            format!("[{}]", masks.join(","))
        };
        columns.push(KnownColumn::of_texts("segmentation", images.iter().map(list)));
    }
    Ok(columns)
}
