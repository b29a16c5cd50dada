//! From a store to batches.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use headwater_sys as sys;

use crate::batch::Batch;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::ffi;
use crate::options::Options;
use crate::state::Facts;
use crate::stats::SamplerStats;
use crate::store::Store;

/// A part of a task's seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Those that are learnt from.
    Train,
    /// Those that decide what is kept of a training.
    Val,
    /// Those that are looked at last, once.
    Test,
}

impl Split {
    const ALL: [Split; 3] = [Split::Train, Split::Val, Split::Test];

    pub(crate) fn number(self) -> sys::hw_split {
        match self {
            Split::Train => sys::HW_TRAIN,
            Split::Val => sys::HW_VAL,
            Split::Test => sys::HW_TEST,
        }
    }

    /// The word, as Python takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Val => "val",
            Split::Test => "test",
        }
    }
}

/// Sizes of the batches of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// B, sequences of a batch.
    pub batch_size: usize,
    /// S, cells of a sequence.
    pub sequence_length: usize,
    /// R, rows of a sequence.
    pub max_rows: usize,
    /// D_t, the width of vectors.
    pub text_dim: usize,
    /// P, foreign keys of a row at most.
    pub parent_slots: usize,
    /// Seeds that a batch owns: B without packing.
    pub contexts_per_batch: usize,
    /// T, the most of them in one sequence: 1 without packing.
    pub contexts_per_sequence: usize,
    /// Cells of a context at most: S without packing.
    pub context_length: usize,
    /// Rows of a context at most: R without packing.
    pub max_context_rows: usize,
    /// M, masked cells of one type in a sequence at most; 0 where no cell is masked.
    pub max_targets_per_type: usize,
    /// U of a batch with more than `usual_texts` texts; 0 with resident texts.
    pub text_budget: usize,
    /// U of a batch with no more texts than that.
    pub usual_texts: usize,
    /// Flat: cells of a batch at most; else 0.
    pub cells_per_batch: usize,
    /// Flat: rows of a batch at most; else 0.
    pub rows_per_batch: usize,
}

/// The targets of a task among the seeds of train.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TargetStats {
    /// Seeds with a label.
    pub train_count: u64,
    /// Those whose label is NULL.
    pub null_count: u64,
    /// Numerical: the mean; of booleans the share of true; else 0.
    pub mean: f64,
    /// Numerical: the standard deviation; else 0.
    pub std: f64,
    /// How batches scale the target: z = (x - column_mean) / column_std; of times in microseconds.
    pub column_mean: f64,
    /// See `column_mean`.
    pub column_std: f64,
}

/// Makes batches ahead of their reader, by threads of C. Cloning is cheap: clones are the same
/// sampler, and take turns at its streams. The last clone ends its threads.
#[derive(Clone)]
pub struct Sampler {
    pub(crate) handle: Arc<ffi::SamplerHandle>,
    pub(crate) facts: Arc<Facts>,
    store: Store,
    options: Arc<Options>,
}

impl Sampler {
    /// Opens a sampler over the seeds of tasks, or of tables, of a store.
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names an option that is wrong, or
    /// a task or table that the store does not have.
    pub fn open(store: &Store, options: &Options) -> Result<Sampler> {
        let (handle, facts) = ffi::open_sampler(store, options)?;
        let (handle, facts) = (Arc::new(handle), Arc::new(facts));
        Ok(Sampler { handle, facts, store: store.clone(), options: Arc::new(options.clone()) })
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.facts.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.facts.world_size
    }

    /// The next batch of the endless stream of train or val; waits for it.
    pub fn next(&self, split: Split) -> Result<Batch> {
        ffi::next_batch(&self.handle, split, None).map(Batch::new)
    }

    /// The same; [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) if none came in time.
    pub fn next_timeout(&self, split: Split, timeout: Duration) -> Result<Batch> {
        ffi::next_batch(&self.handle, split, Some(timeout)).map(Batch::new)
    }

    /// Batch `k` of a split's stream: a pure function of store, options and k. Made in the calling
    /// thread.
    pub fn batch(&self, split: Split, k: u64) -> Result<Batch> {
        ffi::batch_at(&self.handle, split, k).map(Batch::new)
    }

    /// One pass over the seeds of a task in a split, each once over all ranks. The same index
    /// gives the same contexts.
    pub fn epoch(&self, split: Split, task: &str, index: u32) -> Result<Epoch> {
        let task = self.facts.sources.number(task)?;
        ffi::open_pass(&self.handle, split, task, index).map(|pass| Epoch::new(self, pass))
    }

    /// The same over all tasks of the sampler in turn.
    pub fn epoch_of_all(&self, split: Split, index: u32) -> Result<Epoch> {
        ffi::open_pass(&self.handle, split, u32::MAX, index).map(|pass| Epoch::new(self, pass))
    }

