//! Parquet's names for the types of values, and which of its annotations a type may have.
//!
//! Source: apache/parquet-format `src/main/thrift/parquet.thrift`, `LogicalTypes.md`.

use super::thrift::{BINARY, BYTE, FALSE, Fields, Read, STRUCT, TRUE, Thrift};
use std::fmt;

/// An enumeration by its name for errors, and the names and numbers that the format gives to what it has.
macro_rules! numbered {
    ($(#[$attribute:meta])* $what:literal $name:ident { $($variant:ident $text:literal = $number:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant = $number,)*
        }

        impl $name {
            pub(super) fn of(number: i64) -> Read<$name> {
                match number {
                    $($number => Ok($name::$variant),)*
                    _ => Err(format!(concat!("there is no ", $what, " {}"), number)),
                }
            }
        }

        /// As the format names it: columns are reported, and distinguished, by these words.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $text,)*
                })
            }
        }
    };
}

numbered! {
    "physical type" Physical {
        Boolean "BOOLEAN" = 0,
        Int32 "INT32" = 1,
        Int64 "INT64" = 2,
        Int96 "INT96" = 3,
        Float "FLOAT" = 4,
        Double "DOUBLE" = 5,
        ByteArray "BYTE_ARRAY" = 6,
        FixedLenByteArray "FIXED_LEN_BYTE_ARRAY" = 7,
    }
}

numbered! {
    "repetition" Repetition {
        Required "REQUIRED" = 0,
        Optional "OPTIONAL" = 1,
        Repeated "REPEATED" = 2,
    }
}

numbered! {
    /// The annotations of old files.
    "converted type" Converted {
        Utf8 "UTF8" = 0,
        Map "MAP" = 1,
        MapKeyValue "MAP_KEY_VALUE" = 2,
        List "LIST" = 3,
        Enum "ENUM" = 4,
        Decimal "DECIMAL" = 5,
        Date "DATE" = 6,
        TimeMillis "TIME_MILLIS" = 7,
        TimeMicros "TIME_MICROS" = 8,
        TimestampMillis "TIMESTAMP_MILLIS" = 9,
        TimestampMicros "TIMESTAMP_MICROS" = 10,
        UInt8 "UINT_8" = 11,
        UInt16 "UINT_16" = 12,
        UInt32 "UINT_32" = 13,
        UInt64 "UINT_64" = 14,
        Int8 "INT_8" = 15,
        Int16 "INT_16" = 16,
        Int32 "INT_32" = 17,
        Int64 "INT_64" = 18,
        Json "JSON" = 19,
        Bson "BSON" = 20,
        Interval "INTERVAL" = 21,
    }
}

numbered! {
    "encoding" Encoding {
        Plain "PLAIN" = 0,
        PlainDictionary "PLAIN_DICTIONARY" = 2,
        Rle "RLE" = 3,
        BitPacked "BIT_PACKED" = 4,
        DeltaBinaryPacked "DELTA_BINARY_PACKED" = 5,
        DeltaLengthByteArray "DELTA_LENGTH_BYTE_ARRAY" = 6,
        DeltaByteArray "DELTA_BYTE_ARRAY" = 7,
        RleDictionary "RLE_DICTIONARY" = 8,
        ByteStreamSplit "BYTE_STREAM_SPLIT" = 9,
        Alp "ALP" = 10,
    }
}

numbered! {
    "compression" Compression {
        Uncompressed "UNCOMPRESSED" = 0,
        Snappy "SNAPPY" = 1,
        Gzip "GZIP" = 2,
        Lzo "LZO" = 3,
        Brotli "BROTLI" = 4,
        Lz4 "LZ4" = 5,
        Zstd "ZSTD" = 6,
        Lz4Raw "LZ4_RAW" = 7,
    }
}

numbered! {
    "unit of time" Unit {
        Millis "MILLIS" = 1,
        Micros "MICROS" = 2,
        Nanos "NANOS" = 3,
    }
}

