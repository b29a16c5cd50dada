//! The model of the examples: what it may not read, and what the training of train_shop learns,
//! which takes minutes, so a release is tested with it, optimised.
#![forbid(unsafe_code)]

#[path = "../examples/shop_model/mod.rs"]
mod shop_model;

use std::path::PathBuf;

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use headwater::{Options, Result, Sampler, Split, Store, Targets};
use headwater_burn::{ContextBatch, FromBatch};
use shop_model::training::{Plan, SIZE, STEPS, auroc, auroc_of, options, train};
use shop_model::{ShopModel, Size};

#[test]
#[ignore = "takes minutes, and hours unoptimised"]
fn the_model_learns_from_neighbours_who_stays_away() {
    let store = std::env::var_os("HEADWATER_SHOP_STORE");
    let store = store.expect("HEADWATER_SHOP_STORE is not set: the store of examples/shop");
    let record = std::env::temp_dir().join(format!("train-shop-{}.bpk", std::process::id()));
    let plan = Plan { store: store.into(), ranks: 1, steps: STEPS, save_to: Some(record.clone()) };
    let report = train(&plan).expect("the training ends");
    println!("{report:?}");
    assert!(report.last_loss < 0.9 * report.first_loss, "{report:?}");
    // Trees on a customer's history have 0.613 without its products, and 0.644 at most.
    assert!(report.test > 0.644, "{report:?}");
    assert!(report.test - report.test_alone >= 0.1, "{report:?}");

    let store = Store::open(&plan.store).expect("it opened before");
    let other = ShopModel::new(&store, SIZE, &Device::flex()).expect("the store is sound");
    let loaded = other.load_file(&record);
    let sampler = Sampler::open(&store, &options(0, 1)).expect("it opened before");
    let val = auroc_of(&loaded, &sampler, Split::Val, false).expect("val has seeds");
    assert_eq!(val, report.val);
    std::fs::remove_file(&record).expect("it is there"); // not before: Burn reads it when it must
}

#[test]
fn a_plan_that_shares_no_batch_is_refused() {
    let told = |ranks, steps| {
        let plan = Plan { store: "none".into(), ranks, steps, save_to: None };
        train(&plan).expect_err("refused").to_string()
    };
    assert_eq!(told(0, 1), "0 ranks and 1 steps, expected 1 to 32 ranks, and a step");
    assert_eq!(told(33, 1), "33 ranks and 1 steps, expected 1 to 32 ranks, and a step");
    assert_eq!(told(1, 0), "1 ranks and 0 steps, expected 1 to 32 ranks, and a step");
}

#[test]
fn ties_count_half_in_an_auroc() {
    // Of the four pairs of a true and a false one, three are in order and one is a tie.
    let answered = vec![(0.8, true), (0.4, false), (0.4, true), (0.1, false)];
    assert_eq!(auroc(answered), 0.875);
}

/// The batch with other values in the cells of `places`, in every slot.
fn overwritten(batch: &ContextBatch, places: &Tensor<2, Bool>) -> ContextBatch {
    let mut batch = batch.clone();
    let of_times = places.clone().unsqueeze_dim::<3>(2).expand(batch.timestamp_values.shape());
    batch.numeric_values = batch.numeric_values.mask_fill(places.clone(), 5.0);
    batch.timestamp_values = batch.timestamp_values.mask_fill(of_times, 5.0);
    batch.bool_values = batch.bool_values.clone().bool_xor(places.clone());
    batch.categorical_embed_ids = batch.categorical_embed_ids.mask_fill(places.clone(), 1);
    batch.text_embed_ids = batch.text_embed_ids.mask_fill(places.clone(), 1);
    batch
}

#[test]
fn the_model_never_reads_what_is_hidden() -> Result<()> {
    let folder = std::env::var_os("HEADWATER_RUST_VECTORS").expect("see tools/rust_vectors.py");
    let store = Store::open(PathBuf::from(folder).join("shop.store"))?;
    let device = Device::flex();
    let size = Size { width: 16, blocks: 1, heads: 2 };
    let model = ShopModel::new(&store, size, &device)?;
    // Inline targets: the truth stands in the cells that are hidden.
    let options = Options::new().tasks(["churn"]).targets(Targets::Inline);
    let options = options.batch_size(8).sequence_length(32).attention_masks(true).num_threads(1);
    let batch = Sampler::open(&store, &options)?.batch(Split::Train, 0)?;
    let batch = ContextBatch::from_batch(&batch, &device)?;
    let states = |batch: &ContextBatch| model.states(batch).into_data();
    let hidden = overwritten(&batch, &batch.is_target);
    assert_eq!(states(&batch), states(&hidden));
    let seen = batch.is_target.clone().bool_or(batch.is_padding.clone()).bool_not();
    assert_ne!(states(&batch), states(&overwritten(&batch, &seen)));
    Ok(())
}
