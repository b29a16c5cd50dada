//! An open store.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
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

/// Whether a store is read when it opens, to prove that its files hold what was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// Unless this machine did so before and no file has another device, inode, size or time
    /// since. The folder `headwater/verified` of the user's cache remembers it, for Python too; if
    /// there is none, every call reads them.
    #[default]
    Once,
    /// Headers only, in no time for any size. What is damaged further in is not seen.
    Header,
    /// In any case, at about 4 GB/s from memory.
    Full,
}

/// How a store is opened: [`Store::options`].
///
/// ```no_run
/// use headwater::{Load, Store, Verify};
///
/// # fn main() -> headwater::Result<()> {
/// let store = Store::options().load(Load::Ram).verify(Verify::Full).open("shop.store")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    load: Load,
    verify: Verify,
}

impl StoreOptions {
    /// How its files are read; by default they are mapped.
    pub fn load(mut self, load: Load) -> StoreOptions {
        self.load = load;
        self
    }

    /// Whether its files are proved; by default once on this machine.
    pub fn verify(mut self, verify: Verify) -> StoreOptions {
        self.verify = verify;
        self
    }

    /// Opens a store, or one build inside it. [`ErrorKind::BadStore`](crate::ErrorKind::BadStore)
    /// if it is missing, damaged, or of another version; the message has the file and the byte.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store> {
        let store = ffi::open_store(path.as_ref(), self.load)?;
        if self.verify != Verify::Header {
            ffi::check_files(&store, self.verify, verified_folder().as_deref())?;
        }
        Ok(Store(Arc::new(store)))
    }
}

/// Of the user's cache, as the XDG rules name it.
fn verified_folder() -> Option<PathBuf> {
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")))?;
    Some(cache.join("headwater").join("verified"))
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
    /// By which batches show all times: z = (microseconds - mean) / std.
    pub time_mean_us: f64,
    /// See `time_mean_us`.
    pub time_std_us: f64,
}

/// A database as one immutable folder. Cloning is cheap: clones are the same store.
///
/// Builds never change the files of a store that is open. What another program does to them is
/// outside of what Rust can promise ([`Load::Ram`]).
#[derive(Clone)]
pub struct Store(pub(crate) Arc<ffi::StoreHandle>);

impl Store {
    /// Opens a store, or one build inside it, with the default [`StoreOptions`].
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::options().open(path)
    }

    /// How it is opened, for whoever wants it otherwise.
    pub fn options() -> StoreOptions {
        StoreOptions::default()
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
            time_mean_us: read.time_mean_us,
            time_std_us: read.time_std_us,
        })
    }

    /// metadata.json of the store: JSON, which says what the store was built of.
    pub fn metadata(&self) -> Result<&str> {
        ffi::metadata(&self.0)
    }

    /// Calls `fault` for every fault in the contents; how many there are, 0 if the store is sound.
    /// Reads all of it, and proves more than [`Verify::Full`], by which a damaged store does not
    /// open: open it with [`Verify::Header`].
    pub fn verify(&self, mut fault: impl FnMut(&str)) -> Result<u64> {
        ffi::verify(&self.0, &mut fault)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Store({})", self.fingerprint())
    }
}
