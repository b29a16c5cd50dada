//! Calls about a store, and views of its map.
//!
//! Texts and lists that C hands out here "belong to the store and last until its last reference is
//! dropped"; arrays are "a view of the map, valid while the store is open".

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr::{null, null_mut};

use headwater_sys as sys;

use super::{StoreHandle, c_text, call, out, read, text_of};
use crate::contents::{Cell, Column, ForeignKey, Known, Seeds, SemanticType, Table, Task};
use crate::error::{Error, Result};
use crate::option_table::ContextLabels;
use crate::store::{Load, Verify};

pub(crate) fn open_store(path: &Path, load: Load) -> Result<StoreHandle> {
    // SAFETY: a number.
    let abi = unsafe { sys::hw_abi() };
    if abi < sys::HW_ABI {
        let expected = sys::HW_ABI;
        let message = format!("the library has ABI {abi}, and this crate needs {expected}");
        return Err(Error::bad_argument(message));
    }
    let text = c_path(path)?;
    let load = match load {
        Load::Mmap => sys::HW_LOAD_MMAP,
        Load::Ram => sys::HW_LOAD_RAM,
    };
    // SAFETY: a terminated path, and outputs of this frame.
    let open = |store, error| unsafe { sys::hw_store_open(text.as_ptr(), load, store, error) };
    out(null_mut(), open).map(StoreHandle::of)
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::bad_argument(format!("{} holds a zero byte", path.display())))
}

/// folder: where C remembers what was read; None: nowhere.
pub(crate) fn check_files(
    store: &StoreHandle,
    verify: Verify,
    folder: Option<&Path>,
) -> Result<()> {
    let verify = match verify {
        Verify::Once => sys::HW_VERIFY_ONCE,
        Verify::Header => sys::HW_VERIFY_HEADER,
        Verify::Full => sys::HW_VERIFY_FULL,
    };
    let folder = folder.map(c_path).transpose()?;
    let folder = folder.as_ref().map_or(null(), |folder| folder.as_ptr());
    // SAFETY: as counts; a terminated path or NULL, and no callback.
    read::<sys::hw_verification>(|found, error| unsafe {
        sys::hw_store_check_files(store.get(), verify, folder, None, null_mut(), found, error)
    })?;
    Ok(())
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
    let offset_us = read.known_offset_us;
    Ok(Column {
        // SAFETY: as of tables.
        name: unsafe { text_of(read.name) },
        table: number(read.table),
        task: number(read.task),
        semantic_type: SemanticType::of_number(read.stype)?,
        known: match read.known {
            sys::HW_KNOWN_CREATION => Known::Creation,
            sys::HW_KNOWN_NEVER => Known::Never,
            sys::HW_KNOWN_COLUMN => Known::Column { column: read.known_column, offset_us },
            sys::HW_KNOWN_OFFSET => Known::Offset { offset_us },
            other => return Err(newer("columns that are known", other)),
        },
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
    // SAFETY: as of tables; both lists have a column for each of the key.
    let (name, columns, parent_columns) = unsafe {
        let columns = list_of(store, read.columns, count);
        (text_of(read.name), columns, list_of(store, read.parent_columns, count))
    };
    Ok(ForeignKey {
        name,
        child_table: read.child_table,
        parent_table: read.parent_table,
        columns: columns.to_vec(),
        parent_columns: parent_columns.to_vec(),
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
    let count = read.hidden_count as usize;
    // SAFETY: as of tables.
    let (name, hidden) = unsafe { (text_of(read.name), list_of(store, read.hidden, count)) };
    Ok(Task {
        name,
        anchor_table: read.anchor_table,
        target_column: read.target_column,
        target_type: SemanticType::of_number(read.target_stype)?,
        is_cell: read.is_cell != 0,
        time_column: number(read.obs_time_column),
        hidden: hidden.to_vec(),
        context_labels: match read.context_labels {
            sys::HW_LABELS_DEFAULT => ContextLabels::Default,
            sys::HW_LABELS_TRAIN => ContextLabels::Train,
            sys::HW_LABELS_NONE => ContextLabels::None,
            sys::HW_LABELS_ALL => ContextLabels::All,
            other => return Err(newer("tasks with context_labels", other)),
        },
        is_exclusive: read.exclusive != 0,
        has_given_split: read.given_split != 0,
        has_label_times: read.label_times != 0,
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
            key_hashes: list_of(store, read.key_hashes, count),
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

/// Calls `fault` for every fault; how many there are. A panic of it comes back when C is done.
pub(crate) fn verify(store: &StoreHandle, fault: &mut dyn FnMut(&str)) -> Result<u64> {
    struct Caller<'f> {
        fault: &'f mut dyn FnMut(&str),
        panic: Option<Box<dyn Any + Send>>,
    }
    extern "C" fn called(context: *mut c_void, message: *const c_char) {
        // SAFETY: the Caller of below, which nobody else has during the call, and a message.
        let (caller, message) =
            unsafe { (&mut *context.cast::<Caller<'_>>(), CStr::from_ptr(message)) };
        if caller.panic.is_none() {
            // After a panic it is not called again.
            let call = AssertUnwindSafe(|| (caller.fault)(&message.to_string_lossy()));
            caller.panic = catch_unwind(call).err();
        }
    }
    let mut caller = Caller { fault, panic: None };
    let context = (&raw mut caller).cast::<c_void>();
    // SAFETY: the callback runs within the call, in this thread, and panics into no C.
    let count = out(0, |count, error| unsafe {
        sys::hw_store_verify(store.get(), Some(called), context, count, error)
    });
    match caller.panic {
        Some(panic) => resume_unwind(panic),
        None => count,
    }
}

fn newer(what: &str, number: u32) -> Error {
    Error::bad_argument(format!(
        "the library has {what} in a way that is newer than this crate: {number}"
    ))
}
