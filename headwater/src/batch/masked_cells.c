/* Masked cells of a sequence; see masked_cells.h. */
#include "batch/masked_cells.h"

#include <string.h>

#include "base/calendar.h"
#include "base/rng.h"
#include "batch/emit_cells.h"
#include "plan/scales.h"

#define FIRST_BLOCK 0x80000000u /* of the stream; a walk counts its blocks from 0 */

/* ---- which cells ------------------------------------------------------------------------- */

/* A place in the cells of a walk that stand in tables. */
struct place {
    uint32_t row, next; /* local row, and which of its cells comes next */
};

static int is_held_out(const struct hwi_context *context, const struct hwi_visit *visit,
                       uint32_t column) {
    const uint64_t *bits = context->plan->held_out[column];
    uint32_t row = visit->row - context->plan->store->tables[visit->table].row_start;
    return bits != NULL && (bits[row / 64] >> (row % 64) & 1);
}

/* The next cell that may be chosen; 0 at the end. */
static int next_candidate(const struct hwi_context *context, struct place *at,
                          struct hwi_chosen_cell *candidate) {
    for (; at->row < context->row_count; at->row++, at->next = 0) {
        const struct hwi_visit *visit = &context->visits[at->row];
        if (visit->table == HWI_NONE) { /* a task's own row: the question, and earlier answers */
            continue;
        }
        const struct hwi_table_plan *cells = &context->plan->tables[visit->table];
        while (at->next < visit->cell_count) {
            uint32_t k = at->next++;
            uint32_t c = visit->list == HWI_NONE ? k : context->cell_lists[visit->list + k];
            if (cells->maskable[c] && visit->cell_start + k != context->target_cell &&
                !is_held_out(context, visit, cells->columns[c])) {
                *candidate = (struct hwi_chosen_cell){
                    .row = (uint16_t)at->row,
                    .position = (uint16_t)(visit->cell_start + k),
                    .cell = c,
                };
                return 1;
            }
        }
    }
    return 0;
}

static int is_masked_seed(const struct hwi_context *context) {
    return context->plan->mask_words > 0 &&
           (!hwi_is_task_objective(context->plan) || context->seed.split == HW_TRAIN);
}

/* Of a chosen cell, 0 for numbers up to HWI_MASKED_TYPES - 1 for texts. */
static uint32_t type_of(const struct hwi_context *context, const struct hwi_chosen_cell *cell) {
    const struct hwi_table_plan *cells = &context->plan->tables[context->visits[cell->row].table];
    return (uint32_t)cells->stypes[cell->cell] - HW_NUMERICAL;
}

/* Takes a cell that is chosen, unless M of its type were; without an M, as many as there are. */
static void take(struct hwi_context *context, const struct hwi_chosen_cell *cell,
                 uint32_t counts[HWI_MASKED_TYPES]) {
    struct hwi_chosen_cells *chosen = &context->chosen;
    uint32_t *count = &counts[type_of(context, cell)];
    uint32_t most = context->plan->shape.max_targets_per_type;
    if (most > 0 && *count == most) {
        chosen->surplus_count++;
    } else {
        chosen->cells[chosen->count++] = *cell;
        ++*count;
    }
}

void hwi_masked_choose(struct hwi_context *context) {
    const struct hwi_plan *plan = context->plan;
    struct hwi_rng rng =
        hwi_rng_make(plan->options.seed, context->seed.index, context->seed.epoch,
                     plan->tasks[context->seed.task].task * 4 + context->seed.split);
    struct place at = {0};
    struct hwi_chosen_cell candidate;
    uint32_t candidate_count = 0, counts[HWI_MASKED_TYPES] = {0};
    rng.counter[0] = FIRST_BLOCK;
    context->chosen.count = context->chosen.surplus_count = 0;
    if (!is_masked_seed(context)) {
        return;
    }
    while (next_candidate(context, &at, &candidate)) {
        candidate_count++;
        if (hwi_rng_next(&rng) < plan->mask_words) {
            take(context, &candidate, counts);
        }
    }
    if (context->chosen.count > 0 || candidate_count == 0) {
        return;
    }
    at = (struct place){0};
    for (uint32_t skipped = hwi_rng_below(&rng, candidate_count) + 1; skipped > 0; skipped--) {
        (void)next_candidate(context, &at, &context->chosen.cells[0]);
    }
    context->chosen.count = 1;
}

uint32_t hwi_masked_measure(const struct hwi_context *context) {
    uint32_t counts[HWI_MASKED_TYPES] = {0}, most = 0;
    for (uint32_t i = 0; i < context->chosen.count; i++) {
        uint32_t count = ++counts[type_of(context, &context->chosen.cells[i])];
        most = count > most ? count : most;
    }
    return most;
}

/* ---- lists ------------------------------------------------------------------------------- */

enum { LIST_INDICES, LIST_VALUES, LIST_NULLS };

static const uint8_t VALUE_BYTES[HWI_MASKED_TYPES] = {4, 4 * HWI_TIME_FLOATS, 1, 4, 4};

