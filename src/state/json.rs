//! The JSON of a state. Reading it trusts nothing: each field is looked up and checked for type and bounds, and errors
//! name what is wrong.

use super::content::Content;
use super::file::STATE_BYTES_MAX;
use super::identities::{self, WrittenId};
use super::{Identity, Received, State, VERSION};
use crate::sampler::{BatchingId, Cursor, Digest, EpochDigest, Mixer, OrderId, hash};
use crate::{Error, ErrorKind, Result};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The field that the checksum is in.
const CHECKSUM: &str = "checksum";

/// The field that Python adds to a written state: the draws of its own sampler, with a digest.
const SAMPLER: &str = "sampler";

/// Maximum number of samples in a digest: no real count is higher, and adding up cannot overflow.
const SAMPLES_MAX: u64 = 1 << 62;

/// Fields in the order in which a person wants to read them.
#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    dataset: WrittenDataset<'a>,
    order: WrittenId<'a, OrderId>,
    batching: WrittenId<'a, BatchingId>,
    epoch: u64,
    position: u64,
    length: u64,
    #[serde(skip_serializing_if = "is_zero")]
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixer: Option<WrittenMixer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<WrittenReceived>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<Hex>,
}

#[derive(Serialize)]
struct WrittenDataset<'a> {
    format: &'a str,
    fingerprint: Hex,
    samples: u64,
    files: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_groups: Option<String>,
}

#[derive(Serialize)]
struct WrittenMixer<'a> {
    slots: &'a [u32],
    epoch: u64,
    since: u64,
    given: &'a [u64],
}

#[derive(Serialize)]
struct WrittenReceived {
    rank: u64,
    world_size: u64,
    epoch: u64,
    since: u64,
    samples: u64,
    sum: Hex,
    lost_samples: u64,
    lost_sum: Hex,
}

