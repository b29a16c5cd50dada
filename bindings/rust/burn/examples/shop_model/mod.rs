//! A relational model on the arrays of a batch, as an example.
//!
//! A cell becomes a vector of its column's name, its value, and whether it has one. Blocks let
//! cells attend to their column, to their row, and twice to the rows that foreign keys join with
//! theirs, so with two blocks the target sees what is four keys away. In the shop that is what
//! decides: from a customer over items and products to what others said of these. The answer is
//! read at the target cell, whose own value the model never reads.
//!
//! B sequences have S cells; C columns and V categories have names, whose vectors have width D; the
//! model has width W.
#![allow(dead_code)] // each example and test uses a part of it

pub mod training;

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, Gelu, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::activation::log_sigmoid;
use burn::tensor::module::embedding;
use burn::tensor::{Bool, DType, Device, FloatDType, Int, Tensor, TensorData};
use headwater::{Result, Store, VectorsOf};
use headwater_burn::ContextBatch;

/// Numbers of semantic types in a batch.
const BOOLEAN: u8 = 3;
const CATEGORICAL: u8 = 4;

/// What a cell holds, in place of its value: nothing, if it has one.
const NULL: i64 = 1;
const HIDDEN: i64 = 2;

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Size {
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
}

/// The model.
#[derive(Module, Debug)]
pub struct ShopModel {
    cells: CellEncoder,
    blocks: Vec<Block>,
    norm: LayerNorm,
    /// Of a cell's state the logit of true, or the z-score.
    pub boolean: Linear,
    /// See `boolean`.
    pub number: Linear,
}

/// Cells as vectors.
#[derive(Module, Debug)]
struct CellEncoder {
    /// [C, D] and [V, D], of the store: they are not trained, and no record holds them.
    column_vectors: Tensor<2>,
    category_vectors: Tensor<2>,
    column: Linear,
    number: Linear,
    time: Linear,
    boolean: Linear,
    category: Linear,
    text: Linear,
    /// No value, NULL and HIDDEN.
    state: Embedding,
}

/// Attention along columns, foreign keys, rows and foreign keys again, and a feed-forward.
#[derive(Module, Debug)]
struct Block {
    attentions: [MultiHeadAttention; 4],
    norms: [LayerNorm; 5],
    up: Linear,
    gelu: Gelu,
    down: Linear,
}

impl ShopModel {
    /// An untrained model for a store.
    pub fn new(store: &Store, size: Size, device: &Device) -> Result<ShopModel> {
        let head = LinearConfig::new(size.width, 1);
        Ok(ShopModel {
            cells: CellEncoder::new(store, size.width, device)?,
            blocks: (0..size.blocks).map(|_| Block::new(size, device)).collect(),
            norm: LayerNormConfig::new(size.width).init(device),
            boolean: head.init(device),
            number: head.init(device),
        })
    }

    /// The state of each cell, [B, S, W].
    pub fn states(&self, batch: &ContextBatch) -> Tensor<3> {
        let masks = batch.masks.as_ref().expect("the sampler has attention_masks(true)");
        let masks = [&masks.column, &masks.neighbor, &masks.feature, &masks.neighbor];
        let cells = self.cells.forward(batch);
        self.norm
            .forward(self.blocks.iter().fold(cells, |cells, block| block.forward(cells, masks)))
    }

    /// The answer to each sequence's question, [B]: a logit if the target is a boolean, else a
    /// z-score. Those of sequences without a label mean nothing.
    pub fn answers(&self, batch: &ContextBatch) -> Tensor<1> {
        let head = if is_boolean(batch) { &self.boolean } else { &self.number };
        head.forward(at(self.states(batch), target_places(batch))).flatten(0, 2)
    }

    /// The mean loss of the sequences with a label, 0 if none has one: logistic, or squared error.
    /// The sampler has `Targets::Separate`.
    pub fn loss(&self, batch: &ContextBatch) -> Tensor<1> {
        let targets = batch.targets.as_ref().expect("the sampler has targets(Targets::Separate)");
        let truth = targets.values.clone().narrow(1, 0, 1).flatten::<1>(0, 1);
        let answers = self.answers(batch);
        let errors = if is_boolean(batch) {
            logistic_errors(answers, truth)
        } else {
            (answers - truth).square()
        };
        let counts = batch.is_labelled.clone().bool_and(targets.is_null.clone().bool_not());
        mean_where(errors, counts)
    }
}

/// The logistic loss of logits against truths of 0 and 1.
pub fn logistic_errors<const D: usize>(logits: Tensor<D>, truths: Tensor<D>) -> Tensor<D> {
    (truths.neg() + 1.0) * logits.clone() - log_sigmoid(logits)
}

/// The mean of those errors that count; 0 if none does.
pub fn mean_where<const D: usize>(errors: Tensor<D>, counts: Tensor<D, Bool>) -> Tensor<1> {
    let number = counts.clone().float().sum().clamp_min(1.0);
    errors.mask_fill(counts.bool_not(), 0.0).sum() / number
}

/// The states at some places of each sequence, [B, M, W]; -1 reads the first.
pub fn at(states: Tensor<3>, places: Tensor<2, Int>) -> Tensor<3> {
    let [sequences, count] = places.dims();
    let width = states.dims()[2];
    let places = places.clamp_min(0).unsqueeze_dim::<3>(2).expand([sequences, count, width]);
    states.gather(1, places)
}

