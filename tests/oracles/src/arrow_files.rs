//! Small files and streams of `arrow-ipc`: their rows as uringload reads them.

use crate::Written;
use crate::random::Random;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt8Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Field, Fields, Schema};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

type Values = Vec<Option<Vec<u8>>>;

/// Random values of a type, as an array and as they are delivered.
fn column(kind: u64, rows: usize, random: &mut Random) -> (ArrayRef, Values) {
    let numbers: Vec<Option<u64>> = (0..rows).map(|_| (random.below(5) > 0).then(|| random.number())).collect();
    let of = |bytes: &dyn Fn(u64) -> Vec<u8>| numbers.iter().map(|number| number.map(bytes)).collect::<Values>();
    let text = |number: u64| format!("{:x}", number >> (number % 64));
    match kind {
        0 => {
            let array: BooleanArray = numbers.iter().map(|number| number.map(|number| number % 2 == 0)).collect();
            (Arc::new(array), of(&|number| vec![u8::from(number % 2 == 0)]))
        }
        1 => {
            let array: UInt8Array = numbers.iter().map(|number| number.map(|number| number as u8)).collect();
            (Arc::new(array), of(&|number| vec![number as u8]))
        }
        2 => {
            let array: Int64Array = numbers.iter().map(|number| number.map(|number| number as i64)).collect();
            (Arc::new(array), of(&|number| number.to_le_bytes().to_vec()))
        }
        3 => {
            let array: Float64Array = numbers.iter().map(|number| number.map(|number| number as f64)).collect();
            (Arc::new(array), of(&|number| (number as f64).to_le_bytes().to_vec()))
        }
        4 => {
            let array: StringArray = numbers.iter().map(|number| number.map(text)).collect();
            (Arc::new(array), of(&|number| text(number).into_bytes()))
        }
        5 => {
            let array: BinaryArray = numbers.iter().map(|number| number.map(|number| number.to_be_bytes())).collect();
            (Arc::new(array), of(&|number| number.to_be_bytes().to_vec()))
        }
        _ => {
            let list = |number: u64| (0..number % 4).map(move |element| (number >> element) as i32);
            let lists = numbers.iter().map(|number| number.map(|number| list(number).map(Some)));
            let array = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
            (Arc::new(array), of(&|number| list(number).flat_map(i32::to_le_bytes).collect()))
        }
    }
}

/// Writes a file or a stream. Returns its rows: the values of each, by column.
fn file(path: &Path, random: &mut Random) -> Vec<Written> {
    let kinds: Vec<(u64, bool)> = (0..1 + random.below(6)).map(|_| (random.below(7), random.below(4) == 0)).collect();
    let (mut all, mut batches, mut schema) = (Vec::new(), Vec::new(), None);
    for _ in 0..1 + random.below(3) {
        let rows = 1 + random.below(100) as usize;
        let (mut written, mut fields, mut arrays) = (vec![BTreeMap::new(); rows], Vec::new(), Vec::new());
        for (number, &(kind, is_inside)) in kinds.iter().enumerate() {
            let (array, values) = column(kind, rows, random);
            let name = format!("c{number}");
            let field = Field::new(&name, array.data_type().clone(), true);
            let whole = if is_inside { format!("s{number}.{name}") } else { name };
            // A struct stands for its fields.
            let (field, array): (Field, ArrayRef) = if is_inside {
                let inside = Fields::from(vec![field]);
                let array = StructArray::new(inside.clone(), vec![array], None);
                (Field::new(format!("s{number}"), DataType::Struct(inside), false), Arc::new(array))
            } else {
                (field, array)
            };
            fields.push(field);
            arrays.push(array);
            for (row, value) in written.iter_mut().zip(values) {
                row.insert(whole.clone(), value);
            }
        }
        let schema = schema.get_or_insert_with(|| Arc::new(Schema::new(fields)));
        batches.push(RecordBatch::try_new(schema.clone(), arrays).expect("a batch"));
        all.extend(written);
    }
    let (to, schema) = (File::create(path).expect("a file"), schema.expect("a schema"));
    if random.below(2) == 0 {
        let mut writer = FileWriter::try_new(to, &schema).expect("a writer");
        batches.iter().for_each(|batch| writer.write(batch).expect("a batch"));
        writer.finish().expect("a file");
    } else {
        let mut writer = StreamWriter::try_new(to, &schema).expect("a writer");
        batches.iter().for_each(|batch| writer.write(batch).expect("a batch"));
        writer.finish().expect("a stream");
    }
    all
}

#[test]
fn the_rows_of_small_files_are_what_was_written() {
    crate::rows_are_those_written("a.arrow", file);
}
