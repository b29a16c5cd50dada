//! `cargo run --release --example train_shop -- STORE [RANKS [STEPS [RECORD]]]`: a relational model
//! learns who will stay away from the shop of `make demo`, by a loop of its own over ranks.
//!
//! STORE is the store of examples/shop/shop.json. The trained model is saved in RECORD.
#![forbid(unsafe_code)]

#[path = "shop_model/mod.rs"]
mod shop_model;

use std::error::Error;

use shop_model::training::{Plan, STEPS, train};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut words = std::env::args().skip(1);
    let Some(store) = words.next() else {
        eprintln!("expected a store, and if you like the number of ranks, of steps, and a file");
        std::process::exit(2);
    };
    let ranks = words.next().map_or(Ok(1), |word| word.parse())?;
    let steps = words.next().map_or(Ok(STEPS), |word| word.parse())?;
    let plan = Plan { store: store.into(), ranks, steps, save_to: words.next().map(Into::into) };
    let report = train(&plan)?;
    println!("{} parameters, {ranks} ranks, {steps} steps", report.parameters);
    println!(
        "{:.3} s per step, {:.2} s of all waited for batches",
        report.seconds_per_step, report.seconds_waited
    );
    println!("mean loss: first 50 {:.4}, last 50 {:.4}", report.first_loss, report.last_loss);
    println!("AUROC: val {:.4}, test {:.4}", report.val, report.test);
    println!("AUROC of test with every neighbour masked: {:.4}", report.test_alone);
    Ok(())
}
