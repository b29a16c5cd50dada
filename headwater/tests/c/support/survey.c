/* Sampling damaged stores; see survey.h. */
#include "support/survey.h"
#include "support/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 3,
    BATCHES = 3,
    AD_HOC = 5,
    FIRST_FORMAT = 8, /* variants of the batch's format */
    MASKED_TASK = 12, /* and of masked cells */
    MASKED_TASKS,
    MASKED_TABLES,
    FIRST_FLAT, /* and of those that are like others, but flat */
};

static void demand(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "survey: %s\n", what);
        abort();
    }
}

static void expect_reason(hw_status status, const hw_error *error) {
    demand(status == HW_BAD_STORE || status == HW_BAD_TASK, error->message);
    demand(error->status == status && error->message[0] != 0, "a failure without a message");
}

static hw_sampler_options options_of(uint32_t variant) {
    static const uint32_t lengths[] = {64, 5, 24, 300};
    static const int64_t visible[] = {20 * INT64_C(86400000000), INT64_MIN, INT64_MAX};
    static const int64_t dealt[] = {35 * INT64_C(86400000000), 60 * INT64_C(86400000000)};
    int is_dealt = variant == 3 || variant == 9 || variant == MASKED_TASK;
    static const uint32_t tables[] = {0, 1}; /* every database has as many */
    int is_compact = variant == 8 || variant == 9 || variant == 11 || variant == MASKED_TASKS;
    int is_packed = variant == 10 || variant == 11, is_masked = variant >= MASKED_TASK;
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {0.5, 0.25, 0.25},
        .seed = variant,
        .batch_size = BATCH,
        .sequence_length = lengths[variant % 4],
        .max_rows = variant & 1 ? 6 : 0,
        .text_budget = variant < FIRST_FORMAT && variant & 2 ? 7 : 0,
        .child_width = variant & 1 ? 2 : 16,
        .width_scope = variant & 4 ? HW_WIDTH_PER_ROW : HW_WIDTH_PER_KEY,
        .child_order = variant & 2 ? HW_CHILDREN_RECENT : HW_CHILDREN_UNIFORM,
        .identifier_cells = (hw_identifier_cells)(variant % 3),
        .context_labels = (hw_context_labels)(variant % 4),
        .targets = variant & 4 ? HW_TARGETS_SEPARATE : HW_TARGETS_INLINE,
        .visible_until = variant == 7 ? visible : NULL,
        .time_split = is_dealt ? dealt : NULL,
        .num_prefetch = 0,
        .with_rows = variant & 1,
        .child_counts = variant & 1u,
        .label_rows = variant <= MASKED_TASK ? 2 : 0,
        .peer_labels = variant <= MASKED_TASK ? variant % 3 : 0,
        .layout = is_compact ? HW_LAYOUT_COMPACT : HW_LAYOUT_DENSE,
        .text_mode = variant == 9 || variant == MASKED_TASKS   ? HW_TEXTS_RESIDENT
                     : variant == 11 || variant == MASKED_TASK ? HW_TEXTS_NUMBERS
                                                               : HW_TEXTS_BATCH,
        .attention_masks = variant == 9 || variant == 10,
        .packing = (uint8_t)is_packed,
        .contexts_per_batch = variant == 10 ? 7 : 0,
        .context_length = variant == 10 ? 16 : 0,
        .objective = variant > MASKED_TASK ? HW_OBJECTIVE_MASKED_CELLS : HW_OBJECTIVE_TASK,
        .mask_ratio = is_masked ? 0.5 : 0,
        .cell_dropout = variant % 3 == 1 || variant == MASKED_TASK ? 0.4 : 0,
        .seed_tables = variant == MASKED_TABLES ? tables : NULL,
        .seed_table_count = variant == MASKED_TABLES ? 2 : 0,
    };
}

hw_sampler_options survey_options(uint32_t variant) {
    static const uint32_t like[SURVEY_VARIANTS - FIRST_FLAT] = {8, MASKED_TASK, MASKED_TASKS,
                                                                MASKED_TABLES};
    hw_sampler_options options =
        options_of(variant < FIRST_FLAT ? variant : like[variant - FIRST_FLAT]);
    if (variant >= FIRST_FLAT) {
        options.layout = HW_LAYOUT_FLAT;
        options.level_block = 2;
    }
    return options;
}

/* ---- what a batch must be, whatever the store is ----------------------------------------- */

/* NULL if the batch does not have the array. */
static const void *find_array(const hw_batch *batch, const char *name, uint64_t *count) {
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = tensor_of(batch, i);
        if (strcmp(tensor.name, name) == 0) {
            *count = tensor.bytes / hw_dtype_bytes(tensor.dtype);
            return tensor.data;
        }
    }
    return NULL;
}

