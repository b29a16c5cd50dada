//! A batch as tensors: all of the dense layout.

use burn::tensor::{Bool, Device, Int, Tensor};
use headwater::{Batch, Result};

use crate::tensors;

/// What a model takes, made of a batch. [`ContextBatch`] is ready-made; a type of your own takes the
/// arrays that it needs by the functions of [`tensors`].
pub trait FromBatch: Sized + Send + 'static {
    /// Makes it on a device. An error ends the epoch of the loader that makes it.
    fn from_batch(batch: &Batch, device: &Device) -> Result<Self>;
}

/// A tensor of an array, of which the type of the tensor says how it is read.
trait OfArray: Sized {
    fn of(batch: &Batch, name: &str, device: &Device) -> Result<Self>;
}

impl<const D: usize> OfArray for Tensor<D> {
    fn of(batch: &Batch, name: &str, device: &Device) -> Result<Self> {
        tensors::float(batch, name, device)
    }
}

impl<const D: usize> OfArray for Tensor<D, Int> {
    fn of(batch: &Batch, name: &str, device: &Device) -> Result<Self> {
        tensors::int(batch, name, device)
    }
}

impl<const D: usize> OfArray for Tensor<D, Bool> {
    fn of(batch: &Batch, name: &str, device: &Device) -> Result<Self> {
        tensors::bool(batch, name, device)
    }
}

/// `None` if the options of the sampler leave the array out.
impl<T: OfArray> OfArray for Option<T> {
    fn of(batch: &Batch, name: &str, device: &Device) -> Result<Self> {
        if_there(batch, name, || T::of(batch, name, device))
    }
}

fn if_there<T>(batch: &Batch, name: &str, make: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    batch.arrays().any(|array| array.name() == name).then(make).transpose()
}

