//! Seeds as Burn's data set, and contexts as its batcher: the items of seed 000's appendix.

use std::marker::PhantomData;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;
use headwater::{Result, Sampler, SeedPool, Split};

use crate::context_batch::FromBatch;

/// A seed of a task, by its number, in an epoch: what decides its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Seed {
    pub index: u32,
    pub epoch: u32,
}

/// The seeds of a task in a split, with labels only for val and test. With a [`ContextBatcher`] for
/// `DataLoaderBuilder`, which shuffles them itself.
///
/// This is the slow way: each batch is walked when it is asked for, unless Burn has workers, which
/// queue up to 100 batches. A [`BatchLoader`](crate::BatchLoader) has batches made ahead.
pub struct SeedDataset(Vec<Seed>);

impl SeedDataset {
    /// Seeds in the order of an epoch of the sampler.
    pub fn new(sampler: &Sampler, split: Split, task: &str, epoch: u32) -> Result<SeedDataset> {
        let drawn = SeedPool::of(sampler, split, task, split != Split::Train)?.epoch(epoch)?;
        Ok(SeedDataset(drawn.seeds.into_iter().map(|index| Seed { index, epoch }).collect()))
    }
}

impl Dataset<Seed> for SeedDataset {
    fn get(&self, index: usize) -> std::result::Result<Seed, DatasetError> {
        Ok(self.0[index])
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Makes the batch of some seeds, at most as many as the sampler's batches have.
pub struct ContextBatcher<O> {
    sampler: Sampler,
    task: String,
    output: PhantomData<fn() -> O>,
}

impl<O> ContextBatcher<O> {
    /// Of a task of a sampler.
    pub fn new(sampler: &Sampler, task: impl Into<String>) -> ContextBatcher<O> {
        ContextBatcher { sampler: sampler.clone(), task: task.into(), output: PhantomData }
    }

    fn make(&self, seeds: &[Seed], device: &Device) -> Result<O>
    where
        O: FromBatch,
    {
        let (numbers, epochs): (Vec<u32>, Vec<u32>) =
            seeds.iter().map(|seed| (seed.index, seed.epoch)).unzip();
        let batch = self.sampler.batch_of(&self.task, &numbers, &epochs)?;
        O::from_batch(&batch, device)
    }
}

impl<O: FromBatch> Batcher<Seed, O> for ContextBatcher<O> {
    /// # Panics
    ///
    /// Panics with the message of the error if the batch cannot be made: Burn has no room for it.
    fn batch(&self, seeds: Vec<Seed>, device: &Device) -> O {
        self.make(&seeds, device).unwrap_or_else(|error| panic!("{error}"))
    }
}
