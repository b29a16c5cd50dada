//! headwater.h as it is: `headwater` is the safe crate over it.
//!
//! Structs that begin with `struct_bytes` must have it set to their size, those that C fills too.
//! Enums are integers.
#![no_std]
#![allow(non_camel_case_types)]

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
