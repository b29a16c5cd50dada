/*
 * Usual texts of a batch; see usual_texts.h. The texts of a sample of contexts are listed once,
 * with numbers from 0, so that a batch of some of these contexts is counted by a stamp for each
 * text: about a nanosecond for each text of each context. Batches are drawn without replacement, as
 * an epoch deals its seeds.
 */
#include "shape/usual_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "batch/id_set.h"

enum {
    LEAST_CONTEXTS = 64, /* of each task, and no fewer than two batches have */
    MOST_CONTEXTS = 4096,
    SAMPLED_CELLS = 1 << 18, /* of all tasks: about 15 ms of walks */
    MOST_BATCHES = 1024, /* of each task */
    LEAST_BATCHES = 8,
    COUNTED_TEXTS = 1 << 23, /* of all tasks: about 10 ms */
    MANY_IN_1000 = 999,
    MARGIN = 16, /* the sample is small, and a batch of another shape is compiled anew */
};

/* The distinct texts of the sampled contexts of one task. */
struct text_lists {
    uint32_t *texts; /* [starts[count]], numbered by number_texts */
    uint64_t capacity;
    uint64_t *starts; /* [MOST_CONTEXTS + 1] */
    uint32_t *order; /* [MOST_CONTEXTS] contexts; the first of them are a batch */
    uint32_t count;
    uint32_t *stamps; /* by text: the batch that it was last counted in, from 1 */
};

static void lists_release(struct text_lists *lists) {
    free(lists->texts);
    free(lists->starts);
    free(lists->order);
    free(lists->stamps);
    *lists = (struct text_lists){0};
}

static hw_status lists_open(struct text_lists *lists, hw_error *error) {
    *lists = (struct text_lists){
        .starts = calloc((size_t)MOST_CONTEXTS + 1, sizeof *lists->starts),
        .order = calloc(MOST_CONTEXTS, sizeof *lists->order),
    };
    if (lists->starts == NULL || lists->order == NULL) {
        lists_release(lists);
        return hwi_no_memory(error, "the texts of a sample", MOST_CONTEXTS * sizeof(uint64_t));
    }
    return HW_OK;
}

static hw_status append(struct text_lists *lists, const uint32_t *texts, uint32_t count,
                        hw_error *error) {
    uint64_t start = lists->starts[lists->count], end = start + count;
    if (end > lists->capacity) {
        uint64_t capacity = 2 * end;
        uint32_t *grown = realloc(lists->texts, capacity * sizeof *grown);
        if (grown == NULL) {
            return hwi_no_memory(error, "the texts of a sample", capacity * sizeof *grown);
        }
        lists->texts = grown;
        lists->capacity = capacity;
    }
    if (count > 0) {
        memcpy(lists->texts + start, texts, count * sizeof *texts);
    }
    lists->order[lists->count] = lists->count;
    lists->starts[++lists->count] = end;
    return HW_OK;
}

/* Lists the texts that the contexts of a task's sample keep. */
static hw_status list_contexts(struct hwi_context_sample *sample, uint32_t task,
                               struct text_lists *lists, hw_error *error) {
    const struct hwi_plan *plan = sample->plan;
    uint64_t two_batches = 2 * (uint64_t)plan->shape.contexts_per_batch;
    uint64_t least = two_batches > LEAST_CONTEXTS ? two_batches : LEAST_CONTEXTS, cells = 0;
    uint32_t count = hwi_sample_count(plan, task, MOST_CONTEXTS);
    lists->count = 0;
    for (uint32_t position = 0; position < count; position++) {
        if (position >= least && cells >= SAMPLED_CELLS / plan->task_count) {
            break;
        }
        HW_TRY(hwi_sample_walk(sample, task, position, error));
        uint32_t texts = hwi_sample_texts(sample);
        texts = texts < plan->text_quota ? texts : plan->text_quota;
        HW_TRY(append(lists, sample->listed, texts, error));
        cells += sample->context->cell_count;
    }
    return HW_OK;
}

