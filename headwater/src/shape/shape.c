/*
 * The shape of a sampler's batches: what the options leave open follows from a sample of contexts,
 * walked once when the sampler opens. docs/reference/sampling.md, "Budgets", and
 * docs/reference/batch.md, "Packing".
 */
#include "shape/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "batch/masked_cells.h"
#include "batch/pack.h"
#include "plan/batch_layout.h"
#include "plan/options.h"
#include "shape/context_sample.h"
#include "shape/flat_shape.h"
#include "shape/usual_texts.h"

enum {
    SAMPLED_SEEDS = 64, /* of each task */
    SAMPLED_FOR_PACKING = 256, /* sizes of contexts vary more than their largest ones do */
    MIN_MAX_ROWS = 16,
    MAX_CHOSEN_CONTEXTS = 16, /* for each sequence of a packed batch */
    PACKING_STARTS = 8,
    PACKING_MARGIN = 16,
    TARGETS_MARGIN = 4,
};

/* What the contexts of the sample hold. */
struct measured {
    struct measure {
        uint32_t cells, rows;
    } *contexts; /* [count], task by task */
    uint32_t *task_ends; /* [plan->task_count] */
    uint32_t count;
    uint32_t most_texts; /* distinct ones of a context, of those of choosing_seeds */
    uint32_t most_targets; /* masked cells of one type of a context */
};

static uint32_t sampled_seeds(const struct hwi_plan *plan) {
    return plan->options.packing ? SAMPLED_FOR_PACKING : SAMPLED_SEEDS;
}

/* With packing: contexts have a shape of their own, not that of the sequences. */
static int is_context_given(const struct hwi_plan *plan) {
    return plan->options.context_length != 0 || plan->options.max_context_rows != 0;
}

/* Sampled contexts of each task by which the rows and texts of a context are chosen: of a shape of
 * its own as many as without packing, so that it is the same context. */