static const void *array_of(const hw_batch *batch, const char *name, uint64_t *count) {
    const void *data = find_array(batch, name, count);
    demand(data != NULL, name);
    return data;
}

static void check_below(const hw_batch *batch, const char *name, uint32_t limit) {
    uint64_t count = 0;
    const uint32_t *values = array_of(batch, name, &count);
    for (uint64_t i = 0; i < count; i++) {
        demand(values[i] < limit || values[i] == 0, name);
    }
}

/* Flags are 0 or 1, whatever the store's files hold. */
static void check_flags(const hw_batch *batch) {
    static const char *const names[] = {
        "bool_values",
        "is_null",
        "is_target",
        "is_padding",
        "fk_adj",
        "column_mask",
        "feature_mask",
        "neighbor_mask",
        "padding_mask",
        "is_labelled",
        "target_is_null",
        "masked_numerical_is_null",
        "masked_text_is_null",
        "masked_timestamp_is_null",
        "masked_boolean_values",
        "masked_boolean_is_null",
        "masked_categorical_is_null",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t count = 0;
        const uint8_t *flags = find_array(batch, names[i], &count);
        for (uint64_t k = 0; flags != NULL && k < count; k++) {
            demand(flags[k] <= 1, names[i]);
        }
    }
}

/* Every sequence's order is a permutation of its positions; behind them there may be 65535. */
static void check_order(const hw_batch *batch, const char *name) {
    uint64_t count = 0;
    const uint16_t *places = array_of(batch, name, &count);
    uint64_t length = count / BATCH;
    uint8_t *seen = calloc((size_t)count + 1, 1);
    demand(seen != NULL, "out of memory");
    for (uint64_t i = 0; i < count; i++) {
        if (places[i] == UINT16_MAX && strcmp(name, "row_order") == 0) {
            continue;
        }
        demand(places[i] < length, name);
        uint8_t *at = &seen[i / length * length + places[i]];
        demand(!*at, name);
        *at = 1;
    }
    free(seen);
}

/* The numbers of a compact batch's cells, by type. */
static void check_cells(const hw_store_counts *counts, const hw_batch *batch, uint32_t text_limit) {
    uint64_t count = 0;
    const uint8_t *cells = array_of(batch, "cells", &count);
    const uint16_t *columns = array_of(batch, "cell_columns", &count);
    const uint32_t *values = array_of(batch, "cell_values", &count);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t type = cells[i] & HW_CELL_TYPE_MASK;
        uint64_t limit = type == HW_CATEGORICAL ? counts->category_count
                         : type == HW_TEXT      ? text_limit
                         : type == HW_BOOLEAN   ? 2
                                                : UINT64_MAX; /* any bits make a float */
        demand(columns[i] < counts->column_count + 3 * counts->key_count, "cell_columns");
        demand(values[i] < limit || values[i] == 0, "cell_values");
    }
    if (find_array(batch, "row_order", &count) != NULL) { /* not in the flat layout */
        check_order(batch, "row_order");
    }
}

/* Masked cells of a sequence, or flat of a context: entries of its lists, from `first` up to `end`.
 */
static uint64_t masked_count(const hw_batch *batch, uint64_t b, int32_t first, int32_t end) {
    static const char *const lists[] = {"masked_numerical_indices", "masked_timestamp_indices",
                                        "masked_boolean_indices", "masked_categorical_indices",
                                        "masked_text_indices"};
    uint64_t masked = 0, count = 0;
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++) {
        const int32_t *indices = find_array(batch, lists[list], &count);
        for (uint64_t i = b * (count / BATCH); indices != NULL && i < (b + 1) * (count / BATCH);
             i++) {
            demand(indices[i] == -1 || (indices[i] >= first && indices[i] < end), lists[list]);
            masked += indices[i] >= 0;
        }
    }
    return masked;
}

