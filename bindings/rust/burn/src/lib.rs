//! Batches of relational contexts for [Burn](https://burn.dev): the arrays of headwater as tensors.
//!
//! A store is a database in one folder, which the Python package `headwater` builds, or C. A
//! `headwater::Sampler` makes batches of it, ahead of their reader, by threads of C. This crate has
//! the two ways by which they come to a model in Burn 0.22:
//!
//! - **Burn's Learner**: a [`BatchLoader`] is a [`DataLoader`](burn::data::dataloader::DataLoader),
//!   whose slices are the parts of ranks.
//! - **A loop of your own**, with one thread for each rank: [`tensors`] and [`ContextBatch`] make
//!   tensors of a batch, and a [`GradientExchange`] averages gradients.
//!
//! On a CPU no tensor is a copy: it reads the memory of C, which stays as long as a tensor, or a
//! view of one, needs it. Nothing writes to it: an operation in place writes to a copy.
//!
//! ```
//! use burn::data::dataloader::DataLoader;
//! use burn::tensor::Device;
//! use headwater::{Options, Sampler, Split, Store};
//! use headwater_burn::{BatchLoader, ContextBatch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let stores = std::env::var("HEADWATER_RUST_VECTORS").expect("make test-burn sets it");
//! # std::env::set_current_dir(stores).unwrap();
//! let store = Store::open("shop.store")?;
//! let options = Options::new().tasks(["churn"]).sequence_length(96).attention_masks(true);
//! let sampler = Sampler::open(&store, &options)?;
//! let device = Device::flex().autodiff();
//! let loader: BatchLoader<ContextBatch> =
//!     BatchLoader::builder(&sampler, Split::Train, "churn").device(&device).build()?;
//! for batch in loader.iter() {
//!     let batch = batch?;
//!     println!("{:?} {:?}", batch.column_ids.dims(), batch.num_labelled);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod context_batch;
mod exchange;
mod loader;
mod seed_dataset;
pub mod tensors;

pub use context_batch::{
    AttentionMasks, ContextBatch, FromBatch, MaskedCells, MaskedTargets, SeparateTargets,
};
pub use exchange::{Gone, GradientExchange, HostExchange, Member};
pub use loader::{BatchLoader, BatchLoaderBuilder};
pub use seed_dataset::{ContextBatcher, Seed, SeedDataset};
