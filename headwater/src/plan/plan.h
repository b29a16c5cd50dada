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
#include "base/moments.h"
#include "headwater.h"
#include "plan/options.h"
#include "store/store.h"

#define HWI_MAX_SCRATCH_BYTES ((uint64_t)1 << 31) /* of one worker */
#define HWI_SCHEDULE_BLOCK 1024u
#define HWI_TALLY_CELLS 3u /* of a row, for each key that points at it: count, last, first */
#define HWI_MASKED_TYPES 5 /* numerical, timestamp, boolean, categorical, text */
#define HWI_SPLIT_AD_HOC 3u /* the split's number in random keys of seeds given by the caller */

/* The arrays of a batch; fields.c holds their names, dtypes and shapes in the same order. */
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
    HWI_TEXT_BATCH_EMBEDDINGS,
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

/* Where one array of a batch lies in the slab. */
struct hwi_field {
    const hw_batch_field *format;
    uint64_t offset; /* bytes, a multiple of 64 */
    uint64_t bytes;
    uint64_t shape[3];
    uint32_t rank;
};

/* A cell whose lane is copied as it is. */
struct hwi_cell_value {
    uint32_t lane; /* byte offset in the record */
    uint32_t cell;
};

/* Every `stretch`-th time of a large table, so that a search touches few lines; walk/cutoff.c. */
struct hwi_time_marks {
    int64_t *times; /* [count]: of row (i + 1) * stretch */
    uint32_t count, stretch;
};
HWI_CHECK hw_status hwi_time_marks_open(struct hwi_time_marks *marks, const struct hwi_table *table,
                                        hw_error *error);
void hwi_time_marks_release(struct hwi_time_marks *marks);

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

struct hwi_known_label {
    int64_t known_at; /* us */
    uint32_t seed;
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
    struct hwi_label_edges *label_edges; /* [label_edge_count], of foreign keys with the target
                                            where labels may not be shown: walk/shown_edges.h */
    uint32_t label_edge_count;
    uint8_t hides_edges; /* 1: some foreign key has the target or a hidden column */
    hw_target_stats stats;
};

/* How a numerical column is shown where that is not as the store has it. */
struct hwi_scale {
    double z_mean, z_std; /* of the store's z-scores: a z-score by these is what is shown */
    double mean, std; /* the same in the column's own units */
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
    uint8_t lists_parents; /* edges are parents, else fk_adj */
    uint64_t offsets[HWI_FIELD_COUNT]; /* in the slab; UINT64_MAX: not in this sampler's batches */
    uint64_t slab_bytes;
    struct hwi_calendar calendar;
    double time_mean_us, time_std_us; /* of the z-scored epoch */
    struct hwi_scale *scales; /* [column_count]; NULL: the store's z-scores are shown */
    uint64_t mask_words; /* of the 2^32 words of a stream: those that mask a cell; 0: none is */
    /* With mask_words, [column_count], by row of the column's table a bit, or NULL for none: */
    uint64_t **held_out; /* the cell is the label of a val or test seed: never masked */
    uint64_t **hidden_labels; /* objective masked cells: never shown; some are those of held_out */
    uint32_t child_slots; /* most keys that point at one table */
    struct hwi_plan *staging; /* with packing: of the unpacked batch of contexts_per_batch sequences
                                 that is made first; it shares all else. NULL without */
};

/* The plan that sequences are made by. */
static inline const struct hwi_plan *hwi_making_plan(const struct hwi_plan *plan) {
    return plan->staging != NULL ? plan->staging : plan;
}

/* fields.c: decides which arrays the batches have and where they lie. */
HWI_CHECK hw_status hwi_fields_plan(struct hwi_plan *plan, hw_error *error);
/* `bytes` into an array of this sampler's batches: a hwi_field_id, or a number between two. */
static inline void *hwi_field_at(const struct hwi_plan *plan, uint8_t *slab, uint32_t id,
                                 size_t bytes) {
    return slab + plan->offsets[id] + bytes;
}

/* Where the cells of texts hold their numbers. */
static inline enum hwi_field_id hwi_text_ids_field(const struct hwi_plan *plan) {
    return plan->options.layout == HW_LAYOUT_COMPACT ? HWI_CELL_VALUES : HWI_TEXT_EMBED_IDS;
}

