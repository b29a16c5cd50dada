/*
 * Which cells of a sequence look at which. Cells are sorted by row or by column with one pass of
 * counting, columns through a hash table of the sequence's own; O(S + R·P).
 */
#include "attention.h"

#include <string.h>

static int32_t slot_count_for(int64_t cells) {
    int32_t count = 16;
    while (count < 2 * cells) {
        count *= 2;
    }
    return count;
}

static int64_t most_units(const struct attention *a) {
    return a->cells > a->rows ? a->cells : a->rows;
}

size_t attention_groups_bytes(const struct attention *a) {
    size_t units = (size_t)most_units(a), cells = (size_t)a->cells, rows = (size_t)a->rows;
    size_t numbers = (units + 1) + 2 * cells + (rows + 1) + rows * (size_t)a->parents +
                     (size_t)slot_count_for(a->cells);
    return attention_rounded(numbers * sizeof(int32_t));
}

void attention_groups_place(const struct attention *a, struct attention_groups *g, void *memory) {
    int32_t *next = memory;
    g->starts = next, next += most_units(a) + 1;
    g->cells = next, next += a->cells;
    g->unit_of = next, next += a->cells;
    g->child_starts = next, next += a->rows + 1;
    g->child_rows = next, next += a->rows * a->parents;
    g->slots = next;
    g->slot_count = slot_count_for(a->cells);
}

/* Turns counts in starts[1..] into starts. */
static void add_up(int32_t *starts, int64_t count) {
    starts[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        starts[i + 1] += starts[i];
    }
}

static bool units_are_rows(const struct attention *a, int64_t sequence,
                           struct attention_groups *g) {
    const int32_t *row_ids = a->row_ids + sequence * a->cells;
    const uint8_t *is_cell = a->is_cell + sequence * a->cells;
    for (int64_t i = 0; i < a->cells; i++) {
        if (is_cell[i] && (row_ids[i] < 0 || row_ids[i] >= a->rows)) {
            return false;
        }
        g->unit_of[i] = row_ids[i];
    }
    g->unit_count = (int32_t)a->rows;
    return true;
}

/* The unit of a column, a new one if it was not met before. */
static int32_t unit_of_column(struct attention_groups *g, const int32_t *column_ids,
                              int32_t *first_cell, int32_t cell) {
    uint32_t mask = (uint32_t)g->slot_count - 1;
    uint32_t slot = ((uint32_t)column_ids[cell] * 2654435769u) >> 7 & mask;
    while (g->slots[slot] >= 0) {
        if (column_ids[first_cell[g->slots[slot]]] == column_ids[cell]) {
            return g->slots[slot];
        }
        slot = (slot + 1) & mask;
    }
    g->slots[slot] = g->unit_count;
    first_cell[g->unit_count] = cell;
    return g->unit_count++;
}

static void units_are_columns(const struct attention *a, int64_t sequence,
                              struct attention_groups *g) {
    const int32_t *column_ids = a->column_ids + sequence * a->cells;
    const uint8_t *is_cell = a->is_cell + sequence * a->cells;
    int32_t *first_cell = g->cells; /* filled later */
    memset(g->slots, 0xff, (size_t)g->slot_count * sizeof *g->slots);
    g->unit_count = 0;
    for (int32_t i = 0; i < a->cells; i++) {
        g->unit_of[i] = is_cell[i] ? unit_of_column(g, column_ids, first_cell, i) : -1;
    }
}

static void sort_cells(const struct attention *a, int64_t sequence, struct attention_groups *g) {
    const uint8_t *is_cell = a->is_cell + sequence * a->cells;
    memset(g->starts, 0, ((size_t)g->unit_count + 1) * sizeof *g->starts);
    for (int64_t i = 0; i < a->cells; i++) {
        if (is_cell[i]) {
            g->starts[g->unit_of[i] + 1]++;
        }
    }
    add_up(g->starts, g->unit_count);
    for (int32_t i = 0; i < a->cells; i++) {
        if (is_cell[i]) {
            g->cells[g->starts[g->unit_of[i]]++] = i;
        }
    }
    memmove(g->starts + 1, g->starts, (size_t)g->unit_count * sizeof *g->starts);
    g->starts[0] = 0;
}

