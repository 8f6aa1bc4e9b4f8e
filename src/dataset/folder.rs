//! Every file of a folder a sample.

use super::{DType, Dataset, Field, FileTable, Sample, SampleId, Schema, Shape, Span, Value};
use crate::error::Result;
use bytes::Bytes;

/// A folder whose every file is one sample.
#[derive(Debug)]
pub struct Folder {
    files: FileTable,
    schema: Schema,
}

impl Folder {
    /// Of files that are already known: for tests and for callers with an index of their own.
    pub fn from_files(files: FileTable) -> Folder {
        let field = Field { name: "data".into(), dtype: DType::U8, shape: Shape::Ragged };
        Folder { files, schema: Schema { fields: vec![field] } }
    }
}

impl Dataset for Folder {
    fn files(&self) -> &FileTable {
        &self.files
    }
    fn format(&self) -> &'static str {
        "folder"
    }
    fn len(&self) -> u64 {
        self.files.len() as u64
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let file = super::FileId(id.0 as u32);
        out.push(Span { file, offset: 0, len: self.files.size(file) });
    }
    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }
    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.files.name(super::FileId(id.0 as u32)));
    }
    fn bytes(&self) -> u64 {
        self.files.sizes().iter().sum()
    }
    fn largest(&self, count: u64) -> u64 {
        let mut sizes = self.files.sizes().to_vec();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.iter().take(count as usize).sum()
    }
    fn fingerprint(&self) -> u64 {
        0
    }
}
