//! An open store.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::ffi;

/// How the files of a store are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Load {
    /// Mapped: pages are read when they are first used, and shared by all processes.
    #[default]
    Mmap,
    /// Read into memory when the store opens. A file that another program truncates while it is
    /// mapped ends the process, which only this avoids: use it on foreign file systems.
    Ram,
}

/// How many of what a store has.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct Counts {
    pub tables: u32,
    pub columns: u32,
    pub keys: u32,
    pub tasks: u32,
    pub rows: u32,
    pub categories: u32,
    pub texts: u32,
    /// D_t, the width of vectors.
    pub text_dim: u32,
}

/// A database as one immutable folder. Cloning is cheap: clones are the same store.
///
/// Builds never change the files of a store that is open. What another program does to them is
/// outside of what Rust can promise ([`Load::Ram`]).
#[derive(Clone)]
pub struct Store(pub(crate) Arc<ffi::StoreHandle>);

impl Store {
    /// Opens a store, or one build inside it. [`ErrorKind::BadStore`](crate::ErrorKind::BadStore)
    /// if it is missing, damaged, or of another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::open_with(path, Load::Mmap)
    }

    /// The same, read as `load` says.
    pub fn open_with(path: impl AsRef<Path>, load: Load) -> Result<Store> {
        Ok(Store(Arc::new(ffi::open_store(path.as_ref(), load)?)))
    }

    /// 32 hex digits over the contents.
    pub fn fingerprint(&self) -> String {
        ffi::fingerprint(&self.0)
    }

    /// How many of what it has.
    pub fn counts(&self) -> Result<Counts> {
        let read = ffi::counts(&self.0)?;
        Ok(Counts {
            tables: read.table_count,
            columns: read.column_count,
            keys: read.key_count,
            tasks: read.task_count,
            rows: read.row_count,
            categories: read.category_count,
            texts: read.text_count,
            text_dim: read.text_dim,
        })
    }

    /// The number of a table; [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names
    /// those that there are.
    pub fn table(&self, name: &str) -> Result<u32> {
        ffi::find_table(&self.0, name)
    }

    /// The number of a task, likewise.
    pub fn task(&self, name: &str) -> Result<u32> {
        ffi::find_task(&self.0, name)
    }

    /// The names of its tables, by number.
    pub fn tables(&self) -> Result<Vec<String>> {
        (0..self.counts()?.tables).map(|table| Ok(self.table_info(table)?.name)).collect()
    }

    /// The names of its tasks, by number.
    pub fn tasks(&self) -> Result<Vec<String>> {
        (0..self.counts()?.tasks).map(|task| Ok(self.task_info(task)?.name)).collect()
    }

    /// metadata.json of the store: JSON, which says what the store was built of.
    pub fn metadata(&self) -> Result<&str> {
        ffi::metadata(&self.0)
    }

    /// Every fault in the contents; none if the store is sound. Reads all of it.
    pub fn verify(&self) -> Result<Vec<String>> {
        ffi::verify(&self.0)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Store({})", self.fingerprint())
    }
}
