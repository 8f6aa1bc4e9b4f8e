//! What people store beside plain numbers: text, lists, big endian numbers, compounds, `scaleoffset`; and that an odd
//! dataset costs nothing but itself.

use super::*;

const TEXTS: [&str; 7] = ["", "a", "zwei", "drei drei", "\u{4e16}\u{754c}", "", "last"];

fn text(row: usize) -> Vec<u8> {
    if row == 5 { vec![b'x'; 300] } else { TEXTS[row].as_bytes().to_vec() }
}

fn rows(dataset: &dyn Dataset) -> Vec<direct::Row> {
    direct::samples(dataset).into_iter().map(Result::unwrap).collect()
}

#[test]
fn text_and_lists() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("texts-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        let fields: Vec<_> =
            all.schema().fields.iter().map(|field| (&*field.name, field.dtype, &field.shape)).collect();
        let wanted = [
            ("chunked", DType::U8, &Shape::Ragged),
            ("fixed", DType::U8, &Shape::Fixed(vec![7])),
            ("floats", DType::F64, &Shape::Ragged),
            ("ints", DType::I32, &Shape::Ragged),
            ("packed", DType::U8, &Shape::Ragged),
            ("partly", DType::U8, &Shape::Ragged),
            ("variable", DType::U8, &Shape::Ragged),
        ];
        assert_eq!(fields, wanted, "{form}");
        for (id, row) in rows(&*all).into_iter().enumerate() {
            for name in ["variable", "chunked", "packed"] {
                assert_eq!(row[name], text(id), "{form}: row {id} of {name}");
            }
            let mut fixed = text(id);
            fixed.resize(7, 0);
            assert_eq!(row["fixed"], fixed, "{form}: row {id}");
            assert_eq!(row["partly"], if id == 4 { &b"only"[..] } else { b"" }, "{form}: row {id}");
            assert_eq!(row["ints"], (0..id as i32).flat_map(i32::to_le_bytes).collect::<Vec<u8>>());
            assert_eq!(row["floats"], (0..id).flat_map(|at| (at as f64).to_le_bytes()).collect::<Vec<u8>>());
        }
        let one = open(&file, &["variable"]).unwrap();
        let lens: Vec<u64> = (0..7).map(|row| text(row).len() as u64).collect();
        assert_eq!((one.index().plain_field, one.bytes()), (Some(0), lens.iter().sum::<u64>()));
        assert_eq!((one.largest(1), one.largest(2), one.largest(9)), (300, 309, one.bytes()));
        assert!(one.units().is_none());
        let other = open(&file, &["chunked"]).unwrap();
        assert_ne!(other.fingerprint(), one.fingerprint());
    }
}

#[test]
fn big_endian_numbers_arrive_little_endian() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("endings-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        assert_eq!(all.schema().fields.len(), 9, "{form}");
        let names: Vec<String> = all.schema().fields.iter().map(|field| field.name.clone()).collect();
        for name in names.iter().filter(|name| *name != "zfilled") {
            let one = open(&file, &[name]).unwrap();
            assert_elements(&*one, name);
            assert_eq!((one.index().plain_field, one.index().parse_reads_bytes), (None, true), "{name}");
            assert!(words(&*one)[0].ends_with("big endian"), "{:?}", words(&*one));
        }
        for (id, row) in rows(&*open(&file, &["zfilled"]).unwrap()).into_iter().enumerate() {
            let wanted = [if id == 0 { 9_i32 } else { 7 }, 7, 7];
            assert_eq!(row["zfilled"], wanted.map(i32::to_le_bytes).concat(), "{form}: row {id}");
        }
    }
}

#[test]
fn numbers_in_as_few_bits_as_they_need() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("scaled-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        assert_eq!(all.schema().fields.len(), 12 + 2 * 6, "{form}");
        for name in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "big_i4", "gzip", "narrow", "floats"] {
            let one = open(&file, &[name]).unwrap();
            assert_elements(&*one, name);
            assert!(words(&*one)[0].contains("scaleoffset"), "{:?}", words(&*one));
        }
        for (id, row) in rows(&*all).into_iter().enumerate() {
            for name in ["same", "extremes", "decimals4", "decimals8", "part", "part_float"] {
                assert_eq!(row[name], row[&format!("{name}_read")], "{form}: row {id} of {name}");
            }
            assert_eq!(row["same"], (-3_i64).to_le_bytes());
        }
    }
}

#[test]
fn fields_of_compounds_are_columns() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("tables-{form}.h5"));
        for table in ["contiguous", "chunked", "packed", "partly"] {
            let names = ["id", "name", "box", "inner/u", "inner/v", "flag"].map(|field| format!("{table}/{field}"));
            let one = open(&file, &names.each_ref().map(|name| &**name)).unwrap();
            let types: Vec<DType> = one.schema().fields.iter().map(|field| field.dtype).collect();
            assert_eq!(types, [DType::I64, DType::U8, DType::F32, DType::U16, DType::F32, DType::Bool]);
            assert_eq!(one.schema().fields[2].shape, Shape::Fixed(vec![2, 2]));
            assert_eq!(one.units().is_some(), ["packed", "partly"].contains(&table), "{table}");
            for (id, row) in (0..9).zip(rows(&*one)) {
                let id = if table == "partly" && id > 0 { 3 } else { id };
                let mut name = format!("row {id}").into_bytes();
                name.resize(5, 0);
                let wanted = [
                    elements(DType::I64, id, 1),
                    name,
                    elements(DType::F32, 4 * id, 4),
                    elements(DType::U16, id, 1),
                    elements(DType::F32, id, 1),
                    elements(DType::Bool, id, 1),
                ];
                // A chunk of `partly` that was written has zeros where nothing was.
                for (name, wanted) in names.iter().zip(wanted) {
                    assert_eq!(row[name], wanted, "{form}: row {id} of {name}");
                }
            }
        }
        let error = open(&file, &["contiguous"]).unwrap_err();
        assert!(error.to_string().contains("name its fields: contiguous/id, contiguous/name"), "{error}");
        let error = open(&file, &["contiguous/absent"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.to_string().contains("\"contiguous/absent\"") && error.to_string().contains("/inner/u"),
            "{error}"
        );
        let error = open(&file, &["beside/x"]).unwrap_err();
        assert!(error.to_string().contains("no such field"), "{error}");
    }
}

/// Its neighbours are read, and it is counted; by its name it is refused.
#[test]
fn an_odd_dataset_costs_nothing_but_itself() {
    for form in ["earliest", "latest"] {
        let file = data(&format!("tables-{form}.h5"));
        let all = open(&file, &[]).unwrap();
        let names: Vec<&str> = all.schema().fields.iter().map(|field| &*field.name).collect();
        assert!(
            names.contains(&"beside") && names.contains(&"mixed/n") && names.contains(&"packed/inner/v"),
            "{names:?}"
        );
        assert_eq!(names.len(), 2 + 1 + 4 * 6);
        let left_out: Vec<_> = all.index().left_out.iter().map(|skipped| (skipped.what, skipped.count)).collect();
        assert_eq!(left_out, [("datasets that cannot be read", 3)], "{form}");
        assert!(all.index().left_out[0].first.ends_with("blosc"), "{:?}", all.index().left_out);
        for name in ["references", "blosc", "mixed/text"] {
            assert!(open(&file, &["beside", name]).is_err(), "{name}");
        }
        assert_elements(&*open(&file, &["beside"]).unwrap(), "beside");
    }
}
