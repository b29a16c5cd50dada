//! A model that is small enough for dependencies that are not optimised.
#![allow(dead_code)]

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::activation::softplus;
use burn::tensor::{Bool, Device, Int, Tensor};
use headwater::{Batch, Options, Result, Store};
use headwater_burn::{FromBatch, tensors};

/// Options of its batches.
pub fn options() -> Options {
    Options::new().tasks(["churn"]).sequence_length(24).batch_size(16).attention_masks(true)
}

/// What it takes of a batch.
#[derive(Clone, Debug)]
pub struct SmallBatch {
    pub seeds: Vec<u32>,
    columns: Tensor<2, Int>,
    numbers: Tensor<2>,
    is_target: Tensor<2, Bool>,
    mask: Tensor<3, Bool>,
    labels: Tensor<1>,
    is_labelled: Tensor<1, Bool>,
}

impl FromBatch for SmallBatch {
    fn from_batch(batch: &Batch, device: &Device) -> Result<SmallBatch> {
        let count = batch.array("num_sequences")?.as_slice::<u32>()?[0] as usize;
        let is_target = tensors::bool(batch, "is_target", device)?;
        let truth: Tensor<2, Bool> = tensors::bool(batch, "bool_values", device)?;
        Ok(SmallBatch {
            seeds: batch.array("seed_index")?.as_slice::<u32>()?[..count].to_vec(),
            columns: tensors::int(batch, "column_ids", device)?,
            numbers: tensors::float(batch, "numeric_values", device)?,
            mask: tensors::bool(batch, "neighbor_mask", device)?,
            labels: truth.bool_and(is_target.clone()).float().sum_dim(1).squeeze_dim(1),
            is_labelled: tensors::bool(batch, "is_labelled", device)?,
            is_target,
        })
    }
}

impl SmallBatch {
    /// The sequences of two batches.
    pub fn joined(self, other: SmallBatch) -> SmallBatch {
        SmallBatch {
            seeds: [self.seeds, other.seeds].concat(),
            columns: Tensor::cat(vec![self.columns, other.columns], 0),
            numbers: Tensor::cat(vec![self.numbers, other.numbers], 0),
            is_target: Tensor::cat(vec![self.is_target, other.is_target], 0),
            mask: Tensor::cat(vec![self.mask, other.mask], 0),
            labels: Tensor::cat(vec![self.labels, other.labels], 0),
            is_labelled: Tensor::cat(vec![self.is_labelled, other.is_labelled], 0),
        }
    }
}

#[derive(Module, Debug)]
pub struct Small {
    columns: Embedding,
    numbers: Linear,
    attention: MultiHeadAttention,
    output: Linear,
}

impl Small {
    pub fn new(store: &Store, device: &Device) -> Small {
        let columns = store.counts().unwrap().columns as usize;
        Small {
            columns: EmbeddingConfig::new(columns, 8).init(device),
            numbers: LinearConfig::new(1, 8).init(device),
            attention: MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0).init(device),
            output: LinearConfig::new(8, 1).init(device),
        }
    }

    /// The sum over labelled sequences of -log p(truth), and their number.
    fn losses(&self, batch: &SmallBatch) -> (Tensor<1>, Tensor<1>) {
        let numbers = self.numbers.forward(batch.numbers.clone().unsqueeze_dim(2));
        let cells = self.columns.forward(batch.columns.clone()) + numbers;
        let input = MhaInput::self_attn(cells.clone()).mask_attn(batch.mask.clone());
        let cells = cells + self.attention.forward(input).context;
        let at: Tensor<3> = batch.is_target.clone().float().unsqueeze_dim(2);
        let read: Tensor<2> = (cells * at).sum_dim(1).squeeze_dim(1);
        let logits: Tensor<1> = self.output.forward(read).squeeze_dim(1);
        let sign = batch.labels.clone() * -2.0 + 1.0;
        let known = batch.is_labelled.clone().float();
        ((softplus(logits * sign, 1.0) * known.clone()).sum(), known.sum())
    }

    /// The mean over labelled sequences; 0 where there are none.
    pub fn loss(&self, batch: &SmallBatch) -> Tensor<1> {
        let (sum, count) = self.losses(batch);
        sum / count.clamp_min(1.0)
    }
}

/// All parameters, in the order of the module.
pub fn parameters<M: Module>(module: &M) -> Vec<f32> {
    struct Reader(Vec<f32>);
    impl ModuleVisitor for Reader {
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
            self.0.extend(parameter.val().into_data().iter::<f32>());
        }
    }
    let mut reader = Reader(Vec::new());
    module.visit(&mut reader);
    reader.0
}

/// The largest difference between two models' parameters.
pub fn distance(first: &[f32], second: &[f32]) -> f32 {
    assert_eq!(first.len(), second.len());
    first.iter().zip(second).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
