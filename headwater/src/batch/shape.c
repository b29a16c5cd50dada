/*
 * The shape of a sampler's batches: what the options leave open follows from a sample of contexts,
 * walked once when the sampler opens. docs/2-sampling.md, "Budgets", and docs/3-batch.md,
 * "Packing".
 */
#include "batch/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "batch/flat_shape.h"
#include "batch/pack.h"
#include "batch/worker.h"
#include "plan/options.h"
#include "plan/order.h"

enum {
    SAMPLED_SEEDS = 64, /* of each task */
    SAMPLED_FOR_PACKING = 256, /* sizes of contexts vary more than their largest ones do */
    MIN_MAX_ROWS = 16,
    MAX_MAX_ROWS = 512,
    MAX_CHOSEN_CONTEXTS = 16, /* for each sequence of a packed batch */
    PACKING_STARTS = 8,
    PACKING_MARGIN = 16,
    TARGETS_MARGIN = 4,
};

struct context_sample {
    struct hwi_measure *contexts; /* [count], task by task */
    uint32_t *task_ends; /* [plan->task_count] */
    uint32_t count;
    uint32_t most_texts, most_targets;
};

static uint32_t sampled_seeds(const struct hwi_plan *plan) {
    return plan->options.packing ? SAMPLED_FOR_PACKING : SAMPLED_SEEDS;
}

/* Walks the sample of docs/2-sampling.md, "Budgets". */
static hw_status sample_contexts(struct hwi_plan *plan, struct context_sample *sample,
                                 hw_error *error) {
    struct hwi_worker *worker = NULL;
    hw_status status = hwi_worker_open(plan, &worker, error);
    for (uint32_t t = 0; t < plan->task_count && status == HW_OK; t++) {
        int split = 0;
        while (split < HW_SPLIT_COUNT && plan->tasks[t].lists[split].count == 0) {
            split++;
        }
        uint32_t count = split == HW_SPLIT_COUNT ? 0 : plan->tasks[t].lists[split].count;
        count = count < sampled_seeds(plan) ? count : sampled_seeds(plan);
        for (uint32_t position = 0; position < count && status == HW_OK; position++) {
            struct hwi_shard list = hwi_order_list(plan, (hw_split)split, t);
            struct hwi_seed seed = hwi_order_seed(plan, (hw_split)split, t, &list, position);
            struct hwi_measure *measure = &sample->contexts[sample->count++];
            status = hwi_sequence_measure(worker, &seed, measure, error);
            if (measure->texts > sample->most_texts) {
                sample->most_texts = measure->texts;
            }
            if (measure->targets > sample->most_targets) {
                sample->most_targets = measure->targets;
            }
        }
        sample->task_ends[t] = sample->count;
    }
    hwi_worker_close(worker);
    return status;
}

/* Smallest power of two that at least 95 % of the sampled contexts do not exceed. */
static uint32_t choose_max_rows(const struct context_sample *sample, uint32_t most) {
    uint32_t rows = MIN_MAX_ROWS < most ? MIN_MAX_ROWS : most;
    while (rows < most) {
        uint32_t fitting = 0;
        for (uint32_t i = 0; i < sample->count; i++) {
            fitting += sample->contexts[i].rows <= rows;
        }
        if ((uint64_t)fitting * 100 >= (uint64_t)sample->count * 95) {
            break;
        }
        rows = rows * 2 < most ? rows * 2 : most;
    }
    return rows;
}

/* Rows for sequences full of such contexts. */
static uint32_t choose_packed_rows(const struct context_sample *sample, uint32_t length,
                                   uint32_t rows, uint32_t most) {
    uint64_t cell_sum = 1, row_sum = 0;
    for (uint32_t i = 0; i < sample->count; i++) {
        cell_sum += sample->contexts[i].cells;
        row_sum += sample->contexts[i].rows;
    }
    while (rows < most && rows * cell_sum < row_sum * length) {
        rows = rows * 2 < most ? rows * 2 : most;
    }
    return rows;
}

/* Packs the sampled contexts of one task, round and round from `start`, until the first has no room
 * or, with a `limit`, until so many were tried; returns how many. */
static uint32_t try_packing(const struct hwi_plan *plan, const struct hwi_measure *contexts,
                            uint32_t count, uint32_t start, uint32_t limit, struct hwi_fit *fits) {
    const hw_shape *shape = &plan->shape;
    uint64_t most = (uint64_t)shape->batch_size * MAX_CHOSEN_CONTEXTS, tried = 0;
    most = limit != 0 ? limit : most < HWI_MAX_BATCH ? most : HWI_MAX_BATCH;
    memset(fits, 0, shape->batch_size * sizeof *fits);
    for (; tried < most; tried++) {
        const struct hwi_measure *context = &contexts[(start + tried) % count];
        uint64_t cells = context->cells, rows = context->rows;
        if (rows > shape->max_rows) { /* the sample was walked to more rows than were chosen */
            cells = cells * shape->max_rows / rows;
            rows = shape->max_rows;
        }
        uint32_t b = hwi_fit_add(fits, shape, (uint32_t)cells, (uint32_t)rows);
        if (b == HWI_NONE && limit == 0) {
            break;
        }
    }
    return (uint32_t)tried;
}

