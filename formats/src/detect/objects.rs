//! Objects of images, which other files hold: COCO's annotations and YOLO's labels. They are asked for by name, and
//! images that have them are not opened without them in silence: their folders would pass for classes.

use super::roles::{Role, Shown, is_media};
use crate::dataset::{FileId, FileTable};
use crate::find::names::{base_of, without_extension};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind};

/// Where the objects of images are.
pub(super) enum Objects {
    /// In this file of COCO's.
    Coco(PathBuf),
    /// In files beside the images; this is what `label_file` takes for them.
    Yolo(PathBuf),
}

impl Objects {
    /// Finds them, and makes companions of their files.
    pub(super) fn find(files: &FileTable, shown: &mut [Shown]) -> Option<Objects> {
        let all = || (0..files.len() as u32).map(FileId);
        if !all().any(|file| is_media(files.name(file))) {
            return None;
        }
        let mut coco = None;
        for file in all().filter(|&file| is_coco(files.name(file))) {
            shown[file.0 as usize].role = Role::Companion;
            coco.get_or_insert(file);
        }
        if let Some(file) = coco {
            return Some(Objects::Coco(files.path(file)));
        }
        let labels: Vec<FileId> = all().filter(|&file| image_of(files.name(file)).is_some()).collect();
        let first = *labels.first()?;
        let images: HashSet<&[u8]> =
            all().map(|file| files.name(file)).filter(|name| is_media(name)).map(without_extension).collect();
        let is_its = |file: &FileId| image_of(files.name(*file)).is_some_and(|image| images.contains(&image[..]));
        if !labels.iter().any(is_its) {
            return None;
        }
        labels.iter().for_each(|file| shown[file.0 as usize].role = Role::Companion);
        let is_description =
            |file: &FileId| [".yaml", ".yml"].iter().any(|it| files.name(*file).ends_with(it.as_bytes()));
        let description = all().find(is_description).map(|file| files.path(file));
        let folder = || files.path(first).ancestors().find(|folder| folder.ends_with("labels")).map(Path::to_path_buf);
        description.or_else(folder).map(Objects::Yolo)
    }

    /// The error for images that are opened without them.
    pub(super) fn refuse(&self, place: &Path) -> Error {
        let (what, path) = match self {
            Objects::Coco(path) => ("these images have annotations of COCO, and the folders are no classes", path),
            Objects::Yolo(path) => ("these images have labels of YOLO, and the folders are no classes", path),
        };
        Error::new(ErrorKind::InvalidArgument, what).with_path(place).with_remedy(format!(
            "give label_file (--label-file) {path:?} for boxes and classes, or labels (--labels) false for images alone"
        ))
    }
}

/// `instances_train2017.json` of COCO, and `_annotations.coco.json` of those who write its format.
fn is_coco(name: &[u8]) -> bool {
    name.ends_with(b".json") && (name.ends_with(b".coco.json") || base_of(name).starts_with(b"instances_"))
}

/// What the image is called that has these labels, without its extension.
fn image_of(name: &[u8]) -> Option<Vec<u8>> {
    if !name.ends_with(b".txt") {
        return None;
    }
    let at = match memchr::memmem::rfind(name, b"/labels/") {
        Some(at) => at + 1,
        None if name.starts_with(b"labels/") => 0,
        None => return None,
    };
    Some([&name[..at], b"images/", &without_extension(name)[at + b"labels/".len()..]].concat())
}
