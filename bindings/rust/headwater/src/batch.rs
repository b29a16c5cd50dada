//! A batch and its arrays.
#![forbid(unsafe_code)]

use std::sync::Arc;

use headwater_sys as sys;

use crate::error::{Error, Result};
use crate::ffi::{self, Element};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Dtype {
    I8,
    U8,
    U16,
    I32,
    U32,
    I64,
    /// Two bytes, which [`Array::as_slice`] gives as the bits of a `u16`.
    F16,
    F32,
}

impl Dtype {
    pub(crate) fn of_number(number: sys::hw_dtype) -> Result<Dtype> {
        match number {
            sys::HW_INT8 => Ok(Dtype::I8),
            sys::HW_UINT8 => Ok(Dtype::U8),
            sys::HW_UINT16 => Ok(Dtype::U16),
            sys::HW_INT32 => Ok(Dtype::I32),
            sys::HW_UINT32 => Ok(Dtype::U32),
            sys::HW_INT64 => Ok(Dtype::I64),
            sys::HW_FLOAT16 => Ok(Dtype::F16),
            sys::HW_FLOAT32 => Ok(Dtype::F32),
            other => Err(Error::bad_argument(format!(
                "the library has arrays of a type that is newer than this crate: {other}"
            ))),
        }
    }
}

/// The contexts of some seeds as arrays in one piece of memory, which never changes. Cloning is
/// cheap; with the last clone, and the last [`SharedArray`], the memory goes back to its sampler.
#[derive(Clone)]
pub struct Batch(pub(crate) Arc<ffi::BatchHandle>);

/// An array of a batch, C-contiguous and aligned to 64 bytes.
#[derive(Clone, Copy)]
pub struct Array<'b> {
    batch: &'b Batch,
    field: &'b ffi::Field,
}

/// The bytes of an array together with the batch that they are of, for who keeps them.
#[derive(Clone)]
pub struct SharedArray {
    batch: Batch,
    index: usize,
}

impl Batch {
    pub(crate) fn new(handle: ffi::BatchHandle) -> Batch {
        Batch(Arc::new(handle))
    }

    /// All its arrays. What each is: `batch.md` of the documentation.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = Array<'_>> {
        self.0.fields().iter().map(|field| Array { batch: self, field })
    }

    /// The array of a name. [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) if the
    /// batch has no such array; the message says which option adds it.
    pub fn array(&self, name: &str) -> Result<Array<'_>> {
        match self.arrays().find(|array| array.name() == name) {
            Some(array) => Ok(array),
            None => Err(ffi::missing_array(&self.0, name)),
        }
    }

    /// An array with its owner, without a copy.
    pub fn shared(&self, name: &str) -> Result<SharedArray> {
        let field = self.array(name)?.field;
        let index = self.0.fields().iter().position(|other| std::ptr::eq(other, field));
        Ok(SharedArray { batch: self.clone(), index: index.expect("it is of these fields") })
    }
}

impl<'b> Array<'b> {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.field.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.field.dtype
    }

    /// Its dimensions, at most three.
    pub fn shape(&self) -> &'b [usize] {
        &self.field.shape
    }

    /// Whether it is for the host only: it says of each seed what it is, and may have 64 bits.
    pub fn is_info(&self) -> bool {
        self.field.is_info
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'b [u8] {
        self.batch.0.bytes(self.field)
    }

    /// Its elements. [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) if they are of
    /// another type; those of [`Dtype::F16`] are `u16`.
    pub fn as_slice<T: Element>(&self) -> Result<&'b [T]> {
        if T::DTYPES.contains(&self.field.dtype) {
            return Ok(ffi::elements(self.bytes()));
        }
        let (name, dtype) = (self.field.name, self.field.dtype);
        Err(Error::bad_argument(format!("the elements of '{name}' are {dtype:?}")))
    }
}

impl SharedArray {
    /// The array.
    pub fn array(&self) -> Array<'_> {
        Array { batch: &self.batch, field: &self.batch.0.fields()[self.index] }
    }
}

impl AsRef<[u8]> for SharedArray {
    fn as_ref(&self) -> &[u8] {
        self.array().bytes()
    }
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:?} {:?}", self.name(), self.dtype(), self.shape())
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.arrays()).finish()
    }
}