/// Written as 16 digits: as a number, a program whose numbers are floats would round it.
pub(super) struct Hex(pub(super) u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

// serde requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl State {
    /// The state as readable JSON on several lines.
    pub fn to_json(&self) -> String {
        let Identity { format, fingerprint, samples, files, bytes } = &self.dataset;
        let Cursor { epoch, position, rows } = self.cursor;
        let mut written = Written {
            version: VERSION,
            dataset: WrittenDataset {
                format,
                fingerprint: Hex(*fingerprint),
                samples: *samples,
                files: *files,
                bytes: *bytes,
                content: self.content.as_ref().map(Content::to_string),
                content_groups: self.content.as_ref().and_then(Content::groups),
            },
            order: WrittenId(&self.order),
            batching: WrittenId(&self.batching),
            epoch,
            position,
            length: self.length,
            rows,
            mixer: self.mixer.as_ref().map(|mixer| WrittenMixer {
                slots: &mixer.slots,
                epoch: mixer.epoch,
                since: mixer.since,
                given: &mixer.given,
            }),
            delivered: self.delivered.map(|Received { rank, world_size, digest }| WrittenReceived {
                rank,
                world_size,
                epoch: digest.epoch,
                since: digest.since,
                samples: digest.delivered.samples,
                sum: Hex(digest.delivered.sum),
                lost_samples: digest.lost.samples,
                lost_sum: Hex(digest.lost.sum),
            }),
            checksum: None,
        };
        written.checksum = serde_json::to_value(&written).ok().map(|value| Hex(checksum(&value)));
        // Only a writer, a map with keys that are not strings, or a value that refuses can fail. None of these occur
        // here.
        serde_json::to_string_pretty(&written).expect("numbers and strings become JSON")
    }

    /// Reads JSON written by [`to_json`](State::to_json), and ignores unknown fields.
    ///
    /// # Errors
    /// `Corrupt` for text that is not JSON, is cut off, lacks a field or has an impossible value in one.
    /// `StateMismatch` for a version, a kind or another name that this version of the library does not know. Each names
    /// the place.
    pub fn from_json(text: &str) -> Result<State> {
        if text.len() as u64 > STATE_BYTES_MAX {
            return Err(corrupt(format!("the state has more than {STATE_BYTES_MAX} bytes")));
        }
        if text.trim().is_empty() {
            return Err(corrupt("the state is empty".into()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| {
            if error.is_eof() {
                corrupt(format!("the state is cut off after {} bytes", text.len()))
            } else {
                corrupt(format!("the state is not JSON: {error}"))
            }
        })?;
        let Value::Object(map) = &value else {
            return Err(corrupt(format!("the state is {}, not an object", kind(&value))));
        };
        let fields = Fields { map, inside: "" };
        // A state that another program wrote has none.
        if fields.optional(CHECKSUM).is_some() && fields.hex(CHECKSUM)? != checksum(&value) {
            let error = corrupt("the state was changed since it was saved: its checksum does not match".into());
            let remedy = "use another checkpoint; to go elsewhere, use uringload state seek or remove \"checksum\"";
            return Err(error.with_remedy(remedy));
        }
        let version = fields.number("version")?;
        if version != VERSION {
            return Err(newer(format!(
                "the state has version {version}; this version of uringload understands version {VERSION}"
            )));
        }
        let order = identities::order(&fields.object("order")?)?;
        let batching = identities::batching(&fields.object("batching")?)?;
        let of = fields.object("dataset")?;
        let dataset = dataset(&of)?;
        let state = State {
            content: content(&of, dataset.files)?,
            dataset,
            order,
            batching,
            cursor: Cursor {
                epoch: fields.number("epoch")?,
                position: fields.number("position")?,
                rows: fields.optional("rows").map_or(Ok(0), |_| fields.number("rows"))?,
            },
            length: fields.number("length")?,
            mixer: fields.optional("mixer").map(|_| mixer(&fields.object("mixer")?)).transpose()?,
            delivered: fields.optional("delivered").map(|_| delivered(&fields.object("delivered")?)).transpose()?,
        };
        check(&state)?;
        Ok(state)
    }

    /// Like `from_json`, for bytes that may not be text.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<State> {
        match std::str::from_utf8(bytes) {
            Ok(text) => State::from_json(text),
            Err(error) => Err(corrupt("the state is not text".into()).with_offset(error.valid_up_to() as u64)),
        }
    }
}

/// The sum over all fields except itself and Python's additions, in any order and with any white space: programs that
/// keep a state as a dictionary may write it back differently.
fn checksum(state: &Value) -> u64 {
    let mut text = String::new();
    match state {
        Value::Object(map) => {
            sorted(map.iter().filter(|(name, _)| ![CHECKSUM, SAMPLER].contains(&name.as_str())), &mut text);
        }
        other => canonical(other, &mut text),
    }
    text.bytes().fold(0, |sum, byte| hash(sum ^ u64::from(byte)))
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => sorted(map.iter(), text),
        Value::Array(values) => {
            text.push('[');
            for value in values {
                canonical(value, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// Fields by name. A null counts as absent.
fn sorted<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, text: &mut String) {
    let mut fields: Vec<_> = fields.filter(|(_, value)| !value.is_null()).collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    text.push('{');
    for (name, value) in fields {
        text.push_str(&Value::String(name.clone()).to_string());
        text.push(':');
        canonical(value, text);
        text.push(',');
    }
    text.push('}');
}

fn dataset(fields: &Fields<'_>) -> Result<Identity> {
    Ok(Identity {
        format: fields.text("format")?.to_owned(),
        fingerprint: fields.hex("fingerprint")?,
        samples: fields.number("samples")?,
        files: fields.number("files")?,
        bytes: fields.number("bytes")?,
    })
}

/// The content of the dataset's files, if the state has it.
fn content(fields: &Fields<'_>, files: u64) -> Result<Option<Content>> {
    if fields.optional("content").is_none() {
        return Ok(None);
    }
    let content = Content::parse(fields.text("content")?, files)?;
    match fields.optional("content_groups") {
        Some(_) => content.with_groups_of(fields.text("content_groups")?).map(Some),
        None => Ok(Some(content)),
    }
}

fn mixer(fields: &Fields<'_>) -> Result<Mixer> {
    Ok(Mixer {
        slots: fields.numbers("slots")?,
        epoch: fields.number("epoch")?,
        since: fields.number("since")?,
        given: fields.numbers("given")?,
    })
}

fn delivered(fields: &Fields<'_>) -> Result<Received> {
    let digest = |samples, sum| Ok::<_, Error>(Digest { samples: fields.number(samples)?, sum: fields.hex(sum)? });
    Ok(Received {
        rank: fields.number("rank")?,
        world_size: fields.number("world_size")?,
        digest: EpochDigest {
            epoch: fields.number("epoch")?,
            since: fields.number("since")?,
            delivered: digest("samples", "sum")?,
            lost: digest("lost_samples", "lost_sum")?,
        },
    })
}

/// Checks for values that are each valid but contradict each other.
fn check(state: &State) -> Result<()> {
    let refuse = |what: String| Err(corrupt(format!("the state contradicts itself: {what}")));
    let State { dataset, cursor: Cursor { epoch, position, rows }, length, .. } = state;
    if dataset.samples == 0 || *length == 0 {
        return refuse("its dataset has no samples".into());
    }
    if dataset.files > u64::from(u32::MAX) {
        return refuse(format!("dataset.files is {}, more than a dataset can have", dataset.files));
    }
    if position > length {
        return refuse(format!("position is {position}, past the end of an epoch of {length}"));
    }
    if *rows > 0 && state.batching == BatchingId::Samples {
        return refuse(format!("rows is {rows}, and batching says that each sample is a row"));
    }
    if let Some(Mixer { slots, given, .. }) = &state.mixer {
        if slots.is_empty() || slots.len() != given.len() {
            return refuse(format!("mixer has {} slots and {} given", slots.len(), given.len()));
        }
        if slots.iter().all(|&slots| slots == 0) {
            return refuse("mixer.slots are all 0".into());
        }
    }
    if let Some(Received { rank, world_size, digest }) = &state.delivered {
        if rank >= world_size {
            return refuse(format!("delivered.rank is {rank}, not below a world size of {world_size}"));
        }
        if (digest.epoch, digest.since) > (*epoch, *position) {
            return refuse(format!("delivered counts from epoch {}, position {}", digest.epoch, digest.since));
        }
        let (samples, lost) = (digest.delivered.samples, digest.lost.samples);
        if samples > SAMPLES_MAX || lost > SAMPLES_MAX {
            return refuse(format!("delivered has {samples} samples and {lost} lost"));
        }
        // Rows may hold samples from after the position, and the samples before the digest's epoch ended are unknown.
        if state.batching == BatchingId::Samples && digest.epoch == *epoch {
            let (passed, told) = (position - digest.since, samples + lost);
            let most = passed.div_ceil(*world_size);
            // At the end of an epoch, samples that do not fill a batch may have been dropped.
            let least = if position < length { passed / world_size } else { 0 };
            if !(least..=most).contains(&told) {
                return refuse(format!(
                    "delivered has {told} samples, where {world_size} ranks passed {passed} positions"
                ));
            }
        }
    }
    Ok(())
}

/// An object of the state, and its name for messages.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    inside: &'static str,
}

impl<'a> Fields<'a> {
    /// A field that may be absent or null.
    pub(super) fn optional(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn field(&self, name: &str) -> Result<&'a Value> {
        let absent = || corrupt(format!("the state has no {:?}", self.path(name)));
        self.map.get(name).ok_or_else(absent)
    }

    fn object(&self, name: &'static str) -> Result<Fields<'a>> {
        match self.field(name)? {
            Value::Object(map) => Ok(Fields { map, inside: name }),
            other => Err(self.wrong(name, other, "an object")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str> {
        let value = self.field(name)?;
        value.as_str().ok_or_else(|| self.wrong(name, value, "text"))
    }

    pub(super) fn number(&self, name: &str) -> Result<u64> {
        let value = self.field(name)?;
        value.as_u64().ok_or_else(|| self.wrong(name, value, "a whole number from 0 to 2^64 - 1"))
    }

    fn numbers<T: TryFrom<u64>>(&self, name: &str) -> Result<Vec<T>> {
        let value = self.field(name)?;
        let number = |value: &Value| value.as_u64().and_then(|number| T::try_from(number).ok());
        let numbers = value.as_array().and_then(|values| values.iter().map(number).collect());
        numbers.ok_or_else(|| self.wrong(name, value, "a list of whole numbers from 0 on"))
    }

    pub(super) fn hex(&self, name: &str) -> Result<u64> {
        let value = self.field(name)?;
        let digits = |text: &&str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = value.as_str().filter(digits).and_then(|text| u64::from_str_radix(text, 16).ok());
        number.ok_or_else(|| self.wrong(name, value, "16 hexadecimal digits in quotes"))
    }

    /// The error for a name that a later version may have added.
    pub(super) fn unknown(&self, name: &str, value: &str, known: &[&str]) -> Error {
        newer(format!(
            "{:?} of the state is {}, which this version of uringload does not know (it knows {})",
            self.path(name),
            kind(&value.into()),
            known.join(", ")
        ))
    }

    fn wrong(&self, name: &str, value: &Value, wanted: &str) -> Error {
        corrupt(format!("{:?} of the state is {}, not {wanted}", self.path(name), kind(value)))
    }

    fn path(&self, name: &str) -> String {
        if self.inside.is_empty() { name.to_owned() } else { format!("{}.{name}", self.inside) }
    }
}

/// Describes a value for a message: shows the value itself if it is short.
fn kind(value: &Value) -> String {
    const SHORT: usize = 40;
    match value {
        Value::Object(_) => "an object".into(),
        Value::Array(_) => "a list".into(),
        Value::String(text) if text.len() > SHORT => "a long text".into(),
        value => value.to_string(),
    }
}

fn newer(what: String) -> Error {
    let remedy = "use the version of uringload that saved it, or a later one";
    Error::new(ErrorKind::StateMismatch, what).with_remedy(remedy)
}

pub(super) fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what).with_remedy("use another checkpoint, or start the epoch again")
}
