//! The contents of a store: its tables, columns, foreign keys and tasks, and single rows.
#![forbid(unsafe_code)]

use std::ops::Range;

use headwater_sys as sys;

use crate::error::{Error, Result};
use crate::ffi;
use crate::option_table::ContextLabels;
use crate::store::Store;

/// The type of a column's cells; as a number it is that of `semantic_types` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum SemanticType {
    Identifier = 0,
    Numerical = 1,
    Timestamp = 2,
    Boolean = 3,
    Categorical = 4,
    Text = 5,
    /// In the schema, never in a context.
    Ignored = 6,
}

impl SemanticType {
    pub(crate) fn of_number(number: sys::hw_semantic_type) -> Result<SemanticType> {
        match number {
            sys::HW_IDENTIFIER => Ok(SemanticType::Identifier),
            sys::HW_NUMERICAL => Ok(SemanticType::Numerical),
            sys::HW_TIMESTAMP => Ok(SemanticType::Timestamp),
            sys::HW_BOOLEAN => Ok(SemanticType::Boolean),
            sys::HW_CATEGORICAL => Ok(SemanticType::Categorical),
            sys::HW_TEXT => Ok(SemanticType::Text),
            sys::HW_IGNORED => Ok(SemanticType::Ignored),
            other => Err(Error::bad_argument(format!(
                "the library has columns of a type that is newer than this crate: {other}"
            ))),
        }
    }
}

/// A table. Rows, columns and keys have numbers that count through the whole store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: Range<u32>,
    /// Its columns, those that are ignored included.
    pub columns: Range<u32>,
    /// Its foreign keys.
    pub keys: Range<u32>,
    /// The column with the times of its rows, if they have times.
    pub temporal_column: Option<u32>,
    /// Whether rows have a primary key.
    pub is_keyed: bool,
    /// The columns of the primary key; empty if there is none, or if a part of it is no column.
    pub primary_key: Vec<u32>,
}

/// When the cells of a column are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// With their row.
    Creation,
    /// Never: no context shows them.
    Never,
    /// So long after the time that another column of the row has.
    #[allow(missing_docs)]
    Column { column: u32, offset_us: i64 },
    /// So long after the time of the row.
    #[allow(missing_docs)]
    Offset { offset_us: i64 },
}

/// A column of a table, or the time or target of a derived task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its table; `None`: it is a task's.
    pub table: Option<u32>,
    /// Of a task's, the task.
    pub task: Option<u32>,
    /// The type of its cells.
    pub semantic_type: SemanticType,
    /// When its cells are known.
    pub known: Known,
    /// Its categories, among all those of the store.
    pub categories: Range<u32>,
    /// Numerical: a cell shows (value - mean) / std.
    pub mean: f64,
    /// See `mean`.
    pub std: f64,
    /// Cells with a value.
    pub values: u64,
    /// Cells that are NULL.
    pub nulls: u64,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignKey {
    /// The child's table and columns: `orders.customer_id`, `lines.order_id+line_no`.
    pub name: String,
    /// The table that refers.
    pub child_table: u32,
    /// The table that is referred to.
    pub parent_table: u32,
    /// Its columns.
    pub columns: Vec<u32>,
    /// The columns that they refer to; empty if metadata.json does not have them.
    pub parent_columns: Vec<u32>,
    /// Rows of the child table that have a parent.
    pub edges: u64,
    /// Rows with a NULL in the key.
    pub nulls: u64,
    /// Rows whose parent does not exist.
    pub dangling: u64,
}

/// A task: a question that is asked about rows of a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The table of the rows that are asked about.
    pub anchor_table: u32,
    /// The column that is asked for: of that table, or the task's own.
    pub target_column: u32,
    /// The type of the target.
    pub target_type: SemanticType,
    /// Whether the target is a column of the anchor table.
    pub is_cell: bool,
    /// The task's own column of the times at which it is asked; `None`: `is_cell`.
    pub time_column: Option<u32>,
    /// Columns that its contexts do not show.
    pub hidden: Vec<u32>,
    /// Which labels its contexts show if the options of the sampler do not say.
    pub context_labels: ContextLabels,
    /// Whether rows of the very time that is asked about are not shown.
    pub is_exclusive: bool,
    /// Whether seeds say themselves which split they are of.
    pub has_given_split: bool,
    /// Whether seeds say when their labels are known.
    pub has_label_times: bool,
    /// Its seeds.
    pub seeds: u32,
}

/// A cell, in the units of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Cell {
    Null,
    /// An identifier, whose value is not kept.
    Identifier,
    /// To about seven digits of the column's spread: a store keeps z-scores as `f32`.
    Number(f64),
    /// Microseconds since 1970-01-01 UTC.
    Time(i64),
    Boolean(bool),
    /// A category of the store: [`Store::category`].
    Category(u32),
    /// A text of the store: [`Store::text`].
    Text(u32),
}

/// The seeds of a task, as they lie in the store: slices of equal lengths.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Seeds<'s> {
    /// Global rows that are asked about.
    pub anchors: &'s [u32],
    /// When they are asked about, in microseconds; `i64::MAX`: no time.
    pub times: &'s [i64],
    /// Labels: the bits of an `f64`, microseconds, 0 or 1, or a place among the categories.
    pub targets: &'s [u64],
    /// In the low 4 bits 0: a label, 1: the label is NULL, 2: none; in the high 4 bits the split,
    /// or 15: each sampler deals it.
    pub states: &'s [u8],
    /// [`hash64`](crate::hash64) of the anchor's key, by which seeds are dealt to splits.
    pub key_hashes: &'s [u64],
    /// The caller's own numbers.
    pub positions: &'s [u32],
    /// When labels are known, if the task has such times; `i64::MAX`: never.
    pub label_times: Option<&'s [i64]>,
}

