//! Single samples by number, outside any order: for callers that inspect a sample, or read samples one by one.
//!
//! A loader is built for batches that are known in advance: its ring, its memory and its thread take about a
//! millisecond to set up. This has none of these. It reads through the page cache, on the calling thread.

use crate::dataset::{DType, Dataset, Field, Role, Sample, SampleId, Span, UnitId, Units, Value};
use crate::guard::{self, Bounds};
use crate::here::{Here, memory_of};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use uringload_images::{Format, Media};

/// Decoded units that are kept: a sample's neighbours are often read next.
const UNITS_KEPT: usize = 2;

/// Samples to examine for images: the first may be broken.
const SAMPLES_SEEN: u64 = 8;

/// First bytes that show what a value is.
const HEAD_BYTES: u64 = 4096;

/// What a value is by its first bytes, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// An image that can be decoded.
    Image(Format),
    /// Sound or film, which a function of the user's decodes.
    Media(Media),
    /// Something else.
    Other,
}

impl Content {
    fn is_image(&self) -> bool {
        matches!(self, Content::Image(_))
    }

    fn of(head: &[u8]) -> Option<Content> {
        let media = || Media::of(head).map_or(Content::Other, Content::Media);
        (!head.is_empty()).then(|| Format::of(head).map_or_else(media, Content::Image))
    }
}

/// Reads single samples of a dataset. Threads may share it.
///
/// Locks are only tried: a thread that finds one taken decodes the unit again. So a forked child does not wait for a
/// lock that a thread of its parent held.
pub struct Samples {
    dataset: Arc<dyn Dataset>,
    here: Here,
    decoded: Mutex<VecDeque<(UnitId, Bytes)>>,
}

impl Samples {
    /// For the samples of this dataset.
    ///
    /// # Errors
    /// Names a root folder that is missing or that this process may not open.
    pub fn new(dataset: Arc<dyn Dataset>) -> Result<Samples> {
        let here = Here::new(Arc::clone(&dataset))?;
        Ok(Samples { dataset, here, decoded: Mutex::default() })
    }

    /// Reads and parses a sample that the dataset has.
    ///
    /// # Errors
    /// The errors of opening and reading its file, `Changed` or `Truncated` for a file that is no longer the one that
    /// was indexed, and the format's errors about its bytes.
    pub fn read(&self, id: SampleId) -> Result<Sample> {
        let mut spans = Vec::new();
        guard::spans(&*self.dataset, id, u64::MAX, &mut spans)?;
        let mut raw = spans.iter().map(|span| self.here.read(&[*span])).collect::<Result<Vec<Bytes>>>()?;
        if let Some(units) = self.dataset.units() {
            let mut of = Vec::new();
            guard::units_of(&*self.dataset, units, id, &mut of)?;
            for unit in of {
                raw.push(self.unit(units, unit)?);
            }
        }
        let mut sample = Sample::default();
        guard::parse(&*self.dataset, id, &raw, &mut sample)?;
        Ok(sample)
    }

    /// What the value of each column of a sample is; `None` for numbers, text, and a value without a byte.
    ///
    /// # Errors
    /// As [`read`](Samples::read).
    pub fn contents(&self, id: SampleId) -> Result<Vec<Option<Content>>> {
        Ok(self.heads(id)?.iter().map(|head| Content::of(head)).collect())
    }

    /// Names of the columns whose values are encoded images, in the first sample that has any.
    ///
    /// # Errors
    /// The first error, if none of the first samples can be read.
    pub fn image_columns(&self) -> Result<Vec<String>> {
        Ok(self.images_of(&self.look()?))
    }

