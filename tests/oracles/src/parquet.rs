//! Footers of Parquet: ours against those that the crate `parquet` writes and reads.

use crate::random::Random;
use crate::{SCHEMAS, SEED, Told, hold};
use parquet::basic::{
    Compression, ConvertedType, EdgeInterpolationAlgorithm, Encoding, LogicalType, Repetition, TimeUnit,
    Type as Physical,
};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;
use uringload_formats::inspect::parquet_metadata::{Inside, Metadata, Node};

/// Every physical type.
pub(crate) const PHYSICAL: [Physical; 8] = [
    Physical::BOOLEAN,
    Physical::INT32,
    Physical::INT64,
    Physical::INT96,
    Physical::FLOAT,
    Physical::DOUBLE,
    Physical::BYTE_ARRAY,
    Physical::FIXED_LEN_BYTE_ARRAY,
];

/// A physical type, its length, and an annotation that it may have, new or old.
fn leaf(name: &str, repetition: Repetition, random: &mut Random) -> Type {
    use LogicalType as L;
    let unit = random.one_of(&[TimeUnit::MILLIS, TimeUnit::MICROS, TimeUnit::NANOS]);
    let is_utc = random.below(2) == 0;
    let precision = 1 + random.below(9) as i32;
    let scale = random.below(precision as u64 + 1) as i32;
    let (mut physical, mut len) = (random.one_of(&PHYSICAL), random.below(40) as i32);
    let crs = (random.below(2) == 0).then(|| "OGC:CRS84".to_owned());
    let choice = random.below(24);
    let logical = match choice {
        0 => L::String,
        1 => L::Enum,
        2 => L::Json,
        3 => L::Bson,
        4 => L::geometry(crs),
        5 => L::geography(crs, random.one_of(&[None, Some(EdgeInterpolationAlgorithm::THOMAS)])),
        6 | 7 => L::decimal(scale, precision),
        8 => L::Date,
        9 => L::time(is_utc, TimeUnit::MILLIS),
        10 => L::time(is_utc, random.one_of(&[TimeUnit::MICROS, TimeUnit::NANOS])),
        11 => L::timestamp(is_utc, unit),
        12 => L::integer(random.one_of(&[8, 16, 32]), is_utc),
        13 => L::integer(64, is_utc),
        14 => L::Uuid,
        15 => L::Float16,
        16 => L::Unknown,
        _ => return old(name, repetition, physical, len, random),
    };
    match choice {
        0..=5 => physical = Physical::BYTE_ARRAY,
        6 => physical = random.one_of(&[Physical::INT32, Physical::INT64, Physical::BYTE_ARRAY]),
        7 => (physical, len) = (Physical::FIXED_LEN_BYTE_ARRAY, 4 + len),
        8 | 9 | 12 => physical = Physical::INT32,
        10 | 11 | 13 => physical = Physical::INT64,
        14 => (physical, len) = (Physical::FIXED_LEN_BYTE_ARRAY, 16),
        15 => (physical, len) = (Physical::FIXED_LEN_BYTE_ARRAY, 2),
        _ => {}
    }
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_length(len);
    let builder = match choice {
        6 | 7 => builder.with_scale(scale).with_precision(precision),
        _ => builder.with_scale(-1).with_precision(-1),
    };
    builder.with_logical_type(Some(logical)).build().expect("a leaf")
}

/// A leaf with an old annotation, or none.
fn old(name: &str, repetition: Repetition, physical: Physical, len: i32, random: &mut Random) -> Type {
    use ConvertedType as C;
    let fitting: &[C] = match physical {
        Physical::INT32 => {
            &[C::INT_8, C::UINT_8, C::INT_16, C::UINT_16, C::INT_32, C::UINT_32, C::DATE, C::TIME_MILLIS]
        }
        Physical::INT64 => {
            &[C::INT_64, C::UINT_64, C::TIME_MICROS, C::TIMESTAMP_MILLIS, C::TIMESTAMP_MICROS, C::DECIMAL]
        }
        Physical::BYTE_ARRAY => &[C::UTF8, C::ENUM, C::JSON, C::BSON, C::DECIMAL],
        Physical::FIXED_LEN_BYTE_ARRAY if len == 12 => &[C::INTERVAL],
        _ => &[C::NONE],
    };
    let converted = if random.below(3) == 0 { C::NONE } else { random.one_of(fitting) };
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_length(len);
    let builder = builder.with_converted_type(converted);
    let builder = match converted {
        C::DECIMAL => builder.with_precision(7).with_scale(2),
        _ => builder.with_precision(-1).with_scale(-1),
    };
    builder.build().expect("a leaf")
}

