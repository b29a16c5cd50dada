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
    /// Seeds of each task at most; together, of the list of all.
    pub(crate) most: u32,
    pub(crate) is_together: bool,
}

/// Seeds of one task, which [`Sampler::epoch_of`](crate::Sampler::epoch_of) makes contexts of, or
/// of several that are drawn together: see [`DrawnSeeds::by_task`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DrawnSeeds {
    /// The task, or with seed tables the table. None: drawn together.
    pub task: Option<String>,
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
    /// Drawn together: the tasks of the pool, or its seed tables. Else empty.
    pub names: Vec<String>,
    /// Drawn together: for each seed the index in `names`. Else empty.
    pub tasks: Vec<u32>,
}

impl DrawnSeeds {
    /// The seeds of each task or seed table that has some here, with its name; each keeps the order
    /// drawn.
    pub fn by_task(&self) -> Vec<(String, DrawnSeeds)> {
        if let Some(task) = self.task.as_ref().filter(|_| !self.seeds.is_empty()) {
            return vec![(task.clone(), self.clone())];
        }
        let part = |place: usize, task: &String| {
            let of: Vec<usize> =
                (0..self.tasks.len()).filter(|i| self.tasks[*i] as usize == place).collect();
            let numbers = |list: &[u32]| of.iter().map(|i| list[*i]).collect();
            DrawnSeeds {
                task: Some(task.clone()),
                seeds: numbers(&self.seeds),
                epochs: numbers(&self.epochs),
                rows: numbers(&self.rows),
                times: of.iter().map(|i| self.times[*i]).collect(),
                labels: of.iter().map(|i| self.labels[*i]).collect(),
                names: Vec::new(),
                tasks: Vec::new(),
            }
        };
        let parts = self.names.iter().enumerate().map(|(i, task)| (task.clone(), part(i, task)));
        parts.filter(|(_, part)| !part.seeds.is_empty()).collect()
    }
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
                is_together: false,
            })
        })
    }

    /// The same pool with the seeds of all tasks or seed tables as one list, which each epoch
    /// shuffles as one, so that a batch has seeds of several. It has all seeds and begins anew.
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) with `task_weights` or a
    /// `task_order`.
    pub fn together(mut self) -> Result<SeedPool> {
        ffi::pool_together(&mut self.pool)?;
        (self.ranks[1], self.most, self.is_together) = ((0, 1), u32::MAX, true);
        Ok(self)
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

    /// Seeds that are left to the end of the epoch, of each task its own unless drawn together.
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

    /// Has of each task's seeds (together, of all), in stored order, those numbered `first`,
    /// `first + step`, ..., at most `most`, for all epochs, and begins anew. Another call starts from all seeds again.
    pub fn keep(&mut self, first: u32, step: u32, most: u32) -> Result<()> {
        ffi::pool_keep(&mut self.pool, first, step, most)?;
        (self.ranks[1], self.most) = ((first, step), most);
        Ok(())
    }

    /// All seeds of a pool of one task, or of several together, in the order of an epoch; the pool
    /// then stands at its end.
    pub fn epoch(&mut self, index: u32) -> Result<DrawnSeeds> {
        let tasks = self.sources.seeds.len();
        if tasks > 1 && !self.is_together {
            let message = format!("the pool is of {tasks} tasks, expected one, or together()");
            return Err(Error::bad_argument(message));
        }
        let count = self.len();
        let drawn = vec![u64::from(index) * count; self.sources.position_count];
        ffi::pool_set_position(&mut self.pool, &drawn, 0);
        self.next_batch(usize::try_from(count).expect("a list has fewer than 2^32 seeds"))
    }

    /// The rank and the number of ranks whose part of all seeds it has.
    pub(crate) fn part(&self) -> (u64, u64) {
        let [(rank, world), (part, parts)] =
            self.ranks.map(|(rank, world)| (u64::from(rank), u64::from(world)));
        (rank + part * world, world * parts)
    }

    /// The next `count` seeds of one task, or together of all, which run on into the next epoch.
    /// None are in it if the task has none in this pool.
    pub fn next_batch(&mut self, count: usize) -> Result<DrawnSeeds> {
        let drawn = ffi::pool_next(&mut self.pool, count, self.is_together)?;
        let seeds = &self.sources.seeds;
        let place = |task: u32| {
            seeds.binary_search_by_key(&task, |(_, number)| *number).expect("it is one of these")
        };
        let (task, names) = if self.is_together {
            (None, seeds.iter().map(|(name, _)| name.clone()).collect())
        } else {
            (Some(seeds[place(drawn.task)].0.clone()), Vec::new())
        };
        Ok(DrawnSeeds {
            task,
            names,
            tasks: drawn.tasks.iter().map(|task| place(*task) as u32).collect(),
            seeds: drawn.seeds,
            epochs: drawn.epochs,
            rows: drawn.rows,
            times: drawn.times,
            labels: drawn.labels,
        })
    }
}
