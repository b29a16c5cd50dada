//! Burn's data loader over a sampler: parts, epochs, errors.
#[path = "../../headwater/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::data::dataloader::split::split_dataloader;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use common::store;
use headwater::{Batch, Error, ErrorKind, Layout, Options, Result, Sampler, Split};
use headwater_burn::{BatchLoader, ContextBatch, ContextBatcher, FromBatch, Seed, SeedDataset};

/// The arrays of a batch, without tensors.
#[derive(Clone, Debug)]
struct Arrays {
    lines: Vec<String>,
    seeds: Vec<u32>,
    is_autodiff: bool,
}

impl FromBatch for Arrays {
    fn from_batch(batch: &Batch, device: &Device) -> Result<Arrays> {
        let count = batch.array("num_sequences")?.as_slice::<u32>()?[0] as usize;
        Ok(Arrays {
            lines: common::lines(0, batch),
            seeds: batch.array("seed_index")?.as_slice::<u32>()?[..count].to_vec(),
            is_autodiff: device.is_autodiff(),
        })
    }
}

type Loader = dyn DataLoader<Arrays>;

fn options() -> Options {
    Options::new().tasks(["churn"]).sequence_length(64).batch_size(8)
}

fn sampler(options: &Options) -> Sampler {
    Sampler::open(&store("shop"), options).unwrap()
}

fn loader(sampler: &Sampler, split: Split, parts: u32) -> Arc<Loader> {
    Arc::new(BatchLoader::builder(sampler, split, "churn").parts(parts).build().unwrap())
}

fn epoch(loader: &Loader) -> Vec<Arrays> {
    loader.iter().map(std::result::Result::unwrap).collect()
}

fn seeds(batches: &[Arrays]) -> Vec<u32> {
    batches.iter().flat_map(|batch| batch.seeds.clone()).collect()
}

#[test]
fn without_parts_an_epoch_is_the_sampler_s() {
    let sampler = sampler(&options());
    let train = loader(&sampler, Split::Train, 1);
    for index in 0..3 {
        let expected = sampler.epoch(Split::Train, "churn", index).unwrap();
        let expected: Vec<_> = expected.map(|batch| common::lines(0, &batch.unwrap())).collect();
        let found = epoch(&*train);
        assert!(found.len() > 3 && found.iter().all(|batch| !batch.is_autodiff));
        assert!(found.into_iter().map(|batch| batch.lines).eq(expected), "epoch {index}");
    }
}

#[test]
fn the_pieces_that_burn_cuts_are_the_ranks() {
    let world = 3;
    let all = sampler(&options());
    let count = all.seed_count(Split::Train, "churn").unwrap() as usize;
    assert!(!count.is_multiple_of(3), "the last parts lack a seed");
    let devices = vec![Device::flex().autodiff(); 3];
    let parts = split_dataloader(loader(&all, Split::Train, world), &devices);
    let mut orders = Vec::new();
    for index in 0..3 {
        let mut seen = Vec::new();
        for (rank, part) in parts.iter().enumerate() {
            assert_eq!(part.num_items(), count.div_ceil(3));
            let of_rank = sampler(&options().rank(rank as u32).world_size(world));
            let expected = of_rank.epoch(Split::Train, "churn", index).unwrap();
            let expected: Vec<_> = expected.map(|b| common::lines(0, &b.unwrap())).collect();
            let found = epoch(&**part);
            assert!(found.iter().all(|batch| batch.is_autodiff));
            let own = seeds(&found);
            assert!(own.iter().all(|seed| own.iter().filter(|other| *other == seed).count() == 1));
            seen.extend(own);
            assert!(found.into_iter().map(|b| b.lines).eq(expected), "epoch {index}, rank {rank}");
        }
        orders.push(seen.clone());
        assert_eq!(seen.len(), count);
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), count, "each seed once");
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2], "shuffled anew");
}

