//! All that is not safe: calls of C, and the memory that it hands out.
//!
//! Each block says by which sentence of headwater.h it is right. What this module lets out is safe.

mod store;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{NonNull, null, null_mut};
use std::time::Duration;

use headwater_sys as sys;

pub(crate) use store::*;

use crate::batch::Dtype;
use crate::error::{Error, Result};
use crate::options::{Options, Resolved};
use crate::sampler::Split;
use crate::state::Facts;
use crate::store::Store;

// ---- calls ---------------------------------------------------------------------------------

/// Calls a function with room for its error; whether it said HW_END.
fn call(function: impl FnOnce(*mut sys::hw_error) -> sys::hw_status) -> Result<bool> {
    let mut error = sys::hw_error { status: sys::HW_OK, message: [0; 500] };
    match function(&mut error) {
        sys::HW_OK => Ok(false),
        sys::HW_END => Ok(true),
        status => {
            let message: Vec<u8> =
                error.message.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
            // A message may be cut within a character.
            Err(Error::of_status(status, String::from_utf8_lossy(&message).into_owned()))
        }
    }
}

/// A struct that C fills.
///
/// # Safety
/// It begins with struct_bytes, and zero bytes are a value of it.
pub(crate) unsafe trait Filled: Copy {}

macro_rules! filled {
    ($($name:ident)+) => {
        $(
            // SAFETY: numbers and pointers behind struct_bytes, as headwater.h has them.
            unsafe impl Filled for sys::$name {}
        )+
    };
}
filled! {
    hw_store_counts hw_table_info hw_column_info hw_key_info hw_task_info hw_cell hw_seeds
    hw_verification
    hw_shape hw_sampler_stats hw_target_stats hw_tensor hw_sampler_options
}

/// The struct with its size set, and nothing else.
pub(crate) fn empty<T: Filled>() -> T {
    let mut made = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: Filled: the first member is a usize, and zeros are a value.
    unsafe {
        made.as_mut_ptr().cast::<usize>().write(size_of::<T>());
        made.assume_init()
    }
}

/// The struct that a function fills.
fn read<T: Filled>(
    function: impl FnOnce(*mut T, *mut sys::hw_error) -> sys::hw_status,
) -> Result<T> {
    let mut made = empty::<T>();
    call(|error| function(&mut made, error))?;
    Ok(made)
}

/// What a function writes by a pointer.
fn out<T>(
    mut start: T,
    function: impl FnOnce(*mut T, *mut sys::hw_error) -> sys::hw_status,
) -> Result<T> {
    call(|error| function(&mut start, error))?;
    Ok(start)
}

fn c_text(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::bad_argument(format!("{name:?} holds a zero byte")))
}

