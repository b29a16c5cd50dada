/* The arrays of a batch. */
#ifndef HWI_BATCH_FIELDS_H
#define HWI_BATCH_FIELDS_H

#include "headwater.h"

#define HWI_MASKED_TYPES 5 /* numerical, timestamp, boolean, categorical, text */

/* batch_fields.c holds their names, dtypes and shapes in the same order. */
enum hwi_field_id {
    HWI_SEMANTIC_TYPES,
    HWI_COLUMN_IDS,
    HWI_SEQ_ROW_IDS,
    HWI_NUMERIC_VALUES,
    HWI_TIMESTAMP_VALUES,
    HWI_BOOL_VALUES,
    HWI_CATEGORICAL_EMBED_IDS,
    HWI_TEXT_EMBED_IDS,
    HWI_IS_NULL,
    HWI_IS_TARGET,
    HWI_IS_PADDING,
    HWI_FK_ADJ,
    HWI_PARENTS,
    HWI_COL_PERM,
    HWI_OUT_PERM,
    HWI_IN_PERM,
    HWI_CELLS,
    HWI_CELL_COLUMNS,
    HWI_CELL_VALUES,
    HWI_CELL_TIMES,
    HWI_ROW_ORDER,
    HWI_COLUMN_MASK,
    HWI_FEATURE_MASK,
    HWI_NEIGHBOR_MASK,
    HWI_PADDING_MASK,
    HWI_SEGMENT_IDS,
    HWI_NUM_CONTEXTS,
    HWI_CONTEXT_CELLS,
    HWI_CONTEXT_ROWS,
    HWI_CONTEXT_TARGETS,
    HWI_TEXT_BATCH_EMBEDDINGS,
    HWI_TEXT_NUMBERS,
    HWI_TARGET_STYPE,
    HWI_TASK_IDX,
    HWI_CAT_EMB_START,
    HWI_CAT_EMB_COUNT,
    HWI_ROW_AGES,
    HWI_ROW_STARTS,
    HWI_ROW_TABLES,
    HWI_ROW_DEPTHS,
    HWI_NUM_SEQUENCES,
    HWI_NUM_TEXTS,
    HWI_NUM_CELLS,
    HWI_NUM_ROWS,
    HWI_IS_LABELLED,
    HWI_TARGET_VALUES,
    HWI_TARGET_IS_NULL,
    HWI_TARGET_INDICES,
    HWI_MASKED_LISTS, /* indices, values and nulls of each semantic type from HW_NUMERICAL on */
    HWI_MASKED_LISTS_END = HWI_MASKED_LISTS + 3 * HWI_MASKED_TYPES,
    HWI_INFO_OBS_TIME = HWI_MASKED_LISTS_END,
    HWI_INFO_SEED_INDEX,
    HWI_INFO_ANCHOR_ROWS,
    HWI_INFO_ROW_IDS,
    HWI_FIELD_COUNT,
};

/* Which size of a batch's own (hw_batch_sizes) an array has: for its first dimension, or in the
 * flat layout for its second, behind one of 1. */
enum hwi_varies {
    HWI_VARIES_NOT,
    HWI_VARIES_TEXTS,
    HWI_VARIES_CELLS,
    HWI_VARIES_ROWS,
    HWI_VARIES_ROW_STARTS,
};

/* Where one array of a batch lies in the slab: of the most that a batch may hold. */
struct hwi_field {
    const hw_batch_field *format;
    hw_dtype dtype;
    enum hwi_varies varies;
    uint64_t offset; /* bytes, a multiple of 64 */
    uint64_t bytes;
    uint64_t shape[3];
    uint32_t rank;
};

/* The format of an array by its place in the enum. */
const hw_batch_field *hwi_batch_field(unsigned id);

#endif
