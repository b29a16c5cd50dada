#include "batch/cell_order.h"

#include <stdlib.h>
#include <string.h>

/* Positions first, first + 1, ...: written eight at a time, past `count` where there is room. */
static uint32_t put_run(uint16_t *perm, uint32_t place, uint32_t end, uint32_t first,
                        uint32_t count) {
    uint32_t k = 0;
    for (; k < count && place + k + 8 <= end; k += 8) {
        for (uint32_t i = 0; i < 8; i++) {
            perm[place + k + i] = (uint16_t)(first + k + i);
        }
    }
    for (; k < count; k++) {
        perm[place + k] = (uint16_t)(first + k);
    }
    return place + count;
}

/* Padding keeps its place. */
static void put_padding(uint16_t *perm, uint32_t place, uint32_t end) {
    for (; place < end; place++) {
        perm[place] = (uint16_t)place;
    }
}

/* ---- by column --------------------------------------------------------------------------- */

/* Groups the rows by table; returns how many tables there are, which `touched` lists. */
static uint32_t group_rows(struct hwi_permuter *permuter, const struct hwi_context *context) {
    uint32_t tables = context->plan->store->info->table_count, count = 0;
    if (++permuter->stamp == 0) {
        memset(permuter->table_stamps, 0, ((size_t)tables + 1) * sizeof(uint32_t));
        permuter->stamp = 1;
    }
    for (uint32_t row = 0; row < context->row_count; row++) {
        uint32_t table = context->visits[row].table < tables ? context->visits[row].table : tables;
        if (permuter->table_stamps[table] == permuter->stamp) {
            permuter->table_counts[table]++;
            continue;
        }
        permuter->table_stamps[table] = permuter->stamp;
        permuter->table_counts[table] = 1;
        uint32_t at = count++;
        for (; at > 0 && permuter->touched[at - 1] > table; at--) {
            permuter->touched[at] = permuter->touched[at - 1];
        }
        permuter->touched[at] = table;
    }
    for (uint32_t i = 0, start = 0; i < count; i++) {
        uint32_t *rows = &permuter->table_counts[permuter->touched[i]];
        start += *rows;
        *rows = start - *rows;
    }
    for (uint32_t row = 0; row < context->row_count; row++) {
        uint32_t table = context->visits[row].table < tables ? context->visits[row].table : tables;
        permuter->grouped[permuter->table_counts[table]++] = (uint16_t)row;
    }
    return count;
}

/* Rows that emit their table's first cells: column k's cells are every row's k-th. Only the last
 * row of a context may have fewer than all. */
static uint32_t put_plain(struct hwi_permuter *permuter, const struct hwi_context *context,
                          const uint16_t *rows, uint32_t row_count, uint16_t *perm,
                          uint32_t place) {
    const struct hwi_visit *last = &context->visits[rows[row_count - 1]];
    uint32_t cell_count = context->plan->tables[last->table].cell_count;
    uint16_t *starts = permuter->cell_starts;
    for (uint32_t i = 0; i < row_count; i++) {
        starts[i] = (uint16_t)context->visits[rows[i]].cell_start;
    }
    for (uint32_t k = 0; k < cell_count; k++) {
        uint32_t count = k < last->cell_count ? row_count : row_count - 1;
        for (uint32_t i = 0; i < count; i++) {
            perm[place + i] = (uint16_t)(starts[i] + k);
        }
        place += count;
    }
    return place;
}

/* The seed row and label rows: obs_time of each, then the target of each. */
static uint32_t put_seeds(const struct hwi_context *context, const uint16_t *rows,
                          uint32_t row_count, uint16_t *perm, uint32_t place) {
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < row_count; i++) {
            const struct hwi_visit *visit = &context->visits[rows[i]];
            if (k < visit->cell_count) {
                perm[place++] = (uint16_t)(visit->cell_start + k);
            }
        }
    }
    return place;
}

