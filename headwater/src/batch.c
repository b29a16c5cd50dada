/*
 * One sequence, then one batch: walk to scratch (walk.c), emit the scratch into the batch's memory
 * (emit.c), number the texts (batch_texts.c). A worker is the scratch of one thread.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch_texts.h"
#include "emit.h"
#include "error.h"

struct hwi_worker {
    struct hwi_walk walk;
    struct hwi_permuter permuter;
    struct hwi_texts texts;
    struct hwi_counters counters;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- open and close ---------------------------------------------------------------------- */

hw_status hwi_worker_open(const struct hwi_plan *plan, struct hwi_worker **worker,
                          hw_error *error) {
    struct hwi_worker *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a worker", sizeof *made);
    }
    hw_status status = hwi_walk_open(plan, &made->walk, error);
    if (status == HW_OK) {
        status = hwi_permuter_open(plan, &made->permuter, error);
    }
    if (status == HW_OK) {
        status = hwi_texts_open(plan, &made->texts, error);
    }
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
    hwi_walk_release(&worker->walk);
    hwi_permuter_release(&worker->permuter);
    hwi_texts_release(&worker->texts);
    free(worker);
}

void hwi_worker_take_counters(struct hwi_worker *worker, struct hwi_counters *sum) {
    const struct hwi_counters *own = &worker->counters;
    sum->sequences += own->sequences;
    sum->cells += own->cells;
    sum->rows += own->rows;
    sum->walk_ns += own->walk_ns;
    sum->emit_ns += own->emit_ns;
    sum->text_ns += own->text_ns;
    sum->stopped_by_rows += own->stopped_by_rows;
    sum->texts_over_budget += own->texts_over_budget;
    worker->counters = (struct hwi_counters){0};
}

/* ---- one sequence ------------------------------------------------------------------------ */

hw_status hwi_sequence_make(struct hwi_worker *worker, const struct hwi_plan *plan, uint8_t *slab,
                            struct hwi_batch_scratch *scratch, uint32_t b,
                            const struct hwi_seed *seed, hw_error *error) {
    if (seed == NULL) {
        hwi_emit_nothing(plan, &worker->walk, &worker->permuter, slab, b);
        scratch->text_counts[b] = scratch->cell_counts[b] = 0;
        return HW_OK;
    }
    uint64_t start = now_ns();
    HW_TRY(hwi_walk_seed(&worker->walk, seed, error));
    uint64_t walked = now_ns();
    uint16_t *text_cells = scratch->text_cells + (size_t)b * plan->shape.sequence_length;
    HW_TRY(hwi_emit_sequence(plan, &worker->walk, &worker->permuter, slab, b, seed, text_cells,
                             &scratch->cell_counts[b], error));
    HW_TRY(hwi_texts_number(&worker->texts, plan, slab, scratch, b,
                            &worker->counters.texts_over_budget, error));
    worker->counters.walk_ns += walked - start;
    worker->counters.emit_ns += now_ns() - walked;
    worker->counters.sequences++;
    worker->counters.cells += worker->walk.cell_count;
    worker->counters.rows += worker->walk.row_count;
    worker->counters.stopped_by_rows += worker->walk.stopped_by_rows;
    return HW_OK;
}

hw_status hwi_sequence_measure(struct hwi_worker *worker, const struct hwi_seed *seed,
                               uint32_t *row_count, uint32_t *text_count, hw_error *error) {
    HW_TRY(hwi_walk_seed(&worker->walk, seed, error));
    *row_count = worker->walk.row_count;
    *text_count = hwi_texts_count(&worker->texts, &worker->walk);
    return HW_OK;
}

/* ---- one batch --------------------------------------------------------------------------- */

hw_status hwi_batch_finish(struct hwi_worker *worker, const struct hwi_plan *plan, uint8_t *slab,
                           struct hwi_batch_scratch *scratch, uint32_t task,
                           uint32_t sequence_count, hw_error *error) {
    (void)error;
    uint64_t start = now_ns();
    const struct hwi_task_plan *task_plan = &plan->tasks[task];
    const struct hwi_task_info *info = &plan->store->tasks[task_plan->task];
    const struct hwi_column_info *target = &plan->store->columns[info->target_column];
    int is_categorical = info->target_stype == HW_CATEGORICAL;
    uint32_t category_start = is_categorical ? target->category_start : 0;
    uint32_t category_count = is_categorical ? target->category_count : 0;
    uint32_t text_count = hwi_texts_merge(&worker->texts, plan, slab, scratch);
    *(uint8_t *)hwi_field_at(plan, slab, HWI_TARGET_STYPE, 0) = info->target_stype;
    memcpy(hwi_field_at(plan, slab, HWI_TASK_IDX, 0), &task_plan->task, 4);
    memcpy(hwi_field_at(plan, slab, HWI_CAT_EMB_START, 0), &category_start, 4);
    memcpy(hwi_field_at(plan, slab, HWI_CAT_EMB_COUNT, 0), &category_count, 4);
    memcpy(hwi_field_at(plan, slab, HWI_NUM_SEQUENCES, 0), &sequence_count, 4);
    memcpy(hwi_field_at(plan, slab, HWI_NUM_TEXTS, 0), &text_count, 4);
    worker->counters.text_ns += now_ns() - start;
    return HW_OK;
}
