/*
 * The plan of a sampler: everything that is decided once, from the store and the options, and then
 * only read by the workers. Order (which seed comes when), visibility (which label may be shown),
 * emission (what a row of each table turns into) and the layout of a batch's memory all live here,
 * so that making sequence i of batch k needs the plan, a worker's scratch, and nothing else.
 */
#ifndef HWI_PLAN_H
#define HWI_PLAN_H

#include "base/calendar.h"
#include "base/error.h"
#include "headwater.h"
#include "plan/batch_fields.h"
#include "plan/time_marks.h"
#include "store/store.h"

#define HWI_MAX_SCRATCH_BYTES ((uint64_t)1 << 31) /* of one worker */
#define HWI_SCHEDULE_BLOCK 1024u
#define HWI_TALLY_CELLS 3u /* of a row, for each key that points at it: count, last, first */
#define HWI_SPLIT_AD_HOC 3u /* the split's number in random keys of seeds given by the caller */

/* A cell whose lane is copied as it is. */
struct hwi_cell_value {
    uint32_t lane; /* byte offset in the record */
    uint32_t cell;
};

/*
 * What a row of a table turns into: arrays over cells in schema order. The first cell_count are the
 * ones every row emits unless something withholds them; behind them stand the identifiers that the
 * options leave out, of which a row that would be empty shows the first.
 */
struct hwi_table_plan {
    uint32_t cell_count, all_count;
    uint32_t
        *columns; /* global column; this and the next two may be read 7 elements past the end */
    uint16_t *short_columns; /* the same */
    uint8_t *stypes;
    uint32_t *null_bits;
    uint32_t *lanes; /* byte offset in the record of the 4-byte lane; 0 where there is none */
    uint32_t *numeric_masks; /* ~0 where the lane is of that type, else 0 */
    uint32_t *category_masks;
    uint32_t *text_masks;
    uint32_t *bool_masks; /* 1 or 0 */
    /* For rows that emit all of the first cell_count cells: */
    struct hwi_cell_value *values; /* numbers, then categories, texts and booleans */
    uint32_t number_count, category_count, bool_count; /* and text_count */
    uint32_t null_offset; /* of the null bits in a record */
    uint8_t nulls_in_order; /* 1: null bit c is cell c's */
    uint32_t *value_masks; /* all four together: what of the lane is the cell's one value */
    uint32_t *time_cells; /* which cells are timestamps, [time_count] */
    uint32_t time_count;
    uint32_t *text_cells; /* which cells are texts, [text_count] */
    uint32_t text_count;
    uint8_t *maskable; /* 1: may be chosen to be masked; NULL: no cell is */
    uint8_t late_cells; /* 1: some cell has known_at */
    uint8_t late_keys; /* 1: some foreign key of the table has */
    struct hwi_time_marks marks;
    uint32_t time_lane, time_null_bit; /* where a row's time stands, less time_offset_us; lane 0:
                                          only in the table's times */
    int64_t time_offset_us;
};

static inline int hwi_is_null_cell(const struct hwi_table_plan *cells, const uint8_t *nulls,
                                   uint32_t cell) {
    return nulls[cells->null_bits[cell] / 8] >> (cells->null_bits[cell] % 8) & 1;
}

/* Seeds of one (split, task): indices into the task's seeds, ascending. */
struct hwi_seed_list {
    const uint32_t *seeds;
    uint32_t count;
};

enum hwi_special_column {
    HWI_SPECIAL_HIDDEN = 1,
    HWI_SPECIAL_TARGET = 2, /* of the cell task that is asked */
    HWI_SPECIAL_LABELS = 4, /* objective masked cells: holds labels that contexts may not show */
};

/* A task, or a table of which the rows are seeds: seed i is its row i. */
struct hwi_task_plan {
    uint32_t task; /* the store's number; of a seed table the store's task count + its own */
    uint32_t seed_table; /* HWI_NONE: a task */
    const struct hwi_task_info *info; /* the store's, or row_info */
    struct hwi_task_info row_info; /* of a seed table: its anchor_table and flags, no target */
    struct hwi_seed_list lists[HW_SPLIT_COUNT];
    uint32_t *seed_storage;
    uint8_t *splits; /* [seeds] */
    uint8_t active[HW_SPLIT_COUNT]; /* 1: has seeds and a weight, so it is scheduled */
    uint64_t *label_hidden; /* bit per row of the anchor table: its target cell is a label that
                               contexts may not show; NULL: nothing to hide */
    struct hwi_known_label *known_labels; /* with peer_labels: those that contexts may show, by
                                             when they are known, then as stored */
    uint32_t known_count;
    uint8_t *special_tables; /* [table_count] 1: has a hidden column or the target */
    uint8_t *special_keys; /* [key_count] what its columns are: of hwi_special_column */
    uint8_t *special_columns; /* [column_count] of hwi_special_column */
    uint8_t hides_edges; /* 1: some foreign key has the target or a hidden column */
    uint8_t asks_for_key; /* 1: the target is a column of a foreign key */
    hw_target_stats stats;
};