/* Rows that list their cells: a counting sort by column. */
static uint32_t put_listed(struct hwi_permuter *permuter, const struct hwi_context *context,
                           const uint16_t *rows, uint32_t row_count, uint16_t *perm,
                           uint32_t place) {
    uint32_t table = context->visits[rows[0]].table;
    const struct hwi_table_info *info = context->plan->store->tables[table].info;
    const uint32_t *columns = context->plan->tables[table].columns;
    uint32_t *places = permuter->column_counts;
    memset(places, 0, info->column_count * sizeof *places);
    for (uint32_t i = 0; i < row_count; i++) {
        const struct hwi_visit *visit = &context->visits[rows[i]];
        for (uint32_t k = 0; k < visit->cell_count; k++) {
            places[columns[context->cell_lists[visit->list + k]] - info->column_start]++;
        }
    }
    for (uint32_t column = 0; column < info->column_count; column++) {
        uint32_t count = places[column];
        places[column] = place;
        place += count;
    }
    for (uint32_t i = 0; i < row_count; i++) {
        const struct hwi_visit *visit = &context->visits[rows[i]];
        for (uint32_t k = 0; k < visit->cell_count; k++) {
            uint32_t column = columns[context->cell_lists[visit->list + k]] - info->column_start;
            perm[places[column]++] = (uint16_t)(visit->cell_start + k);
        }
    }
    return place;
}

/* The position of a row's cell `index` of its children's counts, HWI_NONE where it has not. */
static uint32_t tally_position(const struct hwi_context *context, const struct hwi_visit *visit,
                               uint32_t index) {
    uint32_t first = visit->cell_start + visit->cell_count, place = index;
    if (visit->tally_cells == 0) {
        return HWI_NONE;
    }
    if (visit->tally_list == HWI_NONE) {
        return index < visit->tally_cells ? first + index : HWI_NONE;
    }
    const uint32_t *list = context->cell_lists + visit->tally_list;
    place = place < visit->tally_cells ? place : visit->tally_cells - 1u;
    while (place > 0 && list[place] > index) { /* ascending, and few are missing */
        place--;
    }
    return list[place] == index ? first + place : HWI_NONE;
}

/* Cells that count children: their columns come after all others, by key. */
static uint32_t put_tallies(const struct hwi_permuter *permuter, const struct hwi_context *context,
                            uint32_t table_count, uint16_t *perm, uint32_t place) {
    const hw_store *store = context->plan->store;
    for (uint32_t key = 0; key < store->info->key_count; key++) {
        uint32_t table = store->keys[key].parent_table, i = 0;
        while (i < table_count && permuter->touched[i] != table) {
            i++;
        }
        if (i == table_count) {
            continue;
        }
        uint32_t first = i == 0 ? 0 : permuter->table_counts[permuter->touched[i - 1]];
        uint32_t cell = HWI_TALLY_CELLS * store->keys[key].child_slot;
        for (uint32_t end = cell + HWI_TALLY_CELLS; cell < end; cell++) {
            for (uint32_t n = first; n < permuter->table_counts[table]; n++) {
                const struct hwi_visit *visit = &context->visits[permuter->grouped[n]];
                uint32_t position = tally_position(context, visit, cell);
                if (position != HWI_NONE) {
                    perm[place++] = (uint16_t)position;
                }
            }
        }
    }
    return place;
}

void hwi_permute_columns(struct hwi_permuter *permuter, const struct hwi_context *context,
                         uint16_t *col_perm) {
    uint32_t table_count = group_rows(permuter, context), first = 0, place = 0;
    for (uint32_t i = 0; i < table_count; i++) {
        uint32_t table = permuter->touched[i], end = permuter->table_counts[table];
        const uint16_t *rows = permuter->grouped + first;
        if (table == context->plan->store->info->table_count) {
            place = put_seeds(context, rows, end - first, col_perm, place);
        } else if (context->visits[rows[0]].list == HWI_NONE) {
            place = put_plain(permuter, context, rows, end - first, col_perm, place);
        } else {
            place = put_listed(permuter, context, rows, end - first, col_perm, place);
        }
        first = end;
    }
    if (context->plan->options.child_counts) {
        place = put_tallies(permuter, context, table_count, col_perm, place);
    }
    put_padding(col_perm, place, context->plan->shape.sequence_length);
}

/* ---- by row ------------------------------------------------------------------------------ */