/* Contexts lie one behind the other, in whole rows; each has its target and its masked cells. */
static void check_contexts(const hw_batch *batch) {
    uint64_t count = 0, cell_count = 0, row_count = 0;
    const uint8_t *cells = array_of(batch, "cells", &cell_count);
    const int32_t *firsts = array_of(batch, "context_cells", &count);
    const int32_t *rows = array_of(batch, "context_rows", &count);
    const int32_t *targets = array_of(batch, "context_targets", &count);
    const uint32_t *starts = array_of(batch, "row_starts", &row_count);
    demand(count == BATCH && firsts[0] == 0 && rows[0] == 0, "the first context");
    demand(firsts[BATCH] <= (int32_t)cell_count && rows[BATCH] < (int32_t)row_count, "contexts");
    for (uint64_t b = 0; b < BATCH; b++) {
        uint64_t target_count = 0;
        demand(firsts[b] <= firsts[b + 1] && rows[b] <= rows[b + 1], "the order of contexts");
        demand(starts[rows[b]] == (uint32_t)firsts[b], "the first row of a context");
        for (int32_t i = firsts[b]; i < firsts[b + 1]; i++) {
            target_count += (cells[i] & HW_CELL_TARGET) != 0;
        }
        int has_target = targets[b] >= 0;
        demand(!has_target || (targets[b] >= firsts[b] && targets[b] < firsts[b + 1] &&
                               (cells[targets[b]] & HW_CELL_TARGET) != 0),
               "context_targets");
        demand(target_count ==
                   (uint64_t)has_target + masked_count(batch, b, firsts[b], firsts[b + 1]),
               "not one target in a context");
    }
    for (uint64_t i = (uint64_t)firsts[BATCH]; i < cell_count; i++) {
        demand(cells[i] == HW_CELL_PADDING, "padding");
    }
}

/* One target in a context, unless no task is asked, and its masked cells; none elsewhere. */
static void check_targets(const hw_batch *batch) {
    uint64_t count = 0, context_count = 0, ignored = 0;
    const uint8_t *compact = find_array(batch, "cells", &count);
    const uint8_t *targets = compact != NULL ? compact : array_of(batch, "is_target", &count);
    uint8_t bit = compact != NULL ? HW_CELL_TARGET : 1;
    int is_asked = *(const uint8_t *)array_of(batch, "target_stype", &ignored) != UINT8_MAX;
    const uint32_t *cells = array_of(batch, "num_cells", &context_count);
    const uint16_t *segments = find_array(batch, "segment_ids", &ignored);
    uint64_t length = count / BATCH, slots = context_count / BATCH;
    for (uint64_t b = 0; b < BATCH; b++) {
        for (uint64_t slot = 0; slot < slots; slot++) {
            uint64_t target_count = 0;
            for (uint64_t i = b * length; i < (b + 1) * length; i++) {
                int is_mine = segments == NULL || segments[i] == slot + 1;
                target_count += is_mine && (targets[i] & bit) != 0;
            }
            uint64_t expected = is_asked && cells[b * slots + slot] > 0;
            demand(target_count == expected + masked_count(batch, b, 0, (int32_t)length),
                   "not one target in a context");
        }
    }
}

/* Ids index embedding tables on a device, where nobody checks them again. */
static void check_batch(const hw_store *store, const hw_batch *batch) {
    hw_store_counts counts = counts_of(store);
    uint64_t hash = 0, count = 0;
    for (uint32_t i = 0; i < hw_batch_tensor_count(batch); i++) {
        hw_tensor tensor = tensor_of(batch, i);
        hash = hw_hash64(tensor.data, tensor.bytes, hash); /* reads all of it */
    }
    check_flags(batch);
    const uint32_t *texts = find_array(batch, "num_texts", &count);
    uint32_t text_limit = texts == NULL ? counts.text_count + 1 : *texts;
    if (find_array(batch, "cells", &count) != NULL) {
        check_cells(&counts, batch, text_limit);
    } else {
        check_below(batch, "categorical_embed_ids", counts.category_count);
        check_below(batch, "column_ids", counts.column_count + 3 * counts.key_count);
        check_below(batch, "text_embed_ids", text_limit);
        check_order(batch, "col_perm");
        check_order(batch, "out_perm");
    }
    if (find_array(batch, "context_cells", &count) != NULL) {
        check_contexts(batch);
    } else {
        check_targets(batch);
    }
    if (find_array(batch, "masked_text_values", &count) != NULL) {
        check_below(batch, "masked_text_values", text_limit);
        check_below(batch, "masked_categorical_values", counts.category_count);
    }
}

/* ---- one sampler ------------------------------------------------------------------------- */

static void take(const hw_store *store, hw_status status, hw_batch *batch, const hw_error *error,
                 struct survey *survey) {
    if (status == HW_OK) {
        survey->batches++;
        check_batch(store, batch);
        hw_batch_release(batch);
    } else {
        survey->failed++;
        expect_reason(status, error);
    }
}

static void drain(const hw_store *store, hw_pass *pass, struct survey *survey) {
    for (uint64_t k = 0; k < hw_pass_batch_count(pass); k++) {
        hw_batch *batch = NULL;
        hw_error error = {.message = ""};
        hw_status status = hw_pass_next(pass, -1, NULL, NULL, &batch, &error);
        take(store, status, batch, &error, survey);
        if (status != HW_OK) {
            break;
        }
    }
    hw_pass_close(pass);
}

