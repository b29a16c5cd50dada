//! Which rows are asked about, in which order, in the hands of the caller.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::ffi;
use crate::json::Json;
use crate::options::{Options, Resolved};
use crate::sampler::{Sampler, Split};
use crate::state::deciding_pool;
use crate::store::Store;

/// The tasks or seed tables that were chosen.
pub(crate) struct Sources {
    /// Names, with the numbers by which C knows them; ascending.
    pub(crate) seeds: Vec<(String, u32)>,
    /// Positions of a stream: of the store's tasks, and with seed tables of its tables.
    pub(crate) position_count: usize,
}

impl Sources {
    pub(crate) fn new(store: &Store, options: &Options, resolved: Resolved<'_>) -> Result<Sources> {
        let counts = store.counts()?;
        let tables = if options.has_seed_tables() { counts.tables } else { 0 };
        let position_count = (counts.tasks + tables) as usize;
        Ok(Sources { seeds: resolved.seeds, position_count })
    }

    pub(crate) fn number(&self, name: &str) -> Result<u32> {
        let found = self.seeds.iter().find(|(other, _)| other == name);
        found.map(|(_, number)| *number).ok_or_else(|| {
            let names: Vec<&str> = self.seeds.iter().map(|(own, _)| own.as_str()).collect();
            let names = names.join("', '");
            Error::bad_argument(format!("the sampler has no '{name}': it has '{names}'"))
        })
    }
}

/// The seeds of one split, in the order in which a sampler of the same options draws them.
pub struct SeedPool {
    pub(crate) pool: ffi::PoolHandle,
    pub(crate) store: Store,
    pub(crate) sources: Sources,
    /// The options that decide its seeds, but for the rank.
    pub(crate) deciding: Vec<(String, Json)>,
    /// Rank and number of ranks: those of the options, and those that it was partitioned for.
    ranks: [(u32, u32); 2],
    /// Seeds of each task at most.
    pub(crate) most: u32,
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
        ffi::open_pool(store, options, split, require_label, |pool, raw, resolved| {
            let are_tables = options.has_seed_tables();
            let deciding = deciding_pool(raw, &resolved, are_tables, split, require_label);
            Ok(SeedPool {
                pool,
                store: store.clone(),
                sources: Sources::new(store, options, resolved)?,
                deciding,
                ranks: [(raw.rank, raw.world_size.max(1)), (0, 1)],
                most: u32::MAX,
            })
        })
    }

    /// The seeds of one task of a sampler, or with seed tables of one table, in the order of its
    /// [`Sampler::epoch`]; of one of several ranks those of the rank. With
    /// [`Shard::Dealt`](crate::Shard::Dealt), too, those are the ones of fixed shards.
    pub fn of(
        sampler: &Sampler,
        split: Split,
        task: &str,
        require_label: bool,
    ) -> Result<SeedPool> {
        let mut pool = SeedPool::of_all_ranks(sampler, split, task, require_label)?;
        pool.partition_for_rank(sampler.rank(), sampler.world_size())?;
        Ok(pool)
    }

    /// The same of all ranks.
    pub fn of_all_ranks(
        sampler: &Sampler,
        split: Split,
        task: &str,
        require_label: bool,
    ) -> Result<SeedPool> {
        sampler.facts.sources.number(task)?;
        let options = sampler.options().of_one(task).rank(0).world_size(1);
        SeedPool::new(sampler.store(), &options, split, require_label)
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
        ffi::pool_keep(&mut self.pool, first, step, most)?;
        (self.ranks[1], self.most) = ((first, step), most);
        Ok(())
    }

    /// All seeds of a pool of one task, in the order of an epoch; the pool then stands at its end.
    pub fn epoch(&mut self, index: u32) -> Result<DrawnSeeds> {
        let tasks = self.sources.seeds.len();
        if tasks > 1 {
            let message = format!("the pool is of {tasks} tasks, expected one");
            return Err(Error::bad_argument(message));
        }
        let count = self.len();
        let drawn = vec![u64::from(index) * count; self.sources.position_count];
        ffi::pool_set_position(&mut self.pool, &drawn, 0);
        self.next_batch(usize::try_from(count).expect("a task has at most 2^32 seeds"))
    }

    /// The rank and the number of ranks whose part of all seeds it has.
    pub(crate) fn part(&self) -> (u64, u64) {
        let [(rank, world), (part, parts)] =
            self.ranks.map(|(rank, world)| (u64::from(rank), u64::from(world)));
        (rank + part * world, world * parts)
    }

    /// The next `count` seeds of one task, which run on into its next epoch. None are in it if the
    /// task has none in this pool.
    pub fn next_batch(&mut self, count: usize) -> Result<DrawnSeeds> {
        let drawn = ffi::pool_next(&mut self.pool, count)?;
        let mut names = self.sources.seeds.iter();
        let (task, _) =
            names.find(|(_, number)| *number == drawn.task).expect("it is one of these");
        Ok(DrawnSeeds {
            task: task.clone(),
            seeds: drawn.seeds,
            epochs: drawn.epochs,
            rows: drawn.rows,
            times: drawn.times,
            labels: drawn.labels,
        })
    }
}