static void count_degrees(struct hwi_permuter *permuter, uint32_t row_count) {
    uint16_t *degrees = permuter->degrees;
    uint32_t next = 0;
    memset(degrees, 0, row_count * sizeof *degrees);
    for (uint32_t e = 0; e < 2 * permuter->edge_count; e++) {
        degrees[permuter->edges[e]]++;
    }
    for (uint32_t row = 0; row < row_count; row++) {
        permuter->starts[row] = next;
        next += degrees[row];
    }
}

/* Rows by (degree, row). */
static void sort_by_degree(struct hwi_permuter *permuter, uint32_t row_count) {
    uint32_t *counts = permuter->fills;
    memset(counts, 0, ((size_t)row_count + 1) * sizeof *counts);
    for (uint32_t row = 0; row < row_count; row++) {
        counts[permuter->degrees[row] + 1]++; /* a degree is below row_count */
    }
    for (uint32_t degree = 1; degree < row_count; degree++) {
        counts[degree] += counts[degree - 1];
    }
    for (uint32_t row = 0; row < row_count; row++) {
        permuter->by_degree[counts[permuter->degrees[row]]++] = (uint16_t)row;
    }
}

/* Lists of neighbours, each in the order of by_degree: every row in that order is appended to the
 * lists of its neighbours. */
static void link_rows(struct hwi_permuter *permuter, uint32_t row_count) {
    uint32_t *fills = permuter->fills;
    memcpy(fills, permuter->starts, row_count * sizeof *fills);
    for (uint32_t e = 0; e < permuter->edge_count; e++) {
        uint16_t i = permuter->edges[2 * e], j = permuter->edges[2 * e + 1];
        permuter->neighbours[fills[i]++] = j;
        permuter->neighbours[fills[j]++] = i;
    }
    memcpy(fills, permuter->starts, row_count * sizeof *fills);
    for (uint32_t n = 0; n < row_count; n++) {
        uint16_t row = permuter->by_degree[n];
        const uint16_t *list = permuter->neighbours + permuter->starts[row];
        for (uint32_t k = 0; k < permuter->degrees[row]; k++) {
            permuter->sorted_neighbours[fills[list[k]]++] = row;
        }
    }
}

/* Breadth first from `first`; returns how many rows are in order now. */
static uint32_t append_component(struct hwi_permuter *permuter, uint16_t first, uint32_t filled,
                                 uint8_t mark) {
    uint16_t *order = permuter->order;
    uint32_t head = filled;
    order[filled++] = first;
    permuter->seen[first] = mark;
    while (head < filled) {
        uint16_t row = order[head++];
        const uint16_t *list = permuter->sorted_neighbours + permuter->starts[row];
        for (uint32_t k = 0; k < permuter->degrees[row]; k++) {
            if (permuter->seen[list[k]] != mark) {
                permuter->seen[list[k]] = mark;
                order[filled++] = list[k];
            }
        }
    }
    return filled;
}

/* Components by lowest row, each from its row of fewest neighbours; the first `filled` rows of the
 * order stand, and are marked. */
static void order_components(struct hwi_permuter *permuter, uint32_t row_count, uint32_t filled) {
    for (uint32_t row = 0; row < row_count; row++) {
        if (permuter->seen[row] != 0) {
            continue;
        }
        uint32_t end = append_component(permuter, (uint16_t)row, filled, 1);
        uint16_t first = (uint16_t)row;
        for (uint32_t n = filled; n < end; n++) {
            uint16_t other = permuter->order[n];
            uint32_t degree = permuter->degrees[other], least = permuter->degrees[first];
            if (degree < least || (degree == least && other < first)) {
                first = other;
            }
        }
        filled = append_component(permuter, first, filled, 2);
    }
}

void hwi_order_rows(struct hwi_permuter *permuter, uint32_t row_count) {
    if (row_count == 0) {
        return;
    }
    count_degrees(permuter, row_count);
    sort_by_degree(permuter, row_count);
    link_rows(permuter, row_count);
    memset(permuter->seen, 0, row_count);
    /* A context is one component as long as no edge by which a row was reached is withheld, and
     * without peer labels. */
    uint32_t filled = append_component(permuter, permuter->by_degree[0], 0, 1);
    if (filled < row_count && permuter->seen[0] == 0) { /* not the first of the components */
        memset(permuter->seen, 0, row_count);
        filled = 0;
    }
    if (filled < row_count) {
        order_components(permuter, row_count, filled);
    }
}