static void pass_over_splits(const hw_store *store, hw_sampler *sampler, uint32_t task,
                             struct survey *survey) {
    hw_error error = {.message = ""};
    hw_pass *pass = NULL;
    for (int split = 0; split < HW_SPLIT_COUNT; split++) {
        if (hw_pass_open(sampler, (hw_split)split, task, 0, &pass, &error) == HW_OK) {
            drain(store, pass, survey);
        }
    }
}

/* Contexts as graphs; a seed that time_split leaves out has none. */
static void walk_alone(const hw_sampler *sampler, uint32_t task, uint32_t count) {
    for (uint32_t seed = 0; seed < count && seed < AD_HOC; seed++) {
        hw_subgraph *subgraph = NULL;
        hw_subgraph_arrays arrays = {.struct_bytes = sizeof arrays};
        hw_error error = {.message = ""};
        hw_status status = hw_sampler_subgraph(sampler, task, seed, 1, 1, &subgraph, &error);
        if (status != HW_OK) {
            demand(status == HW_BAD_STORE || status == HW_BAD_ARGUMENT, error.message);
            continue;
        }
        demand(hw_subgraph_get(subgraph, &arrays, &error) == HW_OK, error.message);
        for (uint32_t i = 0; i < 2 * arrays.edge_count; i++) {
            demand(arrays.local_edges[i] < arrays.row_count, "an edge");
        }
        hw_subgraph_close(subgraph);
    }
}

static void pass_over_task(const hw_store *store, hw_sampler *sampler, uint32_t task,
                           struct survey *survey) {
    hw_seeds seeds = {.struct_bytes = sizeof seeds};
    hw_error error = {.message = ""};
    hw_pass *pass = NULL;
    uint32_t anchors[AD_HOC];
    int64_t times[AD_HOC];
    pass_over_splits(store, sampler, task, survey);
    demand(hw_store_seeds(store, task, &seeds, &error) == HW_OK, error.message);
    walk_alone(sampler, task, seeds.count);
    for (uint32_t i = 0; i < AD_HOC && seeds.count > 0; i++) {
        anchors[i] = seeds.anchors[i % seeds.count];
        times[i] = i < 2 ? seeds.obs_times[i % seeds.count] : i < 4 ? INT64_MAX : INT64_MIN;
    }
    if (seeds.count > 0 &&
        hw_pass_open_seeds(sampler, task, anchors, times, AD_HOC, &pass, &error) == HW_OK) {
        drain(store, pass, survey);
    }
}

static void sample(hw_store *store, uint32_t variant, struct survey *survey) {
    hw_sampler_options options = survey_options(variant);
    hw_sampler *sampler = NULL;
    hw_error error = {.message = ""};
    hw_status status = hw_sampler_open(store, &options, &sampler, &error);
    if (status == HW_BAD_TASK && strstr(error.message, "predicts a foreign key") != NULL) {
        options.context_labels = HW_LABELS_NONE; /* all that such a task permits */
        status = hw_sampler_open(store, &options, &sampler, &error);
    }
    if (status != HW_OK) {
        survey->refused++;
        expect_reason(status, &error);
        return;
    }
    survey->opened++;
    int split_count = options.layout == HW_LAYOUT_FLAT ? 1 : HW_SPLIT_COUNT; /* train alone */
    for (int split = 0; split < split_count; split++) {
        for (uint64_t k = 0; k < BATCHES; k++) {
            hw_batch *batch = NULL;
            status = hw_sampler_batch(sampler, (hw_split)split, k, &batch, &error);
            take(store, status, batch, &error, survey);
        }
    }
    uint32_t task_count = counts_of(store).task_count;
    for (uint32_t column = 0; column < counts_of(store).column_count; column++) {
        double mean, std;
        status = hw_sampler_column_scale(sampler, column, &mean, &std, &error);
        demand(status == HW_OK && std >= 0, error.message);
    }
    for (uint32_t i = 0; i < options.seed_table_count; i++) {
        pass_over_splits(store, sampler, task_count + options.seed_tables[i], survey);
    }
    for (uint32_t task = 0; options.seed_tables == NULL && task < task_count; task++) {
        hw_target_stats stats = {.struct_bytes = sizeof stats};
        demand(hw_sampler_target_stats(sampler, task, &stats, &error) == HW_OK, error.message);
        pass_over_task(store, sampler, task, survey);
    }
    hw_sampler_close(sampler);
}

void survey_store(const char *path, uint32_t variant, struct survey *survey) {
    hw_store *store = NULL;
    hw_error error = {.message = ""};
    /* In memory: ASan knows the exact bounds. */
    hw_status status = hw_store_open(path, HW_LOAD_RAM, &store, &error);
    if (status != HW_OK) {
        expect_reason(status, &error);
        return;
    }
    sample(store, variant % SURVEY_VARIANTS, survey);
    hw_store_close(store);
}
