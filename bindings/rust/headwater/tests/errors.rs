//! What is wrong is said, by its kind and in words.
mod common;

use common::store;
use headwater::{Dtype, ErrorKind, Layout, Options, Sampler, SeedPool, Split, Store};

fn kind_of(options: &Options) -> (ErrorKind, String) {
    let error = Sampler::open(&store("shop"), options).err().expect("the options are wrong");
    (error.kind(), error.to_string())
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let error = Store::open("/no/such.store").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadStore);
    assert!(error.message().contains("/no/such.store"), "{error}");
    let error = Store::open("a\0b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
}

#[test]
fn names_that_the_store_does_not_have_come_with_those_it_has() {
    let (kind, message) = kind_of(&Options::new().tasks(["churned"]));
    assert_eq!(kind, ErrorKind::BadArgument);
    assert!(message.contains("churned") && message.contains("churn"), "{message}");
    let sampler = Sampler::open(&store("shop"), &Options::new()).unwrap();
    let error = sampler.epoch(Split::Train, "spent", 0).err().expect("the shop has no such task");
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.message().contains("churn"), "{error}");
}

#[test]
fn options_out_of_range_are_named() {
    let (kind, message) = kind_of(&Options::new().sequence_length(1));
    assert_eq!(kind, ErrorKind::BadArgument);
    assert_eq!(message, "sequence_length is 1, expected 2 to 65535");
    let (_, message) = kind_of(&Options::new().task_weights(vec![1.0, 2.0]));
    assert_eq!(message, "task_weights has 2 entries, expected 1");
    let (kind, _) = kind_of(&Options::new().layout(Layout::Flat).packing(true));
    assert_eq!(kind, ErrorKind::BadArgument);
}

#[test]
fn arrays_are_asked_for_by_the_right_name_and_type() {
    let options = Options::new().batch_size(4).sequence_length(32);
    let sampler = Sampler::open(&store("shop"), &options).unwrap();
    let batch = sampler.next(Split::Train).unwrap();
    let values = batch.array("numeric_values").unwrap();
    assert_eq!((values.dtype(), values.shape()), (Dtype::F32, &[4, 32][..]));
    assert_eq!(values.as_slice::<f32>().unwrap().len(), 128);
    let error = values.as_slice::<i32>().unwrap_err();
    assert_eq!(error.message(), "the elements of 'numeric_values' are F32");
    let vectors = batch.array("text_batch_embeddings").unwrap();
    assert_eq!(vectors.dtype(), Dtype::F16);
    assert_eq!(vectors.as_slice::<u16>().unwrap().len(), vectors.bytes().len() / 2);
    let error = batch.array("column_mask").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.message().contains("attention_masks"), "{error}");
}

#[test]
fn a_store_tells_what_it_has() {
    let store = store("keys");
    assert_eq!(store.tables().unwrap(), ["countries", "years", "visits"]);
    assert_eq!(store.tasks().unwrap(), ["spent"]);
    assert_eq!(store.counts().unwrap().rows, 12 + 20 + 480);
    assert_eq!(store.table("visits").unwrap(), 2);
    assert!(store.metadata().unwrap().contains("\"visits\""));
    assert!(store.verify().unwrap().is_empty());
    let mut pool = SeedPool::new(&store, &Options::new(), Split::Train, true).unwrap();
    let count = pool.len();
    assert!(count > 300 && count < 480);
    let drawn = pool.next_batch(5).unwrap();
    assert!(drawn.labels.iter().all(|label| label.is_finite()));
    assert_eq!((drawn.seeds.len(), pool.remaining()), (5, count - 5));
    assert!(pool.partition_for_rank(2, 2).is_err());
}