/* Fills defaults, checks every option (HW_BAD_ARGUMENT names it), reads the seeds once. */
HWI_CHECK hw_status hwi_plan_open(hw_store *store, const hw_sampler_options *options,
                                  struct hwi_plan **plan, hw_error *error);
void hwi_plan_close(struct hwi_plan *plan);
/* tasks.c: the selected tasks, from the options as the caller gave them. */
HWI_CHECK hw_status hwi_plan_tasks(struct hwi_plan *plan, const hw_sampler_options *options,
                                   hw_error *error);
void hwi_plan_tasks_release(struct hwi_plan *plan);
/* scales.c: the scales of what is shown, before the tasks are planned. */
HWI_CHECK hw_status hwi_plan_scales(struct hwi_plan *plan, hw_error *error);
/* The mean and the deviation by which a numerical column of a table is shown. */
void hwi_column_scale(const struct hwi_plan *plan, uint32_t column, double *mean, double *std);
/* What is shown of a number of the store that is not NULL. */
static inline float hwi_shown_number(const struct hwi_plan *plan, uint32_t column, float z) {
    const struct hwi_scale *scale = plan->scales == NULL ? NULL : &plan->scales[column];
    return scale == NULL ? z : hwi_z_score((double)z, scale->z_mean, scale->z_std);
}
/* masking.c: which cells may be masked, once the tables are planned. */
HWI_CHECK hw_status hwi_plan_masked(struct hwi_plan *plan, const hw_sampler_options *options,
                                    hw_error *error);
void hwi_plan_masked_release(struct hwi_plan *plan);
/* The seeds of a task plan that stands for a table. */
HWI_CHECK hw_status hwi_plan_seed_table(const struct hwi_plan *plan, uint32_t table,
                                        struct hwi_task_plan *task, hw_error *error);
/* tasks.c: memory for the splits and lists of a task's seeds; then the lists from the splits,
 * where HW_SPLIT_NONE means none. */
HWI_CHECK hw_status hwi_task_lists_open(struct hwi_task_plan *task, hw_error *error);
void hwi_task_lists_deal(struct hwi_task_plan *task);
/* walk/label_rows.c: with peer_labels, the labels of a task that contexts may show. O(seeds log
 * seeds). */
HWI_CHECK hw_status hwi_known_labels_open(const struct hwi_plan *plan, struct hwi_task_plan *task,
                                          hw_error *error);
/* The split of a seed, HW_BAD_STORE where the store holds none. */
HWI_CHECK hw_status hwi_seed_split(const struct hwi_plan *plan, uint32_t task, uint32_t seed,
                                   uint8_t *split, hw_error *error);
/* What train_on_val and time_split make of a split, given when the seed is asked and when its label
 * is known. */
uint8_t hwi_dealt_split(const struct hwi_plan *plan, uint8_t split, int64_t asked, int64_t known);
uint8_t hwi_hashed_split(const hw_sampler_options *options, uint64_t key_hash, uint64_t name_hash);
/* batch/shape.c: the shape of the batches and where their arrays lie, from the options as checked.
 */
HWI_CHECK hw_status hwi_plan_shape(struct hwi_plan *plan, hw_error *error);

static inline int hwi_is_task_objective(const struct hwi_plan *plan) {
    return plan->options.objective == HW_OBJECTIVE_TASK;
}

/* ---- order.c: positions to seeds --------------------------------------------------------- */

/* The selected task (index into plan->tasks) of batch k of a split's stream; HW_BAD_TASK if the
 * split has no seeds in any task. */
HWI_CHECK hw_status hwi_order_task(const struct hwi_plan *plan, hw_split split, uint64_t k,
                                   uint32_t *task, hw_error *error);
/* How many of the batches [0, k) are of that task. */
uint64_t hwi_order_task_batches(const struct hwi_plan *plan, hw_split split, uint64_t k,
                                uint32_t task);

/* What one sequence is made from. */
struct hwi_seed {
    uint32_t task; /* index into plan->tasks */
    uint32_t split; /* hw_split, or HWI_SPLIT_AD_HOC */
    uint32_t epoch;
    uint32_t index; /* seed within the task (stored order), or position in an ad-hoc list */
    uint32_t anchor; /* global row */
    int64_t obs_time;
};
/* The seed at a global position of a (split, task) stream. */
struct hwi_seed hwi_order_seed(const struct hwi_plan *plan, hw_split split, uint32_t task,
                               uint64_t position);

