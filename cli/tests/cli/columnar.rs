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
    let names: Vec<_> = (0..2).map(|number| parquet["columns"][number]["name"].clone()).collect();
    assert_eq!(names, ["image", "i16"]);
    assert!(parquet["columns"][1]["encoding"].as_str().unwrap().contains("ZSTD"), "{parquet}");
    let arrow = inspected(&data("split-arrow"));
    assert_eq!((&arrow["format"], &arrow["samples"]), (&"arrow".into(), &10.into()));
    // A column that cannot be read is left out, and told.
    let odd = inspected(&data("odd.parquet"));
    assert_eq!(odd["left_out"][0]["reason"], "columns of types that cannot be read", "{odd}");
    assert!(odd["left_out"][0]["first"].as_str().unwrap().ends_with("odd.parquet/keys"), "{odd}");
    let (_, told) = expect(&mut uringload(&format!("inspect {} --columns no", data("split"))), 2);
    assert!(told.contains("the file has no column \"no\"") && told.contains("i32, string"), "{told}");
}

/// The remedies that errors name are some.
#[cfg(feature = "parquet")]
#[test]
fn nulls_can_be_empty_values_or_numbers() {
    for name in ["nulls.parquet", "nulls.arrow"] {
        let verified = format!("verify {} --columns text,image", data(name));
        let (told, _) = expect(&mut uringload(&verified), 1);
        assert!(told.contains("is null in row") && told.contains("--nulls empty"), "{told}");
        expect(&mut uringload(&format!("{verified} --nulls empty")), 0);
    }
    for name in ["numbers.parquet", "numbers.arrow"] {
        let verified = format!("verify {} --columns i32,f32", data(name));
        let (told, _) = expect(&mut uringload(&verified), 1);
        assert!(told.contains("column \"i32\" is null in row") && told.contains("--nulls zero"), "{told}");
        expect(&mut uringload(&format!("{verified} --nulls nan")), 1);
        expect(&mut uringload(&format!("{verified} --nulls zero")), 0);
        let masked = json(&expect(&mut uringload(&format!("inspect {} --nulls mask --json", data(name))), 0).0);
        assert_eq!(masked["columns"][1]["name"], "i32.valid", "{masked}");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn what_is_not_built_in_says_how_to_have_it() {
    for arguments in [data("split"), data("split-arrow"), format!("{} --format parquet", data("split"))] {
        let (_, told) = expect(&mut uringload(&format!("inspect {arguments}")), 1);
        assert!(told.contains("built without Parquet and Arrow"), "{told}");
        assert!(told.contains("the feature `parquet`"), "{told}");
    }
}

#[test]
fn columns_are_for_lines_and_tables_alone() {
    let (_, told) = expect(&mut uringload(&format!("inspect {} --format folder --columns a", data("split"))), 2);
    assert!(told.contains("only for jsonl, csv"), "{told}");
}
