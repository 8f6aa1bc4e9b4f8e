//! A format of your own: a fixed header and records of varying length. Everything that the library offers (any order,
//! ranks, resume, GPUs, `verify`, `pack`) works with it.
//!
//! A file is `CLIP`, the number of records as a little endian `u32`, the length of each record as `u32`, and the
//! records, end to end.
//!
//! `cargo run --example own_format FILE`; without FILE it makes a small one.

use bytes::Bytes;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use uringload::dataset::{
    DType, Dataset, Field, FileId, FileTable, Index, Sample, SampleId, Schema, Shape, Span, Value,
};
use uringload::{Error, ErrorKind, Result};

/// Where the records of a file lie.
pub struct Clips {
    index: Index,
    /// Where each record begins, and where the last one ends.
    offsets: Vec<u64>,
}

impl Clips {
    /// Reads the header; the records are read later, by the loader.
    pub fn open(path: &Path) -> Result<Clips> {
        let failed = |source| Error::io("cannot read the header", source).with_path(path);
        let corrupt = |what: &'static str| Error::new(ErrorKind::Corrupt, what).with_path(path).with_offset(0);
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut number = [0; 4];
        file.read_exact(&mut number).map_err(failed)?;
        if number != *b"CLIP" {
            return Err(corrupt("the file does not begin with CLIP").with_remedy("name a file of clips"));
        }
        file.read_exact(&mut number).map_err(failed)?;
        let count = u64::from(u32::from_le_bytes(number));
        // Reads only what the file has: nothing is allocated by a count that the header merely claims.
        let mut lengths = Vec::new();
        file.take(4 * count).read_to_end(&mut lengths).map_err(failed)?;
        let mut offsets = vec![8 + 4 * count];
        for length in lengths.as_chunks().0 {
            offsets.push(offsets[offsets.len() - 1] + u64::from(u32::from_le_bytes(*length)));
        }
        if offsets.len() as u64 != count + 1 || offsets[count as usize] != size {
            return Err(corrupt("the file is not as long as its header says").with_remedy("copy it again"));
        }
        let mut files = FileTable::new();
        files.push_root(path.parent().map_or(PathBuf::new(), Path::to_path_buf));
        files.push(path.file_name().unwrap_or_default().as_encoded_bytes(), size).expect("room for one");
        let field = Field { name: "clip".into(), dtype: DType::U8, shape: Shape::Ragged };
        let mut index = Index::new("clips", files, Schema { fields: vec![field] }, count);
        index.bytes = size - offsets[0];
        // A value is the bytes as read, so parts of it can be read alone, and its length is known in advance.
        index.plain_field = Some(0);
        index.parse_reads_bytes = false;
        Ok(Clips { index, offsets })
    }
}

impl Dataset for Clips {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let (offset, end) = (self.offsets[id.0 as usize], self.offsets[id.0 as usize + 1]);
        out.push(Span { file: FileId(0), offset, len: end - offset });
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.push(Value::Bytes(raw[0].clone()));
        Ok(())
    }
}

/// Writes records to a file of this format.
pub fn write(path: &Path, records: &[&[u8]]) -> std::io::Result<()> {
    let mut bytes = b"CLIP".to_vec();
    bytes.extend((records.len() as u32).to_le_bytes());
    records.iter().for_each(|record| bytes.extend((record.len() as u32).to_le_bytes()));
    records.iter().for_each(|record| bytes.extend(*record));
    std::fs::write(path, bytes)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let made = std::env::temp_dir().join("own_format.clips");
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            write(&made, &[b"one", b"", b"three", b"four"])?;
            made
        }
    };
    let dataset = std::sync::Arc::new(Clips::open(&path)?);
    for batch in uringload::Loader::builder(dataset).shuffle(true).seed(7).batch_size(2).build()? {
        let batch = batch?;
        for (row, id) in batch.ids.iter().enumerate() {
            println!("sample {}: {:?}", id.0, batch.columns[0].bytes_of(row).unwrap_or_default());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_comes_byte_exact() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.clips");
        let records: Vec<Vec<u8>> = (0..500_usize).map(|n| vec![n as u8; n * 37 % 4099]).collect();
        write(&path, &records.iter().map(|record| &record[..]).collect::<Vec<_>>()).expect("a file");
        let dataset = std::sync::Arc::new(Clips::open(&path).expect("clips"));
        assert_eq!((dataset.largest(1), dataset.length(SampleId(3), 0)), (4094, Some(111)));
        let mut came = 0;
        for batch in uringload::Loader::builder(dataset).shuffle(true).batch_size(32).build().expect("a loader") {
            let batch = batch.expect("no error");
            for (row, id) in batch.ids.iter().enumerate() {
                assert_eq!(batch.columns[0].bytes_of(row).expect("a value"), records[id.0 as usize]);
                came += 1;
            }
        }
        assert_eq!(came, 500);
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.clips");
        for bytes in [&b"CLAP\0\0\0\0"[..], b"CLIP\xff\xff\xff\xff", b"CLIP\x01\0\0\0\x05\0\0\0four", b"CL"] {
            std::fs::write(&path, bytes).expect("a file");
            let error = Clips::open(&path).err().expect("it is refused");
            assert_eq!(error.path(), Some(&*path), "{bytes:?}");
        }
    }
}