/// A text that the library has, zero-terminated.
///
/// # Safety
/// It must be one.
unsafe fn text_of(text: *const c_char) -> String {
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// XXH64 of bytes, as `hw_hash64` with the seed 0.
pub fn hash64(bytes: &[u8]) -> u64 {
    // SAFETY: "Any thread"; the bytes are there for the call.
    unsafe { sys::hw_hash64(bytes.as_ptr().cast(), bytes.len(), 0) }
}

// ---- handles -------------------------------------------------------------------------------

/// One reference to something of C, which is dropped with it.
macro_rules! handle {
    ($name:ident, $kind:ident, $close:ident) => {
        pub(crate) struct $name(NonNull<sys::$kind>);

        impl $name {
            fn of(pointer: *mut sys::$kind) -> $name {
                $name(NonNull::new(pointer).expect("HW_OK comes with a handle"))
            }

            fn get(&self) -> *mut sys::$kind {
                self.0.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the reference that this owns; a drop in a forked process does nothing.
                unsafe { sys::$close(self.0.as_ptr()) }
            }
        }
    };
}
handle!(StoreHandle, hw_store, hw_store_close);
handle!(SamplerHandle, hw_sampler, hw_sampler_close);
handle!(PassHandle, hw_pass, hw_pass_close);

// SAFETY: "Any thread may use a store, a sampler, a pass or a batch, and several may at once".
unsafe impl Send for StoreHandle {}
// SAFETY: the same.
unsafe impl Sync for StoreHandle {}
// SAFETY: "Any thread may use a store, a sampler, a pass or a batch, and several may at once".
unsafe impl Send for SamplerHandle {}
// SAFETY: the same.
unsafe impl Sync for SamplerHandle {}
// SAFETY: the same; Sync is not needed, as `next` takes it mutably.
unsafe impl Send for PassHandle {}

// ---- sampler -------------------------------------------------------------------------------

/// Calls a function with C's struct of options, whose lists are there for the call: "structs,
/// lists and texts that are passed may go when the call returns".
fn with_options<T>(
    store: &Store,
    options: &Options,
    function: impl FnOnce(&sys::hw_sampler_options, Resolved<'_>) -> Result<T>,
) -> Result<T> {
    let resolved = options.resolved(store)?;
    let mut raw = empty::<sys::hw_sampler_options>();
    // SAFETY: the struct has that size.
    unsafe { sys::hw_sampler_options_init(&mut raw, size_of_val(&raw)) };
    resolved.values.put(&mut raw);
    if let Some(hops) = resolved.max_hops {
        raw.max_hops = hops;
    }
    // Moved into `function`, their memory stays where it is.
    let count = u32::try_from(resolved.numbers.len()).unwrap_or(u32::MAX);
    if options.has_seed_tables() {
        (raw.seed_tables, raw.seed_table_count) = (resolved.numbers.as_ptr(), count);
    } else {
        (raw.tasks, raw.task_count) = (resolved.numbers.as_ptr(), count);
    }
    raw.task_weights = resolved.weights.as_ref().map_or(null(), |weights| weights.as_ptr());
    function(&raw, resolved)
}

pub(crate) fn open_sampler(store: &Store, options: &Options) -> Result<(SamplerHandle, Facts)> {
    with_options(store, options, |raw, resolved| {
        // SAFETY: the lists have the lengths that the struct has for them; weights are as many as
        // the numbers, and arrays of a fixed length are behind the other lists.
        let open =
            |sampler, error| unsafe { sys::hw_sampler_open(store.0.get(), raw, sampler, error) };
        let handle = out(null_mut(), open).map(SamplerHandle::of)?;
        let facts = Facts::new(&handle, store, options, raw, resolved)?;
        Ok((handle, facts))
    })
}

/// Seeds drawn by task of the store, and by table if seed tables are given; and batches.
pub(crate) fn position(
    sampler: &SamplerHandle,
    split: Split,
    count: usize,
) -> Result<(Vec<u64>, u64)> {
    let (mut positions, mut batches) = (vec![0; count], 0);
    // SAFETY: `count` is that of C: the store's tasks, and with seed tables its tables.
    call(|error| unsafe {
        let (sampler, at) = (sampler.get(), positions.as_mut_ptr());
        sys::hw_sampler_get_position(sampler, split.number(), at, &mut batches, error)
    })?;
    Ok((positions, batches))
}

pub(crate) fn set_position(
    sampler: &SamplerHandle,
    split: Split,
    positions: &[u64],
    batches: u64,
) -> Result<()> {
    // SAFETY: as position, by which the caller has the length.
    call(|error| unsafe {
        let (sampler, at) = (sampler.get(), positions.as_ptr());
        sys::hw_sampler_set_position(sampler, split.number(), at, batches, error)
    })?;
    Ok(())
}

pub(crate) fn shutdown(sampler: &SamplerHandle) {
    // SAFETY: "Idempotent"; any thread.
    unsafe { sys::hw_sampler_shutdown(sampler.get()) }
}

pub(crate) fn shape(sampler: &SamplerHandle) -> Result<sys::hw_shape> {
    // SAFETY: as counts.
    read(|shape, error| unsafe { sys::hw_sampler_shape(sampler.get(), shape, error) })
}

pub(crate) fn stats(sampler: &SamplerHandle) -> Result<sys::hw_sampler_stats> {
    // SAFETY: as counts.
    read(|stats, error| unsafe { sys::hw_sampler_get_stats(sampler.get(), stats, error) })
}

pub(crate) fn splits(sampler: &SamplerHandle, task: u32, count: u32) -> Result<Vec<u8>> {
    let mut splits = vec![0; count as usize];
    // SAFETY: `count` bytes of this frame.
    call(|error| unsafe {
        sys::hw_sampler_splits(sampler.get(), task, splits.as_mut_ptr(), count, error)
    })?;
    Ok(splits)
}

pub(crate) fn seed_count(sampler: &SamplerHandle, split: Split, task: u32) -> Result<u32> {
    // SAFETY: outputs of this frame.
    out(0, |count, error| unsafe {
        sys::hw_sampler_seed_count(sampler.get(), split.number(), task, count, error)
    })
}

pub(crate) fn target_stats(sampler: &SamplerHandle, task: u32) -> Result<sys::hw_target_stats> {
    // SAFETY: as counts.
    read(|stats, error| unsafe { sys::hw_sampler_target_stats(sampler.get(), task, stats, error) })
}

pub(crate) fn column_scale(sampler: &SamplerHandle, column: u32) -> Result<(f64, f64)> {
    let (mut mean, mut std) = (0.0, 0.0);
    // SAFETY: outputs of this frame.
    call(|error| unsafe {
        sys::hw_sampler_column_scale(sampler.get(), column, &mut mean, &mut std, error)
    })?;
    Ok((mean, std))
}

pub(crate) fn next_batch(
    sampler: &SamplerHandle,
    split: Split,
    timeout: Option<Duration>,
) -> Result<BatchHandle> {
    let up = |time: Duration| time.as_nanos().div_ceil(1_000_000);
    let ms = timeout.map_or(-1, |time| i64::try_from(up(time)).unwrap_or(i64::MAX));
    let mut batch = null_mut();
    // SAFETY: no callback is called during the wait; the batch that comes is ours.
    call(|error| unsafe {
        let split = split.number();
        sys::hw_sampler_next(sampler.get(), split, ms, None, null_mut(), &mut batch, error)
    })?;
    BatchHandle::of(batch)
}

pub(crate) fn batch_at(sampler: &SamplerHandle, split: Split, k: u64) -> Result<BatchHandle> {
    // SAFETY: as next_batch.
    let batch = out(null_mut(), |batch, error| unsafe {
        sys::hw_sampler_batch(sampler.get(), split.number(), k, batch, error)
    })?;
    BatchHandle::of(batch)
}

// ---- passes --------------------------------------------------------------------------------

pub(crate) fn open_pass(
    sampler: &SamplerHandle,
    split: Split,
    task: u32,
    index: u32,
) -> Result<PassHandle> {
    // SAFETY: outputs of this frame; a pass has a reference to its sampler.
    let open = |pass, error| unsafe {
        sys::hw_pass_open(sampler.get(), split.number(), task, index, pass, error)
    };
    out(null_mut(), open).map(PassHandle::of)
}

/// In the flat layout its batches are filled, or each is levelled by itself.
pub(crate) fn open_chosen(
    sampler: &SamplerHandle,
    task: u32,
    seeds: &[u32],
    epochs: &[u32],
    is_levelled: bool,
) -> Result<PassHandle> {
    let function = if is_levelled { sys::hw_pass_open_levelled } else { sys::hw_pass_open_chosen };
    assert_eq!(seeds.len(), epochs.len());
    let count = u32::try_from(seeds.len())
        .map_err(|_| Error::bad_argument(format!("{} seeds in one pass", seeds.len())))?;
    // SAFETY: "The arrays are copied", and have `count` entries each.
    let open = |pass, error| unsafe {
        let (seeds, epochs) = (seeds.as_ptr(), epochs.as_ptr());
        function(sampler.get(), task, seeds, epochs, count, pass, error)
    };
    out(null_mut(), open).map(PassHandle::of)
}

pub(crate) fn pass_batches(pass: &PassHandle) -> u64 {
    // SAFETY: a number that the pass has.
    unsafe { sys::hw_pass_batch_count(pass.get()) }
}

/// None: the pass is over.
pub(crate) fn pass_next(pass: &mut PassHandle) -> Result<Option<BatchHandle>> {
    let mut batch = null_mut();
    // SAFETY: as next_batch.
    let is_over = call(|error| unsafe {
        sys::hw_pass_next(pass.get(), -1, None, null_mut(), &mut batch, error)
    })?;
    if is_over { Ok(None) } else { BatchHandle::of(batch).map(Some) }
}

// ---- batches -------------------------------------------------------------------------------

/// An array of a batch.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) is_info: bool,
    start: *const u8,
    bytes: usize,
}

// SAFETY: its pointer is read through the batch alone.
unsafe impl Send for Field {}
// SAFETY: the same.
unsafe impl Sync for Field {}

pub(crate) struct BatchHandle {
    batch: NonNull<sys::hw_batch>,
    fields: Vec<Field>,
}

// SAFETY: "A batch is immutable and reference-counted ... Any thread"; its fields point into it.
unsafe impl Send for BatchHandle {}
// SAFETY: the same.
unsafe impl Sync for BatchHandle {}

impl BatchHandle {
    fn of(batch: *mut sys::hw_batch) -> Result<BatchHandle> {
        let batch = NonNull::new(batch).expect("HW_OK comes with a batch");
        let mut made = BatchHandle { batch, fields: Vec::new() };
        // SAFETY: a number that the batch has.
        let count = unsafe { sys::hw_batch_tensor_count(batch.as_ptr()) };
        made.fields = (0..count).map(|index| made.field(index)).collect::<Result<_>>()?;
        Ok(made)
    }

    fn field(&self, index: u32) -> Result<Field> {
        // SAFETY: as counts.
        let read = read::<sys::hw_tensor>(|tensor, error| unsafe {
            sys::hw_batch_tensor(self.batch.as_ptr(), index, tensor, error)
        })?;
        // SAFETY: names are static, and ASCII.
        let name = unsafe { CStr::from_ptr(read.name) }.to_str().expect("names are ASCII");
        Ok(Field {
            name,
            dtype: Dtype::of_number(read.dtype)?,
            shape: read.shape[..read.rank as usize].iter().map(|size| *size as usize).collect(),
            is_info: read.info != 0,
            start: read.data.cast(),
            bytes: read.bytes,
        })
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The bytes of one of its own fields.
    pub(crate) fn bytes(&self, field: &Field) -> &[u8] {
        debug_assert!(self.fields.iter().any(|own| std::ptr::eq(own, field)));
        if field.bytes == 0 {
            return &[];
        }
        // SAFETY: C wrote all of it, never writes it again, and frees it with the last reference,
        // of which this has one. No Field leaves this crate without its batch.
        unsafe { std::slice::from_raw_parts(field.start, field.bytes) }
    }
}

impl Drop for BatchHandle {
    fn drop(&mut self) {
        // SAFETY: the reference that this owns.
        unsafe { sys::hw_batch_release(self.batch.as_ptr()) }
    }
}

/// Why a batch has no array of a name.
pub(crate) fn missing_array(batch: &BatchHandle, name: &str) -> Error {
    let found = c_text(name).and_then(|name| {
        // SAFETY: as counts, and a terminated name.
        read::<sys::hw_tensor>(|tensor, error| unsafe {
            sys::hw_batch_find(batch.batch.as_ptr(), name.as_ptr(), tensor, error)
        })
    });
    match found {
        Err(error) => error,
        Ok(_) => Error::bad_argument(format!("no array '{name}'")),
    }
}

/// What the elements of an array may be.
///
/// # Safety
/// Any bytes are a value of the type, which has the size of each of its `DTYPES`.
pub unsafe trait Element: Copy + 'static {
    /// The types of arrays that have such elements.
    const DTYPES: &'static [Dtype];
}

macro_rules! elements {
    ($($kind:ty: $($dtype:ident)+;)+) => {
        $(
            // SAFETY: a number of that size.
            unsafe impl Element for $kind {
                const DTYPES: &'static [Dtype] = &[$(Dtype::$dtype),+];
            }
        )+
    };
}
elements! {
    i8: I8;
    u8: U8;
    u16: U16 F16;
    i32: I32;
    u32: U32;
    i64: I64;
    f32: F32;
}

/// Bytes of an array as its elements.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> &[T] {
    // SAFETY: Element. What is not aligned, which no array is, would stand in the outer parts.
    let (before, found, after) = unsafe { bytes.align_to::<T>() };
    assert!(before.is_empty() && after.is_empty(), "arrays are aligned and whole");
    found
}