static uint32_t choosing_seeds(const struct hwi_plan *plan) {
    return is_context_given(plan) ? SAMPLED_SEEDS : sampled_seeds(plan);
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Walks the sample by the plan's shape as it is now. */
static hw_status measure_contexts(struct hwi_context_sample *sample, struct measured *measured,
                                  hw_error *error) {
    const struct hwi_plan *plan = sample->plan;
    measured->count = measured->most_texts = measured->most_targets = 0;
    for (uint32_t t = 0; t < plan->task_count; t++) {
        uint32_t count = hwi_sample_count(plan, t, sampled_seeds(plan));
        for (uint32_t position = 0; position < count; position++) {
            HW_TRY(hwi_sample_walk(sample, t, position, error));
            measured->contexts[measured->count++] = (struct measure){
                .cells = sample->context->cell_count, .rows = sample->context->row_count};
            if (plan->mask_words > 0) {
                hwi_masked_choose(sample->context);
            }
            if (position < choosing_seeds(plan)) {
                measured->most_texts = larger(measured->most_texts, hwi_sample_texts(sample));
            }
            measured->most_targets =
                larger(measured->most_targets, hwi_masked_measure(sample->context));
        }
        measured->task_ends[t] = measured->count;
    }
    return HW_OK;
}

/* Whether at least 95 % of the contexts of choosing_seeds have so few rows. */
static int rows_suffice(const struct hwi_plan *plan, const struct measured *measured,
                        uint32_t rows) {
    uint64_t fitting = 0, counted = 0;
    uint32_t each = choosing_seeds(plan);
    for (uint32_t t = 0, first = 0; t < plan->task_count; first = measured->task_ends[t++]) {
        for (uint32_t i = first; i < measured->task_ends[t] && i - first < each; i++) {
            fitting += measured->contexts[i].rows <= rows;
            counted++;
        }
    }
    return fitting * 100 >= counted * 95;
}

/* The smallest power of two that suffices, at most `most`. */
static uint32_t choose_max_rows(const struct hwi_plan *plan, const struct measured *measured,
                                uint32_t most) {
    uint32_t rows = MIN_MAX_ROWS < most ? MIN_MAX_ROWS : most;
    while (rows < most && !rows_suffice(plan, measured, rows)) {
        rows = rows * 2 < most ? rows * 2 : most;
    }
    return rows;
}

/* Rows for sequences full of such contexts. */
static uint32_t choose_packed_rows(const struct measured *measured, uint32_t length, uint32_t rows,
                                   uint32_t most) {
    uint64_t cell_sum = 1, row_sum = 0;
    for (uint32_t i = 0; i < measured->count; i++) {
        cell_sum += measured->contexts[i].cells;
        row_sum += measured->contexts[i].rows;
    }
    while (rows < most && rows * cell_sum < row_sum * length) {
        rows = rows * 2 < most ? rows * 2 : most;
    }
    return rows;
}

/* Packs the sampled contexts of one task, round and round from `start`, until the first has no room
 * or, with a `limit`, until so many were tried; returns how many. */
static uint32_t try_packing(const struct hwi_plan *plan, const struct measure *contexts,
                            uint32_t count, uint32_t start, uint32_t limit, struct hwi_fit *fits) {
    const hw_shape *shape = &plan->shape;
    uint64_t most = (uint64_t)shape->batch_size * MAX_CHOSEN_CONTEXTS, tried = 0;
    most = limit != 0 ? limit : most < HWI_MAX_BATCH ? most : HWI_MAX_BATCH;
    memset(fits, 0, shape->batch_size * sizeof *fits);
    for (; tried < most; tried++) {
        const struct measure *context = &contexts[(start + tried) % count];
        uint32_t b = hwi_fit_add(fits, shape, context->cells, context->rows);
        if (b == HWI_NONE && limit == 0) {
            break;
        }
    }
    return (uint32_t)tried;
}

/* Seeds of a batch: as many as can be placed, in every task and from several starts, before one is
 * cut, less a sixteenth of what that is beyond one per sequence: the sample is small. Then twice
 * the contexts that a sequence held at most. */
static hw_status choose_contexts(struct hwi_plan *plan, const struct measured *measured,
                                 hw_error *error) {
    hw_shape *shape = &plan->shape;
    uint32_t given = plan->options.contexts_per_batch, chosen = UINT32_MAX, most = 1;
    struct hwi_fit *fits = calloc(shape->batch_size, sizeof *fits);
    if (fits == NULL) {
        return hwi_no_memory(error, "the packing of a batch", shape->batch_size * sizeof *fits);
    }
    shape->contexts_per_sequence = UINT32_MAX;
    for (uint32_t t = 0, first = 0; t < plan->task_count; first = measured->task_ends[t++]) {
        uint32_t count = measured->task_ends[t] - first;
        for (uint32_t start = 0; start < PACKING_STARTS && count > 0; start++) {
            uint32_t placed = try_packing(plan, measured->contexts + first, count,
                                          start * count / PACKING_STARTS, given, fits);
            chosen = placed < chosen ? placed : chosen;
            for (uint32_t b = 0; b < shape->batch_size; b++) {
                most = fits[b].contexts > most ? fits[b].contexts : most;
            }
        }
    }
    free(fits);
    if (chosen == UINT32_MAX || chosen < shape->batch_size) {
        chosen = shape->batch_size;
    }
    chosen -= (chosen - shape->batch_size) / PACKING_MARGIN;
    shape->contexts_per_batch = given != 0 ? given : chosen;
    shape->contexts_per_sequence =
        2 * most < shape->contexts_per_batch ? 2 * most : shape->contexts_per_batch;
    return HW_OK;
}

/* A walk of the given rows of a context; else of as many as it has cells, or as its scratch may
 * hold: halved until it does. */
static hw_status open_widest(struct hwi_plan *plan, struct hwi_context_sample *sample,
                             hw_error *error) {
    hw_shape *shape = &plan->shape;
    int is_given = shape->max_context_rows != 0;
    if (!is_given) {
        shape->max_context_rows = shape->context_length;
    }
    hw_status status = hwi_sample_open(plan, sample, error);
    while (!is_given && status == HW_BAD_ARGUMENT && shape->max_context_rows > MIN_MAX_ROWS) {
        shape->max_context_rows /= 2;
        status = hwi_sample_open(plan, sample, error);
    }
    return status;
}

static hw_status choose_rows(struct hwi_plan *plan, struct measured *measured, hw_error *error) {
    hw_shape *shape = &plan->shape;
    struct hwi_context_sample sample;
    HW_TRY(open_widest(plan, &sample, error));
    uint32_t widest = shape->max_context_rows;
    hw_status status = measure_contexts(&sample, measured, error);
    hwi_sample_release(&sample);
    if (status != HW_OK) {
        return status;
    }
    if (plan->options.max_context_rows == 0) {
        shape->max_context_rows = choose_max_rows(plan, measured, widest);
    }
    shape->max_rows = shape->max_context_rows;
    if (plan->options.packing) {
        uint32_t most = is_context_given(plan) ? shape->sequence_length : widest;
        shape->max_rows =
            choose_packed_rows(measured, shape->sequence_length, shape->max_rows, most);
    }
    if (!is_context_given(plan)) {
        shape->max_context_rows = shape->max_rows;
    }
    return HW_OK;
}

/* The quota of a context, from which the most texts of a batch follow; then how many are usual. */
static hw_status choose_texts(struct hwi_plan *plan, const struct measured *measured,
                              struct hwi_context_sample *sample, hw_error *error) {
    hw_shape *shape = &plan->shape;
    uint64_t quota = larger(measured->most_texts, 1);
    uint64_t budget = 1 + quota * shape->contexts_per_batch;
    shape->text_budget = budget > UINT32_MAX ? UINT32_MAX : (uint32_t)budget;
    plan->text_quota = (shape->text_budget - 1) / shape->contexts_per_batch;
    return hwi_usual_texts(sample, &shape->usual_texts, error);
}

static int chooses_texts(const struct hwi_plan *plan) {
    return hwi_lists_texts(plan) && plan->options.text_budget == 0;
}

static int chooses_targets(const struct hwi_plan *plan) {
    return plan->mask_words > 0 && plan->options.max_targets_per_type == 0;
}

/* What the options leave open once max_rows is known. */
static hw_status choose_rest(struct hwi_plan *plan, struct measured *measured,
                             struct hwi_context_sample *sample, hw_error *error) {
    hw_shape *shape = &plan->shape;
    HW_TRY(measure_contexts(sample, measured, error));
    if (plan->options.packing) {
        HW_TRY(choose_contexts(plan, measured, error));
    }
    if (chooses_texts(plan)) {
        HW_TRY(choose_texts(plan, measured, sample, error));
    }
    if (chooses_targets(plan)) {
        uint32_t targets = measured->most_targets + measured->most_targets / TARGETS_MARGIN + 1;
        shape->max_targets_per_type =
            targets < shape->sequence_length ? targets : shape->sequence_length;
    }
    return HW_OK;
}

static hw_status choose_shape(struct hwi_plan *plan, struct measured *measured, hw_error *error) {
    if (plan->options.max_rows == 0) {
        HW_TRY(choose_rows(plan, measured, error));
    }
    if (!plan->options.packing && !chooses_texts(plan) && !chooses_targets(plan)) {
        return HW_OK;
    }
    struct hwi_context_sample sample;
    HW_TRY(hwi_sample_open(plan, &sample, error));
    hw_status status = choose_rest(plan, measured, &sample, error);
    hwi_sample_release(&sample);
    return status;
}

/* What the options leave to a sample of contexts. */
static hw_status sample_shape(struct hwi_plan *plan, hw_error *error) {
    size_t most = (size_t)plan->task_count * sampled_seeds(plan) + 1;
    struct measured measured = {
        .contexts = calloc(most, sizeof *measured.contexts),
        .task_ends = calloc((size_t)plan->task_count + 1, sizeof *measured.task_ends),
    };
    hw_status status = measured.contexts == NULL || measured.task_ends == NULL
                           ? hwi_no_memory(error, "the sample of contexts", most * 12)
                           : choose_shape(plan, &measured, error);
    free(measured.contexts);
    free(measured.task_ends);
    return status;
}

/* With packing and in the flat layout, the contexts are made by a plan of their own: one to a
 * sequence of their shape, and without fk_adj, which can be made from their parents. */
static hw_status plan_staging(struct hwi_plan *plan, hw_error *error) {
    struct hwi_plan *staging = malloc(sizeof *staging);
    if (staging == NULL) {
        return hwi_no_memory(error, "the plan of the contexts of a batch", sizeof *staging);
    }
    *staging = *plan;
    staging->staging = NULL;
    staging->flat = NULL;
    staging->options.packing = staging->options.attention_masks = 0;
    staging->has_fk_adj = 0;
    staging->shape.batch_size = plan->shape.contexts_per_batch;
    staging->shape.sequence_length = plan->shape.context_length;
    staging->shape.max_rows = plan->shape.max_context_rows;
    staging->shape.contexts_per_sequence = 1;
    plan->staging = staging;
    return hwi_fields_plan(staging, error);
}

hw_status hwi_plan_shape(struct hwi_plan *plan, hw_error *error) {
    const hw_sampler_options *options = &plan->options;
    hw_shape *shape = &plan->shape;
    shape->batch_size = shape->contexts_per_batch = options->batch_size;
    shape->contexts_per_sequence = 1;
    shape->sequence_length = options->sequence_length;
    shape->context_length =
        options->context_length != 0 ? options->context_length : options->sequence_length;
    shape->text_dim = plan->store->info->text_dim;
    shape->max_rows = options->max_rows;
    shape->max_context_rows =
        options->max_context_rows != 0 ? options->max_context_rows : options->max_rows;
    shape->text_budget = shape->usual_texts = options->text_budget;
    shape->max_targets_per_type = options->max_targets_per_type;
    HW_TRY(sample_shape(plan, error));
    int has_texts = hwi_lists_texts(plan);
    plan->drop_words = (uint64_t)floor(options->cell_dropout * 4294967296.0 + 0.5);
    if (has_texts && shape->text_budget <= shape->contexts_per_batch) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "text_budget is %u, expected %u to %u: one text for each of %u contexts",
                        shape->text_budget, shape->contexts_per_batch + 1, UINT32_MAX,
                        shape->contexts_per_batch);
    }
    plan->text_quota = has_texts ? (shape->text_budget - 1) / shape->contexts_per_batch : 0;
    if (options->layout == HW_LAYOUT_FLAT) {
        HW_TRY(hwi_flat_plan(plan, error));
    }
    if (options->packing || options->layout == HW_LAYOUT_FLAT) {
        HW_TRY(plan_staging(plan, error));
    }
    return hwi_fields_plan(plan, error);
}