/* Numbers the listed texts from 0, and has a stamp for each. */
static hw_status number_texts(struct text_lists *lists, hw_error *error) {
    uint64_t total = lists->starts[lists->count];
    struct hwi_id_set numbers;
    free(lists->stamps);
    lists->stamps = calloc(total + 1, sizeof *lists->stamps);
    if (lists->stamps == NULL || !hwi_id_set_open(&numbers, total)) {
        return hwi_no_memory(error, "the texts of a sample", total * sizeof *lists->stamps);
    }
    hwi_id_set_clear(&numbers);
    uint32_t distinct = 0;
    for (uint64_t i = 0; i < total; i++) {
        struct hwi_id_entry *entry = hwi_id_set_find(&numbers, lists->texts[i]);
        if (entry->stamp != numbers.stamp) {
            hwi_id_set_put(&numbers, entry, lists->texts[i], distinct++);
        }
        lists->texts[i] = entry->place;
    }
    hwi_id_set_close(&numbers);
    return HW_OK;
}

/* Distinct texts of the next batch of `size` contexts; `batch` counts from 1. */
static uint32_t draw_batch(struct text_lists *lists, uint32_t size, uint32_t batch,
                           struct hwi_rng *rng) {
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t j = i + hwi_rng_below(rng, lists->count - i), context = lists->order[j];
        lists->order[j] = lists->order[i];
        lists->order[i] = context;
        for (uint64_t t = lists->starts[context]; t < lists->starts[context + 1]; t++) {
            uint32_t *stamp = &lists->stamps[lists->texts[t]];
            distinct += *stamp != batch;
            *stamp = batch;
        }
    }
    return distinct;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Batches that are drawn of a task: fewer where they are large. */
static uint32_t batch_count(const struct hwi_plan *plan, const struct text_lists *lists,
                            uint32_t size) {
    uint64_t texts = lists->starts[lists->count] * size / lists->count + 1;
    uint64_t count = COUNTED_TEXTS / plan->task_count / texts;
    count = count < MOST_BATCHES ? count : MOST_BATCHES;
    return count > LEAST_BATCHES ? (uint32_t)count : LEAST_BATCHES;
}

/* Texts that 99.9 % of the batches of a task do not exceed, and a sixteenth of that. */
static uint32_t usual_of_task(const struct hwi_plan *plan, uint32_t task,
                              struct text_lists *lists) {
    uint32_t counts[MOST_BATCHES], size = plan->shape.contexts_per_batch;
    size = size < lists->count ? size : lists->count;
    uint32_t drawn = batch_count(plan, lists, size);
    struct hwi_rng rng = hwi_rng_make(plan->options.seed, 0, UINT32_MAX,
                                      plan->tasks[task].task * 4 + HWI_SPLIT_AD_HOC);
    for (uint32_t i = 0; i < drawn; i++) {
        counts[i] = draw_batch(lists, size, i + 1, &rng);
    }
    qsort(counts, drawn, sizeof *counts, by_size);
    uint32_t texts = counts[(drawn * MANY_IN_1000 + MANY_IN_1000) / 1000 - 1];
    return texts + texts / MARGIN;
}

hw_status hwi_usual_texts(struct hwi_context_sample *sample, uint32_t *usual_texts,
                          hw_error *error) {
    const struct hwi_plan *plan = sample->plan;
    uint32_t most = plan->shape.text_budget, usual = 1;
    struct text_lists lists;
    HW_TRY(lists_open(&lists, error));
    hw_status status = HW_OK;
    for (uint32_t task = 0; task < plan->task_count && status == HW_OK && usual < most; task++) {
        status = list_contexts(sample, task, &lists, error);
        if (status == HW_OK) {
            status = number_texts(&lists, error);
        }
        if (status != HW_OK || lists.count == 0) {
            continue;
        }
        uint32_t texts = usual_of_task(plan, task, &lists);
        int is_too_small = lists.count < plan->shape.contexts_per_batch &&
                           lists.count < hwi_sample_count(plan, task, UINT32_MAX);
        usual = is_too_small || texts >= most ? most : texts + 1 > usual ? texts + 1 : usual;
    }
    lists_release(&lists);
    *usual_texts = usual;
    return status;
}
