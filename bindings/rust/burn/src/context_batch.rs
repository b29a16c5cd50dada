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

macro_rules! tensor {
    ($batch:ident $device:ident $name:ident float $rank:literal) => {
        tensors::float::<$rank>($batch, stringify!($name), $device)
    };
    ($batch:ident $device:ident $name:ident int $rank:literal) => {
        tensors::int::<$rank>($batch, stringify!($name), $device)
    };
    ($batch:ident $device:ident $name:ident bool $rank:literal) => {
        tensors::bool::<$rank>($batch, stringify!($name), $device)
    };
}

macro_rules! tensor_type {
    (float $rank:literal) => { Tensor<$rank> };
    (int $rank:literal) => { Tensor<$rank, Int> };
    (bool $rank:literal) => { Tensor<$rank, Bool> };
}

/// `Some` if the batch has an array, which an option of the sampler decides.
fn optional<T>(batch: &Batch, name: &str, make: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    batch.arrays().any(|array| array.name() == name).then(make).transpose()
}

macro_rules! context_batch {
    (
        $(#[$meta:meta])*
        always { $($name:ident: $kind:tt $rank:tt,)+ }
        optional { $($option:ident: $option_kind:tt $option_rank:tt,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[allow(missing_docs)] // each is the array of its name
        pub struct ContextBatch {
            $(pub $name: tensor_type!($kind $rank),)+
            $(pub $option: Option<tensor_type!($option_kind $option_rank)>,)+
            /// With `attention_masks`.
            pub masks: Option<AttentionMasks>,
            /// With `targets` separate.
            pub targets: Option<SeparateTargets>,
            /// With masked cells.
            pub masked: Option<MaskedTargets>,
            /// Sequences with a label: where `is_labelled` is true.
            pub num_labelled: usize,
            /// The arrays themselves: what is of one element, such as `task_idx` and
            /// `num_sequences`, and what stays on the host, such as `seed_index` and `obs_time`.
            pub arrays: Batch,
        }

        impl FromBatch for ContextBatch {
            fn from_batch(batch: &Batch, device: &Device) -> Result<ContextBatch> {
                let labelled: &[u8] = batch.array("is_labelled")?.as_slice()?;
                Ok(ContextBatch {
                    $($name: tensor!(batch device $name $kind $rank)?,)+
                    $($option: optional(batch, stringify!($option), || {
                        tensor!(batch device $option $option_kind $option_rank)
                    })?,)+
                    masks: optional(batch, "column_mask", || AttentionMasks::of(batch, device))?,
                    targets: optional(batch, "target_values", || {
                        SeparateTargets::of(batch, device)
                    })?,
                    masked: optional(batch, "masked_numerical_indices", || {
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
    always {
        semantic_types: int 2,
        column_ids: int 2,
        seq_row_ids: int 2,
        numeric_values: float 2,
        timestamp_values: float 3,
        bool_values: bool 2,
        categorical_embed_ids: int 2,
        text_embed_ids: int 2,
        is_null: bool 2,
        is_target: bool 2,
        is_padding: bool 2,
        fk_adj: bool 3,
        parents: int 3,
        col_perm: int 2,
        out_perm: int 2,
        in_perm: int 2,
        row_ages: float 2,
        row_starts: int 2,
        row_tables: int 2,
        num_cells: int 1,
        num_rows: int 1,
        is_labelled: bool 1,
    }
    optional {
        row_depths: int 2,
        text_batch_embeddings: float 2,
        text_numbers: int 1,
        target_indices: int 1,
    }
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

/// The truth of the task, beside the cells.
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
        macro_rules! cells {
            ($kind:literal, $values:ident) => {
                MaskedCells {
                    indices: tensors::int(batch, concat!("masked_", $kind, "_indices"), device)?,
                    values: tensors::$values(batch, concat!("masked_", $kind, "_values"), device)?,
                    is_null: tensors::bool(batch, concat!("masked_", $kind, "_is_null"), device)?,
                }
            };
        }
        Ok(MaskedTargets {
            numerical: cells!("numerical", float),
            timestamp: cells!("timestamp", float),
            boolean: cells!("boolean", bool),
            categorical: cells!("categorical", int),
            text: cells!("text", int),
        })
    }
}
