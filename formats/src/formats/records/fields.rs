//! The fields of a record, as a user writes them: `label:u8, image:u8[3,32,32]`.

use crate::dataset::{DType, Field, Shape};
use uringload_core::{Error, ErrorKind, Result};

/// What to do about fields that cannot be read.
const REMEDY: &str = "name each field with its type and shape, in the order of the record: label:u8, image:u8[3,32,32]";

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPlace {
    pub(super) field: Field,
    /// Its first byte in the record.
    pub(super) start: usize,
    /// After its last one.
    pub(super) end: usize,
}

/// The fields of a record, end to end. Where a field's name is `_` its bytes are padding, and belong to no column.
pub(super) fn parse(text: &str) -> Result<Vec<FieldPlace>> {
    let refused = |what: String| Error::new(ErrorKind::InvalidArgument, what).with_remedy(REMEDY);
    let (mut places, mut rest, mut start): (Vec<FieldPlace>, &str, u64) = (Vec::new(), text.trim(), 0);
    while !rest.is_empty() {
        let (name, after) = rest.split_once(':').ok_or_else(|| refused(format!("{rest:?} has no type")))?;
        // A comma within brackets is the shape's.
        let mut depth = 0;
        let ends = |letter: char| {
            depth += i32::from(letter == '[') - i32::from(letter == ']');
            letter == ',' && depth <= 0
        };
        let (kind, after) = after.split_at(after.find(ends).unwrap_or(after.len()));
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        let (field, bytes) = field(name.trim(), kind.trim()).map_err(refused)?;
        let next = start.checked_add(bytes).filter(|&end| usize::try_from(end).is_ok());
        let next = next.ok_or_else(|| refused("a record has more bytes than memory has addresses".into()))?;
        if places.iter().any(|place| place.field.name == field.name && field.name != PADDING) {
            return Err(refused(format!("two fields are named {:?}", field.name)));
        }
        places.push(FieldPlace { field, start: start as usize, end: next as usize });
        start = next;
    }
    if places.iter().all(|place| place.field.name == PADDING) {
        return Err(refused("the record has no field".into()));
    }
    Ok(places)
}

/// The name of bytes that are skipped.
pub(super) const PADDING: &str = "_";

/// A field, and its bytes.
fn field(name: &str, kind: &str) -> Result<(Field, u64), String> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(format!("{name:?} is no name of a field"));
    }
    let (dtype, shape) = match kind.split_once('[') {
        None => (kind, Vec::new()),
        Some((dtype, shape)) => {
            let shape = shape.strip_suffix(']').ok_or_else(|| format!("the shape of {name:?} has no end"))?;
            let length = |length: &str| match length.trim().parse::<u64>() {
                Ok(length) if length > 0 => Ok(length),
                _ => Err(format!("the shape of {name:?} has a length {:?}", length.trim())),
            };
            (dtype, shape.split(',').map(length).collect::<Result<Vec<u64>, String>>()?)
        }
    };
    let dtype = DType::named(dtype.trim()).ok_or_else(|| format!("{:?} is no type of elements", dtype.trim()))?;
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length));
    let bytes = bytes.ok_or_else(|| format!("{name:?} has more than 2^64 bytes"))?;
    Ok((Field { name: name.to_owned(), dtype, shape: Shape::Fixed(shape) }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_end_to_end() {
        let cifar = parse("label:u8, image:u8[3,32,32]").unwrap();
        assert_eq!(cifar.iter().map(|place| (place.start, place.end)).collect::<Vec<_>>(), [(0, 1), (1, 3073)]);
        assert_eq!(cifar[1].field.shape, Shape::Fixed(vec![3, 32, 32]));
        let mixed = parse(" x : f32[ 2 , 3 ] ,_:u8[4],y:i64").unwrap();
        assert_eq!(
            mixed.iter().map(|place| (&*place.field.name, place.end)).collect::<Vec<_>>(),
            [("x", 24), ("_", 28), ("y", 36)]
        );
    }

    #[test]
    fn what_is_no_field_is_refused_in_words() {
        for (text, word) in [
            ("", "no field"),
            ("_:u8", "no field"),
            ("label", "no type"),
            ("label:", "no type of elements"),
            ("label:u9", "u9"),
            (":u8", "no name"),
            ("a:u8,a:u8", "two fields"),
            ("a:u8[3", "no end"),
            ("a:u8[0]", "length"),
            ("a:u8[]", "length"),
            ("a:u8[3,x]", "length"),
            ("a:u8[3]b:u8", "no end"),
            ("a:f64[9223372036854775807]", "2^64"),
            ("a:u8[9223372036854775807],b:u8[9223372036854775807],c:u8[9]", "memory"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.what().contains(word) && error.remedy().is_some(), "{text}: {error}");
        }
    }
}