/// The annotations of newer files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logical {
    String,
    Map,
    List,
    Enum,
    Decimal {
        scale: i32,
        precision: i32,
    },
    Date,
    Time {
        is_utc: bool,
        unit: Unit,
    },
    Timestamp {
        is_utc: bool,
        unit: Unit,
    },
    Integer {
        bits: i8,
        is_signed: bool,
    },
    Unknown,
    Json,
    Bson,
    Uuid,
    Float16,
    Variant,
    Geometry {
        crs: Option<String>,
    },
    Geography {
        crs: Option<String>,
        algorithm: Option<i32>,
    },
    File,
    /// One that is newer than this list, which changes nothing.
    Other(i16),
}

impl Logical {
    /// Reads the union, which has exactly one of its fields.
    pub(super) fn read(at: &mut Thrift<'_>) -> Read<Logical> {
        one("logical type", at, |at, field, kind| {
            if kind != STRUCT {
                return past(at, field, kind, 19).map(|()| Logical::Other(field));
            }
            let plain = match field {
                1 => Logical::String,
                2 => Logical::Map,
                3 => Logical::List,
                4 => Logical::Enum,
                5 => {
                    let numbers = at.fields::<3>(Fields::of([1, 2]), |at, field, kind| past(at, field, kind, 2))?;
                    let [scale, precision] = [(1, "scale"), (2, "precision")].map(|(field, name)| {
                        let number = numbers[field].ok_or_else(|| format!("a decimal has no {name}"))?;
                        i32::try_from(number).map_err(|_| format!("the {name} of a decimal is {number}"))
                    });
                    return Ok(Logical::Decimal { scale: scale?, precision: precision? });
                }
                6 => Logical::Date,
                7 | 8 => {
                    let (is_utc, unit) = time(at)?;
                    return Ok(if field == 7 {
                        Logical::Time { is_utc, unit }
                    } else {
                        Logical::Timestamp { is_utc, unit }
                    });
                }
                10 => return integer(at),
                11 => Logical::Unknown,
                12 => Logical::Json,
                13 => Logical::Bson,
                14 => Logical::Uuid,
                15 => Logical::Float16,
                16 => Logical::Variant,
                17 | 18 => {
                    let mut crs = None;
                    let numbers = at.fields::<3>(Fields::of([2]), |at, field, kind| match (field, kind) {
                        (1, BINARY) => at.text().map(|text| crs = Some(text.to_owned())),
                        _ => past(at, field, kind, 2),
                    })?;
                    let algorithm = numbers[2].and_then(|number| i32::try_from(number).ok());
                    return Ok(if field == 17 {
                        Logical::Geometry { crs }
                    } else {
                        Logical::Geography { crs, algorithm }
                    });
                }
                19 => Logical::File,
                field => Logical::Other(field),
            };
            at.skip(kind)?;
            Ok(plain)
        })
    }

    /// The annotation of old files that says the same.
    fn converted(&self) -> Option<Converted> {
        Some(match self {
            Logical::String => Converted::Utf8,
            Logical::Map => Converted::Map,
            Logical::List => Converted::List,
            Logical::Enum => Converted::Enum,
            Logical::Decimal { .. } => Converted::Decimal,
            Logical::Date => Converted::Date,
            Logical::Time { unit: Unit::Millis, .. } => Converted::TimeMillis,
            Logical::Time { unit: Unit::Micros, .. } => Converted::TimeMicros,
            Logical::Timestamp { unit: Unit::Millis, .. } => Converted::TimestampMillis,
            Logical::Timestamp { unit: Unit::Micros, .. } => Converted::TimestampMicros,
            Logical::Integer { bits: 8, is_signed: true } => Converted::Int8,
            Logical::Integer { bits: 16, is_signed: true } => Converted::Int16,
            Logical::Integer { bits: 32, is_signed: true } => Converted::Int32,
            Logical::Integer { is_signed: true, .. } => Converted::Int64,
            Logical::Integer { bits: 8, .. } => Converted::UInt8,
            Logical::Integer { bits: 16, .. } => Converted::UInt16,
            Logical::Integer { bits: 32, .. } => Converted::UInt32,
            Logical::Integer { .. } => Converted::UInt64,
            Logical::Json => Converted::Json,
            Logical::Bson => Converted::Bson,
            _ => return None,
        })
    }
}

