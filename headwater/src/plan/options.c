/*
 * The options of a sampler, one row each: what bindings, checks, saved states and docs are made
 * from. An option is a row here, a member of hw_sampler_options and the code that reads it.
 */
#include "plan/options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"

static const char *const WIDTH_SCOPES[] = {"foreign_key", "row", NULL};
static const char *const CHILD_ORDERS[] = {"uniform", "recent", NULL};
static const char *const IDENTIFIER_CELLS[] = {"all", "foreign_keys", "none", NULL};
static const char *const CONTEXT_LABELS[] = {"default", "train", "none", "all", NULL};
static const char *const SHARDS[] = {"fixed", "dealt", NULL};
static const char *const TARGETS[] = {"inline", "separate", NULL};
static const char *const TASK_ORDERS[] = {"weighted", "round_robin", NULL};
static const char *const LAYOUTS[] = {"dense", "compact", "flat", NULL};
static const char *const TEXT_MODES[] = {"batch", "resident", "numbers", NULL};
static const char *const OBJECTIVES[] = {"task", "masked_cells", NULL};

#define AT(member) offsetof(hw_sampler_options, member)
#define MOST_U32 4294967295.0
#define CONTENTS 1 /* decides what is in contexts, or their order */

/* The first of each row is struct_bytes, which hw_option_field_at sets. */
/* clang-format off */
static const hw_option_field FIELDS[] = {
    {0, "rank", HW_OPTION_UINT32, AT(rank), 1, {0}, 0, MOST_U32, NULL, 0,
     "this process's number, from 0: every seed is seen by exactly one rank per epoch"},
    {0, "world_size", HW_OPTION_UINT32, AT(world_size), 1, {1}, 1, MOST_U32, NULL, 0,
     "number of processes that share the seeds"},
    {0, "shard", HW_OPTION_WORD, AT(shard), 1, {HW_SHARD_FIXED}, 0, HW_SHARD_DEALT, SHARDS, CONTENTS,
     "whether a seed belongs to one rank for good, or each epoch deals the seeds anew"},
    {0, "split_ratios", HW_OPTION_DOUBLE, AT(split_ratios), 3, {0.8, 0.1, 0.1}, 0, 1, NULL, CONTENTS,
     "shares of train, val and test, where the task does not say which seed is which"},
    {0, "split_seed", HW_OPTION_UINT64, AT(split_seed), 1, {123}, 0, 0x1p64, NULL, CONTENTS,
     "decides which seed is in which split, nothing else"},
    {0, "seed", HW_OPTION_UINT64, AT(seed), 1, {42}, 0, 0x1p64, NULL, CONTENTS,
     "order of seeds and draws of children"},
    {0, "batch_size", HW_OPTION_UINT32, AT(batch_size), 1, {32}, 1, HWI_MAX_BATCH, NULL, 0,
     "B, sequences per batch"},
    {0, "sequence_length", HW_OPTION_UINT32, AT(sequence_length), 1, {1024}, 2, HWI_MAX_SEQUENCE,
     NULL, CONTENTS, "S, cells per sequence"},
    {0, "max_rows", HW_OPTION_UINT32, AT(max_rows), 1, {0}, 2, HWI_MAX_SEQUENCE, NULL, CONTENTS,
     "R, rows per sequence; by default chosen from a sample"},
    {0, "child_width", HW_OPTION_UINT32, AT(child_width), 1, {16}, 1, HWI_MAX_CHILD_WIDTH, NULL,
     CONTENTS, "most children taken of a row, per foreign key or in all (width_scope)"},
    {0, "max_hops", HW_OPTION_UINT32, AT(max_hops), 1, {0}, 1, MOST_U32, NULL, CONTENTS,
     "most hops from the anchor to a row, and 1 more; 0: no limit"},
    {0, "width_scope", HW_OPTION_WORD, AT(width_scope), 1, {HW_WIDTH_PER_KEY}, 0, HW_WIDTH_PER_ROW,
     WIDTH_SCOPES, CONTENTS, "what child_width is per"},
    {0, "child_order", HW_OPTION_WORD, AT(child_order), 1, {HW_CHILDREN_UNIFORM}, 0,
     HW_CHILDREN_RECENT, CHILD_ORDERS, CONTENTS, "which children are taken"},
    {0, "identifier_cells", HW_OPTION_WORD, AT(identifier_cells), 1, {HW_IDENTIFIERS_ALL}, 0,
     HW_IDENTIFIERS_NONE, IDENTIFIER_CELLS, CONTENTS, "which keys become cells"},
    {0, "context_labels", HW_OPTION_WORD, AT(context_labels), 1, {HW_LABELS_DEFAULT}, 0,
     HW_LABELS_ALL, CONTEXT_LABELS, CONTENTS,
     "whose labels contexts show once they are known; by default as each task says"},
    {0, "targets", HW_OPTION_WORD, AT(targets), 1, {HW_TARGETS_INLINE}, 0, HW_TARGETS_SEPARATE,
     TARGETS, 0, "whether targets stand in their cells or in arrays of their own"},
    {0, "task_order", HW_OPTION_WORD, AT(task_order), 1, {HW_TASKS_WEIGHTED}, 0,
     HW_TASKS_ROUND_ROBIN, TASK_ORDERS, CONTENTS, "how the tasks of a stream take turns"},
    {0, "tasks", HW_OPTION_NUMBERS, AT(tasks), AT(task_count), {0}, 0, 0, NULL, CONTENTS,
     "which tasks of the store; by default all"},
    {0, "task_weights", HW_OPTION_WEIGHTS, AT(task_weights), 0, {0}, 0, 0, NULL, CONTENTS,
     "how often each task has its turn; by default equally often"},
    {0, "visible_until", HW_OPTION_TIMES, AT(visible_until), 3, {0}, 0, 0, NULL, CONTENTS,
     "by split a time after which nothing is ever shown"},
    {0, "num_threads", HW_OPTION_UINT32, AT(num_threads), 1, {0}, 1, HWI_MAX_THREADS, NULL, 0,
     "threads of the sampler's own that make batches; by default all samplers of the process share"
     " as many as there are usable cores, at most 16"},
    {0, "num_prefetch", HW_OPTION_INT32, AT(num_prefetch), 1, {-1}, 0, HWI_MAX_PREFETCH, NULL, 0,
     "batches made ahead, at most; 0: each is made when it is asked for, without threads; by default"
     " 3, or as many as keep all threads at work (docs/guides/tuning.md)"},
    {0, "num_prefetch_val", HW_OPTION_INT32, AT(num_prefetch_val), 1, {1}, 0, HWI_MAX_PREFETCH, NULL, 0,
     "the same of the stream of val"},
    {0, "text_budget", HW_OPTION_UINT32, AT(text_budget), 1, {0}, 2, MOST_U32, NULL, CONTENTS,
     "U, texts per batch; by default chosen from a sample"},
    {0, "with_rows", HW_OPTION_FLAG, AT(with_rows), 1, {0}, 0, 1, NULL, 0,
     "adds row_depths, and row_ids in info"},
    {0, "layout", HW_OPTION_WORD, AT(layout), 1, {HW_LAYOUT_DENSE}, 0, HW_LAYOUT_FLAT, LAYOUTS, 0,
     "arrays that are ready to compute with; at most a fifth as large; or without padding"},
    {0, "text_mode", HW_OPTION_WORD, AT(text_mode), 1, {HW_TEXTS_BATCH}, 0, HW_TEXTS_NUMBERS,
     TEXT_MODES, 0, "vectors of texts are in each batch; or the caller has them all, and cells name"
     " them; or the caller has them, and each batch lists its own"},
    {0, "attention_masks", HW_OPTION_FLAG, AT(attention_masks), 1, {0}, 0, 1, NULL, 0,
     "adds column_mask, feature_mask, neighbor_mask [B,S,S] and padding_mask"},
    {0, "packing", HW_OPTION_FLAG, AT(packing), 1, {0}, 0, 1, NULL, CONTENTS,
     "puts several contexts into a sequence (docs/reference/batch.md, \"Packing\")"},
    {0, "contexts_per_batch", HW_OPTION_UINT32, AT(contexts_per_batch), 1, {0}, 1, HWI_MAX_BATCH,
     NULL, 0, "seeds that a batch owns with packing; by default as many as fit uncut"},
    {0, "level_block", HW_OPTION_UINT32, AT(level_block), 1, {HWI_LEVEL_BLOCK}, 1, HWI_MAX_LEVEL_BLOCK, NULL, 0,
     "with layout flat: batches whose contexts are dealt to equal lengths together; 1: batches keep"
     " the order of the stream"},
    {0, "level_parts", HW_OPTION_UINT32, AT(level_parts), 1, {1}, 1, HWI_MAX_LEVEL_PARTS, NULL, 0,
     "with layout flat: batches that one step of the trainer takes, levelled as one batch first"},
    {0, "staleness_zero_share", HW_OPTION_DOUBLE, AT(staleness_zero_share), 1, {0}, 0, 1, NULL,
     CONTENTS, "probability that a train seed sees all that it may (staleness_max_days)"},
    {0, "staleness_max_days", HW_OPTION_DOUBLE, AT(staleness_max_days), 1, {0}, 0,
     HWI_MAX_STALE_DAYS, NULL, CONTENTS,
     "a train seed sees less by a gap of up to so many days (docs/reference/sampling.md,"
     " \"Staleness\")"},
    {0, "child_counts", HW_OPTION_FLAG, AT(child_counts), 1, {0}, 0, 1, NULL, CONTENTS,
     "three cells per foreign key that points at a row: how many of its children are visible, and"
     " the ages of the last and the first"},
    {0, "label_rows", HW_OPTION_UINT32, AT(label_rows), 1, {0}, 0, HWI_MAX_SEQUENCE, NULL, CONTENTS,
     "most rows with the known labels of the anchor's earlier seeds, in contexts of derived tasks"},
    {0, "time_split", HW_OPTION_TIMES, AT(time_split), 2, {0}, 0, 0, NULL, CONTENTS,
     "(at, until): deals the seeds of train anew, for a backtest (docs/reference/sampling.md,"
     " \"Splits by time\")"},
    {0, "train_on_val", HW_OPTION_FLAG, AT(train_on_val), 1, {0}, 0, 1, NULL, CONTENTS,
     "the seeds of val are train's, for the last fit before test; val then has none"},
    {0, "objective", HW_OPTION_WORD, AT(objective), 1, {HW_OBJECTIVE_TASK}, 0,
     HW_OBJECTIVE_MASKED_CELLS, OBJECTIVES, CONTENTS,
     "a task's target, or masked cells of contexts without a question"},
    {0, "mask_ratio", HW_OPTION_DOUBLE, AT(mask_ratio), 1, {0}, 0, 1, NULL, CONTENTS,
     "probability that a cell is masked; by default 0.15 for masked cells, else 0"},
    {0, "seed_tables", HW_OPTION_NUMBERS, AT(seed_tables), AT(seed_table_count), {0}, 0, 0, NULL,
     CONTENTS, "with masked cells: the rows of these tables, each at its own time, are the seeds"},
    {0, "max_targets_per_type", HW_OPTION_UINT32, AT(max_targets_per_type), 1, {0}, 1, MOST_U32, NULL,
     CONTENTS, "M, masked cells of one type in a sequence; by default chosen from a sample"},
    {0, "peer_labels", HW_OPTION_UINT32, AT(peer_labels), 1, {0}, 0, HWI_MAX_PEER_LABELS, NULL,
     CONTENTS, "most rows with the labels of other anchors that became known last, at most 1024"},
    {0, "cell_dropout", HW_OPTION_DOUBLE, AT(cell_dropout), 1, {0}, 0, 1, NULL, CONTENTS,
     "probability, less than 1, that a cell is left out of a train context; never the target, a"
     " masked cell or a row's first (docs/reference/sampling.md, \"Cell dropout\")"},
    {0, "context_length", HW_OPTION_UINT32, AT(context_length), 1, {0}, 2, HWI_MAX_SEQUENCE, NULL,
     CONTENTS, "with packing: most cells of a context, at most S, which is the default"},
    {0, "max_context_rows", HW_OPTION_UINT32, AT(max_context_rows), 1, {0}, 2, HWI_MAX_SEQUENCE, NULL,
     CONTENTS, "with packing: most rows of a context, at most max_rows; by default that, or chosen"
     " where that is"},
};
/* clang-format on */

