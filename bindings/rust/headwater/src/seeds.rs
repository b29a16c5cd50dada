//! Which rows are asked about, in which order, in the hands of the caller.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::ffi;
use crate::options::Options;
use crate::sampler::{Sampler, Split};
use crate::store::Store;

/// The seeds of one split, in the order in which a sampler of the same options draws them.
pub struct SeedPool {
    pool: ffi::PoolHandle,
    names: Vec<String>,
    seed_lists: usize,
}

/// Seeds of one task, which [`Sampler::epoch_of`](crate::Sampler::epoch_of) makes contexts of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DrawnSeeds {
    /// The task, or with seed tables the table.
    pub task: String,
    /// Numbers within the task; of a seed table the row within the table.
    pub seeds: Vec<u32>,
    /// The epoch of the pool in which each is drawn.
    pub epochs: Vec<u32>,
    /// Global row of each anchor.
    pub rows: Vec<u32>,
    /// Microseconds since 1970-01-01 UTC; `i64::MAX`: no time, everything is visible.
    pub times: Vec<i64>,
    /// In source units: a number, 0 or 1, a place among the categories, or microseconds. NaN:
    /// there is no label.
    pub labels: Vec<f64>,
}

impl SeedPool {
    /// Reads the seeds of a split; require_label: only those whose label is there and not NULL.
    pub fn new(
        store: &Store,
        options: &Options,
        split: Split,
        require_label: bool,
    ) -> Result<SeedPool> {
        let names = if options.has_seed_tables() { store.tables()? } else { store.tasks()? };
        let seed_lists = options.resolved(store)?.seeds.len();
        let pool = ffi::open_pool(store, options, split, require_label)?;
        Ok(SeedPool { pool, names, seed_lists })
    }

    /// The seeds of one task of a sampler, or with seed tables of one table, in the order of its
    /// [`Sampler::epoch`]; of a rank of fixed shards those of the rank.
    pub fn of(
        sampler: &Sampler,
        split: Split,
        task: &str,
        require_label: bool,
    ) -> Result<SeedPool> {
        sampler.task(task)?;
        SeedPool::new(sampler.store(), &sampler.options().of_one(task), split, require_label)
    }

    /// Seeds of the pool.
    pub fn len(&self) -> u64 {
        ffi::pool_len(&self.pool)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Seeds that are left to the end of the epoch that each task is in.
    pub fn remaining(&self) -> u64 {
        ffi::pool_remaining(&self.pool)
    }

    /// Has only the seeds of a rank, every `world`-th, for all epochs, and begins anew. Another
    /// call starts from all seeds again.
    pub fn partition_for_rank(&mut self, rank: u32, world: u32) -> Result<()> {
        if rank >= world {
            return Err(Error::bad_argument(format!("rank {rank} of {world}")));
        }
        self.keep(rank, world, u32::MAX)
    }

    /// Has of each task's seeds, in stored order, those numbered `first`, `first + step`, ..., at
    /// most `most`, for all epochs, and begins anew. Another call starts from all seeds again.
    pub fn keep(&mut self, first: u32, step: u32, most: u32) -> Result<()> {
        ffi::pool_keep(&mut self.pool, first, step, most)
    }

    /// All seeds of a pool of one task, in the order of an epoch; the pool then stands at its end.
    pub fn epoch(&mut self, index: u32) -> Result<DrawnSeeds> {
        if self.seed_lists > 1 {
            let message = format!("the pool is of {} tasks, expected one", self.seed_lists);
            return Err(Error::bad_argument(message));
        }
        let count = self.len();
        ffi::pool_set_drawn(&mut self.pool, u64::from(index) * count);
        self.next_batch(usize::try_from(count).expect("a task has at most 2^32 seeds"))
    }

    /// The next `count` seeds of one task, which run on into its next epoch. None are in it if the
    /// task has none in this pool.
    pub fn next_batch(&mut self, count: usize) -> Result<DrawnSeeds> {
        let drawn = ffi::pool_next(&mut self.pool, count)?;
        let task = drawn.task as usize;
        // With seed tables numbers of tables come behind those of the tasks.
        let place = task.checked_sub(self.pool.table_base()).unwrap_or(task);
        Ok(DrawnSeeds {
            task: self.names[place].clone(),
            seeds: drawn.seeds,
            epochs: drawn.epochs,
            rows: drawn.rows,
            times: drawn.times,
            labels: drawn.labels,
        })
    }
}
