//! Messages and footers of Arrow: ours against what `arrow-ipc` builds, verifies and reads.

use crate::random::Random;
use crate::{SCHEMAS, SEED, Told, hold};
use arrow_ipc as theirs;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, VerifierOptions, WIPOffset};
use uringload_formats::inspect::arrow_tables as ours;

type Builder = FlatBufferBuilder<'static>;

/// The value of a type's union, for a random type.
fn kind(to: &mut Builder, random: &mut Random) -> (theirs::Type, WIPOffset<UnionWIPOffset>) {
    let number = 1 + random.below(26) as u8;
    let short = random.below(4) as i16;
    let long = random.one_of(&[-1, 0, 8, 16, 32, 64, 128, 256, 7]);
    let flag = random.below(2) == 0;
    macro_rules! plain {
        ($table:ident, $args:ident) => {
            theirs::$table::create(to, &theirs::$args {}).as_union_value()
        };
    }
    macro_rules! one {
        ($table:ident, $args:ident, $($field:ident: $value:expr),*) => {
            theirs::$table::create(to, &theirs::$args { $($field: $value),* }).as_union_value()
        };
    }
    let value = match number {
        1 => plain!(Null, NullArgs),
        2 => one!(Int, IntArgs, bitWidth: long, is_signed: flag),
        3 => one!(FloatingPoint, FloatingPointArgs, precision: theirs::Precision(short)),
        4 => plain!(Binary, BinaryArgs),
        5 => plain!(Utf8, Utf8Args),
        6 => plain!(Bool, BoolArgs),
        7 => one!(Decimal, DecimalArgs, precision: long, scale: random.below(9) as i32 - 4, bitWidth: long),
        8 => one!(Date, DateArgs, unit: theirs::DateUnit(short)),
        9 => one!(Time, TimeArgs, unit: theirs::TimeUnit(short), bitWidth: long),
        10 => {
            let timezone = flag.then(|| to.create_string("Europe/Berlin"));
            one!(Timestamp, TimestampArgs, unit: theirs::TimeUnit(short), timezone: timezone)
        }
        11 => one!(Interval, IntervalArgs, unit: theirs::IntervalUnit(short)),
        12 => plain!(List, ListArgs),
        13 => plain!(Struct_, Struct_Args),
        14 => {
            let ids = flag.then(|| to.create_vector(&[5_i32, 7]));
            one!(Union, UnionArgs, mode: theirs::UnionMode(short), typeIds: ids)
        }
        15 => one!(FixedSizeBinary, FixedSizeBinaryArgs, byteWidth: long),
        16 => one!(FixedSizeList, FixedSizeListArgs, listSize: long),
        17 => one!(Map, MapArgs, keysSorted: flag),
        18 => one!(Duration, DurationArgs, unit: theirs::TimeUnit(short)),
        19 => plain!(LargeBinary, LargeBinaryArgs),
        20 => plain!(LargeUtf8, LargeUtf8Args),
        21 => plain!(LargeList, LargeListArgs),
        22 => plain!(RunEndEncoded, RunEndEncodedArgs),
        23 => plain!(BinaryView, BinaryViewArgs),
        24 => plain!(Utf8View, Utf8ViewArgs),
        25 => plain!(ListView, ListViewArgs),
        _ => plain!(LargeListView, LargeListViewArgs),
    };
    (theirs::Type(number), value)
}