#define FIELD_COUNT ((uint32_t)(sizeof FIELDS / sizeof FIELDS[0]))

uint32_t hw_option_field_count(void) {
    return FIELD_COUNT;
}

hw_status hw_option_field_at(uint32_t index, hw_option_field *field, hw_error *error) {
    if (index >= FIELD_COUNT) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "option %u of %u", index, FIELD_COUNT);
    }
    return HWI_GIVE(hw_option_field, field, &FIELDS[index], error);
}

static int is_list(const hw_option_field *field) {
    return field->type >= HW_OPTION_TIMES;
}

/* Of one value, by type; those of a list stand elsewhere. */
static const size_t BYTES[] = {
    sizeof(uint8_t), sizeof(hw_layout), sizeof(uint32_t),
    sizeof(int32_t), sizeof(uint64_t),  sizeof(double),
};

union value {
    uint8_t flag;
    uint32_t number; /* of a word too */
    int32_t signed_number;
    uint64_t wide;
    double real;
};

static double read_value(const hw_option_field *field, const hw_sampler_options *options,
                         uint32_t i) {
    size_t bytes = BYTES[field->type];
    union value value = {.wide = 0};
    memcpy(&value, (const uint8_t *)options + field->offset + i * bytes, bytes);
    return field->type == HW_OPTION_DOUBLE   ? value.real
           : field->type == HW_OPTION_UINT64 ? (double)value.wide
           : field->type == HW_OPTION_INT32  ? (double)value.signed_number
           : field->type == HW_OPTION_FLAG   ? (double)value.flag
                                             : (double)value.number;
}

