//! A small relational model on Burn 0.21, and batches of headwater as its input. What they are for
//! is in `tests/collective.rs`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData, activation};
use headwater::{Batch, Element, Result};

/// The arrays of several batches, each concatenated to one.
struct Joined<'b>(&'b [&'b Batch]);

impl Joined<'_> {
    fn values<T: Element + Copy>(&self, name: &str) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for batch in self.0 {
            all.extend_from_slice(batch.array(name)?.as_slice()?);
        }
        Ok(all)
    }

    fn shape<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        let mut shape = [1; D]; // arrays of fewer dimensions have 1 in the last ones
        for (own, read) in shape.iter_mut().zip(self.0[0].array(name)?.shape()) {
            *own = *read;
        }
        shape[0] *= self.0.len();
        Ok(shape)
    }

    fn reals<B: Backend, const D: usize>(
        &self,
        name: &str,
        device: &B::Device,
    ) -> Result<Tensor<B, D>> {
        let values: Vec<f32> = self.values(name)?;
        Ok(Tensor::from_data(TensorData::new(values, self.shape::<D>(name)?), device))
    }

    fn flags<B: Backend, const D: usize>(
        &self,
        name: &str,
        device: &B::Device,
    ) -> Result<Tensor<B, D, Bool>> {
        let flags = self.values::<u8>(name)?.into_iter().map(|flag| flag == 1).collect();
        Ok(Tensor::from_data(TensorData::new::<bool, _>(flags, self.shape::<D>(name)?), device))
    }
}

/// What the model reads of B contexts of S cells.
#[derive(Clone, Debug)]
pub struct Contexts<B: Backend> {
    columns: Tensor<B, 2, Int>,     // [B, S]
    cells: Tensor<B, 3>,            // [B, S, CELL]
    masks: [Tensor<B, 3, Bool>; 3], // [B, S, S] of columns, rows and keys; true is hidden
    is_target: Tensor<B, 3>,        // [B, S, 1]
    labels: Tensor<B, 1>,           // [B]
    is_labelled: Tensor<B, 1>,      // [B]
}

/// Numbers of a cell: its value as a number, as a boolean and as the 15 parts of a time; whether it
/// is NULL, is the one to predict, is padding.
const CELL: usize = 20;
const WIDTH: usize = 16;

impl<B: Backend> Contexts<B> {
    /// Reads batches of a boolean task: dense, with attention masks, and with targets in arrays of
    /// their own. The contexts of several batches are read as those of one.
    pub fn new(batches: &[&Batch], device: &B::Device) -> Result<Self> {
        let batch = Joined(batches);
        let flags = |name| Ok(batch.flags::<B, 3>(name, device)?.float());
        let columns: Vec<i32> = batch.values("column_ids")?;
        let columns = TensorData::new(columns, batch.shape::<2>("column_ids")?);
        let is_target = flags("is_target")?;
        let cells = vec![
            batch.reals("numeric_values", device)?,
            batch.reals("timestamp_values", device)?,
            flags("bool_values")?,
            flags("is_null")?,
            is_target.clone(),
            flags("is_padding")?,
        ];
        let targets: Tensor<B, 2> = batch.reals("target_values", device)?; // [B, 15]
        Ok(Contexts {
            columns: Tensor::from_data(columns, device),
            cells: Tensor::cat(cells, 2),
            masks: [
                batch.flags("column_mask", device)?,
                batch.flags("feature_mask", device)?,
                batch.flags("neighbor_mask", device)?,
            ],
            is_target,
            labels: targets.narrow(1, 0, 1).squeeze_dim(1),
            is_labelled: batch.flags::<B, 1>("is_labelled", device)?.float(),
        })
    }
}

/// Cells that attend to the cells of their column, of their row and of the rows next to theirs.
#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    columns: Embedding<B>,
    cells: Linear<B>,
    attentions: Vec<MultiHeadAttention<B>>,
    output: Linear<B>,
}

impl<B: Backend> Net<B> {
    /// For a store of so many columns.
    pub fn new(column_count: usize, device: &B::Device) -> Self {
        let attention = MultiHeadAttentionConfig::new(WIDTH, 1).with_dropout(0.0);
        Net {
            columns: EmbeddingConfig::new(column_count, WIDTH).init(device),
            cells: LinearConfig::new(CELL, WIDTH).init(device),
            attentions: (0..3).map(|_| attention.init(device)).collect(),
            output: LinearConfig::new(WIDTH, 1).init(device),
        }
    }

    /// The cross-entropy, summed over the contexts that have a label and divided by B: of ranks
    /// with equal B the mean is then the loss of their joined batch, however many labels each has.
    pub fn loss(&self, batch: &Contexts<B>) -> Tensor<B, 1> {
        let mut x =
            self.columns.forward(batch.columns.clone()) + self.cells.forward(batch.cells.clone());
        for (attention, mask) in self.attentions.iter().zip(&batch.masks) {
            let input = MhaInput::self_attn(x.clone()).mask_attn(mask.clone());
            x = x + attention.forward(input).context;
        }
        let target = (x * batch.is_target.clone()).sum_dim(1); // [B, 1, WIDTH]
        let logits = self.output.forward(target).squeeze_dims(&[1, 2]);
        let signed = logits * (batch.labels.clone() * -2.0 + 1.0); // -z of true, z of false
        (activation::softplus(signed, 1.0) * batch.is_labelled.clone()).mean()
    }
}

/// All parameters of a module as one list, in its order.
pub fn parameters<B: Backend, M: Module<B>>(module: &M) -> Vec<f32> {
    struct Read(Vec<f32>);
    impl<B: Backend> ModuleVisitor<B> for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let data = param.val().into_data();
            self.0.extend_from_slice(data.as_slice().expect("the parameters are f32"));
        }
    }
    let mut read = Read(Vec::new());
    module.visit(&mut read);
    read.0
}
