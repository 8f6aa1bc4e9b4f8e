//! Parquet and Arrow: found by what files show, where they are built in, and refused with a remedy where they are not.

use super::*;

fn data(name: &str) -> String {
    format!("{}/../tests/data/columnar/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[cfg(feature = "parquet")]
#[test]
fn tables_are_found_and_described() {
    let inspected = |arguments: &str| json(&expect(&mut uringload(&format!("inspect {arguments} --json")), 0).0);
    let parquet = inspected(&format!("{} --columns image,i16", data("types-zstd-v2.parquet")));
    assert_eq!((&parquet["format"], &parquet["samples"]), (&"parquet".into(), &10.into()));
    assert_eq!(parquet["shards"], 3);
    let names: Vec<_> = (0..3).map(|number| parquet["columns"][number]["name"].clone()).collect();
    assert_eq!(names, ["image.bytes", "image.path", "i16"]);
    assert!(parquet["columns"][2]["encoding"].as_str().unwrap().contains("ZSTD"), "{parquet}");
    let arrow = inspected(&data("split-arrow"));
    assert_eq!((&arrow["format"], &arrow["samples"]), (&"arrow".into(), &10.into()));
    let (_, told) = expect(&mut uringload(&format!("inspect {} --columns no", data("split"))), 2);
    assert!(told.contains("the file has no column \"no\"") && told.contains("i32, string"), "{told}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn what_is_not_built_in_says_how_to_have_it() {
    for arguments in [data("split"), data("split-arrow"), format!("{} --format parquet", data("split"))] {
        let (_, told) = expect(&mut uringload(&format!("inspect {arguments}")), 1);
        assert!(told.contains("built without Parquet and Arrow"), "{told}");
        assert!(told.contains("--features parquet"), "{told}");
    }
}

#[test]
fn columns_are_for_lines_and_tables_alone() {
    let (_, told) = expect(&mut uringload(&format!("inspect {} --format folder --columns a", data("split"))), 2);
    assert!(told.contains("only for jsonl, csv"), "{told}");
}