#[test]
fn parts_have_as_many_batches_where_one_has_a_batch_less() {
    // With B the least number of seeds of a part, the others have one more: two batches and one.
    let count = sampler(&options()).seed_count(Split::Train, "churn").unwrap();
    let size = count / 3;
    assert!(!count.is_multiple_of(3));
    let all = sampler(&options().batch_size(size));
    let whole = loader(&all, Split::Train, 3);
    assert_eq!(whole.num_items(), 3 * (size as usize + 1));
    let parts = split_dataloader(whole.clone(), &vec![Device::flex(); 3]);
    let taken: Vec<Vec<usize>> = parts
        .iter()
        .map(|part| epoch(&**part).iter().map(|batch| batch.seeds.len()).collect())
        .collect();
    let size = size as usize;
    assert_eq!(taken[0], [size, 1]);
    assert_eq!(taken[2], [size, 0], "an empty batch");
    // The whole loader has the batches of all parts, one part after the other.
    let lengths: Vec<usize> = epoch(&*whole).iter().map(|batch| batch.seeds.len()).collect();
    assert_eq!(lengths, taken.concat());
    let mut iter = whole.iter();
    let mut given = Vec::new();
    while iter.next().is_some() {
        given.push(iter.progress().items_processed);
    }
    let of_part = [size, size + 1];
    let expected: Vec<usize> = (0..3).flat_map(|p| of_part.map(|n| p * (size + 1) + n)).collect();
    assert_eq!(given, expected);
    assert!(iter.progress().is_completed());
}

#[test]
fn ranks_of_a_sampler_have_as_many_batches_and_parts_of_their_own() {
    let count = sampler(&options()).seed_count(Split::Train, "churn").unwrap();
    let size = count / 2; // all seeds of rank 1; rank 0 has one more
    assert!(!count.is_multiple_of(2));
    for (rank, last) in [1, 0].into_iter().enumerate() {
        let options = options().batch_size(size).rank(rank as u32).world_size(2);
        let whole = loader(&sampler(&options), Split::Train, 1);
        let lengths: Vec<usize> = epoch(&*whole).iter().map(|batch| batch.seeds.len()).collect();
        assert_eq!(lengths, [size as usize, last]);
    }
    // Parts 0 and 1 of rank 1 of 2 are ranks 1 and 3 of 4.
    let whole = loader(&sampler(&options().rank(1).world_size(2)), Split::Train, 2);
    let parts = split_dataloader(whole, &vec![Device::flex(); 2]);
    for (part, rank) in parts.iter().zip([1, 3]) {
        let of_four = loader(&sampler(&options().rank(rank).world_size(4)), Split::Train, 1);
        assert_eq!(seeds(&epoch(&**part)), seeds(&epoch(&*of_four)));
        assert_eq!(part.num_items(), of_four.num_items());
    }
}

#[test]
fn any_slice_has_its_seeds_once_in_each_epoch() {
    let all = sampler(&options());
    let whole = loader(&all, Split::Train, 2);
    let (first, second) = (whole.slice(0, 5), whole.slice(5, whole.num_items()));
    assert_eq!(first.num_items() + second.num_items(), whole.num_items());
    let mut own = seeds(&epoch(&*first));
    own.extend(seeds(&epoch(&*second)));
    own.sort_unstable();
    let mut expected = seeds(&epoch(&*whole));
    expected.sort_unstable();
    assert_eq!(own, expected);
    assert_eq!(epoch(&*whole.slice(7, 7)).len(), 0);
}

#[test]
fn val_is_the_same_each_time_and_has_labels() {
    let all = sampler(&options());
    let val = loader(&all, Split::Val, 1);
    let lines = |batches: Vec<Arrays>| batches.into_iter().map(|b| b.lines).collect::<Vec<_>>();
    let first = lines(epoch(&*val));
    assert!(!first.is_empty());
    assert_eq!(first, lines(epoch(&*val)));
}

