//! A network of two layers on handwritten digits: `cargo run --release -p uringload-candle --example digits`.
//!
//! Trains on the first 1 500 of 1 797 digits for some epochs and prints the share of the others that it gets right.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Linear, Module, Optimizer, VarBuilder, VarMap, linear, loss};
use std::error::Error;
use std::sync::Arc;
use uringload::batch::Batch;
use uringload::config::Collate;
use uringload::dataset::{self, Options, View};
use uringload::{Builder, Loader};
use uringload_candle::to_tensor;

const EPOCHS: u64 = 30;

struct Model {
    hidden: Linear,
    out: Linear,
}

impl Model {
    fn new(weights: VarBuilder) -> Result<Model> {
        Ok(Model { hidden: linear(64, 64, weights.pp("hidden"))?, out: linear(64, 10, weights.pp("out"))? })
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.hidden.forward(images)?.relu()?)
    }
}

/// Pixels from 0 to 1, a row a sample, and the digits.
fn inputs(batch: &Batch, device: &Device) -> std::result::Result<(Tensor, Tensor), Box<dyn Error>> {
    let (Some(image), Some(label)) = (batch.column("image"), batch.column("label")) else {
        return Err("the records have other fields".into());
    };
    let images = to_tensor(image, device)?.flatten_from(1)?.to_dtype(DType::F32)?.affine(1.0 / 16.0, 0.0)?;
    Ok((images, to_tensor(label, device)?.to_dtype(DType::U32)?))
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
pub fn train() -> std::result::Result<f64, Box<dyn Error>> {
    let device = Device::Cpu;
    let (train, test) = digits()?;
    let variables = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut optimizer = AdamW::new_lr(variables.all_vars(), 0.005)?;
    for batch in train.build()? {
        let (images, labels) = inputs(&batch?, &device)?;
        optimizer.backward_step(&loss::cross_entropy(&model.forward(&images)?, &labels)?)?;
    }
    let (mut right, mut all) = (0.0, 0);
    for batch in test.build()? {
        let batch = batch?;
        let (images, labels) = inputs(&batch, &device)?;
        let guess = model.forward(&images)?.argmax(1)?;
        right += guess.eq(&labels)?.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
        all += batch.len();
    }
    Ok(right / all as f64)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    println!("{:.1} % of 297 digits right after {EPOCHS} epochs", train()? * 100.0);
    Ok(())
}

#[test]
fn it_learns() {
    let accuracy = train().expect("it runs");
    assert!(accuracy > 0.88, "{accuracy}");
}