    /// The one column of encoded images.
    ///
    /// # Errors
    /// `InvalidArgument` for none, with what there is instead, and for several; as
    /// [`image_columns`](Samples::image_columns).
    pub fn image_column(&self) -> Result<String> {
        let contents = self.look()?;
        let mut columns = self.images_of(&contents);
        if columns.len() == 1 {
            return Ok(columns.remove(0));
        }
        let what = if columns.is_empty() {
            let fields = self.dataset.schema().fields.iter().zip(contents);
            let others = fields.filter_map(|(field, content)| match content {
                Some(Content::Media(media)) => Some(format!("; {:?} is {media}, not decoded", field.name)),
                _ => None,
            });
            format!("no column of the first samples has encoded images{}", others.collect::<String>())
        } else {
            format!("the columns {} have images", columns.join(", "))
        };
        Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("name the column of the images"))
    }

    fn images_of(&self, contents: &[Option<Content>]) -> Vec<String> {
        let fields = self.dataset.schema().fields.iter().zip(contents);
        let images = fields.filter(|(_, content)| content.as_ref().is_some_and(Content::is_image));
        images.map(|(field, _)| field.name.clone()).collect()
    }

    /// What each column has in the first samples, up to one with an image.
    fn look(&self) -> Result<Vec<Option<Content>>> {
        let mut found = vec![None; self.dataset.schema().fields.len()];
        // The first error, unless a sample could be read.
        let (mut result, mut is_read) = (Ok(()), false);
        for id in (0..self.dataset.len().min(SAMPLES_SEEN)).map(SampleId) {
            let contents = match self.contents(id) {
                Ok(contents) => contents,
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            is_read = true;
            for (found, content) in found.iter_mut().zip(contents) {
                *found = found.filter(|found| *found != Content::Other).or(content);
            }
            if found.iter().flatten().any(Content::is_image) {
                break;
            }
        }
        if is_read { Ok(found) } else { result.map(|()| found) }
    }

    /// The first bytes of each value of a sample; none of numbers and text. Of a sample that is one value as it is
    /// stored, no more is read.
    fn heads(&self, id: SampleId) -> Result<Vec<Bytes>> {
        let index = self.dataset.index();
        let mut spans = Vec::new();
        guard::spans(&*self.dataset, id, u64::MAX, &mut spans)?;
        let mut values = match (index.plain_field, &spans[..]) {
            (Some(field), [first, ..]) => {
                let head = self.here.read(&[Span { len: first.len.min(HEAD_BYTES), ..*first }])?;
                let mut values = vec![Value::I64(0); field];
                values.push(Value::Bytes(head));
                values
            }
            _ => self.read(id)?.values,
        };
        values.resize(index.schema.fields.len(), Value::I64(0));
        let is_bytes = |(number, field): (usize, &Field)| {
            let is_text = index.encodings.get(number).is_some_and(|encoding| encoding.role == Role::Text);
            field.dtype == DType::U8 && !is_text
        };
        let fields = index.schema.fields.iter().enumerate().map(is_bytes);
        Ok(fields
            .zip(values)
            .map(|(is_bytes, value)| match value {
                Value::Bytes(bytes) if is_bytes => bytes.slice(..bytes.len().min(HEAD_BYTES as usize)),
                _ => Bytes::new(),
            })
            .collect())
    }

    fn unit(&self, units: &dyn Units, unit: UnitId) -> Result<Bytes> {
        let kept = self.decoded.try_lock().ok();
        if let Some((_, bytes)) = kept.as_ref().and_then(|kept| kept.iter().find(|(known, _)| *known == unit)) {
            return Ok(bytes.clone());
        }
        drop(kept);
        let mut spans = Vec::new();
        guard::stored(&*self.dataset, units, unit, Bounds::NONE, &mut spans)?;
        let stored = spans.iter().map(|span| self.here.read(&[*span])).collect::<Result<Vec<Bytes>>>()?;
        let claimed = units.decoded_bytes(unit);
        let mut out = vec![0; memory_of(claimed)?];
        // Decoders are not trusted.
        let what = format!("\"decode\" of unit {}", unit.0);
        let len = guard::whole(&*self.dataset, &what, || units.decode(unit, &stored, &mut out))?;
        if len > out.len() {
            let what = format!("{what} has {len} bytes, and \"decoded_bytes\" says {}", out.len());
            return Err(guard::wrong(&*self.dataset, what));
        }
        out.truncate(len);
        let bytes = Bytes::from(out);
        if let Ok(mut kept) = self.decoded.try_lock() {
            kept.truncate(UNITS_KEPT - 1);
            kept.push_front((unit, bytes.clone()));
        }
        Ok(bytes)
    }
}