/// As the crate `parquet` writes it, whose words are in the fingerprints of datasets.
impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |f: &mut fmt::Formatter<'_>, name: &str, is_utc: bool, unit: Unit| {
            write!(f, "{name}(TimestampType {{ is_adjusted_to_u_t_c: {is_utc}, unit: {unit} }})")
        };
        match self {
            Logical::Decimal { scale, precision } => {
                write!(f, "Decimal(DecimalType {{ scale: {scale}, precision: {precision} }})")
            }
            Logical::Time { is_utc, unit } => time(f, "Time", *is_utc, *unit),
            Logical::Timestamp { is_utc, unit } => time(f, "Timestamp", *is_utc, *unit),
            Logical::Integer { bits, is_signed } => {
                write!(f, "Integer(IntType {{ bit_width: {bits}, is_signed: {is_signed} }})")
            }
            Logical::Geometry { crs } => write!(f, "Geometry(GeometryType {{ crs: {crs:?} }})"),
            Logical::Geography { crs, algorithm } => {
                let algorithm = algorithm.map(|number| {
                    let name = usize::try_from(number).ok().and_then(|number| ALGORITHMS.get(number));
                    name.map_or(format!("_Unknown({number})"), |&name| name.to_owned())
                });
                let algorithm = algorithm.map_or("None".to_owned(), |name| format!("Some({name})"));
                write!(f, "Geography(GeographyType {{ crs: {crs:?}, algorithm: {algorithm} }})")
            }
            Logical::Other(field) => write!(f, "_Unknown {{ field_id: {field} }}"),
            plain => write!(f, "{plain:?}"),
        }
    }
}

/// Algorithms between the points of an edge on the earth, by number.
const ALGORITHMS: [&str; 5] = ["SPHERICAL", "VINCENTY", "THOMAS", "ANDOYER", "KARNEY"];

/// Reads a union, which has exactly one field.
fn one<T>(what: &str, at: &mut Thrift<'_>, mut read: impl FnMut(&mut Thrift<'_>, i16, u8) -> Read<T>) -> Read<T> {
    let mut found = None;
    at.fields::<0>(Fields::NONE, |at, field, kind| {
        let one = read(at, field, kind)?;
        if found.replace(one).is_some() { Err(format!("a {what} is two at once")) } else { Ok(()) }
    })?;
    found.ok_or_else(|| format!("a {what} is none"))
}

fn time(at: &mut Thrift<'_>) -> Read<(bool, Unit)> {
    let (mut is_utc, mut unit) = (None, None);
    at.fields::<0>(Fields::NONE, |at, field, kind| {
        match (field, kind) {
            (1, TRUE | FALSE) => is_utc = Some(kind == TRUE),
            (2, STRUCT) => {
                unit = Some(one("unit of time", at, |at, field, kind| {
                    at.skip(kind)?;
                    if kind == STRUCT { Unit::of(field.into()) } else { Err("a unit of time is no structure".into()) }
                })?);
            }
            _ => past(at, field, kind, 2)?,
        }
        Ok(())
    })?;
    is_utc.zip(unit).ok_or_else(|| "a type of time lacks its unit, or whether it is UTC".into())
}

fn integer(at: &mut Thrift<'_>) -> Read<Logical> {
    let (mut bits, mut is_signed) = (None, None);
    at.fields::<0>(Fields::NONE, |at, field, kind| {
        match (field, kind) {
            (1, BYTE) => bits = Some(at.int8()?),
            (2, TRUE | FALSE) => is_signed = Some(kind == TRUE),
            _ => past(at, field, kind, 2)?,
        }
        Ok(())
    })?;
    match bits.zip(is_signed) {
        Some((bits @ (8 | 16 | 32 | 64), is_signed)) => Ok(Logical::Integer { bits, is_signed }),
        Some((bits, _)) => Err(format!("an integer has {bits} bits")),
        None => Err("an integer lacks its number of bits, or whether it is signed".into()),
    }
}

/// Goes past a field that is not known. The fields up to `known` are, and are never of this type.
pub(super) fn past(at: &mut Thrift<'_>, field: i16, kind: u8, known: i16) -> Read<()> {
    if field > known { at.skip(kind) } else { Err(format!("field {field} of a structure has the wrong type {kind}")) }
}