#[test]
fn a_resumed_loader_goes_on_and_so_do_its_slices() {
    let all = sampler(&options());
    let whole = loader(&all, Split::Train, 1);
    let epochs: Vec<Vec<u32>> = (0..3).map(|_| seeds(&epoch(&*whole))).collect();
    let built: BatchLoader<Arrays> =
        BatchLoader::builder(&all, Split::Train, "churn").first_epoch(1).build().unwrap();
    let moved = built.to_device(&Device::flex().autodiff());
    assert_eq!(seeds(&epoch(&built)), epochs[1]);
    assert_eq!(seeds(&epoch(&built)), epochs[2]);
    assert_eq!(seeds(&epoch(&*moved)), epochs[1], "from where the other stood when it was made");
    assert_eq!(built.num_batches(), epoch(&built).len());
}

/// Fails at its second batch of an epoch.
struct Fails;
impl FromBatch for Fails {
    fn from_batch(batch: &Batch, _device: &Device) -> Result<Fails> {
        static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        assert!(!batch.array("num_cells")?.bytes().is_empty());
        match MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 {
            0 => Ok(Fails),
            _ => Err(Error::new(ErrorKind::BadStore, "the cell is damaged")),
        }
    }
}

#[test]
fn an_error_is_an_item_and_then_the_end() {
    let all = sampler(&options());
    let built: BatchLoader<Fails> =
        BatchLoader::builder(&all, Split::Train, "churn").build().unwrap();
    for _ in 0..2 {
        let mut iter = built.iter();
        assert!(iter.next().unwrap().is_ok());
        assert_eq!(iter.next().unwrap().err().unwrap().to_string(), "the cell is damaged");
        assert!(iter.next().is_none() && iter.next().is_none());
    }
    all.shutdown();
    let mut iter = built.iter();
    assert!(iter.next().unwrap().is_err());
    assert!(iter.next().is_none());
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let told = |options: Options, task: &str, parts| {
        let sampler = sampler(&options);
        let built = BatchLoader::<Arrays>::builder(&sampler, Split::Train, task).parts(parts);
        built.build().err().expect("refused").message().to_owned()
    };
    assert!(told(options(), "charn", 1).contains("it has 'churn'"));
    let count = sampler(&options()).seed_count(Split::Train, "churn").unwrap();
    let expected = |parts, most, ranks| {
        let has = format!("the split has {count} seeds, and the sampler {ranks} ranks");
        format!("parts is {parts}, expected 1 to {most}: {has}")
    };
    assert_eq!(told(options(), "churn", 0), expected(0, count, 1));
    let of_rank = options().rank(1).world_size(2);
    assert_eq!(told(of_rank, "churn", count / 2 + 1), expected(count / 2 + 1, count / 2, 2));
    assert_eq!(told(options(), "churn", count + 1), expected(count + 1, count, 1));
    assert!(told(options().layout(Layout::Flat), "churn", 1).starts_with("the layout is flat"));
}

#[test]
fn burn_s_own_loader_takes_seeds_as_a_data_set() {
    let all = sampler(&options());
    let numbers =
        |data: &SeedDataset| data.iter().map(|seed| seed.unwrap().index).collect::<Vec<u32>>();
    let data = SeedDataset::new(&all, Split::Train, "churn", 4).unwrap();
    let (expected, count) = (numbers(&data), data.len());
    let built = DataLoaderBuilder::new(ContextBatcher::<Arrays>::new(&all, "churn"))
        .batch_size(8)
        .build(data);
    assert_eq!(built.num_items(), count);
    assert_eq!(seeds(&epoch(&*built)), expected);
    // Contexts are those of that epoch.
    let of_sampler = all.epoch(Split::Train, "churn", 4).unwrap();
    let lines: Vec<_> = of_sampler.map(|batch| common::lines(0, &batch.unwrap())).collect();
    assert!(epoch(&*built).into_iter().map(|batch| batch.lines).eq(lines));
    let batcher = ContextBatcher::<ContextBatch>::new(&all, "churn");
    let too_many = (0..9).map(|index| Seed { index, epoch: 0 }).collect();
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        use burn::data::dataloader::batcher::Batcher;
        batcher.batch(too_many, &Device::flex())
    }));
    let panic = *made.expect_err("9 seeds").downcast::<String>().unwrap();
    assert!(panic.starts_with("9 seeds, expected at most 8"), "{panic}");
}