/* Entry i of a list of sequence b. */
static void *entry_of(const struct hwi_plan *plan, uint8_t *slab, uint32_t b, uint32_t type,
                      uint32_t list, uint32_t i) {
    size_t bytes = list == LIST_INDICES ? 4 : list == LIST_VALUES ? VALUE_BYTES[type] : 1;
    size_t place = (size_t)b * plan->shape.max_targets_per_type + i;
    return hwi_field_at(plan, slab, HWI_MASKED_LISTS + 3 * type + list, bytes * place);
}

void hwi_masked_clear(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    size_t most = plan->shape.max_targets_per_type;
    for (uint32_t type = 0; type < HWI_MASKED_TYPES; type++) {
        memset(entry_of(plan, slab, b, type, LIST_INDICES, 0), 0xff, 4 * most);
        memset(entry_of(plan, slab, b, type, LIST_VALUES, 0), 0, VALUE_BYTES[type] * most);
        memset(entry_of(plan, slab, b, type, LIST_NULLS, 0), 0, most);
    }
    if (hwi_is_task_objective(plan)) {
        memset(hwi_field_at(plan, slab, HWI_TARGET_INDICES, 4 * (size_t)b), 0xff, 4);
    }
}

/* The value of a cell that is not NULL, from its record; a text's number follows later. */
static void write_value(const struct hwi_plan *plan, const uint8_t *lane, hw_semantic_type stype,
                        uint32_t column, void *value) {
    int64_t time_us;
    uint32_t bits;
    float number;
    if (stype == HW_TIMESTAMP) {
        memcpy(&time_us, lane, sizeof time_us);
        hwi_calendar_encode(&plan->calendar, time_us, plan->time_mean_us, plan->time_std_us, value);
        return;
    }
    memcpy(&bits, lane, sizeof bits);
    if (stype == HW_BOOLEAN) {
        *(uint8_t *)value = bits & 1;
    } else if (stype == HW_NUMERICAL) {
        memcpy(&number, lane, sizeof number);
        number = hwi_shown_number(plan, column, number);
        memcpy(value, &number, sizeof number);
    } else if (stype != HW_TEXT) {
        memcpy(value, &bits, sizeof bits);
    }
}

/* ---- cells ------------------------------------------------------------------------------- */

static void mask_cell(const struct hwi_context *context, struct hwi_canvas *canvas, uint8_t *slab,
                      uint32_t b, const struct hwi_chosen_cell *chosen, uint32_t place) {
    const struct hwi_plan *plan = context->plan;
    const struct hwi_visit *visit = &context->visits[chosen->row];
    const struct hwi_table_plan *cells = &plan->tables[visit->table];
    hw_semantic_type stype = (hw_semantic_type)cells->stypes[chosen->cell];
    uint32_t type = type_of(context, chosen);
    int32_t position = chosen->position;
    int is_null = hwi_is_null_cell(cells, visit->record + cells->null_offset, chosen->cell);
    memcpy(entry_of(plan, slab, b, type, LIST_INDICES, place), &position, sizeof position);
    *(uint8_t *)entry_of(plan, slab, b, type, LIST_NULLS, place) = (uint8_t)is_null;
    if (!is_null) {
        write_value(plan, visit->record + cells->lanes[chosen->cell], stype,
                    cells->columns[chosen->cell],
                    entry_of(plan, slab, b, type, LIST_VALUES, place));
    }
    hwi_hide_cell(plan, canvas, slab, b, chosen->position, (uint8_t)stype);
}

void hwi_masked_emit(const struct hwi_plan *plan, const struct hwi_context *context,
                     struct hwi_canvas *canvas, uint8_t *slab, uint32_t b) {
    uint32_t counts[HWI_MASKED_TYPES] = {0};
    hwi_masked_clear(plan, slab, b);
    if (context->target_cell != HWI_NONE) {
        memcpy(hwi_field_at(plan, slab, HWI_TARGET_INDICES, 4 * (size_t)b), &context->target_cell,
               4);
    }
    for (uint32_t i = 0; i < context->chosen.count; i++) {
        const struct hwi_chosen_cell *chosen = &context->chosen.cells[i];
        mask_cell(context, canvas, slab, b, chosen, counts[type_of(context, chosen)]++);
    }
}

void hwi_masked_take_texts(const struct hwi_plan *plan, uint8_t *slab, uint32_t b) {
    const uint32_t type = HW_TEXT - HW_NUMERICAL;
    if (plan->mask_words == 0) {
        return;
    }
    size_t at = 4 * (size_t)b * plan->shape.sequence_length;
    uint32_t *ids = hwi_field_at(plan, slab, hwi_text_ids_field(plan), at);
    const int32_t *indices = entry_of(plan, slab, b, type, LIST_INDICES, 0);
    uint32_t *values = entry_of(plan, slab, b, type, LIST_VALUES, 0);
    for (uint32_t i = 0; i < plan->shape.max_targets_per_type && indices[i] >= 0; i++) {
        values[i] = ids[indices[i]];
        ids[indices[i]] = 0;
    }
}
