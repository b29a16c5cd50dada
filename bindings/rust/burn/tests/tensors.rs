//! Tensors over the memory of C.
#[path = "../../headwater/tests/common/mod.rs"]
mod common;

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Int, Tensor};
use common::store;
use headwater::{Batch, Dtype, ErrorKind, Layout, Objective, Options, Sampler, Split};
use headwater_burn::{ContextBatch, FromBatch, tensors};

fn options() -> Options {
    Options::new().sequence_length(96).batch_size(8)
}

/// A batch with masks and rows, one of the compact layout, and one with masked cells.
fn batches() -> Vec<Batch> {
    let store = store("shop");
    let of_task = [
        options().attention_masks(true).with_rows(true),
        options().layout(Layout::Compact),
        options().layout(Layout::Flat),
        options().packing(true),
    ];
    let masked = options().objective(Objective::MaskedCells).seed_tables(["customers", "orders"]);
    let first = |options, task| {
        let sampler = Sampler::open(&store, &options).unwrap();
        sampler.epoch(Split::Train, task, 0).unwrap().next().unwrap().unwrap()
    };
    let mut batches: Vec<Batch> = of_task.map(|options| first(options, "churn")).into();
    batches.push(first(masked, "orders"));
    batches
}

/// Where the values lie that a tensor reads, of which this is the only handle, and its bytes.
fn read<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> (usize, Vec<u8>) {
    let data = tensor.into_data();
    (data.bytes().as_ptr().addr(), data.bytes().to_vec())
}

/// Reads a tensor that it owns.
type Later = Box<dyn FnOnce() -> (usize, Vec<u8>)>;

fn later<const D: usize, K: Basic + 'static>(tensor: Tensor<D, K>, shape: &[usize]) -> Later {
    assert_eq!(tensor.dims(), shape);
    Box::new(move || read(tensor))
}

/// The tensors of an array, and whether one is of booleans.
fn made<const D: usize>(batch: &Batch, name: &str, device: &Device) -> (Vec<Later>, bool) {
    let array = batch.array(name).unwrap();
    let mut all = vec![if matches!(array.dtype(), Dtype::F16 | Dtype::F32) {
        let error = tensors::int::<D>(batch, name, device).unwrap_err();
        assert!(error.message().ends_with("does not hold integers"), "{error}");
        later(tensors::float::<D>(batch, name, device).unwrap(), array.shape())
    } else {
        assert!(tensors::float::<D>(batch, name, device).is_err());
        later(tensors::int::<D>(batch, name, device).unwrap(), array.shape())
    }];
    let flags = tensors::bool::<D>(batch, name, device).ok();
    let is_flag = flags.is_some();
    if let Some(flags) = flags {
        assert!(array.dtype() == Dtype::U8 && array.bytes().iter().all(|flag| *flag < 2));
        all.push(later(flags, array.shape()));
    }
    (all, is_flag)
}

#[test]
fn each_array_is_read_where_it_lies_after_batch_and_sampler_are_gone() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        let (mut flags, mut tensors) = (0, Vec::new());
        for batch in batches() {
            for array in batch.arrays().filter(|array| !array.bytes().is_empty()) {
                let (made, is_flag) = match array.shape().len() {
                    1 => made::<1>(&batch, array.name(), &device),
                    2 => made::<2>(&batch, array.name(), &device),
                    _ => made::<3>(&batch, array.name(), &device),
                };
                flags += usize::from(is_flag);
                let expected = (array.bytes().as_ptr().addr(), array.bytes().to_vec());
                tensors.extend(made.into_iter().map(|one| (array.name(), expected.clone(), one)));
            }
        }
        // Dense: 4 masks and 6 others. Compact, flat: is_labelled. Packed: the 6. Masked: the 6, of
        // 5 types is_null, and masked_boolean_values.
        assert_eq!(flags, 10 + 1 + 1 + 6 + 12);
        assert!(tensors.len() > 150);
        for (name, expected, read) in tensors {
            assert!(read() == expected, "{name} is copied");
        }
    }
}

#[test]
fn a_tensor_keeps_the_memory_of_its_batch_and_a_write_goes_elsewhere() {
    let batch = batches().remove(0);
    let numbers = batch.array("numeric_values").unwrap();
    let (address, before) = (numbers.bytes().as_ptr().addr(), numbers.bytes().to_vec());
    let tensor = tensors::float::<2>(&batch, "numeric_values", &Device::flex()).unwrap();
    let view = tensor.clone().reshape([-1]).narrow(0, 0, 4);
    let written = tensor.clone() * 2.0 + 1.0;
    assert!(numbers.bytes() == before, "nothing writes to a batch");
    drop(batch);
    let first: Vec<f32> = before
        .chunks_exact(4)
        .take(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(view.into_data().try_to_vec::<f32>().unwrap(), first);
    assert!(read(tensor) == (address, before.clone()));
    let doubled: Vec<f32> = first.iter().map(|value| value * 2.0 + 1.0).collect();
    let written = written.reshape([-1]).narrow(0, 0, 4).into_data();
    assert_eq!(written.try_to_vec::<f32>().unwrap(), doubled);
}

#[test]
fn what_an_array_is_not_is_an_error() {
    let batch = batches().remove(0);
    let device = Device::flex();
    let message = |error: headwater::Error| {
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        error.message().to_owned()
    };
    let absent = tensors::int::<2>(&batch, "cells", &device).unwrap_err();
    assert!(message(absent).contains("layout"), "it names the option");
    let flat = tensors::float::<1>(&batch, "numeric_values", &device).unwrap_err();
    let expected = "the array 'numeric_values' has the shape [8, 96], not 1 dimensions";
    assert_eq!(message(flat), expected);
    let depths = tensors::bool::<2>(&batch, "row_depths", &device).unwrap_err();
    assert_eq!(message(depths), "the array 'row_depths' of U8 does not hold zeros and ones");
}

#[test]
fn a_context_batch_has_what_the_options_ask_for() {
    let device = Device::flex();
    let all = batches();
    let dense = ContextBatch::from_batch(&all[0], &device).unwrap();
    let labelled: &[u8] = all[0].array("is_labelled").unwrap().as_slice().unwrap();
    assert_eq!(dense.num_labelled, labelled.iter().filter(|flag| **flag == 1).count());
    assert!(dense.num_labelled > 0);
    let masks = dense.masks.expect("attention_masks");
    assert_eq!(masks.column.dims(), [8, 96, 96]);
    assert!(dense.row_depths.is_some() && dense.masked.is_none() && dense.targets.is_none());
    // A cell sees itself, so attention never has nothing to read.
    let hidden: Tensor<3, Int> = masks.neighbor.int();
    assert!(hidden.min_dim(2).max().into_scalar::<i64>() == 0);
    assert!(ContextBatch::from_batch(&all[1], &device).is_err(), "compact");
    let packed = ContextBatch::from_batch(&all[3], &device).unwrap_err();
    assert!(packed.message().ends_with("not 1 dimensions"), "{packed}");
    let masked = ContextBatch::from_batch(&all[4], &device).unwrap();
    let cells = masked.masked.expect("masked cells").numerical;
    assert_eq!(cells.indices.dims(), cells.values.dims());
}
