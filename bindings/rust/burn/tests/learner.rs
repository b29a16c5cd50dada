//! Option B: Burn's Learner over the loader.
#[path = "../../headwater/tests/common/mod.rs"]
mod common;
mod small;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn::lr_scheduler::constant::ConstantLr;
use burn::module::Module;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, ExecutionError, Tensor};
use burn::train::metric::{Adaptor, LossInput, LossMetric};
use burn::train::{
    ExecutionStrategy, InferenceStep, ItemLazy, Learner, MultiDeviceOptim, SupervisedTraining,
    TrainOutput, TrainStep,
};
use common::store;
use headwater::{Batch, Result, Sampler, Split};
use headwater_burn::{BatchLoader, FromBatch};
use small::{Small, SmallBatch, distance, options, parameters};

const RATE: f64 = 0.05;
/// The seeds of each batch that was trained on, in order.
static SEEDS: Mutex<Vec<Vec<u32>>> = Mutex::new(Vec::new());

struct Logged(SmallBatch);

impl FromBatch for Logged {
    fn from_batch(batch: &Batch, device: &Device) -> Result<Logged> {
        let made = SmallBatch::from_batch(batch, device)?;
        if device.is_autodiff() {
            SEEDS.lock().unwrap().push(made.seeds.clone());
        }
        Ok(Logged(made))
    }
}

#[derive(Module, Debug)]
struct Net {
    model: Small,
}

struct Output(Tensor<1>);

impl ItemLazy for Output {
    fn sync(self) -> std::result::Result<Output, ExecutionError> {
        Ok(Output(self.0.inner()))
    }
}

impl Adaptor<LossInput> for Output {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.0.clone())
    }
}

impl TrainStep for Net {
    type Input = Logged;
    type Output = Output;

    fn step(&self, Logged(batch): Logged) -> TrainOutput<Output> {
        let loss = self.model.loss(&batch);
        TrainOutput::new(self, loss.clone().backward(), Output(loss.detach()))
    }
}

impl InferenceStep for Net {
    type Input = Logged;
    type Output = Output;

    fn step(&self, Logged(batch): Logged) -> Output {
        Output(self.model.loss(&batch))
    }
}

struct Run {
    seeds: Vec<Vec<u32>>,
    model: Net,
    error: Option<String>,
}

/// A training until `epochs` are done, of which `done` are.
fn train(
    folder: &Path,
    net: &Net,
    strategy: ExecutionStrategy,
    parts: u32,
    done: usize,
    epochs: usize,
) -> Run {
    SEEDS.lock().unwrap().clear();
    let sampler = Sampler::open(&store("shop"), &options().num_threads(1)).unwrap();
    let train =
        BatchLoader::builder(&sampler, Split::Train, "churn").parts(parts).first_epoch(done as u32);
    let valid: BatchLoader<Logged> =
        BatchLoader::builder(&sampler, Split::Val, "churn").build().unwrap();
    let mut training =
        SupervisedTraining::new(folder, Arc::new(train.build().unwrap()), Arc::new(valid))
            .with_training_strategy(strategy.into())
            .metric_train_numeric(LossMetric::new())
            .num_epochs(epochs)
            .with_default_checkpointers()
            .with_application_logger(None);
    if done > 0 {
        training = training.checkpoint(done);
    }
    let learner = Learner::new(net.clone(), SgdConfig::new().init(), ConstantLr::new(RATE));
    let result = training.launch(learner);
    let seeds = std::mem::take(&mut *SEEDS.lock().unwrap());
    Run { seeds, model: result.model, error: result.error.map(|error| error.to_string()) }
}

/// The mean loss of train.
fn loss(net: &Net) -> f32 {
    let sampler = Sampler::open(&store("shop"), &options()).unwrap();
    let batches: Vec<f32> = sampler
        .epoch(Split::Train, "churn", 0)
        .unwrap()
        .map(|batch| SmallBatch::from_batch(&batch.unwrap(), &Device::flex().autodiff()).unwrap())
        .map(|batch| net.model.loss(&batch).into_scalar::<f32>())
        .collect();
    batches.iter().sum::<f32>() / batches.len() as f32
}

/// The same as `multi` with two workers: gradients of both, added, in each step.
fn by_hand(net: &Net) -> Net {
    let device = Device::flex().autodiff();
    let (mut net, mut optimizer) = (net.clone(), SgdConfig::new().init());
    let epochs = [0, 1].map(|rank| {
        let options = options().rank(rank).world_size(2);
        let sampler = Sampler::open(&store("shop"), &options).unwrap();
        sampler.epoch(Split::Train, "churn", 0).unwrap()
    });
    let [first, second] = epochs;
    for (first, second) in first.zip(second) {
        let losses = [first, second].map(|batch| {
            net.model.loss(&SmallBatch::from_batch(&batch.unwrap(), &device).unwrap())
        });
        let [first, second] = losses;
        let gradients = GradientsParams::from_grads((first + second).backward(), &net);
        net = optimizer.step(RATE, net, gradients);
    }
    net
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

// One test, because seeds are logged in one place.
#[test]
fn the_learner_trains_on_the_loader() {
    let device = Device::flex().autodiff();
    device.seed(7);
    let net = Net { model: Small::new(&store("shop"), &device) };
    let before = loss(&net);
    let count = {
        let sampler = Sampler::open(&store("shop"), &options()).unwrap();
        sampler.seed_count(Split::Train, "churn").unwrap() as usize
    };
    let single = || ExecutionStrategy::single(Device::flex());

    // Each seed once in each epoch, in another order; the loss falls.
    let whole = train(&folder("whole"), &net, single(), 1, 0, 3);
    assert_eq!(whole.error, None);
    let batches = count.div_ceil(16);
    assert_eq!(whole.seeds.len(), 3 * batches);
    let epochs: Vec<Vec<u32>> = whole.seeds.chunks(batches).map(<[Vec<u32>]>::concat).collect();
    for epoch in &epochs {
        let mut seeds = epoch.clone();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), count);
    }
    assert!(epochs[0] != epochs[1]);
    assert!(loss(&whole.model) < before, "{} and {before}", loss(&whole.model));

    // A training that ended after its first epoch goes on with the seeds of the second.
    let parted = folder("parted");
    let first = train(&parted, &net, single(), 1, 0, 1);
    let rest = train(&parted, &net, single(), 1, 1, 3);
    assert_eq!(first.seeds, whole.seeds[..batches]);
    assert_eq!(rest.seeds, whole.seeds[batches..]);
    let apart = distance(&parameters(&rest.model), &parameters(&whole.model));
    assert!(apart == 0.0, "{apart:e} apart");

    // Two workers on one CPU: each seed once, and gradients are added.
    for optim in [MultiDeviceOptim::OptimMainDevice, MultiDeviceOptim::OptimSharded] {
        let two = ExecutionStrategy::multi(vec![Device::flex(), Device::flex()], optim);
        let multi = train(&folder("multi"), &net, two, 2, 0, 1);
        assert_eq!(multi.error, None);
        let mut seeds = multi.seeds.concat();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), count);
        assert_eq!(multi.seeds.len(), 2 * count.div_ceil(2).div_ceil(16));
        let apart = distance(&parameters(&multi.model), &parameters(&by_hand(&net)));
        assert!(apart < 1e-6, "{apart:e} apart");
    }
}