static void set_default(const hw_option_field *field, hw_sampler_options *options) {
    size_t bytes = BYTES[field->type];
    for (uint32_t i = 0; i < field->count; i++) {
        double given = field->standard[i];
        union value value = {.real = given};
        if (field->type == HW_OPTION_UINT64) {
            value.wide = (uint64_t)given;
        } else if (field->type == HW_OPTION_INT32) {
            value.signed_number = (int32_t)given;
        } else if (field->type == HW_OPTION_FLAG) {
            value.flag = given != 0;
        } else if (field->type != HW_OPTION_DOUBLE) {
            value.number = (uint32_t)given;
        }
        memcpy((uint8_t *)options + field->offset + i * bytes, &value, bytes);
    }
}

void hw_sampler_options_init(hw_sampler_options *options, size_t bytes) {
    memset(options, 0, bytes);
    memcpy(options, &bytes, sizeof bytes); /* struct_bytes */
    for (uint32_t i = 0; i < FIELD_COUNT; i++) {
        const hw_option_field *field = &FIELDS[i];
        if (!is_list(field) && field->offset + field->count * BYTES[field->type] <= bytes) {
            set_default(field, options);
        }
    }
}

/* ---- checks ------------------------------------------------------------------------------ */

static int is_zero(const hw_option_field *field, const hw_sampler_options *options) {
    for (uint32_t i = 0; i < field->count; i++) {
        if (read_value(field, options, i) != 0) { /* NaN too */
            return 0;
        }
    }
    return 1;
}

