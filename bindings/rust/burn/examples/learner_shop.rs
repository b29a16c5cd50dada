//! `cargo run --release --example learner_shop -- STORE FOLDER [EPOCHS [DEVICES]]`: the model of
//! train_shop by Burn's Learner.
//!
//! STORE is the store of examples/shop/shop.json. FOLDER gets checkpoints, and the losses; with those
//! of an earlier run in it, the training goes on after the last one.
#![forbid(unsafe_code)]

#[path = "shop_model/mod.rs"]
mod shop_model;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::DataLoader;
use burn::module::Module;
use burn::tensor::{Device, ExecutionError, Tensor};
use burn::train::metric::{Adaptor, LossInput, LossMetric};
use burn::train::{
    ExecutionStrategy, InferenceStep, ItemLazy, Learner, MultiDeviceOptim, SupervisedTraining,
    TrainOutput, TrainStep,
};
use headwater::{Sampler, Split, Store};
use headwater_burn::{BatchLoader, ContextBatch};
use shop_model::ShopModel;
use shop_model::training::{BATCH, SIZE, TASK, optimizer, options};

/// The model, and the number of devices that train it at once: Burn adds up their gradients, so each
/// has its part of the mean.
#[derive(Module, Debug)]
struct Trained {
    model: ShopModel,
    devices: usize,
}

/// A loss, as Burn's metrics take it.
struct Loss(Tensor<1>);

impl ItemLazy for Loss {
    fn sync(self) -> Result<Loss, ExecutionError> {
        Ok(Loss(self.0.inner()))
    }
}

impl Adaptor<LossInput> for Loss {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.0.clone())
    }
}

impl TrainStep for Trained {
    type Input = ContextBatch;
    type Output = Loss;

    fn step(&self, batch: ContextBatch) -> TrainOutput<Loss> {
        let loss = self.model.loss(&batch);
        let part = loss.clone() / self.devices as f32;
        TrainOutput::new(self, part.backward(), Loss(loss.detach()))
    }
}

impl InferenceStep for Trained {
    type Input = ContextBatch;
    type Output = Loss;

    fn step(&self, batch: ContextBatch) -> Loss {
        Loss(self.model.loss(&batch))
    }
}

/// The last epoch of which the folder has a whole checkpoint; 0: there is none.
fn last_epoch(folder: &Path, epochs: usize) -> usize {
    let has = |name: &str, epoch| folder.join(format!("checkpoint/{name}-{epoch}.bpk")).exists();
    let is_whole = |epoch: &usize| ["model", "optim", "scheduler"].iter().all(|n| has(n, *epoch));
    (1..=epochs).rev().find(is_whole).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(folder)) = (words.next(), words.next()) else {
        eprintln!(
            "expected a store and a folder, and if you like the number of epochs, of devices"
        );
        std::process::exit(2);
    };
    let epochs: usize = words.next().map_or(Ok(3), |word| word.parse())?;
    let devices: usize = words.next().map_or(Ok(1), |word| word.parse())?;
    if !(1..=BATCH as usize).contains(&devices) {
        return Err(format!("{devices} devices, expected 1 to {BATCH}").into());
    }
    let done = last_epoch(Path::new(&folder), epochs);

    let store = Store::open(path)?;
    // Each device has a batch of its own, of which the loader has one part for each.
    let sampler = Sampler::open(&store, &options(0, 1).batch_size(BATCH / devices as u32))?;
    let train = BatchLoader::<ContextBatch>::builder(&sampler, Split::Train, TASK)
        .parts(devices as u32)
        .first_epoch(done as u32)
        .build()?;
    let val = BatchLoader::<ContextBatch>::builder(&sampler, Split::Val, TASK).build()?;
    let val: Arc<dyn DataLoader<ContextBatch>> = Arc::new(val);

    let device = Device::flex().autodiff();
    device.seed(7);
    let model = Trained { model: ShopModel::new(&store, SIZE, &device)?, devices };
    let (optimizer, rates) = optimizer(epochs * train.num_batches() / devices)?;
    let strategy = match devices {
        1 => ExecutionStrategy::single(Device::flex()),
        _ => ExecutionStrategy::multi(
            vec![Device::flex(); devices],
            MultiDeviceOptim::OptimMainDevice,
        ),
    };
    let mut training = SupervisedTraining::new(&folder, Arc::new(train), val.clone())
        .with_training_strategy(strategy.into())
        .with_default_checkpointers()
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .num_epochs(epochs);
    if done > 0 {
        println!("goes on after epoch {done}");
        training = training.checkpoint(done);
    }
    let result = training.launch(Learner::new(model, optimizer, rates));
    if let Some(error) = result.error {
        return Err(error.to_string().into()); // an error of the loader, among others
    }

    let model = result.model.model.valid();
    let (mut sum, mut count) = (0.0, 0);
    for batch in val.iter() {
        let batch = batch?;
        sum += f64::from(model.loss(&batch).into_scalar::<f32>()) * batch.num_labelled as f64;
        count += batch.num_labelled;
    }
    println!("loss of val after {epochs} epochs: {:.9}", sum / count as f64);
    Ok(())
}
