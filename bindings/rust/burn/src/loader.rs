//! A sampler as Burn's data loader: Option B of seed 000.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use headwater::{Batch, Epoch, Result, Sampler, SeedPool, Split};

use crate::context_batch::FromBatch;
use crate::tensors::bad_argument;

/// Batches of one task and split of a sampler, as a training of Burn takes them.
///
/// Each call of `iter` is an epoch: every seed once. Those of train are shuffled anew each time, and
/// their contexts drawn anew; those of val and test are the same each time, in the same order, and
/// only those with a label. Items are seeds, in stored order.
///
/// [`parts`](BatchLoaderBuilder::parts) interleaves the items: item j then stands for seed p n + i,
/// where i = j / m, p = j % m and m = [`num_items`](DataLoader::num_items) / n. So the n equal pieces
/// that Burn's `split_dataloader` cuts for n devices have every n-th seed each, as a sampler of
/// rank i of n with fixed shards. The number of items is rounded up, and all parts have as many
/// batches: an empty sequence stands for a seed that a part lacks, and has no label. Trainings of
/// several devices wait for ever if one of them has a batch less. The loader of a sampler that is
/// one of several ranks has the seeds of that rank, with as many batches as the others' loaders.
///
/// An error is an item, and the end of the epoch. Batches are made ahead by the sampler's threads;
/// tensors in the thread that calls `next`. Slices and loaders for other devices share the sampler,
/// and begin with the epoch that this one would open next.
pub struct BatchLoader<O> {
    source: Arc<Source>,
    pieces: Vec<Piece>,
    device: Device,
    next_epoch: AtomicU32,
    output: PhantomData<fn() -> O>,
}

/// Settings of a [`BatchLoader`].
#[derive(Clone)]
#[must_use]
pub struct BatchLoaderBuilder<O> {
    sampler: Sampler,
    split: Split,
    task: String,
    parts: u32,
    first_epoch: u32,
    device: Device,
    output: PhantomData<fn() -> O>,
}

struct Source {
    sampler: Sampler,
    split: Split,
    task: String,
    /// Seeds of a batch.
    size: u32,
    pool: Mutex<SeedPool>,
}

/// The seeds numbered first, first + step, ... of the split, shuffled by themselves; `count` of
/// them, of which the last may be behind the end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    first: u32,
    step: u32,
    count: u32,
}

impl<O: FromBatch> BatchLoader<O> {
    /// A loader of a task, or with seed tables of a table, of a sampler.
    pub fn builder(
        sampler: &Sampler,
        split: Split,
        task: impl Into<String>,
    ) -> BatchLoaderBuilder<O> {
        BatchLoaderBuilder {
            sampler: sampler.clone(),
            split,
            task: task.into(),
            parts: 1,
            first_epoch: 0,
            device: Device::default(),
            output: PhantomData,
        }
    }

    /// Batches of an epoch.
    pub fn num_batches(&self) -> usize {
        self.pieces.iter().map(|piece| piece.count.div_ceil(self.source.size) as usize).sum()
    }

    fn with(&self, pieces: Vec<Piece>, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(BatchLoader {
            source: self.source.clone(),
            pieces,
            device: device.clone(),
            next_epoch: self.next_epoch.load(Ordering::Relaxed).into(),
            output: PhantomData::<fn() -> O>,
        })
    }
}

impl<O: FromBatch> BatchLoaderBuilder<O> {
    /// The number of devices, or ranks, whose seeds are interleaved; 1 by default.
    pub fn parts(mut self, parts: u32) -> Self {
        self.parts = parts;
        self
    }

    /// The index of the first epoch, for a training that goes on: how many it has done. 0 by default.
    pub fn first_epoch(mut self, index: u32) -> Self {
        self.first_epoch = index;
        self
    }

    /// Where tensors are made, until a training moves the loader; Burn's default device by default.
    pub fn device(mut self, device: &Device) -> Self {
        self.device = device.clone();
        self
    }

