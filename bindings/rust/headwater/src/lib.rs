//! From a relational database to batches of contexts that never see the future: the C library
//! headwater, safely.
//!
//! A [`Store`] is a database as one memory-mapped folder, which `headwater build` of the Python
//! package makes, or C's builder. A [`Sampler`] walks outward from rows that are asked about, the
//! seeds, along foreign keys, and hands out [`Batch`]es of their contexts, made ahead by threads of
//! its own. Batches are the same bits as Python's and C's, for any number of threads.
//!
//! ```
//! use headwater::{Options, Sampler, Split, Store};
//!
//! # fn main() -> headwater::Result<()> {
//! # let stores = std::env::var("HEADWATER_RUST_VECTORS").expect("make test-rust sets it");
//! # std::env::set_current_dir(stores).unwrap();
//! let store = Store::open("shop.store")?;
//! let options = Options::new().tasks(["churn"]).batch_size(32).sequence_length(96);
//! let sampler = Sampler::open(&store, &options)?;
//! for batch in sampler.epoch(Split::Train, "churn", 0)? {
//!     let batch = batch?;
//!     let columns = batch.column_ids()?; // or batch.array("column_ids")?
//!     let ids: &[i32] = columns.as_slice()?; // [batch, sequence], shape() says
//!     println!("{} cells of {:?}", ids.len(), columns.shape());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Stores, samplers, batches and arrays can go to other threads and be used by several at once; an
//! epoch and a pool of seeds belong to one thread at a time. A batch may be kept after its sampler
//! and its store are gone. Nothing here is usable after a `fork`.
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod batch;
mod contents;
mod epoch;
mod error;
#[allow(unsafe_code)]
mod ffi;
#[rustfmt::skip]
mod field_table;
mod json;
#[rustfmt::skip]
mod option_table;
mod options;
mod sampler;
mod seeds;
mod state;
mod stats;
mod store;

pub use batch::{Array, Batch, Dtype, SharedArray};
pub use contents::{Cell, Column, ForeignKey, Known, Seeds, SemanticType, Table, Task, VectorsOf};
pub use epoch::Epoch;
pub use error::{Error, ErrorKind, Result};
pub use ffi::{Element, hash64};
pub use option_table::*;
pub use options::Options;
pub use sampler::{Sampler, Shape, Split, TargetStats};
pub use seeds::{DrawnSeeds, SeedPool};
pub use state::State;
pub use stats::SamplerStats;
pub use store::{Counts, Load, Store, StoreOptions, Verify};
