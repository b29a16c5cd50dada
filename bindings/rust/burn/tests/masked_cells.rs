//! A training without a question: the model says what masked cells hold, of every type.
#![forbid(unsafe_code)]

#[path = "../examples/shop_model/mod.rs"]
mod shop_model;

use std::path::PathBuf;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::module::embedding;
use burn::tensor::{Bool, Device, FloatDType, Int, Tensor};
use headwater::{Objective, Options, Result, Sampler, Split, Store, VectorsOf};
use headwater_burn::{ContextBatch, FromBatch};
use shop_model::{ShopModel, Size, at, logistic_errors, mean_where, vectors};

const SIZE: Size = Size { width: 16, blocks: 1, heads: 2 };
const STEPS: usize = 50;
/// Batches that are learnt again and again, so that nothing but learning changes the loss.
const BATCHES: usize = 10;
const KINDS: [&str; 5] = ["numerical", "timestamp", "boolean", "categorical", "text"];

/// The model of the example, which also says times and vectors.
#[derive(Module, Debug)]
struct CellModel {
    model: ShopModel,
    time: Linear,
    vector: Linear,
}

impl CellModel {
    fn new(store: &Store, device: &Device) -> Result<CellModel> {
        let width = store.counts()?.text_dim as usize;
        Ok(CellModel {
            model: ShopModel::new(store, SIZE, device)?,
            time: LinearConfig::new(SIZE.width, 15).init(device),
            vector: LinearConfig::new(SIZE.width, width).init(device),
        })
    }

    /// The mean loss of each list of masked cells, in the order of `KINDS`.
    fn losses(&self, batch: &ContextBatch, categories: &Tensor<2>) -> [Tensor<1>; 5] {
        let masked = batch.masked.as_ref().expect("the objective is masked cells");
        let texts = batch.text_batch_embeddings.clone().expect("texts come with the batch");
        let states = self.model.states(batch);
        let said = |head: &Linear, places: &Tensor<2, Int>| {
            head.forward(at(states.clone(), places.clone()))
        };
        let counts = |places: &Tensor<2, Int>, is_null: &Tensor<2, Bool>| {
            places.clone().greater_equal_elem(0).bool_and(is_null.clone().bool_not())
        };

        let list = &masked.numerical;
        let errors = said(&self.model.number, &list.indices).squeeze_dim(2) - list.values.clone();
        let numerical = mean_where(errors.square(), counts(&list.indices, &list.is_null));

        let list = &masked.timestamp;
        let errors = said(&self.time, &list.indices) - list.values.clone();
        let errors = errors.square().mean_dim(2).squeeze_dim(2);
        let timestamp = mean_where(errors, counts(&list.indices, &list.is_null));

        let list = &masked.boolean;
        let logits = said(&self.model.boolean, &list.indices).squeeze_dim::<2>(2);
        let errors = logistic_errors(logits, list.values.clone().float());
        let boolean = mean_where(errors, counts(&list.indices, &list.is_null));

        let list = &masked.categorical;
        let truths = embedding(categories.clone(), list.values.clone());
        let errors = cosine_errors(said(&self.vector, &list.indices), truths);
        let categorical = mean_where(errors, counts(&list.indices, &list.is_null));

        let list = &masked.text;
        let truths = embedding(texts.cast(FloatDType::F32), list.values.clone());
        let errors = cosine_errors(said(&self.vector, &list.indices), truths);
        let is_there = list.values.clone().greater_elem(0); // not over the budget of texts
        let text = mean_where(errors, counts(&list.indices, &list.is_null).bool_and(is_there));
        [numerical, timestamp, boolean, categorical, text]
    }
}

/// 1 less the cosine of vectors, [B, M].
fn cosine_errors(said: Tensor<3>, truths: Tensor<3>) -> Tensor<2> {
    let length = |vectors: Tensor<3>| vectors.square().sum_dim(2).add_scalar(1e-6).sqrt();
    let product = (said.clone() * truths.clone()).sum_dim(2);
    (product / (length(said) * length(truths))).neg().add_scalar(1.0).squeeze_dim(2)
}

#[test]
fn a_training_on_masked_cells_learns_every_type() -> Result<()> {
    let folder = std::env::var_os("HEADWATER_RUST_VECTORS").expect("see tools/rust_vectors.py");
    let store = Store::open(PathBuf::from(folder).join("shop.store"))?;
    let device = Device::flex().autodiff();
    device.seed(7);
    let mut model = CellModel::new(&store, &device)?;
    let categories = vectors(&store, VectorsOf::Categories, &device)?;
    let options = Options::new()
        .batch_size(8)
        .sequence_length(32)
        .attention_masks(true)
        .num_threads(1)
        .objective(Objective::MaskedCells)
        .seed_tables(["visits", "orders"])
        .mask_ratio(0.3);
    let sampler = Sampler::open(&store, &options)?;
    let mut optimizer = AdamConfig::new().init();
    let (mut losses, mut cells) = (Vec::new(), [0; 5]);
    for step in 0..STEPS {
        let batch = sampler.batch(Split::Train, (step % BATCHES) as u64)?;
        let batch = ContextBatch::from_batch(&batch, &device)?;
        for (count, kind) in cells.iter_mut().zip(KINDS) {
            let places = batch.arrays.array(&format!("masked_{kind}_indices"))?;
            *count += places.as_slice::<i32>()?.iter().filter(|place| **place >= 0).count();
        }
        let own = model.losses(&batch, &categories);
        losses.push(own.clone().map(|loss| loss.into_scalar::<f32>()));
        let loss = Tensor::cat(own.to_vec(), 0).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    println!("masked cells of {KINDS:?}: {cells:?}");
    assert!(cells.iter().all(|count| *count > 0), "{cells:?} masked cells of {KINDS:?}");
    let mean = |losses: &[[f32; 5]]| {
        let mut sums = [0.0; 5];
        for own in losses {
            sums.iter_mut().zip(own).for_each(|(sum, loss)| *sum += loss / losses.len() as f32);
        }
        sums
    };
    let (first, last) = (mean(&losses[..BATCHES]), mean(&losses[STEPS - BATCHES..]));
    println!("losses of {KINDS:?}: first {first:?}, last {last:?}");
    assert!(first.iter().zip(&last).all(|(first, last)| last < first), "{first:?} to {last:?}");
    let (first, last): (f32, f32) = (first.iter().sum(), last.iter().sum());
    assert!(last < 0.9 * first, "the loss was {first} and is {last}");
    Ok(())
}