fn node(depth: u64, number: u64, random: &mut Random) -> TypePtr {
    let repetition = random.one_of(&[Repetition::REQUIRED, Repetition::OPTIONAL, Repetition::REPEATED]);
    let name = format!("{}{number}", random.one_of(&["a", "list", "größe", "", "key_value"]));
    if depth == 0 || random.below(2) == 0 {
        return Arc::new(leaf(&name, repetition, random));
    }
    let fields = (0..1 + random.below(3)).map(|number| node(depth - 1, number, random)).collect();
    let builder = Type::group_type_builder(&name).with_repetition(repetition).with_fields(fields);
    let builder = match random.below(6) {
        0 => builder.with_converted_type(ConvertedType::LIST),
        1 => builder.with_converted_type(random.one_of(&[ConvertedType::MAP, ConvertedType::MAP_KEY_VALUE])),
        2 => builder.with_logical_type(Some(LogicalType::List)),
        3 => builder.with_logical_type(Some(LogicalType::Map)).with_converted_type(ConvertedType::MAP),
        4 => builder.with_logical_type(Some(LogicalType::variant(Some(1)))),
        _ => builder,
    };
    Arc::new(builder.build().expect("a group"))
}

fn chunk(descriptor: &Arc<ColumnDescriptor>, random: &mut Random) -> ColumnChunkMetaData {
    let number = |random: &mut Random| random.number() as i64 >> random.below(64);
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::LZO,
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::ZSTD(Default::default()),
        Compression::LZ4_RAW,
    ];
    let encodings = (0..random.below(5)).map(|_| random.one_of(Encoding::VARIANTS)).collect();
    let builder = ColumnChunkMetaData::builder(descriptor.clone())
        .set_compression(random.one_of(&codecs))
        .set_encodings(encodings)
        .set_num_values(number(random))
        // The crate sums them.
        .set_total_compressed_size(number(random) >> 16)
        .set_total_uncompressed_size(number(random) >> 16)
        .set_data_page_offset(number(random))
        .set_dictionary_page_offset((random.below(2) == 0).then(|| number(random)));
    let is_text = descriptor.physical_type() == Physical::BYTE_ARRAY && random.below(2) == 0;
    let builder = builder.set_unencoded_byte_array_data_bytes(is_text.then(|| number(random)));
    let elsewhere = if random.below(20) == 0 { builder.set_file_path("other".into()) } else { builder };
    elsewhere.build().expect("a chunk")
}

/// A random footer.
fn footer(random: &mut Random) -> Vec<u8> {
    let depth = random.below(5);
    let fields = (0..1 + random.below(6)).map(|number| node(depth, number, random)).collect();
    let root = Arc::new(Type::group_type_builder("root").with_fields(fields).build().expect("a root"));
    let schema = Arc::new(SchemaDescriptor::new(root));
    let mut groups = Vec::new();
    for _ in 0..random.below(4) {
        let chunks = schema.columns().iter().map(|descriptor| chunk(descriptor, random)).collect();
        let group = RowGroupMetaData::builder(schema.clone()).set_num_rows(random.below(1 << 40) as i64);
        groups.push(group.set_total_byte_size(7).set_column_metadata(chunks).build().expect("a group"));
    }
    let keys = (0..random.below(4)).map(|_| random.one_of(&["ARROW:schema", "huggingface", ""]).to_owned());
    let pairs: Vec<KeyValue> = keys.map(|key| KeyValue { key, value: Some("größe".into()) }).collect();
    let file = FileMetaData::new(2, 9, Some("an oracle".into()), Some(pairs), schema, None);
    let metadata = ParquetMetaData::new(file, groups);
    let mut bytes = Vec::new();
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().expect("a footer");
    bytes.truncate(bytes.len() - 8);
    bytes
}

fn theirs(bytes: &[u8]) -> Result<ParquetMetaData, String> {
    ParquetMetaDataReader::decode_metadata(bytes).map_err(|error| error.to_string())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: ours is {ours:?}, theirs is {theirs:?}")) }
}

fn agree_node(
    ours: &Node,
    theirs: &Type,
    leaves: &mut dyn Iterator<Item = Arc<ColumnDescriptor>>,
) -> Result<(), String> {
    let info = theirs.get_basic_info();
    same("name", &ours.name[..], info.name())?;
    same("repetition", ours.repetition.to_string(), info.repetition().to_string())?;
    // The words are in fingerprints of datasets.
    let logical = info.logical_type_ref().map(|logical| format!("{logical:?}"));
    let is_variant = matches!(info.logical_type_ref(), Some(LogicalType::Variant(_)));
    if !is_variant {
        same("logical type", ours.logical.as_ref().map(ToString::to_string), logical)?;
    }
    let converted = info.converted_type();
    // The crate derives an old annotation from a new one.
    if info.logical_type_ref().is_none() || ours.converted.is_some() {
        let ours = ours.converted.map_or("NONE".to_owned(), |converted| converted.to_string());
        same("converted type", ours, converted.to_string())?;
    }
    match &ours.inside {
        Inside::Group(fields) => {
            same("is a group", true, theirs.is_group())?;
            same("fields", fields.len(), theirs.get_fields().len())?;
            fields.iter().zip(theirs.get_fields()).try_for_each(|(ours, theirs)| agree_node(ours, theirs, leaves))
        }
        Inside::Leaf(leaf) => {
            same("is a leaf", true, theirs.is_primitive())?;
            let column = leaves.next().ok_or("a leaf is missing")?;
            same("physical type", leaf.physical.to_string(), column.physical_type().to_string())?;
            same("length", leaf.len, column.type_length())?;
            same("precision", leaf.precision, column.type_precision())?;
            same("scale", leaf.scale, column.type_scale())?;
            same("definition", leaf.definition, column.max_def_level() as u32)?;
            same("repetition", leaf.repetition, column.max_rep_level() as u32)?;
            same("element", leaf.element, column.repeated_ancestor_def_level() as u32)
        }
    }
}