/// Which vectors: of texts, or of the names of columns or of categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum VectorsOf {
    Texts,
    Columns,
    Categories,
}

impl Store {
    /// All its tables, by number.
    pub fn tables(&self) -> Result<Vec<Table>> {
        (0..self.counts()?.tables).map(|table| self.table_info(table)).collect()
    }

    /// All its columns, by number: those of the tables, then those of derived tasks.
    pub fn columns(&self) -> Result<Vec<Column>> {
        (0..self.counts()?.columns).map(|column| self.column_info(column)).collect()
    }

    /// All its foreign keys, by number.
    pub fn keys(&self) -> Result<Vec<ForeignKey>> {
        (0..self.counts()?.keys).map(|key| self.key_info(key)).collect()
    }

    /// All its tasks, by number.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        (0..self.counts()?.tasks).map(|task| self.task_info(task)).collect()
    }

    /// A table by its number.
    pub fn table_info(&self, table: u32) -> Result<Table> {
        ffi::table_info(&self.0, table)
    }

    /// A column by its number.
    pub fn column_info(&self, column: u32) -> Result<Column> {
        ffi::column_info(&self.0, column)
    }

    /// A foreign key by its number.
    pub fn key_info(&self, key: u32) -> Result<ForeignKey> {
        ffi::key_info(&self.0, key)
    }

    /// A task by its number.
    pub fn task_info(&self, task: u32) -> Result<Task> {
        ffi::task_info(&self.0, task)
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

    /// The number of a column of a table.
    pub fn column(&self, table: &str, name: &str) -> Result<u32> {
        ffi::find_column(&self.0, table, name)
    }

    /// The number of a foreign key, by the name of [`ForeignKey`].
    pub fn key(&self, name: &str) -> Result<u32> {
        ffi::find_key(&self.0, name)
    }

    /// A category of the store.
    pub fn category(&self, category: u32) -> Result<&str> {
        utf8(ffi::category(&self.0, category)?)
    }

    /// A text of the store, as its bytes.
    pub fn text(&self, text: u32) -> Result<&[u8]> {
        ffi::text(&self.0, text)
    }

    /// The same, if it is UTF-8, as all texts are that the Python package writes.
    pub fn text_str(&self, text: u32) -> Result<&str> {
        utf8(self.text(text)?)
    }

    /// A cell of a row, in a column of its table.
    pub fn cell(&self, row: u32, column: u32) -> Result<Cell> {
        ffi::cell(&self.0, row, column)
    }

    /// The table of a row, by its number.
    pub fn row_table(&self, row: u32) -> Result<u32> {
        ffi::row_table(&self.0, row)
    }

    /// The time of a row in microseconds; `i64::MAX` or `i64::MIN` if it has none.
    pub fn row_time(&self, row: u32) -> Result<i64> {
        ffi::row_time(&self.0, row)
    }

    /// The row that a row refers to by a foreign key, if there is one.
    pub fn parent(&self, row: u32, key: u32) -> Result<Option<u32>> {
        ffi::parent(&self.0, row, key)
    }

    /// The rows that refer to a row by a foreign key, oldest first.
    pub fn children(&self, row: u32, key: u32) -> Result<&[u32]> {
        ffi::children(&self.0, row, key)
    }

    /// The parts of a row's primary key, as bytes.
    pub fn row_key(&self, row: u32) -> Result<Vec<&[u8]>> {
        let is_cut = || Error::of_status(sys::HW_BAD_STORE, format!("the key of row {row} is cut"));
        let (mut rest, mut parts) = (ffi::row_key(&self.0, row)?, Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let (part, after) = behind.split_at_checked(length).ok_or_else(is_cut)?;
            parts.push(part);
            rest = after;
        }
        if rest.is_empty() { Ok(parts) } else { Err(is_cut()) }
    }

    /// The same, if they are UTF-8.
    pub fn row_key_str(&self, row: u32) -> Result<Vec<&str>> {
        self.row_key(row)?.into_iter().map(utf8).collect()
    }

    /// The row of a table with a primary key, by the texts of its parts.
    pub fn find<P: AsRef<[u8]>>(&self, table: u32, parts: &[P]) -> Result<Option<u32>> {
        let mut key = Vec::new();
        for part in parts {
            let part = part.as_ref();
            let length = u32::try_from(part.len())
                .map_err(|_| Error::bad_argument("a part of a key has 4 GB or more"))?;
            key.extend(length.to_le_bytes());
            key.extend(part);
        }
        ffi::find_row(&self.0, table, &key)
    }

    /// The rows of many keys, each as in [`Store::find`].
    pub fn find_all<K: AsRef<[P]>, P: AsRef<[u8]>>(
        &self,
        table: u32,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<u32>>> {
        keys.into_iter().map(|key| self.find(table, key.as_ref())).collect()
    }

    /// All vectors of a kind, one after the other, as the bits of float16, and their width.
    pub fn vectors(&self, of: VectorsOf) -> Result<(&[u16], usize)> {
        let kind = match of {
            VectorsOf::Texts => sys::HW_EMBED_TEXTS,
            VectorsOf::Columns => sys::HW_EMBED_COLUMNS,
            VectorsOf::Categories => sys::HW_EMBED_CATEGORIES,
        };
        let width = self.counts()?.text_dim as usize;
        Ok((ffi::vectors(&self.0, kind, width)?, width))
    }

    /// The seeds of a task.
    pub fn seeds(&self, task: u32) -> Result<Seeds<'_>> {
        ffi::seeds(&self.0, task)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::of_status(sys::HW_BAD_STORE, format!("a text: {error}")))
}