/// Declares the struct, whose members but the last ones are the arrays of their names.
macro_rules! context_batch {
    ($(#[$meta:meta])* $($name:ident: $kind:ty,)+) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[allow(missing_docs)]
        pub struct ContextBatch {
            $(pub $name: $kind,)+
            /// With `attention_masks`.
            pub masks: Option<AttentionMasks>,
            /// With `targets` separate.
            pub targets: Option<SeparateTargets>,
            /// With masked cells.
            pub masked: Option<MaskedTargets>,
            /// Sequences with a label: those for which `is_labelled` is true.
            pub num_labelled: usize,
            /// The arrays themselves: those of one element, such as `task_idx` and
            /// `num_sequences`, and those for the host, such as `seed_index` and `obs_time`.
            pub arrays: Batch,
        }

        impl FromBatch for ContextBatch {
            fn from_batch(batch: &Batch, device: &Device) -> Result<ContextBatch> {
                let labelled: &[u8] = batch.is_labelled()?.as_slice()?;
                Ok(ContextBatch {
                    $($name: OfArray::of(batch, stringify!($name), device)?,)+
                    masks: if_there(batch, "column_mask", || AttentionMasks::of(batch, device))?,
                    targets: if_there(batch, "target_values", || {
                        SeparateTargets::of(batch, device)
                    })?,
                    masked: if_there(batch, "masked_numerical_indices", || {
                        MaskedTargets::of(batch, device)
                    })?,
                    num_labelled: labelled.iter().filter(|flag| **flag == 1).count(),
                    arrays: batch.clone(),
                })
            }
        }
    };
}

context_batch! {
    /// A batch of the dense layout as tensors, each of the name and the shape of its array, which
    /// the documentation of the batch gives. B sequences have S cells of at most R rows.
    ///
    /// An error if the sampler has another layout, or packs contexts.
    semantic_types: Tensor<2, Int>,
    column_ids: Tensor<2, Int>,
    seq_row_ids: Tensor<2, Int>,
    numeric_values: Tensor<2>,
    timestamp_values: Tensor<3>,
    bool_values: Tensor<2, Bool>,
    categorical_embed_ids: Tensor<2, Int>,
    text_embed_ids: Tensor<2, Int>,
    is_null: Tensor<2, Bool>,
    is_target: Tensor<2, Bool>,
    is_padding: Tensor<2, Bool>,
    fk_adj: Tensor<3, Bool>,
    parents: Tensor<3, Int>,
    col_perm: Tensor<2, Int>,
    out_perm: Tensor<2, Int>,
    in_perm: Tensor<2, Int>,
    row_ages: Tensor<2>,
    row_starts: Tensor<2, Int>,
    row_tables: Tensor<2, Int>,
    num_cells: Tensor<1, Int>,
    num_rows: Tensor<1, Int>,
    is_labelled: Tensor<1, Bool>,
    row_depths: Option<Tensor<2, Int>>,
    text_batch_embeddings: Option<Tensor<2>>,
    text_numbers: Option<Tensor<1, Int>>,
    target_indices: Option<Tensor<1, Int>>,
}

/// Which cells attention leaves out, [B, S, S], true where it does, as `mask_attn` takes it; and
/// which cells are padding, [B, S]. No row of a mask is all true: each cell sees itself.
#[derive(Clone, Debug)]
pub struct AttentionMasks {
    /// Cells of other columns.
    pub column: Tensor<3, Bool>,
    /// Cells of other rows.
    pub feature: Tensor<3, Bool>,
    /// Cells of rows that no foreign key joins with the cell's, either way.
    pub neighbor: Tensor<3, Bool>,
    /// Past the last cell.
    pub padding: Tensor<2, Bool>,
}

impl AttentionMasks {
    fn of(batch: &Batch, device: &Device) -> Result<AttentionMasks> {
        Ok(AttentionMasks {
            column: tensors::bool(batch, "column_mask", device)?,
            feature: tensors::bool(batch, "feature_mask", device)?,
            neighbor: tensors::bool(batch, "neighbor_mask", device)?,
            padding: tensors::bool(batch, "padding_mask", device)?,
        })
    }
}

/// The truth of the task, which the cells do not have.
#[derive(Clone, Debug)]
pub struct SeparateTargets {
    /// [B, 15]: of a timestamp all of them; else the first is the z-score, 0 or 1, or the place
    /// among the task's categories.
    pub values: Tensor<2>,
    /// [B]: the truth is NULL, or unknown.
    pub is_null: Tensor<1, Bool>,
}

impl SeparateTargets {
    fn of(batch: &Batch, device: &Device) -> Result<SeparateTargets> {
        Ok(SeparateTargets {
            values: tensors::float(batch, "target_values", device)?,
            is_null: tensors::bool(batch, "target_is_null", device)?,
        })
    }
}

/// Masked cells of one semantic type: at most M in a sequence.
#[derive(Clone, Debug)]
pub struct MaskedCells<Values> {
    /// [B, M]: their places in the sequence, ascending; then -1.
    pub indices: Tensor<2, Int>,
    /// [B, M], of timestamps [B, M, 15]: the truth.
    pub values: Values,
    /// [B, M]: the truth is NULL.
    pub is_null: Tensor<2, Bool>,
}

/// All masked cells, by their semantic type.
#[derive(Clone, Debug)]
pub struct MaskedTargets {
    /// Values are z-scores.
    pub numerical: MaskedCells<Tensor<2>>,
    /// Values are as those of `timestamp_values`.
    pub timestamp: MaskedCells<Tensor<3>>,
    /// Values are true or false.
    pub boolean: MaskedCells<Tensor<2, Bool>>,
    /// Values are categories of the store.
    pub categorical: MaskedCells<Tensor<2, Int>>,
    /// Values are texts, numbered as in `text_embed_ids`.
    pub text: MaskedCells<Tensor<2, Int>>,
}

impl MaskedTargets {
    fn of(batch: &Batch, device: &Device) -> Result<MaskedTargets> {
        fn cells<V: OfArray>(batch: &Batch, kind: &str, device: &Device) -> Result<MaskedCells<V>> {
            Ok(MaskedCells {
                indices: tensors::int(batch, &format!("masked_{kind}_indices"), device)?,
                values: OfArray::of(batch, &format!("masked_{kind}_values"), device)?,
                is_null: tensors::bool(batch, &format!("masked_{kind}_is_null"), device)?,
            })
        }
        Ok(MaskedTargets {
            numerical: cells(batch, "numerical", device)?,
            timestamp: cells(batch, "timestamp", device)?,
            boolean: cells(batch, "boolean", device)?,
            categorical: cells(batch, "categorical", device)?,
            text: cells(batch, "text", device)?,
        })
    }
}