/* How a numerical column is shown where that is not as the store has it. */
struct hwi_scale {
    double z_mean, z_std; /* of the store's z-scores: a z-score by these is what is shown */
    double mean, std; /* the same in the column's own units */
};

/* Batches of a task in the flat layout. */
struct hwi_flat_task {
    hw_flat_shape shape;
    uint32_t step_cells, step_rows; /* of all ranks that share the batches of a stream */
};

struct hwi_plan {
    hw_store *store;
    hw_sampler_options options; /* with the defaults filled in; pointers not valid */
    hw_shape shape;
    uint32_t text_quota; /* distinct texts per sequence */
    int64_t visible_until[HW_SPLIT_COUNT];
    int64_t time_split[2]; /* from, until; only if is_split_by_time */
    uint8_t is_split_by_time;
    uint32_t stale_seconds; /* the longest gap of a train seed; 0: there are none */
    uint64_t fresh_words; /* of the 2^32 first words of a stream: those that give no gap */
    struct hwi_table_plan *tables; /* [table_count] */
    struct hwi_task_plan *tasks; /* [task_count], the selected ones in the store's order */
    uint32_t task_count;
    uint32_t active_tasks[HW_SPLIT_COUNT]; /* tasks that have seeds in the split */
    uint32_t *schedule[HW_SPLIT_COUNT]; /* [task_count + 1] cumulative batches per block */
    struct hwi_field fields[HWI_FIELD_COUNT]; /* those this sampler has, in the table's order */
    uint32_t field_count;
    uint8_t has_fk_adj; /* edges are a matrix too */
    uint64_t offsets[HWI_FIELD_COUNT]; /* in the slab; UINT64_MAX: not in this sampler's batches */
    uint64_t slab_bytes;
    struct hwi_calendar calendar;
    double time_mean_us, time_std_us; /* of the z-scored epoch */
    struct hwi_scale *scales; /* [column_count]; NULL: the store's z-scores are shown */
    uint64_t mask_words; /* of the 2^32 words of a stream: those that mask a cell; 0: none is */
    /* With mask_words, [column_count], by row of the column's table a bit, or NULL for none: */
    uint64_t **held_out; /* the cell is the label of a val or test seed: never masked */
    uint64_t **hidden_labels; /* objective masked cells: never shown; some are those of held_out */
    uint64_t drop_words; /* of the 2^32 draws of a cell: those that drop it from a train context; 0:
                            none does, nor while the shape is chosen, as budgets are of whole
                            contexts */
    uint32_t child_slots; /* most keys that point at one table */
    struct hwi_flat_task *flat; /* [task_count]; NULL but in the flat layout */
    struct hwi_plan
        *staging; /* with packing and in the flat layout: of the batch of
                     contexts_per_batch sequences that is made first, one context in
                     each, of the shape of a context; it shares all else. NULL without */
};

/* The plan that sequences are made by. */
static inline const struct hwi_plan *hwi_making_plan(const struct hwi_plan *plan) {
    return plan->staging != NULL ? plan->staging : plan;
}

/* `bytes` into an array of this sampler's batches: a hwi_field_id, or a number between two. */
static inline void *hwi_field_at(const struct hwi_plan *plan, uint8_t *slab, uint32_t id,
                                 size_t bytes) {
    return slab + plan->offsets[id] + bytes;
}

/* Whether a cell is a byte of flags, a column, a value and a time. */
static inline int hwi_is_compact(const struct hwi_plan *plan) {
    return plan->options.layout != HW_LAYOUT_DENSE;
}

/* Whether each batch has texts of its own, which its cells name. */
static inline int hwi_lists_texts(const struct hwi_plan *plan) {
    return plan->options.text_mode != HW_TEXTS_RESIDENT;
}

/* The array of these texts, and the bytes of one of them there. */
static inline enum hwi_field_id hwi_texts_field(const struct hwi_plan *plan) {
    int is_vectors = plan->options.text_mode == HW_TEXTS_BATCH;
    return is_vectors ? HWI_TEXT_BATCH_EMBEDDINGS : HWI_TEXT_NUMBERS;
}

static inline size_t hwi_text_bytes(const struct hwi_plan *plan) {
    int is_vectors = plan->options.text_mode == HW_TEXTS_BATCH;
    return is_vectors ? (size_t)plan->shape.text_dim * 2 : sizeof(uint32_t);
}

/* Where the cells of texts hold their numbers. */
static inline enum hwi_field_id hwi_text_ids_field(const struct hwi_plan *plan) {
    return hwi_is_compact(plan) ? HWI_CELL_VALUES : HWI_TEXT_EMBED_IDS;
}

static inline int hwi_is_task_objective(const struct hwi_plan *plan) {
    return plan->options.objective == HW_OBJECTIVE_TASK;
}

#endif