fn agree(ours: &Metadata, theirs: &ParquetMetaData) -> Result<(), String> {
    // The crate, built without decryption, says nothing of it.
    if ours.is_encrypted {
        return Ok(());
    }
    let schema = theirs.file_metadata().schema_descr();
    let fields = schema.root_schema().get_fields();
    same("fields of the root", ours.fields.len(), fields.len())?;
    let mut leaves = schema.columns().iter().cloned();
    ours.fields.iter().zip(fields).try_for_each(|(ours, theirs)| agree_node(ours, theirs, &mut leaves))?;
    same("leaves", 0, leaves.count())?;
    let pairs = theirs.file_metadata().key_value_metadata().into_iter().flatten();
    let arrow = pairs.filter(|pair| pair.key == "ARROW:schema").find_map(|pair| pair.value.as_ref());
    same("schema of Arrow", ours.arrow_schema.as_deref(), arrow.map(String::as_bytes))?;
    same("row groups", ours.groups.len(), theirs.num_row_groups())?;
    for (ours, theirs) in ours.groups.iter().zip(theirs.row_groups()) {
        same("rows", ours.rows, theirs.num_rows())?;
        same("chunks", ours.chunks.len(), theirs.num_columns())?;
        for (ours, theirs) in ours.chunks.iter().zip(theirs.columns()) {
            let path = theirs.file_path().is_some_and(|path| !path.is_empty());
            same("is elsewhere", ours.is_elsewhere, path)?;
            let compression = theirs.compression().to_string();
            same("compression", &ours.compression.to_string()[..], compression.split('(').next().unwrap_or_default())?;
            let encodings: Vec<String> = ours.encodings.all().map(|encoding| encoding.to_string()).collect();
            same("encodings", encodings, theirs.encodings().map(|encoding| encoding.to_string()).collect())?;
            same("values", ours.values, theirs.num_values())?;
            same("decoded", ours.decoded, theirs.uncompressed_size())?;
            same("stored", ours.stored, theirs.compressed_size())?;
            same("data page", ours.data_at, theirs.data_page_offset())?;
            same("dictionary page", ours.dictionary_at, theirs.dictionary_page_offset())?;
            same("strings", ours.strings, theirs.unencoded_byte_array_data_bytes())?;
        }
    }
    Ok(())
}

#[test]
fn random_footers_are_read_alike() {
    for case in 0..SCHEMAS {
        let bytes = footer(&mut Random::new(SEED + case));
        let found = Metadata::read(&bytes).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
        let expected = theirs(&bytes).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
        agree(&found, &expected).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
    }
}

#[test]
fn changed_footers_are_refused_or_read_alike() {
    let mut told = Told::default();
    let mut seeds: Vec<Vec<u8>> = (0..SCHEMAS).map(|case| footer(&mut Random::new(SEED + case))).collect();
    seeds.extend(real_footers());
    for (case, bytes) in (0..).zip(&seeds) {
        let random = &mut Random::new(SEED ^ case);
        hold(case, bytes, random, &mut told, Metadata::read, theirs, agree);
    }
    println!("changed footers of Parquet: {told:#?}");
    assert!(told.agreed > 1000 && told.refused > 1000, "{told:?}");
}

/// The footers of the files that other writers have written.
fn real_footers() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/columnar");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the files").map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    paths.sort();
    let footers: Vec<Vec<u8>> = paths
        .iter()
        .map(|path| {
            let bytes = std::fs::read(path).expect("a file");
            let end = bytes.len() - 8;
            let len = u32::from_le_bytes(bytes[end..end + 4].try_into().expect("4 bytes")) as usize;
            bytes[end - len..end].to_vec()
        })
        .collect();
    for (path, footer) in paths.iter().zip(&footers) {
        let (ours, theirs) = (Metadata::read(footer).expect("ours"), theirs(footer).expect("theirs"));
        agree(&ours, &theirs).unwrap_or_else(|what| panic!("{}: {what}", path.display()));
    }
    footers
}