static hw_status check_range(const hw_option_field *field, const hw_sampler_options *options,
                             hw_error *error) {
    for (uint32_t i = 0; i < field->count; i++) {
        double value = read_value(field, options, i);
        if (!(value >= field->least && value <= field->most)) {
            char place[16] = "";
            if (field->count > 1) {
                snprintf(place, sizeof place, "[%u]", i);
            }
            return hwi_fail(error, HW_BAD_ARGUMENT, "%s%s is %.10g, expected %.10g to %.10g",
                            field->name, place, value, field->least, field->most);
        }
    }
    return HW_OK;
}

/* What the flat layout asks of other options, and they of it. */
static hw_status check_flat(const hw_sampler_options *options, hw_error *error) {
    if (options->layout != HW_LAYOUT_FLAT) {
        int has_block = options->level_block != HWI_LEVEL_BLOCK;
        return !has_block && options->level_parts == 1
                   ? HW_OK
                   : hwi_fail(error, HW_BAD_ARGUMENT, "%s is %u, which layout 'flat' alone has",
                              has_block ? "level_block" : "level_parts",
                              has_block ? options->level_block : options->level_parts);
    }
    uint64_t ranks = options->shard == HW_SHARD_DEALT ? options->world_size : 1;
    uint64_t cells = (uint64_t)options->batch_size * options->sequence_length; /* below 2^33 */
    if (cells * ranks > INT32_MAX / options->level_parts) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "a step of %llu ranks and %u batches has %u contexts of up to %u cells on "
                        "each, layout 'flat' levels at most 2^31 - 1 cells together",
                        (unsigned long long)ranks, options->level_parts, options->batch_size,
                        options->sequence_length);
    }
    if (options->packing || options->attention_masks) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "%s does not go with layout 'flat'",
                        options->packing ? "packing" : "attention_masks");
    }
    return HW_OK;
}