/// Where the question of each sequence stands, [B, 1]. With masked cells of the objective `task`
/// others are hidden too.
fn target_places(batch: &ContextBatch) -> Tensor<2, Int> {
    match &batch.target_indices {
        Some(places) => places.clone().unsqueeze_dim(1),
        None => batch.is_target.clone().int().argmax(1),
    }
}

fn is_boolean(batch: &ContextBatch) -> bool {
    let array = batch.arrays.array("target_stype").expect("all batches have it");
    array.as_slice::<u8>().expect("it is of bytes") == [BOOLEAN]
}

impl CellEncoder {
    fn new(store: &Store, width: usize, device: &Device) -> Result<CellEncoder> {
        let column_vectors = vectors(store, VectorsOf::Columns, device)?;
        // Deviations of the first weights. A time has 15 parts, and a vector's length is 1: with one
        // deviation for all, times drown texts, and the loss begins to fall later.
        let text_dim = column_vectors.dims()[1];
        let linear = |count: usize, std: f64| {
            let initializer = Initializer::Normal { mean: 0.0, std };
            let config = LinearConfig::new(count, width).with_bias(false);
            config.with_initializer(initializer).init(device)
        };
        let state = Initializer::Normal { mean: 0.0, std: 0.5 };
        Ok(CellEncoder {
            column_vectors,
            category_vectors: vectors(store, VectorsOf::Categories, device)?,
            column: linear(text_dim, 1.0),
            number: linear(1, 1.0),
            time: linear(15, 0.2),
            boolean: linear(1, 1.0),
            category: linear(text_dim, 4.0),
            text: linear(text_dim, 4.0),
            state: EmbeddingConfig::new(3, width).with_initializer(state).init(device),
        })
    }

    /// [B, S, W].
    fn forward(&self, batch: &ContextBatch) -> Tensor<3> {
        let column = self.column.forward(self.column_vectors.clone());
        let category = self.category.forward(self.category_vectors.clone());
        let texts = batch.text_batch_embeddings.clone();
        let texts = texts.expect("the sampler has text_mode(TextMode::Batch)");
        let text = self.text.forward(texts.cast(FloatDType::F32));

        // What is not of a cell's type is 0, and so is the vector of the text 0, but a category.
        let is_category = batch.semantic_types.clone().equal_elem(CATEGORICAL);
        let values = self.number.forward(batch.numeric_values.clone().unsqueeze_dim(2))
            + self.time.forward(batch.timestamp_values.clone())
            + self.boolean.forward(batch.bool_values.clone().float().unsqueeze_dim(2))
            + embedding(text, batch.text_embed_ids.clone())
            + embedding(category, batch.categorical_embed_ids.clone())
                * is_category.float().unsqueeze_dim(2);

        let (is_null, is_hidden) = (batch.is_null.clone(), batch.is_target.clone());
        let is_empty = is_null.clone().bool_or(is_hidden.clone());
        let is_empty = is_empty.unsqueeze_dim::<3>(2).expand(values.shape());
        let state = is_null.int().mul_scalar(NULL).mask_fill(is_hidden, HIDDEN);
        embedding(column, batch.column_ids.clone())
            + values.mask_fill(is_empty, 0.0)
            + self.state.forward(state)
    }
}

impl Block {
    fn new(size: Size, device: &Device) -> Block {
        // With Burn's own initializer an attention passes on a third of what it reads; there are
        // four on the way to the target.
        let initializer = Initializer::XavierUniform { gain: 1.0 };
        let attention = MultiHeadAttentionConfig::new(size.width, size.heads).with_dropout(0.0);
        let attention = attention.with_initializer(initializer);
        Block {
            attentions: std::array::from_fn(|_| attention.init(device)),
            norms: std::array::from_fn(|_| LayerNormConfig::new(size.width).init(device)),
            up: LinearConfig::new(size.width, 4 * size.width).init(device),
            gelu: Gelu::new(),
            down: LinearConfig::new(4 * size.width, size.width).init(device),
        }
    }

    fn forward(&self, mut cells: Tensor<3>, masks: [&Tensor<3, Bool>; 4]) -> Tensor<3> {
        for ((attention, norm), mask) in self.attentions.iter().zip(&self.norms).zip(masks) {
            let input = MhaInput::self_attn(norm.forward(cells.clone())).mask_attn(mask.clone());
            cells = cells + attention.forward(input).context;
        }
        let hidden = self.up.forward(self.norms[4].forward(cells.clone()));
        cells + self.down.forward(self.gelu.forward(hidden))
    }
}

/// All vectors of a kind, [N, D]; one of zeros if the store has none.
pub fn vectors(store: &Store, of: VectorsOf, device: &Device) -> Result<Tensor<2>> {
    let (bits, width) = store.vectors(of)?;
    if bits.is_empty() {
        return Ok(Tensor::zeros([1, width], device));
    }
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_ne_bytes()).collect();
    let data = TensorData::from_bytes_vec(bytes, [bits.len() / width, width], DType::F16);
    Ok(Tensor::from_data(data.convert::<f32>(), device))
}
