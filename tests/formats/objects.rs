//! Objects of images: what annotations of COCO and labels of YOLO must not say, and where they belong.

use super::own::folder;
use crate::common::content::put;
use std::path::Path;
use std::sync::Arc;
use uringload::ErrorKind;
use uringload::dataset::{self, Dataset, Options, SampleId};

fn open(root: &Path, table: &str, unlabelled: &str) -> uringload::Result<Arc<dyn Dataset>> {
    let options = Options::new().set("label_file", root.join(table)).set("unlabelled", unlabelled);
    dataset::open(&[root.join("images")], &options)
}

const CAT: &str = r#""categories": [{"id": 7, "name": "cat"}]"#;

fn coco(images: &str, annotations: &str) -> String {
    format!(r#"{{"images": [{images}], "annotations": [{annotations}], {CAT}}}"#)
}

#[test]
fn annotations_that_contradict_the_images() {
    let image = r#"{"id": 1, "file_name": "a.jpg", "width": 10, "height": 8}"#;
    let gone = r#"{"id": 2, "file_name": "gone.jpg", "width": 10, "height": 8}"#;
    let of = |rest: &str| format!(r#"{{"id": 5, "image_id": 1, "category_id": 7, "bbox": [1, 1, 2, 2]{rest}}}"#);
    let good = of("");
    let cases = [
        (
            coco(image, &of(r#", "segmentation": [[11, 9, 12, 9, 12, 10]]"#)),
            ErrorKind::Corrupt,
            "polygon that lies out",
        ),
        (coco(image, &good.replace("[1, 1,", "[11, 1,")), ErrorKind::Corrupt, "box that lies outside"),
        (coco(image, &good.replace(r#""category_id": 7"#, r#""category_id": 8"#)), ErrorKind::Corrupt, "category 8"),
        (coco(image, &good.replace(r#""bbox": [1, 1, 2, 2]"#, r#""caption": "a cat""#)), ErrorKind::Corrupt, "no box"),
        (coco(image, &good.replace(r#""image_id": 1"#, r#""image_id": 3"#)), ErrorKind::Corrupt, "of image 3, which"),
        (coco(image, &of(r#", "segmentation": [["x"]]"#)), ErrorKind::Corrupt, "no polygons of numbers"),
        (
            coco(&format!("{image}, {gone}"), &good),
            ErrorKind::InvalidArgument,
            "1 labels have no sample (\"gone.jpg\")",
        ),
        (coco(&image.replace("a.jpg", "b.jpg"), &good), ErrorKind::Empty, "1 samples have no label (\"a.jpg\")"),
        (coco(&format!("{image}, {image}"), &good), ErrorKind::InvalidArgument, "\"a.jpg\" has two labels"),
        (
            coco(&format!("{image}, {}", gone.replace('2', "1")), &good),
            ErrorKind::Corrupt,
            "two images have the same id",
        ),
        ("{\n \"images\": 3}".into(), ErrorKind::Corrupt, "no annotations of COCO"),
        (coco(image, &good)[..60].into(), ErrorKind::Corrupt, "no annotations of COCO"),
    ];
    for (text, kind, words) in cases {
        let folder = folder(&[("images/a.jpg", "a"), ("instances.json", &text)]);
        let error = open(folder.path(), "instances.json", "error").expect_err(words);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.what().contains(words), "{words}: {error}");
        assert!(
            error.path().is_some_and(|path| path.ends_with("instances.json")) && error.remedy().is_some(),
            "{error}"
        );
    }
    let text = coco("{\"id\": 1, \"file_name\": \"a.jpg\"},\n{\"id\": x}", "");
    let folder = folder(&[("images/a.jpg", "a"), ("instances.json", &text)]);
    let error = open(folder.path(), "instances.json", "error").expect_err("no number");
    assert_eq!(error.offset(), Some(text.find('x').expect("it is there") as u64), "{error}");
}

#[test]
fn what_has_no_partner_can_be_left_out() {
    let images = r#"{"id": 1, "file_name": "images/a.jpg"}, {"id": 2, "file_name": "images/gone.jpg"}"#;
    let annotations = r#"{"image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]},
        {"image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 4]}"#;
    let text = coco(images, annotations);
    let folder = folder(&[("images/a.jpg", "a"), ("images/b.jpg", "b"), ("instances.json", &text)]);
    let some = open(folder.path(), "instances.json", "skip").expect("one image");
    assert_eq!(some.len(), 1, "found by the end of its path");
    let left_out: Vec<(&str, u64)> = some.index().left_out.iter().map(|it| (it.what, it.count)).collect();
    let wanted = [
        ("samples without a label", 1),
        ("labels without a sample", 1),
        ("annotations of images that are not listed", 1),
    ];
    assert_eq!(left_out, wanted);
    let boxes = some.schema().fields.iter().position(|field| field.name == "boxes").expect("boxes");
    assert_eq!(some.length(SampleId(0), boxes), Some(4));
}

#[test]
fn labels_that_are_none() {
    let yaml = "names: [cat, dog]\n";
    for (labels, names, at, words) in [
        ("0 .5 .5 .1 .1\n2 .5 .5 .1 .1\n", yaml, Some(14), "2 is no class: there are 2"),
        ("0 .5 .5 1.2 .1", yaml, Some(0), "lies outside of the image"),
        ("0 .5 .5 .1", yaml, Some(0), "3 numbers after the class"),
        ("0 .5 .5 .1 .1\n\ncat .5 .5 .1 .1", yaml, Some(15), "other than numbers"),
        ("0 .5 .5 .1 nan", yaml, Some(0), "lies outside of the image"),
        ("0 .5 .5 .1 .1\n0 .1 .1 .2 .2 .3 .1\n", yaml, Some(14), "boxes beside polygons"),
        ("0 .5 .5 .1 .1", "nc: 2\n", None, "no names of classes"),
        ("0 .5 .5 .1 .1", "names: {0: a, 2: b}\n", None, "not numbered from 0 on: class 2"),
        ("0 .5 .5 .1 .1", "names: [a\n", None, "no YAML"),
        ("0 .5 .5 .1 .1", "kpt_shape: [17, 3]\nnames: [a]\n", None, "keypoints"),
    ] {
        let folder = folder(&[("images/a.jpg", "a"), ("labels/a.txt", labels), ("data.yaml", names)]);
        let error = open(folder.path(), "data.yaml", "error").expect_err(words);
        assert!(error.what().contains(words) && error.remedy().is_some(), "{words}: {error}");
        let file = if at.is_some() { "labels/a.txt" } else { "data.yaml" };
        assert!(error.path().is_some_and(|path| path.ends_with(file)), "{error}");
        assert_eq!(error.offset(), at, "{error}");
    }
    let astray =
        folder(&[("images/a.jpg", ""), ("labels/a.txt", ""), ("labels/b.txt", ""), ("labels/classes.txt", "x")]);
    let error = open(astray.path(), "labels", "error").expect_err("labels without an image");
    assert!(error.what().contains("1 files of labels have no image") && error.to_string().contains("b.txt"), "{error}");
    let some = open(astray.path(), "labels", "skip").expect("one image");
    assert_eq!((some.len(), some.index().left_out.last().map(|it| it.count)), (1, Some(1)));
    let beside = folder(&[("a.jpg", ""), ("a.txt", "1 .5 .5 .1 .1"), ("train.txt", "a.jpg"), ("data.yaml", yaml)]);
    let options = Options::new().set("label_file", beside.path().join("data.yaml"));
    assert_eq!(dataset::open(&[beside.path()], &options).expect("labels beside images").len(), 1);
    let none = folder(&[("images/a.jpg", ""), ("data.yaml", yaml)]);
    let error = open(none.path(), "data.yaml", "error").expect_err("no labels at all");
    assert!(error.kind() == ErrorKind::Empty && error.to_string().contains("labels/a.txt"), "{error}");
}

/// What is no data says so.
#[test]
fn weights_are_named() {
    let header = br#"{"lm_head.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([0; 4]);
    let folder = tempfile::tempdir().expect("a folder");
    put(&folder.path().join("model.safetensors"), &file).expect("a file");
    let error = dataset::open(&[folder.path()], &Options::new()).expect_err("weights");
    assert!(error.what().contains("weights of a model") && error.what().contains("lm_head.weight"), "{error}");
    assert_eq!(dataset::open(&[folder.path()], &Options::new().format("safetensors")).expect("tensors").len(), 1);
}