void hwi_list_rows(const struct hwi_permuter *permuter, const struct hwi_context *context,
                   uint16_t *row_order) {
    uint32_t row_count = context->row_count;
    for (uint32_t n = 0; n < row_count; n++) {
        row_order[n] = permuter->order[row_count - 1 - n];
    }
    memset(row_order + row_count, 0xff,
           (context->plan->shape.max_rows - row_count) * sizeof *row_order);
}

void hwi_permute_rows(const struct hwi_permuter *permuter, const struct hwi_context *context,
                      uint16_t *out_perm) {
    uint32_t place = 0, length = context->plan->shape.sequence_length;
    for (uint32_t n = context->row_count; n-- > 0;) {
        const struct hwi_visit *visit = &context->visits[permuter->order[n]];
        place = put_run(out_perm, place, length, visit->cell_start,
                        visit->cell_count + visit->tally_cells);
    }
    put_padding(out_perm, place, length);
}

/* ---- scratch ----------------------------------------------------------------------------- */

hw_status hwi_permuter_open(const struct hwi_plan *plan, struct hwi_permuter *permuter,
                            hw_error *error) {
    size_t rows = plan->shape.max_rows, edges = rows * plan->shape.parent_slots, columns = 0;
    size_t tables = (size_t)plan->store->info->table_count + 1;
    for (size_t table = 0; table + 1 < tables; table++) {
        size_t count = plan->store->tables[table].info->column_count;
        columns = count > columns ? count : columns;
    }
    *permuter = (struct hwi_permuter){
        .table_stamps = calloc(tables, sizeof(uint32_t)),
        .table_counts = calloc(tables, sizeof(uint32_t)),
        .touched = calloc(tables, sizeof(uint32_t)),
        .grouped = calloc(rows + 1, sizeof(uint16_t)),
        .cell_starts = calloc(rows + 1, sizeof(uint16_t)),
        .column_counts = calloc(columns + 1, sizeof(uint32_t)),
        .edges = calloc(2 * edges + 1, sizeof(uint16_t)),
        .starts = calloc(rows + 2, sizeof(uint32_t)),
        .fills = calloc(rows + 2, sizeof(uint32_t)),
        .degrees = calloc(rows + 1, sizeof(uint16_t)),
        .by_degree = calloc(rows + 1, sizeof(uint16_t)),
        .order = calloc(rows + 1, sizeof(uint16_t)),
        .neighbours = calloc(2 * edges + 1, sizeof(uint16_t)),
        .sorted_neighbours = calloc(2 * edges + 1, sizeof(uint16_t)),
        .seen = calloc(rows + 1, 1),
    };
    if (!permuter->table_stamps || !permuter->table_counts || !permuter->touched ||
        !permuter->grouped || !permuter->cell_starts || !permuter->column_counts ||
        !permuter->edges || !permuter->starts || !permuter->fills || !permuter->degrees ||
        !permuter->by_degree || !permuter->order || !permuter->neighbours ||
        !permuter->sorted_neighbours || !permuter->seen) {
        hwi_permuter_release(permuter);
        return hwi_no_memory(error, "the scratch of the permutations", edges * 12);
    }
    return HW_OK;
}

void hwi_permuter_release(struct hwi_permuter *permuter) {
    free(permuter->table_stamps);
    free(permuter->table_counts);
    free(permuter->touched);
    free(permuter->grouped);
    free(permuter->cell_starts);
    free(permuter->column_counts);
    free(permuter->edges);
    free(permuter->starts);
    free(permuter->fills);
    free(permuter->degrees);
    free(permuter->by_degree);
    free(permuter->order);
    free(permuter->neighbours);
    free(permuter->sorted_neighbours);
    free(permuter->seen);
    *permuter = (struct hwi_permuter){0};
}
