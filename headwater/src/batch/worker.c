/*
 * Sequences: walk to scratch (walk/walk.c), emit the scratch into the batch's memory (emit.c),
 * number the texts (texts.c). A worker is the scratch of one thread. It holds several walks and
 * takes a step of each in turn, so that one walk's reads are on their way while the others are at
 * work; a walk that is complete is emitted at once, while its rows are in cache. With packing and
 * in the flat layout the sequences go to the staging slab of the batch's scratch, by its plan;
 * pack.h, flat.h.
 */
#define _POSIX_C_SOURCE 200809L

#include "batch/worker.h"

#include <stdlib.h>

#include "base/clock.h"
#include "batch/cell_dropout.h"
#include "batch/emit.h"
#include "batch/masked_cells.h"
#include "batch/pack.h"
#include "batch/texts.h"
#include "walk/walk.h"

/* Walks of a worker: 4 to 16 measured alike. */
enum { MOST_WALKS = 8 };

struct hwi_worker {
    const struct hwi_plan *plan;
    struct hwi_walk *walks[MOST_WALKS]; /* the first walk_count */
    uint8_t is_begun[MOST_WALKS];
    struct hwi_work works[MOST_WALKS]; /* what each walk is for */
    uint32_t order[MOST_WALKS]; /* walks: the live ones first */
    uint32_t walk_count, live_count, turn;
    struct hwi_canvas canvas;
    struct hwi_permuter permuter;
    struct hwi_texts texts;
    struct hwi_counters counters;
};

/* ---- open and close ---------------------------------------------------------------------- */

/* MOST_WALKS, or as many as may have their scratch. */
static hw_status open_walks(struct hwi_worker *worker, hw_error *error) {
    for (uint32_t i = 0; i < MOST_WALKS; i++) {
        worker->order[i] = i;
        HW_TRY(hwi_walk_open(worker->plan, &worker->walks[i], error));
        worker->walk_count++;
        if (hwi_walk_bytes(worker->walks[0]) > HWI_MAX_SCRATCH_BYTES / (i + 2)) {
            break; /* the next one would be too much */
        }
    }
    return HW_OK;
}

static hw_status open_parts(struct hwi_worker *worker, hw_error *error) {
    HW_TRY(open_walks(worker, error));
    HW_TRY(hwi_canvas_open(worker->plan, &worker->canvas, error));
    HW_TRY(hwi_permuter_open(worker->plan, &worker->permuter, error));
    return hwi_texts_open(worker->plan, &worker->texts, error);
}

hw_status hwi_worker_open(const struct hwi_plan *plan, struct hwi_worker **worker,
                          hw_error *error) {
    struct hwi_worker *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a worker", sizeof *made);
    }
    made->plan = hwi_making_plan(plan);
    hw_status status = open_parts(made, error);
    if (status != HW_OK) {
        hwi_worker_close(made);
        return status;
    }
    *worker = made;
    return HW_OK;
}

void hwi_worker_close(struct hwi_worker *worker) {
    if (worker == NULL) {
        return;
    }
    for (uint32_t i = 0; i < worker->walk_count; i++) {
        hwi_walk_close(worker->walks[i]);
    }
    hwi_canvas_release(&worker->canvas);
    hwi_permuter_release(&worker->permuter);
    hwi_texts_release(&worker->texts);
    free(worker);
}

void hwi_worker_take_counters(struct hwi_worker *worker, struct hwi_counters *sum) {
    hwi_counters_take(&worker->counters, sum);
}

/* ---- sequences --------------------------------------------------------------------------- */

uint32_t hwi_worker_room(const struct hwi_worker *worker) {
    return worker->walk_count - worker->live_count;
}

void hwi_worker_start(struct hwi_worker *worker, const struct hwi_work *work) {
    uint32_t walk = worker->order[worker->live_count++];
    worker->works[walk] = *work;
    worker->is_begun[walk] = 0;
}

void hwi_worker_abandon(struct hwi_worker *worker) {
    worker->live_count = worker->turn = 0;
}