fn field(to: &mut Builder, depth: u64, random: &mut Random) -> WIPOffset<theirs::Field<'static>> {
    let some = if depth > 0 { random.below(4) } else { 0 };
    let children: Vec<_> = (0..some).map(|_| field(to, depth - 1, random)).collect();
    let children = (random.below(8) > 0).then(|| to.create_vector(&children));
    let name = random.one_of(&[None, Some(""), Some("a"), Some("größe"), Some("image.bytes")]);
    let name = name.map(|name| to.create_string(name));
    let (type_type, type_) = kind(to, random);
    let dictionary = (random.below(4) == 0).then(|| {
        let args = theirs::IntArgs { bitWidth: random.one_of(&[8, 16, 32, 64, 9]), is_signed: true };
        let index = (random.below(2) == 0).then(|| theirs::Int::create(to, &args));
        let id = random.number() as i64 >> random.below(64);
        let args = theirs::DictionaryEncodingArgs { id, indexType: index, ..Default::default() };
        theirs::DictionaryEncoding::create(to, &args)
    });
    let custom_metadata = (random.below(4) == 0).then(|| pairs(to));
    let nullable = random.below(2) == 0;
    let (type_, args) = (Some(type_), theirs::FieldArgs { name, nullable, type_type, ..Default::default() });
    let args = theirs::FieldArgs { type_, dictionary, children, custom_metadata, ..args };
    theirs::Field::create(to, &args)
}

type Pairs = WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<theirs::KeyValue<'static>>>>;

fn pairs(to: &mut Builder) -> Pairs {
    let (key, value) = (Some(to.create_string("key")), Some(to.create_string("value")));
    let pair = theirs::KeyValue::create(to, &theirs::KeyValueArgs { key, value });
    to.create_vector(&[pair])
}

fn schema(to: &mut Builder, random: &mut Random) -> WIPOffset<theirs::Schema<'static>> {
    let depth = random.below(5);
    let fields: Vec<_> = (0..random.below(6)).map(|_| field(to, depth, random)).collect();
    let fields = (random.below(8) > 0).then(|| to.create_vector(&fields));
    let endianness = if random.below(8) == 0 { theirs::Endianness::Big } else { theirs::Endianness::Little };
    let custom_metadata = (random.below(4) == 0).then(|| pairs(to));
    theirs::Schema::create(to, &theirs::SchemaArgs { endianness, fields, custom_metadata, features: None })
}

fn batch(to: &mut Builder, random: &mut Random) -> WIPOffset<theirs::RecordBatch<'static>> {
    let mut number = |below: u64| random.below(below) as i64;
    let nodes: Vec<_> = (0..number(6)).map(|_| theirs::FieldNode::new(number(1 << 40), number(9))).collect();
    let buffers: Vec<_> = (0..number(12)).map(|_| theirs::Buffer::new(number(1 << 40), number(1 << 40))).collect();
    let counts: Vec<i64> = (0..number(4)).map(|_| number(5)).collect();
    let (length, codec, has) = (number(1 << 50), number(3) as i8, [number(8), number(8), number(2), number(3)]);
    let nodes = (has[0] > 0).then(|| to.create_vector(&nodes));
    let buffers = (has[1] > 0).then(|| to.create_vector(&buffers));
    let args = theirs::BodyCompressionArgs { codec: theirs::CompressionType(codec), ..Default::default() };
    let compression = (has[2] > 0).then(|| theirs::BodyCompression::create(to, &args));
    let counts = (has[3] > 0).then(|| to.create_vector(&counts));
    let args = theirs::RecordBatchArgs { length, nodes, buffers, compression, variadicBufferCounts: counts };
    theirs::RecordBatch::create(to, &args)
}

fn message(random: &mut Random) -> Vec<u8> {
    let to = &mut FlatBufferBuilder::new();
    let (header_type, header) = match random.below(4) {
        0 | 1 => (theirs::MessageHeader::Schema, schema(to, random).as_union_value()),
        2 => (theirs::MessageHeader::RecordBatch, batch(to, random).as_union_value()),
        _ => {
            let data = (random.below(8) > 0).then(|| batch(to, random));
            let (id, is_delta) = (random.number() as i64, random.below(2) == 0);
            let args = theirs::DictionaryBatchArgs { id, data, isDelta: is_delta };
            (theirs::MessageHeader::DictionaryBatch, theirs::DictionaryBatch::create(to, &args).as_union_value())
        }
    };
    let body = random.number() as i64 >> random.below(64);
    let custom_metadata = (random.below(4) == 0).then(|| pairs(to));
    let args = theirs::MessageArgs { header_type, header: Some(header), bodyLength: body, ..Default::default() };
    let message = theirs::Message::create(to, &theirs::MessageArgs { custom_metadata, ..args });
    to.finish(message, None);
    to.finished_data().to_vec()
}