/// A single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primitive {
    pub physical: Physical,
    /// Bytes of a value where all have as many; else -1.
    pub len: i32,
    /// Digits of a decimal; else -1.
    pub precision: i32,
    /// Digits of a decimal after its point; else -1.
    pub scale: i32,
    /// The definition level of a value.
    pub definition: u32,
    /// The repetition level of a value: how many lists it is in.
    pub repetition: u32,
    /// The definition level of an element of the innermost list that it is in, with or without a value.
    pub element: u32,
}

impl Primitive {
    /// Refuses annotations that the type cannot have: what they mean would be guessed.
    pub(super) fn check(&self, converted: Option<Converted>, logical: Option<&Logical>) -> Read<()> {
        use Physical::{ByteArray, FixedLenByteArray, Int32, Int64};
        let Primitive { physical, len, precision, scale, .. } = *self;
        let cannot = |what: &dyn fmt::Display| Err(format!("{what} is of the type {physical}, of {len} bytes"));
        if physical == FixedLenByteArray && len < 0 {
            return Err(format!("a value has {len} bytes"));
        }
        if let Some(logical) = logical {
            if converted.is_some() && converted != logical.converted() {
                return Err(format!(
                    "{logical} is called {}, too",
                    converted.map_or(String::new(), |it| it.to_string())
                ));
            }
            let fits = match logical {
                Logical::String | Logical::Enum | Logical::Json | Logical::Bson => physical == ByteArray,
                Logical::Geometry { .. } | Logical::Geography { .. } => physical == ByteArray,
                Logical::Decimal { scale: its_scale, precision: its_precision } => {
                    if (*its_scale, *its_precision) != (scale, precision) {
                        return Err(format!("{logical} has {precision} digits too, {scale} of them after its point"));
                    }
                    true
                }
                Logical::Date | Logical::Time { unit: Unit::Millis, .. } => physical == Int32,
                Logical::Time { .. } | Logical::Timestamp { .. } => physical == Int64,
                Logical::Integer { bits: 64, .. } => physical == Int64,
                Logical::Integer { .. } => physical == Int32,
                Logical::Uuid => physical == FixedLenByteArray && len == 16,
                Logical::Float16 => physical == FixedLenByteArray && len == 2,
                Logical::Unknown | Logical::Other(_) => true,
                Logical::Map | Logical::List | Logical::File | Logical::Variant => false,
            };
            if !fits {
                return cannot(logical);
            }
        }
        let Some(converted) = converted.or_else(|| logical.and_then(Logical::converted)) else { return Ok(()) };
        let fits = match converted {
            Converted::Utf8 | Converted::Enum | Converted::Json | Converted::Bson => physical == ByteArray,
            Converted::Decimal => return self.check_decimal(),
            Converted::Date | Converted::TimeMillis => physical == Int32,
            Converted::UInt8 | Converted::UInt16 | Converted::UInt32 => physical == Int32,
            Converted::Int8 | Converted::Int16 | Converted::Int32 => physical == Int32,
            Converted::TimeMicros | Converted::TimestampMillis | Converted::TimestampMicros => physical == Int64,
            Converted::UInt64 | Converted::Int64 => physical == Int64,
            Converted::Interval => physical == FixedLenByteArray && len == 12,
            Converted::Map | Converted::MapKeyValue | Converted::List => false,
        };
        if fits { Ok(()) } else { cannot(&converted) }
    }

    fn check_decimal(&self) -> Read<()> {
        let Primitive { physical, len, precision, scale, .. } = *self;
        // Of the largest number of that many bytes; one bit is the sign.
        let bits = |bytes: i64| ((bytes * 8 - 1) as f64 * std::f64::consts::LOG10_2).floor() as i64;
        let most = match physical {
            Physical::Int32 => 9,
            Physical::Int64 => 18,
            Physical::ByteArray => i64::MAX,
            Physical::FixedLenByteArray => bits(len.into()),
            _ => return Err(format!("a decimal is of the type {physical}")),
        };
        if precision < 1 || i64::from(precision) > most || !(0..=precision).contains(&scale) {
            let digits = format!("{precision} digits, {scale} of them after its point");
            return Err(format!("a decimal of the type {physical}, of {len} bytes, has {digits}"));
        }
        Ok(())
    }
}
