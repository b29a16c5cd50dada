//! All that is not safe: calls of C, and the memory that it hands out.
//!
//! Each block says by which sentence of headwater.h it is right. What this module lets out is safe.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::time::Duration;

use headwater_sys as sys;

use crate::batch::Dtype;
use crate::contents::{Cell, Column, ForeignKey, Seeds, SemanticType, Table, Task};
use crate::error::{Error, Result};
use crate::options::{Options, Resolved};
use crate::sampler::Split;
use crate::state::Facts;
use crate::store::{Load, Store};

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
unsafe trait Filled: Copy {}

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
    hw_shape hw_sampler_stats hw_target_stats hw_tensor hw_sampler_options
}

/// The struct with its size set, and nothing else.
fn empty<T: Filled>() -> T {
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

// ---- store ---------------------------------------------------------------------------------

pub(crate) fn open_store(path: &Path, load: Load) -> Result<StoreHandle> {
    // SAFETY: a number.
    let abi = unsafe { sys::hw_abi() };
    if abi < sys::HW_ABI {
        let expected = sys::HW_ABI;
        let message = format!("the library has ABI {abi}, and this crate needs {expected}");
        return Err(Error::bad_argument(message));
    }
    let bytes = path.as_os_str().as_bytes();
    let text = CString::new(bytes)
        .map_err(|_| Error::bad_argument(format!("{} holds a zero byte", path.display())))?;
    let load = match load {
        Load::Mmap => sys::HW_LOAD_MMAP,
        Load::Ram => sys::HW_LOAD_RAM,
    };
    // SAFETY: a terminated path, and outputs of this frame.
    let open = |store, error| unsafe { sys::hw_store_open(text.as_ptr(), load, store, error) };
    out(null_mut(), open).map(StoreHandle::of)
}

pub(crate) fn fingerprint(store: &StoreHandle) -> String {
    // SAFETY: hex digits and a zero, of the store.
    unsafe { text_of(sys::hw_store_fingerprint(store.get())) }
}

pub(crate) fn counts(store: &StoreHandle) -> Result<sys::hw_store_counts> {
    // SAFETY: `counts` has its size set, here and in every `read`.
    read(|counts, error| unsafe { sys::hw_store_get_counts(store.get(), counts, error) })
}

/// A list that the store has, which lasts as long as the store.
///
/// # Safety
/// `start` has `count` elements in the store's memory, or is NULL.
unsafe fn list_of<T>(_store: &StoreHandle, start: *const T, count: usize) -> &[T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's; the map is aligned, never written, and there until the last reference
    // to the store is dropped, of which `_store` is one.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// None for the number that C has for none.
fn number(number: u32) -> Option<u32> {
    (number != u32::MAX).then_some(number)
}

pub(crate) fn table_info(store: &StoreHandle, table: u32) -> Result<Table> {
    // SAFETY: as counts.
    let read = read::<sys::hw_table_info>(|info, error| unsafe {
        sys::hw_store_table_info(store.get(), table, info, error)
    })?;
    let count = read.primary_key_count as usize;
    // SAFETY: "names end with a zero", and lists are the store's.
    let (name, key) = unsafe { (text_of(read.name), list_of(store, read.primary_key, count)) };
    Ok(Table {
        name,
        rows: read.first_row..read.first_row + read.row_count,
        columns: read.first_column..read.first_column + read.column_count,
        keys: read.first_key..read.first_key + read.key_count,
        temporal_column: number(read.temporal_column),
        is_keyed: read.is_keyed != 0,
        primary_key: key.to_vec(),
    })
}

pub(crate) fn column_info(store: &StoreHandle, column: u32) -> Result<Column> {
    // SAFETY: as counts.
    let read = read::<sys::hw_column_info>(|info, error| unsafe {
        sys::hw_store_column_info(store.get(), column, info, error)
    })?;
    Ok(Column {
        // SAFETY: as of tables.
        name: unsafe { text_of(read.name) },
        table: number(read.table),
        semantic_type: SemanticType::of_number(read.stype)?,
        categories: read.first_category..read.first_category + read.category_count,
        mean: read.mean,
        std: read.std,
        values: read.value_count,
        nulls: read.null_count,
    })
}

pub(crate) fn key_info(store: &StoreHandle, key: u32) -> Result<ForeignKey> {
    // SAFETY: as counts.
    let read = read::<sys::hw_key_info>(|info, error| unsafe {
        sys::hw_store_key_info(store.get(), key, info, error)
    })?;
    let count = read.column_count as usize;
    // SAFETY: as of tables.
    let (name, columns) = unsafe { (text_of(read.name), list_of(store, read.columns, count)) };
    Ok(ForeignKey {
        name,
        child_table: read.child_table,
        parent_table: read.parent_table,
        columns: columns.to_vec(),
        edges: read.edge_count,
        nulls: read.null_count,
        dangling: read.dangling_count,
    })
}

pub(crate) fn task_info(store: &StoreHandle, task: u32) -> Result<Task> {
    // SAFETY: as counts.
    let read = read::<sys::hw_task_info>(|info, error| unsafe {
        sys::hw_store_task_info(store.get(), task, info, error)
    })?;
    Ok(Task {
        // SAFETY: as of tables.
        name: unsafe { text_of(read.name) },
        anchor_table: read.anchor_table,
        target_column: read.target_column,
        target_type: SemanticType::of_number(read.target_stype)?,
        is_cell: read.is_cell != 0,
        seeds: read.seed_count,
    })
}

pub(crate) fn find_column(store: &StoreHandle, table: &str, name: &str) -> Result<u32> {
    let (table, name) = (c_text(table)?, c_text(name)?);
    // SAFETY: as find_table.
    out(0, |column, error| unsafe {
        let (table, name) = (table.as_ptr(), name.as_ptr());
        sys::hw_store_find_column(store.get(), table, name, column, error)
    })
}

pub(crate) fn find_key(store: &StoreHandle, name: &str) -> Result<u32> {
    let name = c_text(name)?;
    // SAFETY: as find_table.
    out(0, |key, error| unsafe { sys::hw_store_find_key(store.get(), name.as_ptr(), key, error) })
}

/// A text of the store that a function gives as its start and its bytes.
fn bytes_of<T>(
    store: &StoreHandle,
    function: impl FnOnce(*mut *const T, *mut usize, *mut sys::hw_error) -> sys::hw_status,
) -> Result<&[u8]> {
    let (mut start, mut bytes) = (null(), 0);
    call(|error| function(&mut start, &mut bytes, error))?;
    // SAFETY: the functions that are given here hand out views of the map.
    Ok(unsafe { list_of(store, start.cast::<u8>(), bytes) })
}

pub(crate) fn category(store: &StoreHandle, category: u32) -> Result<&[u8]> {
    // SAFETY: outputs of bytes_of, here and below.
    bytes_of(store, |text, bytes, error| unsafe {
        sys::hw_store_category(store.get(), category, text, bytes, error)
    })
}

pub(crate) fn text(store: &StoreHandle, index: u32) -> Result<&[u8]> {
    // SAFETY: as category.
    bytes_of(store, |text, bytes, error| unsafe {
        sys::hw_store_text(store.get(), index, text, bytes, error)
    })
}

pub(crate) fn row_key(store: &StoreHandle, row: u32) -> Result<&[u8]> {
    // SAFETY: as category.
    bytes_of(store, |key, bytes, error| unsafe {
        sys::hw_store_row_key(store.get(), row, key, bytes, error)
    })
}

pub(crate) fn find_row(store: &StoreHandle, table: u32, key: &[u8]) -> Result<Option<u32>> {
    // SAFETY: the key is there for the call.
    out(0, |row, error| unsafe {
        sys::hw_store_find(store.get(), table, key.as_ptr().cast(), key.len(), row, error)
    })
    .map(number)
}

pub(crate) fn cell(store: &StoreHandle, row: u32, column: u32) -> Result<Cell> {
    // SAFETY: as counts.
    let read = read::<sys::hw_cell>(|cell, error| unsafe {
        sys::hw_store_cell(store.get(), row, column, cell, error)
    })?;
    if read.is_null != 0 {
        return Ok(Cell::Null);
    }
    Ok(match SemanticType::of_number(read.stype)? {
        SemanticType::Identifier => Cell::Identifier,
        SemanticType::Numerical => Cell::Number(read.number),
        SemanticType::Timestamp | SemanticType::Ignored => Cell::Time(read.time_us),
        SemanticType::Boolean => Cell::Boolean(read.number != 0.0),
        SemanticType::Categorical => Cell::Category(read.index),
        SemanticType::Text => Cell::Text(read.index),
    })
}

pub(crate) fn row_table(store: &StoreHandle, row: u32) -> Result<u32> {
    // SAFETY: outputs of `out`, here and below.
    out(0, |table, error| unsafe { sys::hw_store_row_table(store.get(), row, table, error) })
}

pub(crate) fn row_time(store: &StoreHandle, row: u32) -> Result<i64> {
    // SAFETY: as row_table.
    out(0, |time, error| unsafe { sys::hw_store_row_time(store.get(), row, time, error) })
}

pub(crate) fn parent(store: &StoreHandle, row: u32, key: u32) -> Result<Option<u32>> {
    // SAFETY: as row_table.
    out(0, |parent, error| unsafe { sys::hw_store_parent(store.get(), row, key, parent, error) })
        .map(number)
}

pub(crate) fn children(store: &StoreHandle, row: u32, key: u32) -> Result<&[u32]> {
    let (mut start, mut count) = (null(), 0);
    // SAFETY: outputs of this frame.
    call(|error| unsafe {
        sys::hw_store_children(store.get(), row, key, &mut start, &mut count, error)
    })?;
    // SAFETY: "a view of the map".
    Ok(unsafe { list_of(store, start, count as usize) })
}

pub(crate) fn vectors(
    store: &StoreHandle,
    kind: sys::hw_embedding_kind,
    width: usize,
) -> Result<&[u16]> {
    let (mut start, mut count) = (null(), 0);
    // SAFETY: outputs of this frame.
    call(|error| unsafe {
        sys::hw_store_vectors(store.get(), kind, &mut start, &mut count, error)
    })?;
    // SAFETY: "float16 [count, text_dim], a view of the map", of which `width` is text_dim.
    Ok(unsafe { list_of(store, start.cast::<u16>(), count as usize * width) })
}

pub(crate) fn seeds(store: &StoreHandle, task: u32) -> Result<Seeds<'_>> {
    // SAFETY: as counts.
    let read = read::<sys::hw_seeds>(|seeds, error| unsafe {
        sys::hw_store_seeds(store.get(), task, seeds, error)
    })?;
    let count = read.count as usize;
    // SAFETY: "views of the map, all [count]"; only label_times may be NULL.
    Ok(unsafe {
        Seeds {
            anchors: list_of(store, read.anchors, count),
            times: list_of(store, read.obs_times, count),
            targets: list_of(store, read.targets, count),
            states: list_of(store, read.states, count),
            positions: list_of(store, read.positions, count),
            label_times: (!read.label_times.is_null())
                .then(|| list_of(store, read.label_times, count)),
        }
    })
}

pub(crate) fn find_table(store: &StoreHandle, name: &str) -> Result<u32> {
    let name = c_text(name)?;
    // SAFETY: a terminated name, and outputs of this frame.
    out(0, |table, error| unsafe {
        sys::hw_store_find_table(store.get(), name.as_ptr(), table, error)
    })
}

pub(crate) fn find_task(store: &StoreHandle, name: &str) -> Result<u32> {
    let name = c_text(name)?;
    // SAFETY: as find_table.
    out(0, |task, error| unsafe {
        sys::hw_store_find_task(store.get(), name.as_ptr(), task, error)
    })
}

pub(crate) fn metadata(store: &StoreHandle) -> Result<&str> {
    // SAFETY: as category.
    let text = bytes_of(store, |text, bytes, error| unsafe {
        sys::hw_store_metadata(store.get(), text, bytes, error)
    })?;
    std::str::from_utf8(text)
        .map_err(|error| Error::of_status(sys::HW_BAD_STORE, format!("metadata.json: {error}")))
}

pub(crate) fn verify(store: &StoreHandle) -> Result<Vec<String>> {
    extern "C" fn fault(context: *mut c_void, message: *const c_char) {
        // A panic must not cross C: of a full memory the process ends anyway.
        // SAFETY: the Vec of below, which nobody else has during the call, and a message.
        unsafe { (*context.cast::<Vec<String>>()).push(text_of(message)) };
    }
    let mut faults = Vec::<String>::new();
    let context = (&raw mut faults).cast::<c_void>();
    // SAFETY: the callback runs within the call, in this thread.
    out(0, |count, error| unsafe {
        sys::hw_store_verify(store.get(), Some(fault), context, count, error)
    })?;
    Ok(faults)
}

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

pub(crate) fn open_chosen(
    sampler: &SamplerHandle,
    task: u32,
    seeds: &[u32],
    epochs: &[u32],
) -> Result<PassHandle> {
    assert_eq!(seeds.len(), epochs.len());
    let count = u32::try_from(seeds.len())
        .map_err(|_| Error::bad_argument(format!("{} seeds in one pass", seeds.len())))?;
    // SAFETY: "The arrays are copied", and have `count` entries each.
    let open = |pass, error| unsafe {
        let (seeds, epochs) = (seeds.as_ptr(), epochs.as_ptr());
        sys::hw_pass_open_chosen(sampler.get(), task, seeds, epochs, count, pass, error)
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
    table_base: usize,
    position_count: usize,
}

// SAFETY: "One thread at a time": it moves, and is not Sync.
unsafe impl Send for PoolHandle {}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        // SAFETY: the pool is this one's alone.
        unsafe { sys::hw_seed_pool_close(self.pool.as_ptr()) }
    }
}

