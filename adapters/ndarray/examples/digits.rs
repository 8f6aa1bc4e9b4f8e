//! Logistic regression on handwritten digits, by hand: `cargo run --release -p uringload-ndarray --example digits`.
//!
//! Trains on the first 1 500 of 1 797 digits for some epochs and prints the share of the others that it gets right.

use ndarray::{Array1, Array2, Axis};
use std::error::Error;
use std::sync::Arc;
use uringload::batch::Batch;
use uringload::config::Collate;
use uringload::dataset::{self, Options, View};
use uringload::{Builder, Loader};
use uringload_ndarray::view;

const PIXELS: usize = 64;
const CLASSES: usize = 10;
const EPOCHS: u64 = 20;
const RATE: f32 = 0.5;

/// Weights of a linear model.
struct Model {
    weights: Array2<f32>,
    bias: Array1<f32>,
}

/// Pixels from 0 to 1, a row a sample, and the digits.
fn inputs(batch: &Batch) -> Result<(Array2<f32>, Vec<usize>), Box<dyn Error>> {
    let (Some(image), Some(label)) = (batch.column("image"), batch.column("label")) else {
        return Err("the records have other fields".into());
    };
    let images = view::<u8>(image)?.mapv(|pixel| f32::from(pixel) / 16.0);
    let labels = view::<u8>(label)?.iter().map(|&digit| usize::from(digit)).collect();
    Ok((images.into_shape_with_order((batch.len(), PIXELS))?, labels))
}

impl Model {
    /// The probability of each class for each sample.
    fn forward(&self, images: &Array2<f32>) -> Array2<f32> {
        let mut scores = images.dot(&self.weights) + &self.bias;
        for mut row in scores.rows_mut() {
            let most = row.fold(f32::MIN, |most, &score| most.max(score));
            row.mapv_inplace(|score| (score - most).exp());
            let sum = row.sum();
            row /= sum;
        }
        scores
    }

    fn step(&mut self, batch: &Batch) -> Result<(), Box<dyn Error>> {
        let (images, labels) = inputs(batch)?;
        let mut error = self.forward(&images);
        for (mut row, &label) in error.rows_mut().into_iter().zip(&labels) {
            row[label] -= 1.0;
        }
        let step = RATE / labels.len() as f32;
        self.weights.scaled_add(-step, &images.t().dot(&error));
        self.bias.scaled_add(-step, &error.sum_axis(Axis(0)));
        Ok(())
    }

    /// How many of the batch's samples it gets right.
    fn right(&self, batch: &Batch) -> Result<usize, Box<dyn Error>> {
        let (images, labels) = inputs(batch)?;
        let best = |row: ndarray::ArrayView1<f32>| {
            let better = |best: usize, (class, &score): (usize, &f32)| if score > row[best] { class } else { best };
            row.iter().enumerate().fold(0, better)
        };
        let scores = self.forward(&images);
        Ok(scores.rows().into_iter().zip(labels).filter(|(row, label)| best(*row) == *label).count())
    }
}

/// The digits, and which of them are for training.
fn digits() -> uringload::Result<(Builder, Builder)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/digits.bin");
    let options = Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
    let dataset = dataset::open(&[path], &options)?;
    let train = Arc::new(View::range(Arc::clone(&dataset), 0..1500)?);
    let test = Arc::new(View::range(dataset, 1500..1797)?);
    Ok((
        Loader::builder(train).batch_size(50).collate(Collate::Ragged).shuffle(true).seed(1).epochs(EPOCHS),
        Loader::builder(test).batch_size(100).collate(Collate::Ragged).epochs(1),
    ))
}

/// Trains, and returns the share of the other digits that the model gets right.
pub fn train() -> Result<f64, Box<dyn Error>> {
    let (train, test) = digits()?;
    let mut model = Model { weights: Array2::zeros((PIXELS, CLASSES)), bias: Array1::zeros(CLASSES) };
    for batch in train.build()? {
        model.step(&batch?)?;
    }
    let (mut right, mut all) = (0, 0);
    for batch in test.build()? {
        let batch = batch?;
        right += model.right(&batch)?;
        all += batch.len();
    }
    Ok(right as f64 / all as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:.1} % of 297 digits right after {EPOCHS} epochs", train()? * 100.0);
    Ok(())
}

#[test]
fn it_learns() {
    let accuracy = train().expect("it runs");
    assert!(accuracy > 0.88, "{accuracy}");
}
