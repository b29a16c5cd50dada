//! Options of a sampler, as values.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
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

    /// The same of one of its tasks, or of one of its seed tables.
    pub(crate) fn of_one(&self, name: &str) -> Options {
        let mut options = self.clone();
        options.values.task_weights = None;
        if self.has_seed_tables() { options.seed_tables([name]) } else { options.tasks([name]) }
    }

    pub(crate) fn has_seed_tables(&self) -> bool {
        self.seed_tables.is_some()
    }

    /// The numbers that the store has for names, ascending as in Python, and their weights.
    pub(crate) fn resolved(&self, store: &Store) -> Result<Resolved<'_>> {
        let task_count = store.counts()?.tasks;
        let all: Vec<String> = store.tasks()?.into_iter().map(|task| task.name).collect();
        let (kind, names, base) = match (&self.seed_tables, &self.tasks) {
            (Some(_), Some(_)) => {
                return Err(Error::bad_argument("give either tasks or seed_tables"));
            }
            (Some(tables), None) => ("seed_tables", tables, task_count),
            (None, Some(tasks)) => ("tasks", tasks, 0),
            (None, None) => ("tasks", &all, 0),
        };
        let weights = self.values.task_weights.as_deref();
        if let Some(weights) = weights.filter(|weights| weights.len() != names.len()) {
            let (given, expected) = (weights.len(), names.len());
            let message = format!("task_weights has {given} entries, expected {expected}");
            return Err(Error::bad_argument(message));
        }
        let mut chosen = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let by_tables = self.has_seed_tables();
            let number = if by_tables { store.table(name)? } else { store.task(name)? };
            chosen.push((number, weights.map(|weights| weights[place]), name.clone()));
        }
        chosen.sort_by_key(|(number, ..)| *number);
        if chosen.is_empty() && (self.tasks.is_some() || self.has_seed_tables())
            || chosen.windows(2).any(|pair| pair[0].0 == pair[1].0)
        {
            let message = format!("{kind} is {names:?}, expected at least one name, each once");
            return Err(Error::bad_argument(message));
        }
        Ok(Resolved {
            values: &self.values,
            // C has 0 for no limit, and else 1 more; the most that does not fit is refused there.
            max_hops: self.max_hops.map(|hops| hops.saturating_add(1)),
            numbers: chosen.iter().map(|(number, ..)| *number).collect(),
            weights: weights.map(|_| chosen.iter().filter_map(|(_, weight, _)| *weight).collect()),
            seeds: chosen.into_iter().map(|(number, _, name)| (name, base + number)).collect(),
        })
    }
}

/// Options that C can be given.
pub(crate) struct Resolved<'o> {
    pub(crate) values: &'o Values,
    pub(crate) max_hops: Option<u32>,
    /// Of the tasks or of the seed tables, ascending.
    pub(crate) numbers: Vec<u32>,
    /// In the order of the numbers.
    pub(crate) weights: Option<Vec<f64>>,
    /// Names, with the numbers by which functions of C know them: tables come behind the tasks.
    pub(crate) seeds: Vec<(String, u32)>,
}

impl Resolved<'_> {
    /// Of the tasks or seed tables, in the order of their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.seeds.iter().map(|(name, _)| name.as_str())
    }
}
