// Written by tools/rust_fields.py from the table of arrays that the C library has.
use crate::batch::{Array, Batch};
use crate::error::Result;

/// The arrays by name, each as [`Batch::array`] gives it: an error if the options leave it out.
/// B sequences, S cells of one, R rows of one, U texts, D_t the width of vectors, P foreign keys
/// of a row, M masked cells of one type; [`Sampler::shape`](crate::Sampler::shape) has them.
/// Shapes are those of the dense and compact layouts without packing; `batch.md` of the
/// documentation has all.
impl Batch {
    /// `[B, S]` of `i8`, with `layout=dense`: hw_semantic_type of the cell.
    pub fn semantic_types(&self) -> Result<Array<'_>> {
        self.array("semantic_types")
    }

    /// `[B, S]` of `i32`, with `layout=dense`: global column.
    pub fn column_ids(&self) -> Result<Array<'_>> {
        self.array("column_ids")
    }

    /// `[B, S]` of `u16`, with `layout=dense`: sequence-local row.
    pub fn seq_row_ids(&self) -> Result<Array<'_>> {
        self.array("seq_row_ids")
    }

    /// `[B, S]` of `f32`, with `layout=dense`: z-score by column.
    pub fn numeric_values(&self) -> Result<Array<'_>> {
        self.array("numeric_values")
    }

    /// `[B, S, 15]` of `f32`, with `layout=dense`: sin, cos of second/60, minute/60, hour/24,
    /// weekday/7, day-1/31, month-1/12, day of year-1/366; then the z-scored epoch.
    pub fn timestamp_values(&self) -> Result<Array<'_>> {
        self.array("timestamp_values")
    }

    /// `[B, S]` of `u8`, with `layout=dense`: 0 or 1.
    pub fn bool_values(&self) -> Result<Array<'_>> {
        self.array("bool_values")
    }

    /// `[B, S]` of `u32`, with `layout=dense`: global category.
    pub fn categorical_embed_ids(&self) -> Result<Array<'_>> {
        self.array("categorical_embed_ids")
    }

    /// `[B, S]` of `u32`, with `layout=dense`: batch-local text; resident: text + 1.
    pub fn text_embed_ids(&self) -> Result<Array<'_>> {
        self.array("text_embed_ids")
    }

    /// `[B, S]` of `u8`, with `layout=dense`: 1 where the cell is NULL.
    pub fn is_null(&self) -> Result<Array<'_>> {
        self.array("is_null")
    }

    /// `[B, S]` of `u8`, with `layout=dense`: 1 at the cell to predict.
    pub fn is_target(&self) -> Result<Array<'_>> {
        self.array("is_target")
    }

    /// `[B, S]` of `u8`, with `layout=dense`: 1 past the last cell.
    pub fn is_padding(&self) -> Result<Array<'_>> {
        self.array("is_padding")
    }

    /// `[B, R, R]` of `u8`, with `layout=dense`: 1 at \[b, i, j\] iff row i has a foreign key to
    /// row j.
    pub fn fk_adj(&self) -> Result<Array<'_>> {
        self.array("fk_adj")
    }

    /// `[B, R, P]` of `u16`: local parent by foreign key, 65535 where none is in the context.
    pub fn parents(&self) -> Result<Array<'_>> {
        self.array("parents")
    }

    /// `[B, S]` of `u16`, with `layout=dense`: stable order by (padding, column, position).
    pub fn col_perm(&self) -> Result<Array<'_>> {
        self.array("col_perm")
    }

    /// `[B, S]` of `u16`, with `layout=dense`: cells by row in reverse Cuthill-McKee order, padding
    /// last.
    pub fn out_perm(&self) -> Result<Array<'_>> {
        self.array("out_perm")
    }

    /// `[B, S]` of `u16`, with `layout=dense`: the same order as out_perm, the same memory.
    pub fn in_perm(&self) -> Result<Array<'_>> {
        self.array("in_perm")
    }

    /// `[B, S]` of `u8`, with `layout=compact, flat`: semantic type in bits 0-2; is_null 8,
    /// is_target 16, is_padding 32.
    pub fn cells(&self) -> Result<Array<'_>> {
        self.array("cells")
    }

    /// `[B, S]` of `u16`, with `layout=compact, flat`: global column.
    pub fn cell_columns(&self) -> Result<Array<'_>> {
        self.array("cell_columns")
    }

    /// `[B, S]` of `u32`, with `layout=compact, flat`: bits of a float32 z-score (numbers, times),
    /// 0 or 1, category, or text.
    pub fn cell_values(&self) -> Result<Array<'_>> {
        self.array("cell_values")
    }

    /// `[B, S]` of `u32`, with `layout=compact, flat`: second of the day | weekday << 17 | (day of
    /// the year, + 366 in a leap year) << 20.
    pub fn cell_times(&self) -> Result<Array<'_>> {
        self.array("cell_times")
    }

    /// `[B, R]` of `u16`, with `layout=compact`: rows in reverse Cuthill-McKee order, 65535 where
    /// unused.
    pub fn row_order(&self) -> Result<Array<'_>> {
        self.array("row_order")
    }

    /// `[B, S, S]` of `u8`, with `attention_masks`: 0 where both cells are of one column, and on
    /// the diagonal; else 1.
    pub fn column_mask(&self) -> Result<Array<'_>> {
        self.array("column_mask")
    }

    /// `[B, S, S]` of `u8`, with `attention_masks`: 0 where both cells are of one row, and on the
    /// diagonal; else 1.
    pub fn feature_mask(&self) -> Result<Array<'_>> {
        self.array("feature_mask")
    }

    /// `[B, S, S]` of `u8`, with `attention_masks`: 0 where an edge joins the cells' rows either
    /// way, and on the diagonal; else 1.
    pub fn neighbor_mask(&self) -> Result<Array<'_>> {
        self.array("neighbor_mask")
    }

    /// `[B, S]` of `u8`, with `attention_masks`: 1 past the last cell.
    pub fn padding_mask(&self) -> Result<Array<'_>> {
        self.array("padding_mask")
    }

    /// `[B, S]` of `u16`, with `packing`: context of the cell from 1, 0 past the last.
    pub fn segment_ids(&self) -> Result<Array<'_>> {
        self.array("segment_ids")
    }

    /// `[B]` of `u32`, with `packing, layout=flat`: contexts of each sequence.
    pub fn num_contexts(&self) -> Result<Array<'_>> {
        self.array("num_contexts")
    }

    /// `[1, B+1]` of `i32`, with `layout=flat`: first cell of each context, then the cells of all;
    /// empty ones repeat them.
    pub fn context_cells(&self) -> Result<Array<'_>> {
        self.array("context_cells")
    }

    /// `[1, B+1]` of `i32`, with `layout=flat`: the same of rows.
    pub fn context_rows(&self) -> Result<Array<'_>> {
        self.array("context_rows")
    }

    /// `[1, B]` of `i32`, with `layout=flat`: position of the task's target, -1 where none.
    pub fn context_targets(&self) -> Result<Array<'_>> {
        self.array("context_targets")
    }

    /// `[U, D_t]` of `f16`, with `text_mode=batch`: row 0 zero, then distinct texts by first
    /// appearance, then zero.
    pub fn text_batch_embeddings(&self) -> Result<Array<'_>> {
        self.array("text_batch_embeddings")
    }

    /// `[U]` of `u32`, with `text_mode=numbers`: the same texts by the store's number + 1; 0, which
    /// is none, where those have zeros.
    pub fn text_numbers(&self) -> Result<Array<'_>> {
        self.array("text_numbers")
    }

    /// `[1]` of `u8`: semantic type of the target.
    pub fn target_stype(&self) -> Result<Array<'_>> {
        self.array("target_stype")
    }

    /// `[1]` of `u32`: task, in store order.
    pub fn task_idx(&self) -> Result<Array<'_>> {
        self.array("task_idx")
    }

    /// `[1]` of `u32`: first category of the target, else 0.
    pub fn cat_emb_start(&self) -> Result<Array<'_>> {
        self.array("cat_emb_start")
    }

    /// `[1]` of `u32`: categories of the target, else 0.
    pub fn cat_emb_count(&self) -> Result<Array<'_>> {
        self.array("cat_emb_count")
    }

    /// `[B, R]` of `f32`: days before obs_time, -1 where none.
    pub fn row_ages(&self) -> Result<Array<'_>> {
        self.array("row_ages")
    }

    /// `[B, R+1]` of `u16`: first cell of each row, then num_cells.
    pub fn row_starts(&self) -> Result<Array<'_>> {
        self.array("row_starts")
    }

    /// `[B, R]` of `u16`: table of each row, 65535 for a task's seed row; 0 where unused.
    pub fn row_tables(&self) -> Result<Array<'_>> {
        self.array("row_tables")
    }

    /// `[B, R]` of `u8`, with `with_rows`: hops from the first row, at most 255.
    pub fn row_depths(&self) -> Result<Array<'_>> {
        self.array("row_depths")
    }

    /// `[1]` of `u32`, with `layout=dense, compact`: sequences that count; the rest is padding.
    pub fn num_sequences(&self) -> Result<Array<'_>> {
        self.array("num_sequences")
    }

    /// `[1]` of `u32`, with `text_mode=batch, numbers`: texts of the batch, with the first, which
    /// is none.
    pub fn num_texts(&self) -> Result<Array<'_>> {
        self.array("num_texts")
    }

    /// `[B]` of `u32`, with `layout=dense, compact`: cells of each sequence.
    pub fn num_cells(&self) -> Result<Array<'_>> {
        self.array("num_cells")
    }

    /// `[B]` of `u32`, with `layout=dense, compact`: rows of each sequence.
    pub fn num_rows(&self) -> Result<Array<'_>> {
        self.array("num_rows")
    }

    /// `[B]` of `u8`: 1 where the sequence counts and has a target.
    pub fn is_labelled(&self) -> Result<Array<'_>> {
        self.array("is_labelled")
    }

    /// `[B, 15]` of `f32`, with `targets=separate`: truth: 15 values of a timestamp; else \[0\] is
    /// the z-score, 0/1, or place in the block.
    pub fn target_values(&self) -> Result<Array<'_>> {
        self.array("target_values")
    }

    /// `[B]` of `u8`, with `targets=separate`: 1 where the truth is NULL.
    pub fn target_is_null(&self) -> Result<Array<'_>> {
        self.array("target_is_null")
    }

    /// `[B]` of `i32`, with `mask_ratio, objective=task, layout=dense, compact`: position of the
    /// task's target, -1 where none.
    pub fn target_indices(&self) -> Result<Array<'_>> {
        self.array("target_indices")
    }

    /// `[B, M]` of `i32`, with `mask_ratio`: positions of masked numbers, -1 where unused.
    pub fn masked_numerical_indices(&self) -> Result<Array<'_>> {
        self.array("masked_numerical_indices")
    }

    /// `[B, M]` of `f32`, with `mask_ratio`: z-score by column.
    pub fn masked_numerical_values(&self) -> Result<Array<'_>> {
        self.array("masked_numerical_values")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 1 where NULL.
    pub fn masked_numerical_is_null(&self) -> Result<Array<'_>> {
        self.array("masked_numerical_is_null")
    }

    /// `[B, M]` of `i32`, with `mask_ratio`: positions of masked times, -1 where unused.
    pub fn masked_timestamp_indices(&self) -> Result<Array<'_>> {
        self.array("masked_timestamp_indices")
    }

    /// `[B, M, 15]` of `f32`, with `mask_ratio`: as timestamp_values.
    pub fn masked_timestamp_values(&self) -> Result<Array<'_>> {
        self.array("masked_timestamp_values")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 1 where NULL.
    pub fn masked_timestamp_is_null(&self) -> Result<Array<'_>> {
        self.array("masked_timestamp_is_null")
    }

    /// `[B, M]` of `i32`, with `mask_ratio`: positions of masked booleans, -1 where unused.
    pub fn masked_boolean_indices(&self) -> Result<Array<'_>> {
        self.array("masked_boolean_indices")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 0 or 1.
    pub fn masked_boolean_values(&self) -> Result<Array<'_>> {
        self.array("masked_boolean_values")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 1 where NULL.
    pub fn masked_boolean_is_null(&self) -> Result<Array<'_>> {
        self.array("masked_boolean_is_null")
    }

    /// `[B, M]` of `i32`, with `mask_ratio`: positions of masked categories, -1 where unused.
    pub fn masked_categorical_indices(&self) -> Result<Array<'_>> {
        self.array("masked_categorical_indices")
    }

    /// `[B, M]` of `u32`, with `mask_ratio`: global category.
    pub fn masked_categorical_values(&self) -> Result<Array<'_>> {
        self.array("masked_categorical_values")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 1 where NULL.
    pub fn masked_categorical_is_null(&self) -> Result<Array<'_>> {
        self.array("masked_categorical_is_null")
    }

    /// `[B, M]` of `i32`, with `mask_ratio`: positions of masked texts, -1 where unused.
    pub fn masked_text_indices(&self) -> Result<Array<'_>> {
        self.array("masked_text_indices")
    }

    /// `[B, M]` of `u32`, with `mask_ratio`: as text_embed_ids.
    pub fn masked_text_values(&self) -> Result<Array<'_>> {
        self.array("masked_text_values")
    }

    /// `[B, M]` of `u8`, with `mask_ratio`: 1 where NULL.
    pub fn masked_text_is_null(&self) -> Result<Array<'_>> {
        self.array("masked_text_is_null")
    }

    /// `[B]` of `i64`, for the host only: microseconds; INT64_MAX: none.
    pub fn obs_time(&self) -> Result<Array<'_>> {
        self.array("obs_time")
    }

    /// `[B]` of `u32`, for the host only: seed within the whole task.
    pub fn seed_index(&self) -> Result<Array<'_>> {
        self.array("seed_index")
    }

    /// `[B]` of `u32`, for the host only: global row of the anchor.
    pub fn anchor_rows(&self) -> Result<Array<'_>> {
        self.array("anchor_rows")
    }

    /// `[B, R]` of `u32`, with `with_rows`, for the host only: global rows, 2^32-1 where unused or
    /// the seed row.
    pub fn row_ids(&self) -> Result<Array<'_>> {
        self.array("row_ids")
    }
}
