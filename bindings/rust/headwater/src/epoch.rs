//! A finite pass over seeds.
#![forbid(unsafe_code)]

use crate::batch::Batch;
use crate::error::Result;
use crate::ffi;
use crate::sampler::Sampler;

/// The batches of one pass, in order. Dropping it early frees what was made ahead.
///
/// After an error, which comes once, it is over.
pub struct Epoch {
    pass: ffi::PassHandle,
    left: u64,
    sampler: Sampler,
}

impl Epoch {
    pub(crate) fn new(sampler: &Sampler, pass: ffi::PassHandle) -> Epoch {
        let left = ffi::pass_batches(&pass);
        Epoch { pass, left, sampler: sampler.clone() }
    }

    /// The sampler that makes its batches.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.left == 0 {
            return None;
        }
        let next = ffi::pass_next(&mut self.pass);
        self.left = if matches!(next, Ok(Some(_))) { self.left - 1 } else { 0 };
        next.map(|batch| batch.map(Batch::new)).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Epoch {}