    /// A pass over chosen seeds of a task, by their numbers, in the order given, each in its own
    /// split and in the epoch that `epochs` has for it. Their contexts are those of
    /// [`Sampler::epoch`]. All of them are this rank's.
    pub fn epoch_of(&self, task: &str, seeds: &[u32], epochs: &[u32]) -> Result<Epoch> {
        self.epoch_of_chosen(task, seeds, epochs, false)
    }

    fn epoch_of_chosen(
        &self,
        task: &str,
        seeds: &[u32],
        epochs: &[u32],
        is_levelled: bool,
    ) -> Result<Epoch> {
        if seeds.len() != epochs.len() {
            let (seeds, epochs) = (seeds.len(), epochs.len());
            return Err(Error::bad_argument(format!("{seeds} seeds have {epochs} epochs")));
        }
        let task = self.facts.sources.number(task)?;
        ffi::open_chosen(&self.handle, task, seeds, epochs, is_levelled)
            .map(|pass| Epoch::new(self, pass))
    }

    /// One batch of chosen seeds, at most as many as a batch has ([`Shape::contexts_per_batch`]);
    /// as in [`Sampler::epoch_of`]. With [`Layout::Flat`](crate::Layout::Flat) it has the size of
    /// a batch of train, and the longest contexts are cut if together they are too long.
    pub fn batch_of(&self, task: &str, seeds: &[u32], epochs: &[u32]) -> Result<Batch> {
        let (count, most) = (seeds.len(), self.shape()?.contexts_per_batch);
        if count > most {
            return Err(Error::bad_argument(format!(
                "{count} seeds, expected at most {most}, what a batch has; epoch_of takes any \
                 number"
            )));
        }
        let mut epoch = self.epoch_of_chosen(task, seeds, epochs, true)?;
        epoch.next().expect("a pass over chosen seeds has a batch, be it an empty one")
    }

    /// The split of every seed of a task, in the order of [`Store::seeds`], or of every row of a
    /// seed table; `None`: it is in none.
    pub fn splits(&self, task: &str) -> Result<Vec<Option<Split>>> {
        let (number, tasks) = (self.facts.sources.number(task)?, self.store.counts()?.tasks);
        let count = match number.checked_sub(tasks) {
            Some(table) => self.store.table_info(table)?.rows.len() as u32,
            None => self.store.task_info(number)?.seeds,
        };
        let found = ffi::splits(&self.handle, number, count)?;
        let split_of = |number: u8| {
            Split::ALL.into_iter().find(|split| split.number() == sys::hw_split::from(number))
        };
        Ok(found.into_iter().map(split_of).collect())
    }

    /// Seeds of a task in a split, over all ranks.
    pub fn seed_count(&self, split: Split, task: &str) -> Result<u32> {
        ffi::seed_count(&self.handle, split, self.facts.sources.number(task)?)
    }

    /// The targets of a task among the seeds of train.
    pub fn target_stats(&self, task: &str) -> Result<TargetStats> {
        let read = ffi::target_stats(&self.handle, self.facts.sources.number(task)?)?;
        Ok(TargetStats {
            train_count: read.train_count,
            null_count: read.null_count,
            mean: read.mean,
            std: read.std,
            column_mean: read.column_mean,
            column_std: read.column_std,
        })
    }

    /// The mean and deviation by which batches show a column: z = (x - mean) / std; of timestamps,
    /// which are all shown alike, in microseconds; of other types 0 and 0.
    pub fn column_scale(&self, column: u32) -> Result<(f64, f64)> {
        ffi::column_scale(&self.handle, column)
    }

    /// Sizes of its batches.
    pub fn shape(&self) -> Result<Shape> {
        let read = ffi::shape(&self.handle)?;
        Ok(Shape {
            batch_size: read.batch_size as usize,
            sequence_length: read.sequence_length as usize,
            max_rows: read.max_rows as usize,
            text_dim: read.text_dim as usize,
            parent_slots: read.parent_slots as usize,
            contexts_per_batch: read.contexts_per_batch as usize,
            contexts_per_sequence: read.contexts_per_sequence as usize,
            context_length: read.context_length as usize,
            max_context_rows: read.max_context_rows as usize,
            max_targets_per_type: read.max_targets_per_type as usize,
            text_budget: read.text_budget as usize,
            usual_texts: read.usual_texts as usize,
            cells_per_batch: read.cells_per_batch as usize,
            rows_per_batch: read.rows_per_batch as usize,
        })
    }

    /// What it did so far.
    pub fn stats(&self) -> Result<SamplerStats> {
        ffi::stats(&self.handle).map(|read| SamplerStats::of(&read))
    }

    /// The same in the text format of Prometheus, with the names of Python.
    pub fn stats_prometheus(&self) -> Result<String> {
        Ok(self.stats()?.prometheus(&ffi::shape(&self.handle)?, self.facts.rank))
    }

    /// Ends production. Whoever waits for a batch gets an error of kind
    /// [`ShutDown`](crate::ErrorKind::ShutDown); batches that were handed out stay valid.
    pub fn shutdown(&self) {
        ffi::shutdown(&self.handle);
    }
}