fn footer(random: &mut Random) -> Vec<u8> {
    let to = &mut FlatBufferBuilder::new();
    let schema = (random.below(8) > 0).then(|| schema(to, random));
    let mut blocks = || {
        let count = random.below(4);
        let mut number = || random.number() as i64 >> random.below(64);
        (0..count).map(|_| theirs::Block::new(number(), number() as i32, number())).collect::<Vec<_>>()
    };
    let (first, second) = (blocks(), blocks());
    let (dictionaries, batches) = (Some(to.create_vector(&first)), Some(to.create_vector(&second)));
    let args = theirs::FooterArgs { schema, dictionaries, recordBatches: batches, ..Default::default() };
    let footer = theirs::Footer::create(to, &args);
    to.finish(footer, None);
    to.finished_data().to_vec()
}

/// As the crate verifies by default, but for what a buffer may seem to have.
fn limits(bytes: &[u8]) -> VerifierOptions {
    VerifierOptions { max_apparent_size: 64 * bytes.len() + (64 << 10), ..Default::default() }
}

fn translated_kind(field: theirs::Field<'_>) -> Option<ours::Type> {
    Some(match field.type_type().0 {
        1 => ours::Type::Null,
        2 => {
            let int = field.type_as_int()?;
            ours::Type::Int { bits: int.bitWidth(), is_signed: int.is_signed() }
        }
        3 => ours::Type::Float { precision: field.type_as_floating_point()?.precision().0 },
        4 => ours::Type::Binary,
        5 => ours::Type::Utf8,
        6 => ours::Type::Bool,
        7 => {
            let decimal = field.type_as_decimal()?;
            ours::Type::Decimal { precision: decimal.precision(), scale: decimal.scale(), bits: decimal.bitWidth() }
        }
        8 => ours::Type::Date { unit: field.type_as_date()?.unit().0 },
        9 => {
            let time = field.type_as_time()?;
            ours::Type::Time { unit: time.unit().0, bits: time.bitWidth() }
        }
        10 => ours::Type::Timestamp { unit: field.type_as_timestamp()?.unit().0 },
        11 => ours::Type::Interval { unit: field.type_as_interval()?.unit().0 },
        12 => ours::Type::List,
        13 => ours::Type::Struct,
        14 => ours::Type::Union { mode: field.type_as_union()?.mode().0 },
        15 => ours::Type::FixedSizeBinary { len: field.type_as_fixed_size_binary()?.byteWidth() },
        16 => ours::Type::FixedSizeList { count: field.type_as_fixed_size_list()?.listSize() },
        17 => ours::Type::Map,
        18 => ours::Type::Duration { unit: field.type_as_duration()?.unit().0 },
        19 => ours::Type::LargeBinary,
        20 => ours::Type::LargeUtf8,
        21 => ours::Type::LargeList,
        22 => ours::Type::RunEndEncoded,
        23 => ours::Type::BinaryView,
        24 => ours::Type::Utf8View,
        25 => ours::Type::ListView,
        26 => ours::Type::LargeListView,
        other => ours::Type::Other(other),
    })
}

