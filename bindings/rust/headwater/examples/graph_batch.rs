//! `cargo run --release --example graph_batch -- STORE TABLE`: a batch of masked cells, with the rows
//! of a table as seeds, as the tensors of a model. `docs/guides/graph-batch.md` lists them; copy
//! the functions, and put tensors of your own in the place of [`Tensor`].
#![forbid(unsafe_code)]

use headwater::{
    Batch, Element, Objective, Options, Result, Sampler, SemanticType, Split, Store, VectorsOf,
};

/// A tensor as plain values, in C order.
#[derive(Debug)]
pub struct Tensor<T> {
    pub shape: Vec<usize>,
    pub values: Vec<T>,
}

/// The inputs of a model. In masks true hides.
pub struct GraphBatch {
    pub features: Tensor<f32>,
    pub column_embeddings: Tensor<f32>,
    pub cell_types: Tensor<u8>,
    pub column_mask: Tensor<bool>,
    pub feature_mask: Tensor<bool>,
    pub neighbor_mask: Tensor<bool>,
    pub padding_mask: Tensor<bool>,
    pub masked_positions: Tensor<bool>,
    pub targets: MaskedTargets,
}

/// The values of masked cells by their type. Indices are positions in the sequence; -1: no target.
pub struct MaskedTargets {
    pub numerical_indices: Tensor<i32>,
    pub numerical_values: Tensor<f32>,
    pub timestamp_indices: Tensor<i32>,
    pub timestamp_values: Tensor<f32>,
    pub boolean_indices: Tensor<i32>,
    pub boolean_values: Tensor<bool>,
    pub categorical_indices: Tensor<i32>,
    pub categorical_embeddings: Tensor<f32>,
    pub text_indices: Tensor<i32>,
    pub text_embeddings: Tensor<f32>,
}

/// Of the model: what it makes of a cell.
pub struct Encoder {
    /// [18 + 2 D_t, D]
    pub weights: Vec<f32>,
    /// [6, D], one for each type.
    pub mask_vectors: Vec<f32>,
    /// D
    pub width: usize,
}

/// Rows of float16 numbers.
struct Vectors<'a> {
    bits: &'a [u16],
    width: usize,
}

impl Vectors<'_> {
    fn row(&self, number: usize) -> impl Iterator<Item = f32> {
        self.bits[number * self.width..][..self.width].iter().map(|bits| f32_of(*bits))
    }

    /// The rows of some numbers; zeros for `None`.
    fn rows(&self, shape: &[usize], numbers: impl Iterator<Item = Option<usize>>) -> Tensor<f32> {
        let mut values = Vec::with_capacity(shape.iter().product::<usize>() * self.width);
        for number in numbers {
            match number {
                Some(number) => values.extend(self.row(number)),
                None => values.extend((0..self.width).map(|_| 0.0)),
            }
        }
        Tensor { shape: [shape, &[self.width]].concat(), values }
    }
}

/// A finite float16 of its bits.
pub fn f32_of(bits: u16) -> f32 {
    let of_exponents = f32::from_bits(0x7780_0000); // 2^112: their biases are 15 and 127
    let size = f32::from_bits(u32::from(bits & 0x7fff) << 13) * of_exponents;
    if bits & 0x8000 == 0 { size } else { -size }
}

/// An array of a batch, with each element made another.
fn tensor<T: Element, U>(batch: &Batch, name: &str, of: impl Fn(T) -> U) -> Result<Tensor<U>> {
    let array = batch.array(name)?;
    let values = array.as_slice::<T>()?.iter().map(|value| of(*value)).collect();
    Ok(Tensor { shape: array.shape().to_vec(), values })
}

/// The members of a batch of masked cells, in the dense layout with attention masks.
pub fn graph_batch(batch: &Batch, store: &Store, encoder: &Encoder) -> Result<GraphBatch> {
    let flags = |name| tensor(batch, name, |flag: u8| flag == 1);
    let column_ids = tensor(batch, "column_ids", |column: i32| column as usize)?;
    let padding_mask = flags("padding_mask")?;
    let columns = column_ids.values.iter().zip(&padding_mask.values);
    let columns = columns.map(|(column, is_padding)| (!is_padding).then_some(*column));
    let (bits, width) = store.vectors(VectorsOf::Columns)?;
    let column_embeddings = Vectors { bits, width }.rows(&column_ids.shape, columns);
    Ok(GraphBatch {
        features: features(batch, store, encoder)?,
        column_embeddings,
        cell_types: tensor(batch, "semantic_types", |number: i8| number as u8)?,
        column_mask: flags("column_mask")?,
        feature_mask: flags("feature_mask")?,
        neighbor_mask: flags("neighbor_mask")?,
        padding_mask,
        masked_positions: flags("is_target")?,
        targets: masked_targets(batch, store)?,
    })
}