// ---- pools of seeds ------------------------------------------------------------------------

pub(crate) struct PoolHandle {
    pool: NonNull<sys::hw_seed_pool>,
}

// SAFETY: "One thread at a time": it moves, and is not Sync.
unsafe impl Send for PoolHandle {}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        // SAFETY: the pool is this one's alone.
        unsafe { sys::hw_seed_pool_close(self.pool.as_ptr()) }
    }
}

pub(crate) struct Drawn {
    pub(crate) task: u32,
    pub(crate) seeds: Vec<u32>,
    pub(crate) epochs: Vec<u32>,
    pub(crate) rows: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) labels: Vec<f64>,
    /// Only if seeds are drawn together.
    pub(crate) tasks: Vec<u32>,
}

pub(crate) fn open_pool<T>(
    store: &Store,
    options: &Options,
    split: Split,
    require_label: bool,
    made: impl FnOnce(PoolHandle, &sys::hw_sampler_options, Resolved<'_>) -> Result<T>,
) -> Result<T> {
    with_options(store, options, |raw, resolved| {
        // SAFETY: as open_sampler; no label columns. A pool retains its store.
        let pool = out(null_mut(), |pool, error| unsafe {
            let (split, labels) = (split.number(), u8::from(require_label));
            sys::hw_seed_pool_open(store.0.get(), raw, split, labels, null(), pool, error)
        })?;
        let pool = NonNull::new(pool).expect("HW_OK comes with a pool");
        made(PoolHandle { pool }, raw, resolved)
    })
}

pub(crate) fn pool_together(pool: &mut PoolHandle) -> Result<()> {
    // SAFETY: the pool is this one's alone.
    call(|error| unsafe { sys::hw_seed_pool_together(pool.pool.as_ptr(), error) })?;
    Ok(())
}

/// Seeds drawn by task, as `position`, and calls of `pool_next`.
pub(crate) fn pool_position(pool: &PoolHandle, count: usize) -> (Vec<u64>, u64) {
    let (mut positions, mut batches) = (vec![0; count], 0);
    // SAFETY: `count` is that of C: "as in hw_sampler_get_position".
    unsafe {
        let (pool, at) = (pool.pool.as_ptr(), positions.as_mut_ptr());
        sys::hw_seed_pool_get_position(pool, at, &mut batches);
    }
    (positions, batches)
}

pub(crate) fn pool_set_position(pool: &mut PoolHandle, positions: &[u64], batches: u64) {
    // SAFETY: as pool_position, by which the caller has the length.
    unsafe { sys::hw_seed_pool_set_position(pool.pool.as_ptr(), positions.as_ptr(), batches) }
}

pub(crate) fn pool_len(pool: &PoolHandle) -> u64 {
    // SAFETY: a number that the pool has.
    unsafe { sys::hw_seed_pool_count(pool.pool.as_ptr()) }
}

pub(crate) fn pool_remaining(pool: &PoolHandle) -> u64 {
    // SAFETY: a number that the pool has.
    unsafe { sys::hw_seed_pool_remaining(pool.pool.as_ptr()) }
}

pub(crate) fn pool_keep(pool: &mut PoolHandle, first: u32, step: u32, most: u32) -> Result<()> {
    // SAFETY: numbers.
    call(|error| unsafe { sys::hw_seed_pool_keep(pool.pool.as_ptr(), first, step, most, error) })?;
    Ok(())
}

pub(crate) fn pool_next(pool: &mut PoolHandle, count: usize, is_together: bool) -> Result<Drawn> {
    let wanted = u32::try_from(count)
        .map_err(|_| Error::bad_argument(format!("{count} seeds in one batch")))?;
    let mut drawn = Drawn {
        task: 0,
        seeds: vec![0; count],
        epochs: vec![0; count],
        rows: vec![0; count],
        times: vec![0; count],
        labels: vec![0.0; count],
        tasks: vec![0; if is_together { count } else { 0 }],
    };
    let into = sys::hw_drawn_seeds {
        struct_bytes: size_of::<sys::hw_drawn_seeds>(),
        seeds: drawn.seeds.as_mut_ptr(),
        epochs: drawn.epochs.as_mut_ptr(),
        rows: drawn.rows.as_mut_ptr(),
        obs_times: drawn.times.as_mut_ptr(),
        labels: drawn.labels.as_mut_ptr(),
        tasks: if is_together { drawn.tasks.as_mut_ptr() } else { null_mut() },
    };
    let mut taken = 0;
    // SAFETY: arrays of `count` entries each; tasks "may be NULL unless seeds are drawn together".
    call(|error| unsafe {
        let (pool, task) = (pool.pool.as_ptr(), &mut drawn.task);
        sys::hw_seed_pool_next(pool, wanted, &into, task, &mut taken, error)
    })?;
    let taken = taken as usize;
    drawn.seeds.truncate(taken);
    drawn.epochs.truncate(taken);
    drawn.rows.truncate(taken);
    drawn.times.truncate(taken);
    drawn.labels.truncate(taken);
    drawn.tasks.truncate(taken);
    Ok(drawn)
}