impl PoolHandle {
    /// What is added to the number of a table where functions say a task; 0 without seed tables.
    pub(crate) fn table_base(&self) -> usize {
        self.table_base
    }
}

pub(crate) struct Drawn {
    pub(crate) task: u32,
    pub(crate) seeds: Vec<u32>,
    pub(crate) epochs: Vec<u32>,
    pub(crate) rows: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) labels: Vec<f64>,
}

pub(crate) fn open_pool(
    store: &Store,
    options: &Options,
    split: Split,
    require_label: bool,
) -> Result<PoolHandle> {
    with_options(store, options, |raw, _| {
        // SAFETY: as open_sampler; no label columns. A pool retains its store.
        let pool = out(null_mut(), |pool, error| unsafe {
            let (split, labels) = (split.number(), u8::from(require_label));
            sys::hw_seed_pool_open(store.0.get(), raw, split, labels, null(), pool, error)
        })?;
        let pool = NonNull::new(pool).expect("HW_OK comes with a pool");
        let counts = counts(&store.0)?;
        let (tasks, tables) = (counts.task_count as usize, counts.table_count as usize);
        let table_base = if options.has_seed_tables() { tasks } else { 0 };
        Ok(PoolHandle { pool, table_base, position_count: tasks + tables })
    })
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

/// Sets how many seeds were drawn of each task to the same number.
pub(crate) fn pool_set_drawn(pool: &mut PoolHandle, drawn: u64) {
    let positions = vec![drawn; pool.position_count];
    // SAFETY: as many positions as there are tasks, or with seed tables tables behind them.
    unsafe { sys::hw_seed_pool_set_position(pool.pool.as_ptr(), positions.as_ptr(), 0) }
}

pub(crate) fn pool_next(pool: &mut PoolHandle, count: usize) -> Result<Drawn> {
    let wanted = u32::try_from(count)
        .map_err(|_| Error::bad_argument(format!("{count} seeds in one batch")))?;
    let mut drawn = Drawn {
        task: 0,
        seeds: vec![0; count],
        epochs: vec![0; count],
        rows: vec![0; count],
        times: vec![0; count],
        labels: vec![0.0; count],
    };
    let into = sys::hw_drawn_seeds {
        struct_bytes: size_of::<sys::hw_drawn_seeds>(),
        seeds: drawn.seeds.as_mut_ptr(),
        epochs: drawn.epochs.as_mut_ptr(),
        rows: drawn.rows.as_mut_ptr(),
        obs_times: drawn.times.as_mut_ptr(),
        labels: drawn.labels.as_mut_ptr(),
    };
    let mut taken = 0;
    // SAFETY: arrays of `count` entries each.
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
    Ok(drawn)
}