/// The masked cells of a batch.
pub fn masked_targets(batch: &Batch, store: &Store) -> Result<MaskedTargets> {
    let indices = |kind| -> Result<Tensor<i32>> {
        let mut found = tensor(batch, &format!("masked_{kind}_indices"), |index: i32| index)?;
        let is_null = batch.array(&format!("masked_{kind}_is_null"))?.as_slice::<u8>()?;
        for (index, _) in found.values.iter_mut().zip(is_null).filter(|(_, null)| **null == 1) {
            *index = -1;
        }
        Ok(found)
    };
    let (bits, width) = store.vectors(VectorsOf::Categories)?;
    let categories = batch.array("masked_categorical_values")?;
    let categorical_indices = indices("categorical")?;
    let of_category = categories.as_slice::<u32>()?.iter().zip(&categorical_indices.values);
    let of_category = of_category.map(|(category, at)| (*at >= 0).then_some(*category as usize));
    let texts = batch.array("masked_text_values")?;
    let mut text_indices = indices("text")?;
    for (index, text) in text_indices.values.iter_mut().zip(texts.as_slice::<u32>()?) {
        *index = if *text == 0 { -1 } else { *index }; // NULL, or over the budget
    }
    let of_text = texts.as_slice::<u32>()?.iter().map(|text| Some(*text as usize));
    Ok(MaskedTargets {
        numerical_indices: indices("numerical")?,
        numerical_values: tensor(batch, "masked_numerical_values", |value: f32| value)?,
        timestamp_indices: indices("timestamp")?,
        timestamp_values: tensor(batch, "masked_timestamp_values", |part: f32| part)?,
        boolean_indices: indices("boolean")?,
        boolean_values: tensor(batch, "masked_boolean_values", |flag: u8| flag == 1)?,
        categorical_embeddings: Vectors { bits, width }.rows(categories.shape(), of_category),
        categorical_indices,
        text_indices,
        text_embeddings: texts_of(batch)?.rows(texts.shape(), of_text),
    })
}

/// What the model makes of each cell: its values times the weights, or the vector of its type where
/// it is masked; 0 in padding.
fn features(batch: &Batch, store: &Store, encoder: &Encoder) -> Result<Tensor<f32>> {
    let types = batch.array("semantic_types")?;
    let (types, shape) = (types.as_slice::<i8>()?, types.shape());
    let numbers = batch.array("numeric_values")?.as_slice::<f32>()?;
    let times = batch.array("timestamp_values")?.as_slice::<f32>()?; // [B, S, 15]
    let flags = batch.array("bool_values")?.as_slice::<u8>()?;
    let is_null = batch.array("is_null")?.as_slice::<u8>()?;
    let is_masked = batch.array("is_target")?.as_slice::<u8>()?;
    let category_ids = batch.array("categorical_embed_ids")?.as_slice::<u32>()?;
    let text_ids = batch.array("text_embed_ids")?.as_slice::<u32>()?;
    let (bits, width) = store.vectors(VectorsOf::Categories)?;
    let (categories, texts) = (Vectors { bits, width }, texts_of(batch)?);
    let mut values = vec![0.0; types.len() * encoder.width];
    for (i, feature) in values.chunks_exact_mut(encoder.width).enumerate() {
        if is_masked[i] == 1 {
            let start = types[i] as usize * encoder.width;
            feature.copy_from_slice(&encoder.mask_vectors[start..][..encoder.width]);
            continue;
        }
        let mut cell = vec![numbers[i]];
        cell.extend(&times[15 * i..15 * (i + 1)]);
        cell.extend([f32::from(flags[i]), f32::from(is_null[i])]);
        if types[i] == SemanticType::Categorical as i8 && is_null[i] == 0 {
            cell.extend(categories.row(category_ids[i] as usize));
        } else {
            cell.resize(18 + width, 0.0);
        }
        cell.extend(texts.row(text_ids[i] as usize));
        for (value, weights) in cell.iter().zip(encoder.weights.chunks_exact(encoder.width)) {
            for (sum, weight) in feature.iter_mut().zip(weights) {
                *sum += value * weight;
            }
        }
    }
    Ok(Tensor { shape: vec![shape[0], shape[1], encoder.width], values })
}

/// The vectors of the batch's texts, of which the first is zeros.
fn texts_of(batch: &Batch) -> Result<Vectors<'_>> {
    let texts = batch.array("text_batch_embeddings")?;
    Ok(Vectors { bits: texts.as_slice()?, width: texts.shape()[1] })
}

macro_rules! print_shapes {
    ($batch:expr => $($member:ident)+) => {
        $(println!("{} {:?}", stringify!($member), $batch.$member.shape);)+
    };
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(table)) = (words.next(), words.next()) else {
        eprintln!("expected a store and the name of a table");
        std::process::exit(2);
    };
    let store = Store::open(path)?;
    let options = Options::new().objective(Objective::MaskedCells).seed_tables([table]);
    let options = options.attention_masks(true).sequence_length(96);
    let sampler = Sampler::open(&store, &options)?;
    let (width, places) = (64, 18 + 2 * sampler.shape()?.text_dim);
    let (weights, mask_vectors) = (vec![0.1; places * width], vec![0.0; 6 * width]);
    let encoder = Encoder { weights, mask_vectors, width };
    let batch = graph_batch(&sampler.next(Split::Train)?, &store, &encoder)?;
    print_shapes!(batch => features column_embeddings cell_types column_mask feature_mask);
    print_shapes!(batch => neighbor_mask padding_mask masked_positions);
    print_shapes!(batch.targets => numerical_indices numerical_values timestamp_indices);
    print_shapes!(batch.targets => timestamp_values boolean_indices boolean_values);
    print_shapes!(batch.targets => categorical_indices categorical_embeddings text_indices);
    print_shapes!(batch.targets => text_embeddings);
    Ok(())
}