    /// The loader. `BadArgument` if the sampler has no such task or more parts are asked for than
    /// the split has seeds for each rank, or if the layout is flat, where no two parts have as many
    /// batches; `BadTask` if the split has no seeds, for val and test none with a label.
    pub fn build(self) -> Result<BatchLoader<O>> {
        let BatchLoaderBuilder { sampler, split, task, parts, .. } = self;
        let pool = SeedPool::of_all_ranks(&sampler, split, &task, split != Split::Train)?;
        let shape = sampler.shape()?;
        if shape.cells_per_batch > 0 {
            let message = "the layout is flat: a loader needs batches of a fixed number of seeds";
            return Err(bad_argument(message));
        }
        let seeds = u32::try_from(pool.len()).expect("a task has at most 2^32 seeds");
        let (rank, world) = (sampler.rank(), sampler.world_size());
        let most = seeds / world;
        if parts == 0 || parts > most {
            let message = format!(
                "parts is {parts}, expected 1 to {most}: the split has {seeds} seeds, and the \
                 sampler {world} ranks"
            );
            return Err(bad_argument(message));
        }
        let size = u32::try_from(shape.contexts_per_batch).expect("it is a number of C");
        let step = parts * world; // at most seeds
        let (firsts, count) = ((rank..step).step_by(world as usize), seeds.div_ceil(step));
        Ok(BatchLoader {
            source: Arc::new(Source { sampler, split, task, size, pool: Mutex::new(pool) }),
            pieces: firsts.map(|first| Piece { first, step, count }).collect(),
            device: self.device,
            next_epoch: self.first_epoch.into(),
            output: PhantomData,
        })
    }
}

impl<O: FromBatch> DataLoader<O> for BatchLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        // Val and test are the same each time.
        let step = u32::from(self.source.split == Split::Train);
        Box::new(Batches {
            loader: self,
            index: self.next_epoch.fetch_add(step, Ordering::Relaxed) * step,
            pieces: self.pieces.iter(),
            passes: Vec::new().into_iter(),
            pass: None,
            piece_left: 0,
            given: 0,
        })
    }

    fn num_items(&self) -> usize {
        self.pieces.iter().map(|piece| piece.count as usize).sum()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        self.with(self.pieces.clone(), device)
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let (mut pieces, mut before) = (Vec::new(), 0);
        for piece in &self.pieces {
            let count = piece.count as usize;
            let low = start.saturating_sub(before).min(count);
            let high = end.saturating_sub(before).min(count);
            before += count;
            if low < high {
                let (low, high) = (low as u32, high as u32); // at most count
                let first = piece.first + low * piece.step;
                pieces.push(Piece { first, step: piece.step, count: high - low });
            }
        }
        self.with(pieces, &self.device)
    }
}

impl Source {
    /// The passes of an epoch of a piece, which together have the batches of `count` seeds.
    fn passes(&self, piece: Piece, index: u32) -> Result<Vec<Epoch>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.keep(piece.first, piece.step, piece.count)?;
        let mut passes = Vec::new();
        if !pool.is_empty() {
            let drawn = pool.epoch(index)?;
            passes.push(self.sampler.epoch_of(&self.task, &drawn.seeds, &drawn.epochs)?);
        }
        let missing = piece.count.div_ceil(self.size) as usize
            - passes.iter().map(ExactSizeIterator::len).sum::<usize>();
        for _ in 0..missing {
            passes.push(self.sampler.epoch_of(&self.task, &[], &[])?); // one empty batch
        }
        Ok(passes)
    }
}

/// An epoch of a loader.
struct Batches<'l, O> {
    loader: &'l BatchLoader<O>,
    index: u32,
    /// Those that were not begun.
    pieces: std::slice::Iter<'l, Piece>,
    /// Of the piece that was begun, those that were not begun, and the one that was.
    passes: std::vec::IntoIter<Epoch>,
    pass: Option<Epoch>,
    /// Items of the piece whose batches were not handed out; items whose batches were.
    piece_left: usize,
    given: usize,
}

impl<O: FromBatch> Batches<'_, O> {
    fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            if let Some(batch) = self.pass.as_mut().and_then(Iterator::next) {
                return batch.map(Some);
            }
            self.pass = self.passes.next();
            if self.pass.is_none() {
                let Some(piece) = self.pieces.next() else { return Ok(None) };
                self.passes = self.loader.source.passes(*piece, self.index)?.into_iter();
                self.piece_left = piece.count as usize;
            }
        }
    }

    fn end(&mut self) {
        self.pieces = [].iter();
        self.passes = Vec::new().into_iter();
        self.pass = None;
    }
}

impl<O: FromBatch> Iterator for Batches<'_, O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let made = self.next_batch().and_then(|batch| {
            batch.map(|batch| O::from_batch(&batch, &self.loader.device)).transpose()
        });
        match made {
            Ok(made) => {
                let size = self.piece_left.min(self.loader.source.size as usize);
                self.piece_left -= size;
                self.given += size;
                made.map(Ok)
            }
            Err(error) => {
                self.end();
                Some(Err(DatasetError::new(error)))
            }
        }
    }
}

impl<O: FromBatch> DataLoaderIterator<O> for Batches<'_, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.given, self.loader.num_items(), Some("items".to_string()))
    }
}
