//! Arrow's metadata: messages and footers, and the schemas and batches in them. They are read as a whole before any
//! part is used, so damage is an error of the file. Only what is used is kept.
//!
//! Source: apache/arrow `format/{Message,Schema,File}.fbs`, whose fields have slots in order; a union has two.

use super::flat::{Flat, Read, Table};

/// The deepest nesting of tables. A field has another one for its type.
const DEPTH_MAX: usize = 64;

/// What comes before the length of a message, since Arrow 0.15; the first bytes of a stream.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];

/// The number of version 4 of the metadata, which Arrow wrote before 1.0.
const VERSION_4: i16 = 3;

/// What a message holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    pub header: Header<'a>,
    pub body_len: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Header<'a> {
    Schema(Schema<'a>),
    Dictionary {
        id: i64,
        data: Option<Batch<'a>>,
        is_delta: bool,
    },
    Batch(Batch<'a>),
    /// A tensor, or something new.
    Other(u8),
}

/// The footer of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Footer<'a> {
    pub schema: Option<Schema<'a>>,
    /// The places of messages: see [`Block`].
    pub dictionaries: &'a [[u8; 24]],
    pub batches: &'a [[u8; 24]],
}

/// The place of a message: its offset, the bytes of its metadata, and those of its body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    pub offset: i64,
    pub metadata_len: i32,
    pub body_len: i64,
}

