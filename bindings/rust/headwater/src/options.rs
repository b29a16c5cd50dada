//! Options of a sampler, as values.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::option_table::Values;
use crate::store::Store;

/// Options of a [`Sampler`](crate::Sampler) and of a [`SeedPool`](crate::SeedPool), with the
/// defaults of Python for those that are not set. They are checked when a sampler opens.
///
/// ```
/// use headwater::{Layout, Options};
///
/// let options = Options::new().batch_size(64).layout(Layout::Compact).max_hops(2);
/// assert!(format!("{options:?}").contains("batch_size: Some(64)"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub(crate) values: Values,
    max_hops: Option<u32>,
    tasks: Option<Vec<String>>,
    seed_tables: Option<Vec<String>>,
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Most hops from the anchor to a row; by default there is no limit.
    pub fn max_hops(mut self, hops: u32) -> Options {
        self.max_hops = Some(hops);
        self
    }

    /// Which tasks of the store, by their names; by default all of them.
    pub fn tasks<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Options {
        self.tasks = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// With [`Objective::MaskedCells`](crate::Objective::MaskedCells) the rows of these tables,
    /// each at its own time, are the seeds. Functions that take a task then take a table.
    pub fn seed_tables<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Options {
        self.seed_tables = Some(names.into_iter().map(Into::into).collect());
        self
    }

    pub(crate) fn has_seed_tables(&self) -> bool {
        self.seed_tables.is_some()
    }

    /// The numbers that the store has for names.
    pub(crate) fn resolved(&self, store: &Store) -> Result<Resolved<'_>> {
        let task = |name: &String| store.task(name);
        let table = |name: &String| store.table(name);
        Ok(Resolved {
            values: &self.values,
            // C has 0 for no limit, and else 1 more; what does not fit is refused there.
            max_hops: self.max_hops.map(|hops| hops.saturating_add(1)),
            tasks: self.tasks.iter().flatten().map(task).collect::<Result<_>>()?,
            has_tasks: self.tasks.is_some(),
            seed_tables: self.seed_tables.iter().flatten().map(table).collect::<Result<_>>()?,
        })
    }
}

/// Options that C can be given.
pub(crate) struct Resolved<'o> {
    pub(crate) values: &'o Values,
    pub(crate) max_hops: Option<u32>,
    pub(crate) tasks: Vec<u32>,
    pub(crate) has_tasks: bool,
    pub(crate) seed_tables: Vec<u32>,
}
