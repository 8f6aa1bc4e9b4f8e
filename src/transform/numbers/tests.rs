//! Numbers of messages.

use super::*;

fn made(text: &str, message: &[u8]) -> Result<Vec<u8>> {
    let numbers: Numbers = text.parse()?;
    let mut out = vec![0xaa; numbers.output().bytes() as usize];
    let written = numbers.run(message, &mut out)?;
    out.truncate(written);
    Ok(out)
}

fn floats(text: &str, message: &[u8]) -> Vec<f32> {
    made(text, message).unwrap().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

const JSON: &[u8] =
    br#"{"label": 7, "wide": true, "objects": [{"bbox": [1, 2.5, 3, 4]}, {"bbox": [5, 6, 7, 8e0]}], "none": null}"#;

#[test]
fn numbers_lists_and_parts_of_lists() {
    assert_eq!(made("json(label, i64)", JSON).unwrap(), 7_i64.to_le_bytes());
    assert_eq!(made("json(wide, bool)", JSON).unwrap(), [1]);
    assert_eq!(made(" json( objects.1.bbox.3 , u8 ) ", JSON).unwrap(), [8]);
    assert_eq!(floats("json(objects.0.bbox, f32, 4)", JSON), [1.0, 2.5, 3.0, 4.0]);
    assert_eq!(floats("json(objects.*.bbox, f32, most=99)", JSON), [1.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!(floats("json(objects.*.bbox, f32, 2x4)", JSON).len(), 8);
    assert_eq!(floats("json(objects.*.bbox.0, f32, most = 2)", JSON), [1.0, 5.0]);
    assert_eq!(floats("json(., f32, most=4)", b"[[1, 2], [], 3]"), [1.0, 2.0, 3.0]);
    assert_eq!(made("json(., u64)", b"18446744073709551615").unwrap(), u64::MAX.to_le_bytes());
    assert_eq!(made("json(., bf16)", b"1.0").unwrap(), [0x80, 0x3f]);
}

#[test]
fn what_is_not_there_or_does_not_fit_is_told() {
    for (text, words) in [
        ("json(absent, i64)", "no absent"),
        ("json(objects.2.bbox, f32, 4)", "\"2\" is not there"),
        ("json(label.x, f32)", "\"x\" is not there"),
        ("json(none, f32)", "has null, which is no f32"),
        ("json(objects.0.bbox, i64, 4)", "has 2.5, which is no i64"),
        ("json(objects.0.bbox, f32, 3)", "has more than 3 numbers"),
        ("json(objects.0.bbox, f32, 5)", "has 4 numbers, and 5 are to be taken"),
        ("json(objects.*.bbox, f32, most=7)", "has more than 7 numbers"),
        ("msgpack(label, i64)", "MessagePack"),
    ] {
        let error = made(text, JSON).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(words), "{text}: {error}");
    }
    for message in [&b""[..], b"{", b"{} {}", b"NaN", b"\xff\xfe"] {
        assert_eq!(made("json(label, i64)", message).unwrap_err().kind(), ErrorKind::Corrupt, "{message:?}");
    }
    assert_eq!(made("json(., i8)", b"128").unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn texts_that_say_nothing_are_refused() {
    for text in [
        "json",
        "json()",
        "json(label)",
        "json(label, i65)",
        "json(a..b, f32)",
        "json(a, f32, x)",
        "json(a, f32, most)",
        "json(a, f32, 4, 5)",
        "json(a, f8_e4m3)",
        "xml(a, f32)",
        "json(a, f32",
    ] {
        let error = text.parse::<Numbers>().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.remedy().is_some(), "{text}: {error}");
    }
}

/// {"label": -3, "box": [1, 2.5f32, 300, 4.0f64], 5: "text", "raw": bytes, "ext": extension, "deep": {..}}
fn packed() -> Vec<u8> {
    let mut message = b"\x86\xa5label\xfd\xa3box\x94\x01\xca".to_vec();
    message.extend(2.5_f32.to_be_bytes());
    message.extend(b"\xcd\x01\x2c\xcb");
    message.extend(4.0_f64.to_be_bytes());
    message.extend(b"\x05\xd9\x04text\xa3raw\xc4\x02\xff\xff\xa3ext\xd4\x01\x00");
    message.extend(b"\xa4deep\xde\x00\x01\xa1x\xdc\x00\x02\xd1\xff\x00\xce\x00\x01\x00\x00");
    message
}

#[test]
fn messagepack_is_read_as_json_is() {
    let message = packed();
    assert_eq!(made("msgpack(label, i8)", &message).unwrap(), [0xfd]);
    assert_eq!(floats("msgpack(box, f32, 4)", &message), [1.0, 2.5, 300.0, 4.0]);
    assert_eq!(made("msgpack(deep.x.0, i16)", &message).unwrap(), (-256_i16).to_le_bytes());
    assert_eq!(made("msgpack(deep.x.1, u32)", &message).unwrap(), 65536_u32.to_le_bytes());
    for absent in ["raw", "ext", "5"] {
        assert_eq!(made(&format!("msgpack({absent}, f32)"), &message).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// A message that is cut off or changed anywhere gives an error or another number, and allocates no memory that it does
/// not need.
#[test]
fn broken_messages_are_errors() {
    let message = packed();
    for length in 0..message.len() {
        assert_eq!(made("msgpack(label, i8)", &message[..length]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    for at in 0..message.len() {
        for byte in 0..=255 {
            let mut changed = message.clone();
            changed[at] = byte;
            let _ = made("msgpack(box, f32, most=8)", &changed);
        }
    }
    assert!(made("msgpack(., f32)", &[0x91; 100_000]).is_err(), "too deep");
    assert!(made("msgpack(., f32, most=4)", b"\xdd\xff\xff\xff\xff\x01").is_err(), "a list without its numbers");
}
