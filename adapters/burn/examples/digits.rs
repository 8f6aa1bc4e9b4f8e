//! A network of two layers on handwritten digits, trained with burn: `cargo run --release -p uringload-burn --example
//! digits`.
//!
//! Trains on the first 1 500 of 1 797 digits for some epochs and prints the share of the others that it gets right.

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor};
use std::error::Error;
use std::sync::Arc;
use uringload::batch::Batch;
use uringload::config::Collate;
use uringload::dataset::{self, Options, View};
use uringload::{ErrorKind, Loader};
use uringload_burn::{BurnLoader, tensor_data};

const EPOCHS: usize = 30;

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    out: Linear,
    relu: Relu,
}

impl Model {
    fn new(device: &Device) -> Model {
        let (hidden, out) = (LinearConfig::new(64, 64).init(device), LinearConfig::new(64, 10).init(device));
        Model { hidden, out, relu: Relu::new() }
    }

    fn forward(&self, images: Tensor<2>) -> Tensor<2> {
        self.out.forward(self.relu.forward(self.hidden.forward(images)))
    }
}

/// Pixels from 0 to 1, a row a sample, and the digits.
struct Digits {
    images: Tensor<2>,
    labels: Tensor<1, Int>,
}

fn digits_of(batch: Batch, device: &Device) -> uringload::Result<Digits> {
    let column = |name: &str| {
        let missing = || uringload::Error::new(ErrorKind::InvalidArgument, format!("no column \"{name}\""));
        batch.column(name).ok_or_else(missing)
    };
    let images: Tensor<3> = Tensor::from_data(tensor_data(column("image")?)?.convert::<f32>(), device);
    let labels: Tensor<1, Int> = Tensor::from_data(tensor_data(column("label")?)?.convert::<i64>(), device);
    Ok(Digits { images: images.reshape([batch.len(), 64]) / 16.0, labels })
}

/// The digits for training, and the others.
fn loaders() -> uringload::Result<(BurnLoader<Digits>, BurnLoader<Digits>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/digits.bin");
    let options = Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
    let dataset = dataset::open(&[path], &options)?;
    let train =
        Loader::builder(Arc::new(View::range(Arc::clone(&dataset), 0..1500)?)).batch_size(50).collate(Collate::Ragged);
    let test = Loader::builder(Arc::new(View::range(dataset, 1500..1797)?)).batch_size(100).collate(Collate::Ragged);
    Ok((BurnLoader::new(train.shuffle(true).seed(1), digits_of)?, BurnLoader::new(test, digits_of)?))
}

/// Trains, and returns the share of the other digits that the model gets right.
pub fn train() -> Result<f64, Box<dyn Error>> {
    let device = Device::default().autodiff();
    let (train, test) = loaders()?;
    let train = train.to_device(&device);
    let test = test.to_device(&device);
    let mut model = Model::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let loss = CrossEntropyLossConfig::new().init(&device);
    for _ in 0..EPOCHS {
        for digits in train.iter() {
            let Digits { images, labels } = digits?;
            let gradients = loss.forward(model.forward(images), labels).backward();
            let gradients = GradientsParams::from_grads(gradients, &model);
            model = optimizer.step(0.005, model, gradients);
        }
    }
    let mut right = 0;
    for digits in test.iter() {
        let Digits { images, labels } = digits?;
        let guess = model.forward(images).argmax(1).flatten::<1>(0, 1);
        right += guess.equal(labels).int().sum().into_scalar::<i64>();
    }
    Ok(right as f64 / test.num_items() as f64)
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