fn translated_field(field: theirs::Field<'_>) -> ours::Field<'_> {
    let dictionary = field.dictionary().map(|dictionary| ours::DictionaryEncoding {
        id: dictionary.id(),
        index_bits: dictionary.indexType().map_or(32, |index| index.bitWidth()),
    });
    ours::Field {
        name: field.name().unwrap_or_default(),
        is_nullable: field.nullable(),
        kind: translated_kind(field).expect("the details of a type"),
        dictionary,
        children: field.children().into_iter().flatten().map(translated_field).collect(),
    }
}

fn translated_schema(schema: theirs::Schema<'_>) -> ours::Schema<'_> {
    ours::Schema {
        is_little_endian: schema.endianness() == theirs::Endianness::Little,
        fields: schema.fields().into_iter().flatten().map(translated_field).collect(),
    }
}

fn translated_batch(batch: theirs::RecordBatch<'_>, version: theirs::MetadataVersion) -> ours::Batch<'_> {
    ours::Batch {
        rows: batch.length(),
        nodes: batch.nodes().map_or(&[], |nodes| nodes.bytes().as_chunks().0),
        buffers: batch.buffers().map_or(&[], |buffers| buffers.bytes().as_chunks().0),
        compression: batch.compression().map(|how| (how.codec().0, how.method().0)),
        variadic: batch.variadicBufferCounts().map_or(&[], |counts| counts.bytes().as_chunks().0),
        has_union_bits: version <= theirs::MetadataVersion::V4,
    }
}

fn translated_message<'a>(bytes: &'a [u8]) -> Result<ours::Message<'a>, String> {
    let message = theirs::root_as_message_with_opts(&limits(bytes), bytes).map_err(|error| error.to_string())?;
    let header = match message.header_type().0 {
        1 => message.header_as_schema().map(|schema| ours::Header::Schema(translated_schema(schema))),
        2 => message.header_as_dictionary_batch().map(|dictionary| ours::Header::Dictionary {
            id: dictionary.id(),
            data: dictionary.data().map(|batch| translated_batch(batch, message.version())),
            is_delta: dictionary.isDelta(),
        }),
        3 => message
            .header_as_record_batch()
            .map(|batch| ours::Header::Batch(translated_batch(batch, message.version()))),
        other => Some(ours::Header::Other(other)),
    };
    Ok(ours::Message { header: header.expect("a header"), body_len: message.bodyLength() })
}

fn translated_footer<'a>(bytes: &'a [u8]) -> Result<ours::Footer<'a>, String> {
    let footer = theirs::root_as_footer_with_opts(&limits(bytes), bytes).map_err(|error| error.to_string())?;
    for (block, stored) in footer.recordBatches().into_iter().flatten().map(|block| (block, ours::Block::of(&block.0)))
    {
        assert_eq!(stored.offset, block.offset());
        assert_eq!((stored.metadata_len, stored.body_len), (block.metaDataLength(), block.bodyLength()));
    }
    Ok(ours::Footer {
        schema: footer.schema().map(translated_schema),
        dictionaries: footer.dictionaries().map_or(&[], |blocks| blocks.bytes().as_chunks().0),
        batches: footer.recordBatches().map_or(&[], |blocks| blocks.bytes().as_chunks().0),
    })
}

/// Everything that a message or a footer says, as text: values of both readers are told apart by it.
fn text<T: std::fmt::Debug>(told: Result<T, String>) -> Result<String, String> {
    told.map(|told| format!("{told:?}"))
}

fn same(ours: &String, theirs: &String) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("ours is {ours}, theirs is {theirs}")) }
}

type Reader = fn(&[u8]) -> Result<String, String>;
type Make = fn(&mut Random) -> Vec<u8>;

/// How to make an input, and how each side reads it.
const KINDS: [(Make, Reader, Reader); 2] = [
    (message, |bytes| text(ours::Message::read(bytes)), |bytes| text(translated_message(bytes))),
    (footer, |bytes| text(ours::Footer::read(bytes)), |bytes| text(translated_footer(bytes))),
];

#[test]
fn random_messages_and_footers_are_read_alike() {
    for case in 0..SCHEMAS {
        for (make, ours, theirs) in KINDS {
            let bytes = make(&mut Random::new(SEED + case));
            let found = ours(&bytes).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
            let expected = theirs(&bytes).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
            same(&found, &expected).unwrap_or_else(|what| panic!("seed {SEED:#x}, case {case}: {what}"));
        }
    }
}

#[test]
fn changed_messages_and_footers_are_refused_or_read_alike() {
    let mut told = Told::default();
    for case in 0..SCHEMAS {
        for (make, ours, theirs) in KINDS {
            let random = &mut Random::new(SEED ^ case);
            let bytes = make(&mut Random::new(SEED + case));
            hold(case, &bytes, random, &mut told, ours, theirs, same);
        }
    }
    println!("changed messages and footers of Arrow: {told:#?}");
    assert!(told.agreed > 1000 && told.refused > 1000, "{told:?}");
}
