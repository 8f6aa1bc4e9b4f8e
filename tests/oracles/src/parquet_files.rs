//! Small files of the crate `parquet`: their rows as uringload reads them.

use crate::Written;
use crate::parquet::PHYSICAL;
use crate::random::Random;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A column: its type, and whether it may be null or is a list of its type.
struct Column {
    name: String,
    physical: Physical,
    repetition: Repetition,
}

/// The values of a column in a row group, as they are delivered: `None` for null. One of a list is its elements.
type Values = Vec<Option<Vec<u8>>>;

fn columns(random: &mut Random) -> Vec<Column> {
    let numbers = [Physical::INT32, Physical::INT64, Physical::DOUBLE];
    let count = 1 + random.below(6);
    let column = |number| {
        let repetition = random.one_of(&[Repetition::REQUIRED, Repetition::OPTIONAL, Repetition::REPEATED]);
        let is_list = repetition == Repetition::REPEATED;
        let physical = random.one_of(if is_list { &numbers[..] } else { &PHYSICAL });
        Column { name: format!("c{number}"), physical, repetition }
    };
    (0..count).map(column).collect()
}

fn schema(columns: &[Column], random: &mut Random) -> Arc<Type> {
    let field = |column: &Column| {
        let builder = Type::primitive_type_builder(&column.name, column.physical).with_length(5);
        let builder = builder.with_repetition(column.repetition);
        let text = column.physical == Physical::BYTE_ARRAY && random.below(2) == 0;
        let builder = builder.with_logical_type(text.then_some(LogicalType::String));
        let leaf = builder.build().expect("a leaf");
        // A struct, which stands for its fields.
        if random.below(4) > 0 {
            return Arc::new(leaf);
        }
        let group = Type::group_type_builder("s").with_repetition(Repetition::REQUIRED);
        Arc::new(group.with_fields(vec![Arc::new(leaf)]).build().expect("a group"))
    };
    let fields = columns.iter().map(field).collect();
    Arc::new(Type::group_type_builder("root").with_fields(fields).build().expect("a root"))
}

/// Writes a column of a row group: random values, most of them of a few.
fn write(to: &mut ColumnWriter<'_>, column: &Column, rows: usize, random: &mut Random) -> Values {
    match to {
        ColumnWriter::BoolColumnWriter(to) => {
            typed(to, column, rows, random, |n| n % 2 == 0, |value| vec![u8::from(*value)])
        }
        ColumnWriter::Int32ColumnWriter(to) => {
            typed(to, column, rows, random, |n| n as i32, |value| value.to_le_bytes().to_vec())
        }
        ColumnWriter::Int64ColumnWriter(to) => {
            typed(to, column, rows, random, |n| n as i64, |value| value.to_le_bytes().to_vec())
        }
        ColumnWriter::Int96ColumnWriter(to) => {
            let number = |n: u64| Int96::from(vec![n as u32, (n >> 32) as u32, 7]);
            typed(to, column, rows, random, number, |value| {
                value.data().iter().flat_map(|word| word.to_le_bytes()).collect()
            })
        }
        ColumnWriter::FloatColumnWriter(to) => {
            typed(to, column, rows, random, |n| n as f32, |value| value.to_le_bytes().to_vec())
        }
        ColumnWriter::DoubleColumnWriter(to) => {
            typed(to, column, rows, random, |n| n as f64, |value| value.to_le_bytes().to_vec())
        }
        ColumnWriter::ByteArrayColumnWriter(to) => {
            let text = |n: u64| ByteArray::from(format!("{:x}", n >> (n % 64)).into_bytes());
            typed(to, column, rows, random, text, |value| value.data().to_vec())
        }
        ColumnWriter::FixedLenByteArrayColumnWriter(to) => {
            let fixed = |n: u64| FixedLenByteArray::from(n.to_le_bytes()[..5].to_vec());
            typed(to, column, rows, random, fixed, |value| value.data().to_vec())
        }
    }
}

fn typed<T: DataType>(
    to: &mut ColumnWriterImpl<'_, T>,
    column: &Column,
    rows: usize,
    random: &mut Random,
    of: impl Fn(u64) -> T::T,
    bytes: impl Fn(&T::T) -> Vec<u8>,
) -> Values {
    let few = random.number();
    let (mut values, mut definition, mut repetition, mut expected) =
        (Vec::new(), Vec::new(), Vec::new(), Values::new());
    for _ in 0..rows {
        let mut value = || of(if random.below(4) == 0 { random.number() } else { few ^ random.below(3) });
        match column.repetition {
            Repetition::REQUIRED => values.push(value()),
            Repetition::OPTIONAL => {
                let value = value();
                let is_there = random.below(5) > 0;
                definition.push(i16::from(is_there));
                if !is_there {
                    expected.push(None);
                    continue;
                }
                values.push(value);
            }
            Repetition::REPEATED => {
                let elements: Vec<T::T> = (0..3).map(|_| value()).collect();
                let count = random.below(4) as usize;
                repetition.extend((0..count.max(1)).map(|element| i16::from(element > 0)));
                definition.extend(vec![i16::from(count > 0); count.max(1)]);
                expected.push(Some(elements[..count].iter().flat_map(&bytes).collect()));
                values.extend_from_slice(&elements[..count]);
                continue;
            }
        }
        expected.push(values.last().map(&bytes));
    }
    let definition = (column.repetition != Repetition::REQUIRED).then_some(&definition[..]);
    let repetition = (column.repetition == Repetition::REPEATED).then_some(&repetition[..]);
    to.write_batch(&values, definition, repetition).expect("values");
    expected
}

/// Writes a file. Returns its rows: the values of each, by column.
fn file(path: &Path, random: &mut Random) -> Vec<Written> {
    let columns = columns(random);
    let schema = schema(&columns, random);
    let version = random.one_of(&[WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]);
    let properties = WriterProperties::builder().set_writer_version(version).set_compression(Compression::UNCOMPRESSED);
    let properties = properties.set_dictionary_enabled(random.below(2) == 0).set_data_page_row_count_limit(50).build();
    let names: Vec<String> = schema
        .get_fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| if field.is_group() { format!("s.{}", column.name) } else { column.name.clone() })
        .collect();
    let to = File::create(path).expect("a file");
    let mut writer = SerializedFileWriter::new(to, schema, Arc::new(properties)).expect("a writer");
    let mut all = Vec::new();
    for _ in 0..1 + random.below(3) {
        let rows = 1 + random.below(200) as usize;
        let mut group = writer.next_row_group().expect("a row group");
        let (mut written, mut number) = (vec![BTreeMap::new(); rows], 0);
        while let Some(mut to) = group.next_column().expect("a column") {
            let values = write(to.untyped(), &columns[number], rows, random);
            to.close().expect("a column");
            for (row, value) in written.iter_mut().zip(values) {
                row.insert(names[number].clone(), value);
            }
            number += 1;
        }
        group.close().expect("a row group");
        all.extend(written);
    }
    writer.close().expect("a file");
    all
}

#[test]
fn the_rows_of_small_files_are_what_was_written() {
    crate::rows_are_those_written("a.parquet", file);
}
