//! A closure of one's own in the loader's threads: WAV files become waveforms of one length, cut at a random place.
//!
//! `cargo run --example map /data/speech`

use uringload::batch::Data;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::transform::{Input, MapOutput};
use uringload::{Error, ErrorKind, Loader, Result};

/// Bytes of the header of a plain WAV file; samples of 16 bits follow.
const HEADER: usize = 44;

/// Samples of audio in a waveform.
const LENGTH: usize = 1600;

/// A waveform of `LENGTH` numbers from -1 to 1: a random piece of the file, or all of it followed by silence.
fn waveform(file: &Input<'_>, out: &mut [u8]) -> Result<usize> {
    let Some(audio) = file.bytes.get(HEADER..).filter(|_| file.bytes.starts_with(b"RIFF")) else {
        // The error of this sample: `on_error` decides about it.
        return Err(Error::new(ErrorKind::Corrupt, "this is no WAV file"));
    };
    let samples = audio.len() / 2;
    // A function of the loader's seed, the epoch and the sample, whichever thread runs this.
    let start = file.seed as usize % (samples.saturating_sub(LENGTH) + 1);
    let piece = audio[2 * start..].chunks_exact(2).map(|sample| i16::from_le_bytes([sample[0], sample[1]]));
    let silence = std::iter::repeat(0);
    for (to, sample) in out.chunks_exact_mut(4).zip(piece.chain(silence)) {
        to.copy_from_slice(&(f32::from(sample) / 32768.0).to_le_bytes());
    }
    Ok(out.len())
}

fn loader(dataset: std::sync::Arc<dyn Dataset>) -> Result<Loader> {
    let output = MapOutput::fixed(DType::F32, [LENGTH as u64]);
    Loader::builder(dataset).batch_size(16).shuffle(true).seed(1).map("data", output, waveform).build()
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for batch in loader(dataset::open(&[path], &Options::new())?)? {
        let batch = batch?;
        if let Some(Data::Dense { shape, bytes }) = batch.column("data").map(|column| &column.data) {
            println!("{} waveforms of {shape:?}: {} bytes", batch.len(), bytes.len());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_become_one_tensor() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..20_usize {
            let mut file = b"RIFF".to_vec();
            file.resize(HEADER, 0);
            file.extend((0..number * 400).flat_map(|at| (at as i16).to_le_bytes()));
            std::fs::write(root.path().join(format!("{number:02}.wav")), file).unwrap();
        }
        let mut samples = 0;
        for batch in loader(dataset::open(&[root.path()], &Options::new()).unwrap()).unwrap() {
            let batch = batch.unwrap();
            for (index, id) in batch.ids.iter().enumerate() {
                let value = batch.column("data").unwrap().bytes_of(index).unwrap();
                let wave: Vec<f32> = value.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                let heard = (id.0 as usize * 400).min(LENGTH);
                assert!(wave[..heard].windows(2).all(|pair| pair[1] - pair[0] == 1.0 / 32768.0), "a piece, in order");
                assert!(wave[heard..].iter().all(|&silence| silence == 0.0));
                samples += 1;
            }
        }
        assert_eq!(samples, 20);
    }
}