/* Seeds of a batch: as many as can be placed, in every task and from several starts, before one is
 * cut, less a sixteenth of what that is beyond one per sequence: the sample is small. Then twice
 * the contexts that a sequence held at most. */
static hw_status choose_contexts(struct hwi_plan *plan, const struct context_sample *sample,
                                 hw_error *error) {
    hw_shape *shape = &plan->shape;
    uint32_t given = plan->options.contexts_per_batch, chosen = UINT32_MAX, most = 1;
    struct hwi_fit *fits = calloc(shape->batch_size, sizeof *fits);
    if (fits == NULL) {
        return hwi_no_memory(error, "the packing of a batch", shape->batch_size * sizeof *fits);
    }
    shape->contexts_per_sequence = UINT32_MAX;
    for (uint32_t t = 0, first = 0; t < plan->task_count; first = sample->task_ends[t++]) {
        uint32_t count = sample->task_ends[t] - first;
        for (uint32_t start = 0; start < PACKING_STARTS && count > 0; start++) {
            uint32_t placed = try_packing(plan, sample->contexts + first, count,
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

/* What the options leave to a sample of contexts. */
static hw_status choose_shape(struct hwi_plan *plan, struct context_sample *sample,
                              hw_error *error) {
    const hw_sampler_options *options = &plan->options;
    hw_shape *shape = &plan->shape;
    uint32_t most = shape->max_rows;
    HW_TRY(sample_contexts(plan, sample, error));
    if (options->max_rows == 0) {
        shape->max_rows = choose_max_rows(sample, most);
        if (options->packing) {
            shape->max_rows =
                choose_packed_rows(sample, shape->sequence_length, shape->max_rows, most);
        }
    }
    if (options->packing) {
        HW_TRY(choose_contexts(plan, sample, error));
    }
    if (options->text_mode == HW_TEXTS_BATCH && options->text_budget == 0) {
        uint64_t quota = sample->most_texts > 0 ? sample->most_texts : 1;
        uint64_t budget = 1 + quota * shape->contexts_per_batch;
        shape->text_budget = budget > UINT32_MAX ? UINT32_MAX : (uint32_t)budget;
    }
    if (plan->mask_words > 0 && options->max_targets_per_type == 0) {
        uint32_t targets = sample->most_targets + sample->most_targets / TARGETS_MARGIN + 1;
        shape->max_targets_per_type =
            targets < shape->sequence_length ? targets : shape->sequence_length;
    }
    return HW_OK;
}

static hw_status sample_shape(struct hwi_plan *plan, hw_error *error) {
    size_t most = (size_t)plan->task_count * sampled_seeds(plan) + 1;
    struct context_sample sample = {0};
    sample.contexts = calloc(most, sizeof *sample.contexts);
    sample.task_ends = calloc((size_t)plan->task_count + 1, sizeof *sample.task_ends);
    hw_status status = sample.contexts == NULL || sample.task_ends == NULL
                           ? hwi_no_memory(error, "the sample of contexts", most * 12)
                           : choose_shape(plan, &sample, error);
    free(sample.contexts);
    free(sample.task_ends);
    return status;
}

/* With packing and in the flat layout, the contexts are made by a plan of their own: one to a
 * sequence, and with edges as parents, from which fk_adj can be made too. */
static hw_status plan_staging(struct hwi_plan *plan, hw_error *error) {
    struct hwi_plan *staging = malloc(sizeof *staging);
    if (staging == NULL) {
        return hwi_no_memory(error, "the plan of the contexts of a batch", sizeof *staging);
    }
    *staging = *plan;
    staging->staging = NULL;
    staging->flat = NULL;
    staging->options.packing = staging->options.attention_masks = 0;
    staging->lists_parents = 1;
    staging->shape.batch_size = plan->shape.contexts_per_batch;
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
    shape->text_dim = plan->store->info->text_dim;
    uint32_t most =
        options->sequence_length < MAX_MAX_ROWS ? options->sequence_length : MAX_MAX_ROWS;
    shape->max_rows = options->max_rows != 0 ? options->max_rows : most;
    shape->text_budget = options->text_budget;
    shape->max_targets_per_type = options->max_targets_per_type;
    int has_texts = options->text_mode == HW_TEXTS_BATCH;
    int chooses_targets = plan->mask_words > 0 && options->max_targets_per_type == 0;
    if (options->max_rows == 0 || options->packing || chooses_targets ||
        (has_texts && options->text_budget == 0)) {
        plan->text_quota = options->sequence_length;
        HW_TRY(sample_shape(plan, error));
    }
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