/* A step of one walk: its first begins it. */
static hw_status step(struct hwi_worker *worker, uint32_t walk, int *is_done, hw_error *error) {
    const struct hwi_work *work = &worker->works[walk];
    if (worker->is_begun[walk]) {
        return hwi_walk_step(worker->walks[walk], is_done, error);
    }
    worker->is_begun[walk] = 1;
    *is_done = !work->is_real;
    return work->is_real ? hwi_walk_start(worker->walks[walk], &work->seed, error) : HW_OK;
}

/* What a complete context shows: masked cells, then without those that are dropped. */
static void settle_cells(struct hwi_context *context) {
    if (context->plan->mask_words > 0) {
        hwi_masked_choose(context);
    }
    if (context->plan->drop_words > 0 && context->seed.split == HW_TRAIN) {
        hwi_drop_cells(context);
    }
}

static hw_status emit(struct hwi_worker *worker, struct hwi_context *context,
                      const struct hwi_work *work, hw_error *error) {
    const struct hwi_plan *plan = worker->plan;
    if (work->length != NULL) {
        int is_capped = context->cell_count >= plan->shape.sequence_length ||
                        context->row_count >= plan->shape.max_rows;
        if (plan->drop_words > 0) {
            settle_cells(context);
        }
        *work->length = (struct hwi_length){context->cell_count, context->row_count, is_capped};
        return HW_OK;
    }
    struct hwi_batch_scratch *scratch = work->scratch;
    uint8_t *slab = scratch->staging == NULL ? work->slab : scratch->staging;
    if (!work->is_real) {
        hwi_emit_nothing(plan, context, &worker->canvas, &worker->permuter, slab, work->b);
        hwi_texts_none(scratch, work->b);
        return HW_OK;
    }
    settle_cells(context);
    uint16_t *text_cells = scratch->text_cells + (size_t)work->b * plan->shape.sequence_length;
    HW_TRY(hwi_emit_sequence(plan, context, &worker->canvas, &worker->permuter, slab, work->b,
                             &work->seed, text_cells, &scratch->cell_counts[work->b], error));
    HW_TRY(hwi_texts_number(&worker->texts, plan, slab, scratch, work->b,
                            &worker->counters.texts_over_budget, error));
    worker->counters.sequences++;
    worker->counters.cells += context->cell_count;
    worker->counters.rows += context->row_count;
    worker->counters.stopped_by_rows += context->stopped_by_rows;
    worker->counters.masked_cells += context->chosen.count;
    worker->counters.masked_over_limit += context->chosen.surplus_count;
    worker->counters.withheld_cells += context->withheld_count;
    return HW_OK;
}

hw_status hwi_worker_advance(struct hwi_worker *worker, struct hwi_work *finished,
                             hw_error *error) {
    int64_t start = hwi_now_ns();
    int is_done = 0;
    for (;;) {
        worker->turn = worker->turn + 1 < worker->live_count ? worker->turn + 1 : 0;
        uint32_t walk = worker->order[worker->turn];
        HW_TRY(step(worker, walk, &is_done, error));
        if (is_done) {
            break;
        }
    }
    uint32_t walk = worker->order[worker->turn];
    int64_t walked = hwi_now_ns();
    HW_TRY(emit(worker, hwi_walk_context(worker->walks[walk]), &worker->works[walk], error));
    worker->counters.walk_ns += (uint64_t)(walked - start);
    worker->counters.emit_ns += (uint64_t)(hwi_now_ns() - walked);
    *finished = worker->works[walk];
    worker->order[worker->turn] = worker->order[--worker->live_count];
    worker->order[worker->live_count] = walk;
    return HW_OK;
}

hw_status hwi_measure_lengths(struct hwi_worker *worker, hwi_seed_at seed_at, const void *context,
                              uint32_t count, struct hwi_length *lengths, hw_error *error) {
    uint32_t started = 0;
    struct hwi_work finished;
    HW_TRY(hwi_store_check_sizes(worker->plan->store, error));
    for (uint32_t done = 0; done < count; done++) {
        while (started < count && hwi_worker_room(worker) > 0) {
            struct hwi_work work = {
                .seed = seed_at(context, started), .is_real = 1, .length = &lengths[started]};
            hwi_worker_start(worker, &work);
            started++;
        }
        HW_TRY(hwi_worker_advance(worker, &finished, error));
    }
    return HW_OK;
}
