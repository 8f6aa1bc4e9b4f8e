//! A dataset of the tests' own whose samples are cut from units: each file is one frame of zstd with some samples.

use bytes::Bytes;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use uringload::dataset::{
    DType, Dataset, Field, FileId, FileTable, Index, Sample, SampleId, Schema, Shape, Span, UnitId, Units, Value,
};
use uringload::{Error, Result};

/// Bytes of a sample.
pub const SAMPLE_BYTES: usize = 1000;
/// Samples in a frame.
pub const SAMPLES_IN_UNIT: u64 = 25;

/// Files of frames.
pub struct Frames {
    index: Index,
    pub decoded: Arc<AtomicU64>,
    pub panics: Option<u32>,
    pub slow: Duration,
}

/// The bytes of a sample.
pub fn sample_bytes(id: u64) -> Vec<u8> {
    (0..SAMPLE_BYTES as u64).map(|at| (id.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
}

impl Frames {
    /// Writes `units` files into `folder`.
    pub fn write(folder: &TempDir, units: u32) -> Frames {
        let mut files = FileTable::new();
        files.push_root(folder.path());
        let mut ends = Vec::new();
        for unit in 0..units {
            let ids = u64::from(unit) * SAMPLES_IN_UNIT..u64::from(unit + 1) * SAMPLES_IN_UNIT;
            let text: Vec<u8> = ids.clone().flat_map(sample_bytes).collect();
            let frame = zstd::encode_all(&text[..], 1).expect("a frame");
            let name = format!("{unit:03}.zst");
            fs::write(folder.path().join(&name), &frame).expect("a file");
            files.push(name.as_bytes(), frame.len() as u64).expect("room");
            ends.push(ids.end);
        }
        let field = Field { name: "x".into(), dtype: DType::U8, shape: Shape::Fixed(vec![SAMPLE_BYTES as u64]) };
        let schema = Schema { fields: vec![field] };
        let mut index = Index::new("frames", files, schema, u64::from(units) * SAMPLES_IN_UNIT);
        index.bytes = index.samples * SAMPLE_BYTES as u64;
        index.shards = ends;
        Frames { index, decoded: Arc::default(), panics: None, slow: Duration::ZERO }
    }
}

impl Dataset for Frames {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let at = (id.0 % SAMPLES_IN_UNIT) as usize * SAMPLE_BYTES;
        out.values.push(Value::Bytes(raw[0].slice(at..at + SAMPLE_BYTES)));
        Ok(())
    }
    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(id.0.to_string().as_bytes());
    }
}

impl Units for Frames {
    fn count(&self) -> u32 {
        self.shards().len() as u32
    }
    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.push(UnitId((id.0 / SAMPLES_IN_UNIT) as u32));
    }
    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        let file = FileId(unit.0);
        out.push(Span { file, offset: 0, len: self.files().size(file) });
    }
    fn decoded_bytes(&self, _unit: UnitId) -> u64 {
        SAMPLES_IN_UNIT * SAMPLE_BYTES as u64
    }
    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        assert_ne!(Some(unit.0), self.panics, "this decoder panics");
        std::thread::sleep(self.slow);
        let bytes = zstd::bulk::decompress(&stored[0], out.len());
        let bytes = bytes.map_err(|source| {
            let error = Error::io("cannot decode", source).with_offset(0);
            error.with_path(self.files().path(FileId(unit.0)))
        })?;
        out[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}
