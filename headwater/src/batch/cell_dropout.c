/* Dropped cells of a context; see cell_dropout.h. Lists have room: all cells are at most S. */
#include "batch/cell_dropout.h"

#include "base/rng.h"

struct dropping {
    struct hwi_context *context;
    uint64_t key;
    uint32_t place; /* where the next cell that is kept stands */
    uint32_t masked_count; /* chosen cells that were met */
};

static int is_dropped(const struct dropping *dropping, uint32_t local, uint32_t column) {
    uint64_t word = hwi_mix(dropping->key ^ ((uint64_t)local << 32 | column)) >> 32;
    return word < dropping->context->plan->drop_words;
}

/* 1 if the cell at `position` is kept: it moves up. */
static int keep(struct dropping *dropping, uint32_t position, int is_first, uint32_t local,
                uint32_t column) {
    struct hwi_context *context = dropping->context;
    struct hwi_chosen_cell *masked = context->chosen.cells + dropping->masked_count;
    if (position == context->target_cell) { /* once: a cell never moves down */
        context->target_cell = dropping->place;
    } else if (dropping->masked_count < context->chosen.count && masked->position == position) {
        masked->position = (uint16_t)dropping->place;
        dropping->masked_count++;
    } else if (!is_first && is_dropped(dropping, local, column)) {
        return 0;
    }
    dropping->place++;
    return 1;
}

/* The cells of a row of a table; a list that it has is cut where it stands. */
static void drop_own(struct dropping *dropping, struct hwi_visit *visit, uint32_t local,
                     uint32_t start) {
    struct hwi_context *context = dropping->context;
    const uint32_t *columns = context->plan->tables[visit->table].columns;
    uint32_t is_listed = visit->list != HWI_NONE, kept = 0;
    uint32_t *list = context->cell_lists + (is_listed ? visit->list : context->list_count);
    for (uint32_t k = 0; k < visit->cell_count; k++) {
        uint32_t c = is_listed ? list[k] : k;
        if (keep(dropping, start + k, k == 0, local, columns[c])) {
            list[kept++] = c;
        }
    }
    if (!is_listed) {
        visit->list = context->list_count;
        context->list_count += kept;
    }
    visit->cell_count = kept;
}

/* The counts of a row's children, from position `start` on. */
static void drop_tallies(struct dropping *dropping, struct hwi_visit *visit, uint32_t local,
                         uint32_t start, int has_own) {
    struct hwi_context *context = dropping->context;
    uint32_t count = visit->tally_cells;
    visit->tally_list = context->list_count;
    visit->tally_cells = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t column = hwi_tally_column(context->plan, visit->table, i);
        if (keep(dropping, start + i, i == 0 && !has_own, local, column)) {
            context->cell_lists[context->list_count++] = i;
            visit->tally_cells++;
        }
    }
}

/* A task's own row: obs_time, which is kept, and the target or a label. */
static void drop_answer(struct dropping *dropping, struct hwi_visit *visit, uint32_t local,
                        uint32_t start) {
    const struct hwi_task_info *info = dropping->context->task->info;
    uint32_t count = visit->cell_count;
    visit->cell_count = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t column = k == 0 ? info->obs_time_column : info->target_column;
        visit->cell_count += (uint32_t)keep(dropping, start + k, k == 0, local, column);
    }
}

void hwi_drop_cells(struct hwi_context *context) {
    const struct hwi_seed *seed = &context->seed;
    uint64_t stream = (uint64_t)context->plan->tasks[seed->task].task * 4 + seed->split;
    struct dropping dropping = {
        .context = context,
        .key = hwi_key(context->plan->options.seed, HWI_KEY_DROPOUT, stream << 32 | seed->epoch,
                       seed->index),
    };
    for (uint32_t local = 0; local < context->row_count; local++) {
        struct hwi_visit *visit = &context->visits[local];
        uint32_t start = visit->cell_start, own = visit->cell_count;
        visit->cell_start = dropping.place;
        if (visit->table == HWI_NONE) {
            drop_answer(&dropping, visit, local, start);
            continue;
        }
        drop_own(&dropping, visit, local, start);
        if (visit->tally_cells > 0) {
            drop_tallies(&dropping, visit, local, start + own, own > 0);
        }
    }
    context->cell_count = dropping.place;
}