static const int32_t *parents_of(const struct attention *a, int64_t sequence, int64_t row) {
    return a->parent_rows + (sequence * a->rows + row) * a->parents;
}

/* Is parents[p] a row that was not named before? */
static bool is_new_parent(const struct attention *a, const int32_t *parents, int64_t p) {
    if (parents[p] < 0 || parents[p] >= a->rows) {
        return false;
    }
    for (int64_t q = 0; q < p; q++) {
        if (parents[q] == parents[p]) {
            return false;
        }
    }
    return true;
}

static void find_children(const struct attention *a, int64_t sequence, struct attention_groups *g) {
    int32_t *starts = g->child_starts;
    memset(starts, 0, ((size_t)a->rows + 1) * sizeof *starts);
    for (int64_t row = 0; row < a->rows; row++) {
        const int32_t *parents = parents_of(a, sequence, row);
        for (int64_t p = 0; p < a->parents; p++) {
            starts[is_new_parent(a, parents, p) ? parents[p] + 1 : 0]++;
        }
    }
    add_up(starts, a->rows);
    for (int32_t row = 0; row < a->rows; row++) {
        const int32_t *parents = parents_of(a, sequence, row);
        for (int64_t p = 0; p < a->parents; p++) {
            if (is_new_parent(a, parents, p)) {
                g->child_rows[starts[parents[p]]++] = row;
            }
        }
    }
    memmove(starts + 1, starts, (size_t)a->rows * sizeof *starts);
    starts[0] = 0;
}

bool attention_groups_find(const struct attention *a, int64_t sequence,
                           struct attention_groups *g) {
    if (a->pattern == ATTENTION_COLUMN) {
        units_are_columns(a, sequence, g);
    } else if (!units_are_rows(a, sequence, g)) {
        return false;
    }
    sort_cells(a, sequence, g);
    if (a->pattern == ATTENTION_INBOUND) {
        find_children(a, sequence, g);
    }
    return true;
}

/* Does the row name itself as a parent? */
static bool points_at_itself(const struct attention *a, int64_t sequence, int32_t row) {
    const int32_t *parents = parents_of(a, sequence, row);
    for (int64_t p = 0; p < a->parents; p++) {
        if (parents[p] == row) {
            return true;
        }
    }
    return false;
}

int32_t attention_runs(const struct attention *a, int64_t sequence,
                       const struct attention_groups *g, int32_t unit, struct attention_run *runs) {
    int32_t count = 0;
    if (a->pattern == ATTENTION_INBOUND) {
        for (int32_t i = g->child_starts[unit]; i < g->child_starts[unit + 1]; i++) {
            int32_t child = g->child_rows[i];
            runs[count++] = (struct attention_run){child, child, unit, false};
        }
        return count;
    }
    runs[count++] = (struct attention_run){unit, -1, -1, false};
    if (a->pattern == ATTENTION_OUTBOUND) {
        const int32_t *parents = parents_of(a, sequence, unit);
        if (points_at_itself(a, sequence, unit)) {
            runs[0].child = runs[0].parent = unit;
        }
        for (int64_t p = 0; p < a->parents; p++) {
            if (parents[p] != unit && is_new_parent(a, parents, p)) {
                runs[count++] = (struct attention_run){parents[p], unit, parents[p], false};
            }
        }
    }
    return count;
}

int32_t attention_kinds(const struct attention *a, int64_t sequence, int32_t child, int32_t parent,
                        int32_t *kinds) {
    const int32_t *parents = parents_of(a, sequence, child);
    const int32_t *of_row = a->parent_kinds + (sequence * a->rows + child) * a->parents;
    int32_t count = 0;
    for (int64_t p = 0; p < a->parents; p++) {
        if (parents[p] == parent) {
            kinds[count++] = of_row[p] > 0 && of_row[p] < a->kinds ? of_row[p] : 0;
        }
    }
    return count;
}

bool attention_sees_itself(const struct attention *a, int64_t sequence, int32_t unit) {
    if (a->pattern != ATTENTION_INBOUND) {
        return false;
    }
    return !points_at_itself(a, sequence, unit); /* else its own cells are among its keys */
}