impl Block {
    pub fn of(stored: &[u8; 24]) -> Block {
        Block { offset: i64_at(stored, 0), metadata_len: i64_at(stored, 8) as i32, body_len: i64_at(stored, 16) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Schema<'a> {
    pub is_little_endian: bool,
    pub fields: Vec<Field<'a>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field<'a> {
    pub name: &'a str,
    pub is_nullable: bool,
    pub kind: Type,
    pub dictionary: Option<DictionaryEncoding>,
    pub children: Vec<Field<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DictionaryEncoding {
    pub id: i64,
    pub index_bits: i32,
}

/// The type of a field. Units and precisions are numbers of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Null,
    Int { bits: i32, is_signed: bool },
    Float { precision: i16 },
    Binary,
    Utf8,
    Bool,
    Decimal { precision: i32, scale: i32, bits: i32 },
    Date { unit: i16 },
    Time { unit: i16, bits: i32 },
    Timestamp { unit: i16 },
    Interval { unit: i16 },
    List,
    Struct,
    Union { mode: i16 },
    FixedSizeBinary { len: i32 },
    FixedSizeList { count: i32 },
    Map,
    Duration { unit: i16 },
    LargeBinary,
    LargeUtf8,
    LargeList,
    RunEndEncoded,
    BinaryView,
    Utf8View,
    ListView,
    LargeListView,
    Other(u8),
}

/// A record batch, or the values of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch<'a> {
    pub rows: i64,
    /// The number of elements of each, and the number of its nulls.
    pub nodes: &'a [[u8; 16]],
    /// The offset of each in the body, and its length.
    pub buffers: &'a [[u8; 16]],
    /// The codec, and the method.
    pub compression: Option<(i8, i8)>,
    pub variadic: &'a [[u8; 8]],
    /// Whether a union says which of its values are there, as it did up to version 4 of the metadata.
    pub has_union_bits: bool,
}

/// The number at byte `at` of a structure, which has it.
pub(super) fn i64_at<const LEN: usize>(stored: &[u8; LEN], at: usize) -> i64 {
    i64::from_le_bytes(std::array::from_fn(|byte| stored[at + byte]))
}

impl<'a> Message<'a> {
    pub fn read(bytes: &'a [u8]) -> Read<Message<'a>> {
        let flat = &mut Flat::new(bytes);
        let message = flat.root("Message")?;
        let slot = (2, "header");
        let header = match flat.union(message, slot)?.unwrap_or(0) {
            1 => flat.table(message, slot, "Schema", Schema::of)?.map(Header::Schema),
            2 => flat.table(message, slot, "DictionaryBatch", dictionary)?,
            3 => flat.table(message, slot, "RecordBatch", Batch::of)?.map(Header::Batch),
            other => Some(Header::Other(other)),
        };
        let body_len = flat.int(message, (3, "bodyLength"), 0, i64::from_le_bytes)?;
        let mut header = header.unwrap_or(Header::Other(0));
        if flat.int(message, (0, "version"), 0, i16::from_le_bytes)? <= VERSION_4 {
            let early = early_compression(flat, message)?;
            match &mut header {
                Header::Batch(batch) | Header::Dictionary { data: Some(batch), .. } => {
                    batch.compression = batch.compression.or(early);
                    batch.has_union_bits = true;
                }
                _ => {}
            }
        }
        Ok(Message { header, body_len })
    }
}

/// The compression that Arrow 0.17 wrote beside a batch, before a batch had a place for it.
fn early_compression(flat: &mut Flat<'_>, message: Table<'_>) -> Read<Option<(i8, i8)>> {
    let pairs = flat.tables(message, (4, "custom_metadata"), "KeyValue", |flat, pair| {
        Ok((flat.vector::<1>(pair, (0, "key"))?.as_flattened(), flat.vector::<1>(pair, (1, "value"))?.as_flattened()))
    })?;
    let found = pairs.iter().find(|(key, _)| *key == b"ARROW:experimental_compression");
    Ok(found.and_then(|(_, codec)| match &codec.to_ascii_lowercase()[..] {
        b"uncompressed" => None,
        b"lz4" | b"lz4_frame" => Some((0, 0)),
        b"zstd" => Some((1, 0)),
        // An unknown one; a batch reveals others.
        _ => Some((-1, 0)),
    }))
}

fn dictionary<'a>(flat: &mut Flat<'a>, table: Table<'_>) -> Read<Header<'a>> {
    let id = flat.int(table, (0, "id"), 0, i64::from_le_bytes)?;
    let data = flat.table(table, (1, "data"), "RecordBatch", Batch::of)?;
    Ok(Header::Dictionary { id, data, is_delta: flat.bool(table, (2, "isDelta"))? })
}

impl<'a> Footer<'a> {
    pub fn read(bytes: &'a [u8]) -> Read<Footer<'a>> {
        let flat = &mut Flat::new(bytes);
        let footer = flat.root("Footer")?;
        let schema = flat.table(footer, (1, "schema"), "Schema", Schema::of)?;
        let dictionaries = flat.vector(footer, (2, "dictionaries"))?;
        Ok(Footer { schema, dictionaries, batches: flat.vector(footer, (3, "recordBatches"))? })
    }
}

impl<'a> Schema<'a> {
    /// The schema that other formats keep: a message by itself, after its length.
    pub(crate) fn alone(bytes: &'a [u8]) -> Read<Schema<'a>> {
        let message = bytes.strip_prefix(&CONTINUATION).unwrap_or(bytes);
        match Message::read(message.get(4..).ok_or("it ends early")?)?.header {
            Header::Schema(schema) => Ok(schema),
            _ => Err("it is no schema".into()),
        }
    }

    fn of(flat: &mut Flat<'a>, schema: Table<'_>) -> Read<Schema<'a>> {
        let is_little_endian = flat.int(schema, (0, "endianness"), 0, i16::from_le_bytes)? == 0;
        // A schema is within a message or a footer.
        let fields = flat.tables(schema, (1, "fields"), "Field", |flat, field| Field::of(flat, field, 3))?;
        Ok(Schema { is_little_endian, fields })
    }
}

impl<'a> Field<'a> {
    /// `depth` is that of its table.
    fn of(flat: &mut Flat<'a>, field: Table<'_>, depth: usize) -> Read<Field<'a>> {
        if depth >= DEPTH_MAX {
            return Err("fields are nested too deep".into());
        }
        Ok(Field {
            name: flat.text(field, (0, "name"))?,
            is_nullable: flat.bool(field, (1, "nullable"))?,
            kind: Type::of(flat, field)?,
            dictionary: flat.table(field, (4, "dictionary"), "DictionaryEncoding", DictionaryEncoding::of)?,
            children: flat.tables(field, (5, "children"), "Field", |flat, child| Field::of(flat, child, depth + 1))?,
        })
    }
}

impl DictionaryEncoding {
    fn of(flat: &mut Flat<'_>, encoding: Table<'_>) -> Read<DictionaryEncoding> {
        let bits = |flat: &mut Flat<'_>, int: Table<'_>| flat.int(int, (0, "bitWidth"), 0, i32::from_le_bytes);
        let index_bits = flat.table(encoding, (1, "indexType"), "Int", bits)?.unwrap_or(32);
        Ok(DictionaryEncoding { id: flat.int(encoding, (0, "id"), 0, i64::from_le_bytes)?, index_bits })
    }
}

impl Type {
    fn of(flat: &mut Flat<'_>, field: Table<'_>) -> Read<Type> {
        let slot = (3, "type");
        let number = flat.union(field, slot)?.unwrap_or(0);
        // There may be newer ones, whose values may not be tables.
        let is_known = (1..=26).contains(&number);
        let known = if is_known {
            flat.table(field, slot, "Type", |flat, table| Type::inside(flat, table, number))?
        } else {
            None
        };
        Ok(known.unwrap_or(Type::Other(number)))
    }

    fn inside(flat: &mut Flat<'_>, table: Table<'_>, number: u8) -> Read<Type> {
        /// The default unit of dates, times and durations is the second of them.
        const MILLISECOND: i16 = 1;
        let mut short = |slot, default| flat.int(table, slot, default, i16::from_le_bytes);
        Ok(match number {
            3 => Type::Float { precision: short((0, "precision"), 0)? },
            8 => Type::Date { unit: short((0, "unit"), MILLISECOND)? },
            10 => Type::Timestamp { unit: short((0, "unit"), 0)? },
            11 => Type::Interval { unit: short((0, "unit"), 0)? },
            14 => Type::Union { mode: short((0, "mode"), 0)? },
            18 => Type::Duration { unit: short((0, "unit"), MILLISECOND)? },
            9 => {
                let unit = short((0, "unit"), MILLISECOND)?;
                Type::Time { unit, bits: flat.int(table, (1, "bitWidth"), 32, i32::from_le_bytes)? }
            }
            2 => {
                let bits = flat.int(table, (0, "bitWidth"), 0, i32::from_le_bytes)?;
                Type::Int { bits, is_signed: flat.bool(table, (1, "is_signed"))? }
            }
            7 => {
                let mut int = |slot, default| flat.int(table, slot, default, i32::from_le_bytes);
                let (precision, scale) = (int((0, "precision"), 0)?, int((1, "scale"), 0)?);
                Type::Decimal { precision, scale, bits: int((2, "bitWidth"), 128)? }
            }
            15 => Type::FixedSizeBinary { len: flat.int(table, (0, "byteWidth"), 0, i32::from_le_bytes)? },
            16 => Type::FixedSizeList { count: flat.int(table, (0, "listSize"), 0, i32::from_le_bytes)? },
            1 => Type::Null,
            4 => Type::Binary,
            5 => Type::Utf8,
            6 => Type::Bool,
            12 => Type::List,
            13 => Type::Struct,
            17 => Type::Map,
            19 => Type::LargeBinary,
            20 => Type::LargeUtf8,
            21 => Type::LargeList,
            22 => Type::RunEndEncoded,
            23 => Type::BinaryView,
            24 => Type::Utf8View,
            25 => Type::ListView,
            26 => Type::LargeListView,
            other => Type::Other(other),
        })
    }
}

impl<'a> Batch<'a> {
    fn of(flat: &mut Flat<'a>, batch: Table<'_>) -> Read<Batch<'a>> {
        let compression = |flat: &mut Flat<'a>, table: Table<'_>| {
            let codec = flat.int(table, (0, "codec"), 0, i8::from_le_bytes)?;
            Ok((codec, flat.int(table, (1, "method"), 0, i8::from_le_bytes)?))
        };
        Ok(Batch {
            rows: flat.int(batch, (0, "length"), 0, i64::from_le_bytes)?,
            nodes: flat.vector(batch, (1, "nodes"))?,
            buffers: flat.vector(batch, (2, "buffers"))?,
            compression: flat.table(batch, (3, "compression"), "BodyCompression", compression)?,
            variadic: flat.vector(batch, (4, "variadicBufferCounts"))?,
            has_union_bits: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with a schema of one field: `depth` lists within each other, each of which refers `times` to the next.
    fn lists(depth: u32, times: u32) -> Vec<u8> {
        // The offsets of a message, a schema, a field and a list: halves of words; the first is their length.
        const OFFSETS: [(u32, u32); 10] =
            [(12, 12), (0, 4), (8, 0), (8, 8), (0, 4), (16, 16), (0, 0), (4, 8), (0, 12), (4, 4)];
        let mut words = vec![4 * 11];
        words.extend(OFFSETS.map(|(low, high)| low | high << 16));
        // A message, whose header is a schema; the schema; the vector of its fields.
        words.extend([4 * (11 - 1), 1, 4, 4 * (14 - 4), 4, 1, 4]);
        let list = 18 + (depth - 1) * (5 + times) + 5;
        for level in 1..=depth {
            let (field, children) = (words.len() as u32, if level < depth { times } else { 0 });
            words.extend([4 * (field - 6), 12, 4 * (list - field - 2), 4, children]);
            words.extend((0..children).map(|child| 4 * (children - child)));
        }
        words.push(4 * (list - 10));
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn count(fields: &[Field<'_>]) -> usize {
        fields.iter().map(|field| 1 + count(&field.children)).sum()
    }

    #[test]
    fn a_few_bytes_stand_for_no_more_fields_than_can_be_followed() {
        let nodes = |depth, times| {
            let bytes = lists(depth, times);
            let Header::Schema(schema) = Message::read(&bytes)?.header else { panic!("no schema") };
            assert!(schema.fields.iter().all(|field| field.kind == Type::List));
            Ok::<_, String>(count(&schema.fields))
        };
        assert_eq!((nodes(1, 1), nodes(3, 2), nodes(50, 1)), (Ok(1), Ok(7), Ok(50)));
        for (depth, times, what) in [
            (70, 1, "fields are nested too deep"),
            (1 << 16, 1, "fields are nested too deep"),
            (40, 2, "is shared so often that it seems too large"),
            (3, 1 << 11, "is shared so often that it seems too large"),
        ] {
            let error = nodes(depth, times).unwrap_err();
            assert!(error.contains(what), "{depth} {times}: {error}");
        }
    }

    #[test]
    fn what_leads_out_of_its_bytes_is_told() {
        let sound = lists(2, 1);
        assert!((0..sound.len()).all(|len| Message::read(&sound[..len]).is_err()));
        for (word, number, what) in [
            (0, 4 * 99, "Message.offsets would take 4 bytes from 396 on, of 120"),
            (0, 45, "Message.offsets is at byte 45, not at a multiple of 4"),
            (11, 36, "Message.offsets has 0 bytes"),
            (11, u32::MAX, "Message.offsets is at byte 45, not at a multiple of 2"),
            (2, 0, "Message.header has a type or a value, and not both"),
            (13, u32::MAX - 3, "Schema.offsets would take 4 bytes from 4294967344 on, of 120"),
            (16, 99, "Schema.fields would take 396 bytes from 68 on, of 120"),
        ] {
            let mut bytes = sound.clone();
            bytes[4 * word..][..4].copy_from_slice(&u32::to_le_bytes(number));
            let error = Message::read(&bytes).unwrap_err();
            assert_eq!(error, what, "{word} {number}");
        }
    }
}
