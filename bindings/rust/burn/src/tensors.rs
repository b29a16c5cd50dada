//! Arrays of a batch as tensors.
//!
//! | array | tensor |
//! |---|---|
//! | float32, float16 | [`float()`] |
//! | int8, int32, int64, uint8, uint16, uint32 | [`int()`] |
//! | uint8 that holds 0 or 1: masks and flags | [`bool()`], also [`int()`] |
//!
//! Each keeps the type of its array, so a tensor on `Device::flex()` reads the array in place; other
//! devices copy from there. `select`, `gather`, `Embedding` and `float()` of Burn take integers of
//! any of these types. Indices that mean nothing are 0, -1, or 65535 as unsigned ones of 16 bits:
//! see the documentation of the batch.

use burn::tensor::{AllocationProperty, Bool, BoolStore, Bytes, DType, Device, Int};
use burn::tensor::{Tensor, TensorData};
use headwater::{Batch, Dtype, Error, ErrorKind, Result};

/// Arrays that hold 0 or 1, of which [`bool()`] makes tensors.
const FLAGS: [&str; 17] = [
    "bool_values",
    "is_null",
    "is_target",
    "is_padding",
    "fk_adj",
    "column_mask",
    "feature_mask",
    "neighbor_mask",
    "padding_mask",
    "is_labelled",
    "target_is_null",
    "masked_numerical_is_null",
    "masked_timestamp_is_null",
    "masked_boolean_values",
    "masked_boolean_is_null",
    "masked_categorical_is_null",
    "masked_text_is_null",
];

/// A tensor of floats with the dimensions of an array. `BadArgument` if the batch has no such
/// array (the message names the option that adds it), or if its elements or dimensions are others.
pub fn float<const D: usize>(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<D>> {
    let (data, dtype) = data(batch, name, "floats", D, |dtype| match dtype {
        Dtype::F16 => Some(DType::F16),
        Dtype::F32 => Some(DType::F32),
        _ => None,
    })?;
    Ok(Tensor::from_data(data, (device, dtype)))
}

/// A tensor of integers; see [`float()`].
pub fn int<const D: usize>(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<D, Int>> {
    let (data, dtype) = data(batch, name, "integers", D, |dtype| match dtype {
        Dtype::I8 => Some(DType::I8),
        Dtype::U8 => Some(DType::U8),
        Dtype::U16 => Some(DType::U16),
        Dtype::I32 => Some(DType::I32),
        Dtype::U32 => Some(DType::U32),
        Dtype::I64 => Some(DType::I64),
        _ => None,
    })?;
    Ok(Tensor::from_data(data, (device, dtype)))
}

/// A tensor of booleans, of an array that holds 0 or 1; see [`float()`]. A mask is true where it
/// hides, as Burn's `mask_attn` takes it.
pub fn bool<const D: usize>(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<D, Bool>> {
    let (data, dtype) = data(batch, name, "zeros and ones", D, |_| {
        FLAGS.contains(&name).then_some(DType::Bool(BoolStore::Native))
    })?;
    Ok(Tensor::from_data(data, (device, dtype)))
}

/// The array, which the result reads in place, and its type in Burn.
fn data(
    batch: &Batch,
    name: &str,
    kind: &str,
    rank: usize,
    dtype: impl Fn(Dtype) -> Option<DType>,
) -> Result<(TensorData, DType)> {
    let array = batch.array(name)?;
    let Some(dtype) = dtype(array.dtype()) else {
        return Err(bad_argument(format!(
            "the array '{name}' of {:?} does not hold {kind}",
            array.dtype()
        )));
    };
    if array.shape().len() != rank {
        let shape = array.shape();
        let message = format!("the array '{name}' has the shape {shape:?}, not {rank} dimensions");
        return Err(bad_argument(message));
    }
    let bytes = array.bytes();
    if !bytes.is_empty() && !bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
        // Burn would panic when it reads it first.
        return Err(bad_argument(format!("the array '{name}' is not aligned")));
    }
    let shape = array.shape().to_vec();
    let shared = bytes::Bytes::from_owner(batch.shared(name)?);
    let bytes = Bytes::from_shared(shared, AllocationProperty::Other);
    let data = TensorData::try_from_bytes(bytes, shape, dtype)
        .map_err(|error| bad_argument(format!("the array '{name}': {error:?}")))?;
    Ok((data, dtype))
}

pub(crate) fn bad_argument(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, message)
}