/* The shape of a context under packing, which must have room in a sequence. */
static hw_status check_context(const hw_sampler_options *options, hw_error *error) {
    const struct {
        const char *name, *most_name;
        uint32_t value, most; /* most 0: chosen later */
    } sizes[] = {
        {"context_length", "sequence_length", options->context_length, options->sequence_length},
        {"max_context_rows", "max_rows", options->max_context_rows, options->max_rows},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value != 0 && !options->packing) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "%s is %u, without packing it is %s",
                            sizes[i].name, sizes[i].value, sizes[i].most_name);
        }
        if (sizes[i].most != 0 && sizes[i].value > sizes[i].most) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "%s is %u, expected at most %s, %u",
                            sizes[i].name, sizes[i].value, sizes[i].most_name, sizes[i].most);
        }
    }
    return HW_OK;
}

/* What options ask of one another. */
static hw_status check_together(const hw_sampler_options *options, hw_error *error) {
    double sum = options->split_ratios[0] + options->split_ratios[1] + options->split_ratios[2];
    if (fabs(sum - 1) > 1e-6) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "split_ratios sum to %g, expected 1", sum);
    }
    if (options->rank >= options->world_size) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "rank is %u, expected 0 to %u", options->rank,
                        options->world_size - 1);
    }
    if (options->text_mode == HW_TEXTS_RESIDENT && options->text_budget != 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "text_budget is %u, text_mode 'resident' has no budget",
                        options->text_budget);
    }
    if (options->contexts_per_batch != 0 && !options->packing) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "contexts_per_batch is %u, without packing it is batch_size",
                        options->contexts_per_batch);
    }
    if (options->cell_dropout >= 1) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "cell_dropout is %g, expected less than 1",
                        options->cell_dropout);
    }
    HW_TRY(check_context(options, error));
    return check_flat(options, error);
}

hw_status hwi_options_copy(const hw_sampler_options *options, hw_sampler_options *copy,
                           hw_error *error) {
    hw_sampler_options given;
    HW_TRY(HWI_TAKE(hw_sampler_options, options, &given, error));
    hw_sampler_options_init(copy, sizeof *copy);
    memcpy(copy, &given,
           options->struct_bytes < sizeof given ? options->struct_bytes : sizeof given);
    copy->struct_bytes = sizeof *copy;
    for (uint32_t i = 0; i < FIELD_COUNT; i++) {
        const hw_option_field *field = &FIELDS[i];
        const void *list;
        uint32_t count;
        if (field->type == HW_OPTION_NUMBERS) {
            memcpy(&list, (const uint8_t *)copy + field->offset, sizeof list);
            memcpy(&count, (const uint8_t *)copy + field->count, sizeof count);
            if (list == NULL && count > 0) {
                return hwi_fail(error, HW_BAD_ARGUMENT, "%s is NULL, but is to have %u entries",
                                field->name, count);
            }
        }
    }
    return HW_OK;
}

hw_status hwi_options_settle(hw_sampler_options *options, hw_error *error) {
    for (uint32_t i = 0; i < FIELD_COUNT; i++) {
        const hw_option_field *field = &FIELDS[i];
        if (is_list(field)) {
            continue;
        }
        if (field->least > 0 && is_zero(field, options)) {
            set_default(field, options);
        } else if (field->count > 1 || read_value(field, options, 0) != field->standard[0]) {
            HW_TRY(check_range(field, options, error));
        }
    }
    return check_together(options, error);
}