/* Keyed permutation of [0, count): where `index` goes. count >= 1, index < count. */
uint32_t hwi_permute(uint64_t key, uint32_t count, uint32_t index);

/* ---- batch/worker.c: sequences ------------------------------------------------------------- */

/* Scratch of one batch in production (batch/texts.h): each sequence's texts until the batch is
 * finished. */
struct hwi_batch_scratch;
HWI_CHECK hw_status hwi_batch_scratch_open(const struct hwi_plan *plan,
                                           struct hwi_batch_scratch **scratch, hw_error *error);
void hwi_batch_scratch_close(struct hwi_batch_scratch *scratch);

/*
 * One sequence to make: sequence b of the batch in `slab` (plan->slab_bytes, 64-byte aligned, and
 * holding what batch/slab.h promises: zeros, or what the last batch left). Different b of one batch
 * may be made by different workers at once.
 */
struct hwi_work {
    struct hwi_seed seed;
    int is_real; /* 0: an empty sequence, all padding, without a seed */
    uint8_t *slab;
    struct hwi_batch_scratch *scratch;
    uint32_t b;
    void *owner; /* the caller's */
};

/*
 * A worker makes several works at once, in turns, so that one waits for memory while the others
 * compute; which ones they are never shows in what they become. One thread at a time. Allocates
 * everything it will ever need.
 */
struct hwi_worker;
HWI_CHECK hw_status hwi_worker_open(const struct hwi_plan *plan, struct hwi_worker **worker,
                                    hw_error *error);
void hwi_worker_close(struct hwi_worker *worker);
/* How many more works it can take. */
uint32_t hwi_worker_room(const struct hwi_worker *worker);
/* Takes a work in; needs room. */
void hwi_worker_start(struct hwi_worker *worker, const struct hwi_work *work);
/* Advances its works, of which there must be one, until one is finished, which leaves. After an
 * error they can only be abandoned. */
HWI_CHECK hw_status hwi_worker_advance(struct hwi_worker *worker, struct hwi_work *finished,
                                       hw_error *error);
/* Forgets its works. */
void hwi_worker_abandon(struct hwi_worker *worker);

/* Counters a worker adds to; the loader collects them. */
struct hwi_counters {
    uint64_t sequences, cells, rows, walk_ns, emit_ns, text_ns, stopped_by_rows, texts_over_budget;
    uint64_t contexts_cut, contexts_dropped, cells_cut, packed_cells, packed_sequences;
    uint64_t masked_cells, masked_over_limit, withheld_cells;
};
/* Adds counters to *sum and clears them. */
void hwi_counters_take(struct hwi_counters *own, struct hwi_counters *sum);
void hwi_worker_take_counters(struct hwi_worker *worker, struct hwi_counters *sum);

/* What a context holds. */
struct hwi_measure {
    uint32_t cells, rows, texts; /* texts: distinct ones */
    uint32_t targets; /* masked cells of the type that has most */
};
/* Walks a seed without emitting. For the plan's sample; the worker has room. */
HWI_CHECK hw_status hwi_sequence_measure(struct hwi_worker *worker, const struct hwi_seed *seed,
                                         struct hwi_measure *measure, hw_error *error);

/* ---- batch/texts.c: what a batch adds to its sequences ------------------------------------- */

/*
 * After all sequences: numbers the distinct texts of the batch and writes the [1] arrays. Returns
 * in how many parts the rest of the work may be claimed, at least one. sequence_count counts the
 * real sequences; task is an index into plan->tasks.
 */
uint32_t hwi_batch_merge(const struct hwi_plan *plan, uint8_t *slab,
                         struct hwi_batch_scratch *scratch, uint32_t task, uint32_t sequence_count);
/* One part: vectors of texts, and the numbers of texts in cells. Any threads at once. */
void hwi_batch_gather(const struct hwi_plan *plan, uint8_t *slab,
                      const struct hwi_batch_scratch *scratch, uint32_t part);
/* After the last part; with packing this is where the contexts are packed, which counts. */
void hwi_batch_finish(const struct hwi_plan *plan, uint8_t *slab, struct hwi_batch_scratch *scratch,
                      uint32_t sequence_count, struct hwi_counters *counters);

#endif
