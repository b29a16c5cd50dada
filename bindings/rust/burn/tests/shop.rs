//! What the example train_shop learns: minutes, so a release is tested with it, optimised.
#![forbid(unsafe_code)]

#[path = "../examples/shop_model/mod.rs"]
mod shop_model;

use burn::module::Module;
use burn::tensor::Device;
use headwater::{Sampler, Split, Store};
use shop_model::ShopModel;
use shop_model::training::{Plan, SIZE, STEPS, auroc, auroc_of, options, train};

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
    std::fs::remove_file(&record).expect("the record was saved");
    let sampler = Sampler::open(&store, &options(0, 1)).expect("it opened before");
    let val = auroc_of(&loaded, &sampler, Split::Val, false).expect("val has seeds");
    assert_eq!(val, report.val);
}

#[test]
fn ties_count_half_in_an_auroc() {
    // Of the four pairs of a true and a false one, three are in order and one is a tie.
    let answered = vec![(0.8, true), (0.4, false), (0.4, true), (0.1, false)];
    assert_eq!(auroc(answered), 0.875);
}
