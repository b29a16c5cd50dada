//! The stores and epochs of tools/rust_vectors.py, which `make test-rust` makes.
#![allow(dead_code)]

use std::path::PathBuf;

use headwater::{
    Batch, ChildOrder, Epoch, Layout, Objective, Options, Result, Split, Store, TextMode,
    WidthScope, hash64,
};

/// Where they are.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os("HEADWATER_RUST_VECTORS");
    PathBuf::from(folder.expect("HEADWATER_RUST_VECTORS is not set: run make test-rust"))
}

pub fn store(name: &str) -> Store {
    Store::open(folder().join(format!("{name}.store"))).expect("the store is sound")
}

pub fn split(name: &str) -> Split {
    match name {
        "train" => Split::Train,
        "val" => Split::Val,
        _ => panic!("a split '{name}'"),
    }
}

/// Options by their names in C and their values in Python.
pub fn options<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Options {
    pairs.into_iter().fold(Options::new(), |options, pair| {
        let (name, value) = pair.split_once('=').expect("a name and a value");
        let number = || value.parse::<u32>().expect("a number");
        let real = || value.parse::<f64>().expect("a number");
        match (name, value) {
            ("sequence_length", _) => options.sequence_length(number()),
            ("batch_size", _) => options.batch_size(number()),
            ("max_rows", _) => options.max_rows(number()),
            ("max_hops", _) => options.max_hops(number()),
            ("rank", _) => options.rank(number()),
            ("world_size", _) => options.world_size(number()),
            ("seed", _) => options.seed(u64::from(number())),
            ("peer_labels", _) => options.peer_labels(number()),
            ("label_rows", _) => options.label_rows(number()),
            ("mask_ratio", _) => options.mask_ratio(real()),
            ("split_seed", _) => options.split_seed(u64::from(number())),
            ("split_ratios", list) => {
                let ratios = reals(list).try_into().expect("three of them");
                options.split_ratios(ratios)
            }
            ("task_weights", list) => options.task_weights(reals(list)),
            ("cell_dropout", _) => options.cell_dropout(real()),
            ("staleness_zero_share", _) => options.staleness_zero_share(real()),
            ("staleness_max_days", _) => options.staleness_max_days(real()),
            ("with_rows", "True") => options.with_rows(true),
            ("attention_masks", "True") => options.attention_masks(true),
            ("packing", "True") => options.packing(true),
            ("child_counts", "True") => options.child_counts(true),
            ("layout", "compact") => options.layout(Layout::Compact),
            ("layout", "flat") => options.layout(Layout::Flat),
            ("objective", "masked_cells") => options.objective(Objective::MaskedCells),
            ("seed_tables", names) => options.seed_tables(names.split(',')),
            ("text_mode", "numbers") => options.text_mode(TextMode::Numbers),
            ("child_order", "recent") => options.child_order(ChildOrder::Recent),
            ("width_scope", "row") => options.width_scope(WidthScope::Row),
            _ => panic!("an option {pair}"),
        }
    })
}

fn reals(list: &str) -> Vec<f64> {
    list.split(',').map(|real| real.parse().expect("a number")).collect()
}

/// The lines of a batch, as rust_vectors.py writes them.
pub fn lines(number: usize, batch: &Batch) -> Vec<String> {
    let mut found: Vec<String> = batch
        .arrays()
        .map(|array| {
            let shape: Vec<String> = array.shape().iter().map(usize::to_string).collect();
            let hash = hash64(array.bytes());
            format!("array {number} {} {} {hash:016x}", array.name(), shape.join(","))
        })
        .collect();
    found.sort();
    found
}

/// The lines of an epoch.
pub fn lines_of(epoch: Epoch) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (number, batch) in epoch.enumerate() {
        found.extend(lines(number, &batch?));
    }
    Ok(found)
}
