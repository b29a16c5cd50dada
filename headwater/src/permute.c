#include "permute.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

/* ---- by column --------------------------------------------------------------------------- */

/* Columns of a table are consecutive and ascend with tables; a task's own come after all. */
static void column_run(const struct hwi_plan *plan, const struct hwi_walk *walk, uint32_t table,
                       uint32_t *start, uint32_t *count) {
    if (table == plan->store->info->table_count) {
        *start = walk->view.info->obs_time_column;
        *count = 2; /* obs_time, then the target */
    } else {
        *start = plan->store->tables[table].info->column_start;
        *count = plan->store->tables[table].info->column_count;
    }
}

/* Lists the context's tables in ascending order; clears the counts of their columns. */
static uint32_t touch_tables(struct hwi_permuter *permuter, const struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t count = 0;
    if (++permuter->stamp == 0) {
        memset(permuter->table_stamps, 0,
               ((size_t)plan->store->info->table_count + 1) * sizeof(uint32_t));
        permuter->stamp = 1;
    }
    for (uint32_t row = 0; row < walk->row_count; row++) {
        uint32_t table = walk->visits[row].table;
        table = table == HWI_NONE ? plan->store->info->table_count : table;
        if (permuter->table_stamps[table] == permuter->stamp) {
            continue;
        }
        permuter->table_stamps[table] = permuter->stamp;
        uint32_t at = count++;
        for (; at > 0 && permuter->touched[at - 1] > table; at--) {
            permuter->touched[at] = permuter->touched[at - 1];
        }
        permuter->touched[at] = table;
        uint32_t start, columns;
        column_run(plan, walk, table, &start, &columns);
        memset(permuter->column_counts + start, 0, columns * sizeof(uint32_t));
    }
    return count;
}

void hwi_permute_columns(struct hwi_permuter *permuter, const struct hwi_walk *walk,
                         const int32_t *column_ids, uint16_t *col_perm) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t table_count = touch_tables(permuter, walk), place = 0;
    uint32_t *places = permuter->column_counts;
    for (uint32_t cell = 0; cell < walk->cell_count; cell++) {
        places[column_ids[cell]]++;
    }
    for (uint32_t i = 0; i < table_count; i++) {
        uint32_t start, columns;
        column_run(plan, walk, permuter->touched[i], &start, &columns);
        for (uint32_t column = start; column < start + columns; column++) {
            uint32_t count = places[column];
            places[column] = place;
            place += count;
        }
    }
    for (uint32_t cell = 0; cell < walk->cell_count; cell++) {
        col_perm[places[column_ids[cell]]++] = (uint16_t)cell;
    }
    for (uint32_t cell = walk->cell_count; cell < plan->shape.sequence_length; cell++) {
        col_perm[cell] = (uint16_t)cell;
    }
}

/* ---- by row ------------------------------------------------------------------------------ */

/* Undirected lists without repeats, each ascending by row. */
static void link_rows(struct hwi_permuter *permuter, uint32_t row_count) {
    uint32_t *starts = permuter->starts, *degrees = permuter->degrees;
    const uint16_t *edges = permuter->edges;
    memset(degrees, 0, row_count * sizeof *degrees);
    for (uint32_t e = 0; e < permuter->edge_count; e++) {
        degrees[edges[2 * e]]++;
        degrees[edges[2 * e + 1]]++;
    }
    for (uint32_t row = 0, next = 0; row < row_count; row++) {
        starts[row] = next;
        next += degrees[row];
        degrees[row] = 0;
    }
    for (uint32_t e = 0; e < permuter->edge_count; e++) {
        uint32_t i = edges[2 * e], j = edges[2 * e + 1];
        permuter->neighbours[starts[i] + degrees[i]++] = j;
        permuter->neighbours[starts[j] + degrees[j]++] = i;
    }
}

/* Appends each row of `rows`, in that order, to the new lists of its neighbours: every new list is
 * then sorted by that order, and repeats stand side by side. */
static void relink(const struct hwi_permuter *permuter, const uint32_t *rows, uint32_t row_count,
                   const uint32_t *lists, const uint32_t *counts, uint32_t *new_lists,
                   uint32_t *new_counts) {
    memset(new_counts, 0, row_count * sizeof *new_counts);
    for (uint32_t n = 0; n < row_count; n++) {
        uint32_t row = rows == NULL ? n : rows[n];
        for (uint32_t k = 0; k < counts[row]; k++) {
            uint32_t other = lists[permuter->starts[row] + k];
            uint32_t *list = new_lists + permuter->starts[other];
            if (new_counts[other] == 0 || list[new_counts[other] - 1] != row) {
                list[new_counts[other]++] = row;
            }
        }
    }
}

static void sort_by_degree(struct hwi_permuter *permuter, uint32_t row_count) {
    uint32_t *counts = permuter->degree_counts;
    memset(counts, 0, ((size_t)row_count + 1) * sizeof *counts);
    for (uint32_t row = 0; row < row_count; row++) {
        counts[permuter->degrees[row] + 1]++; /* a degree is below row_count */
    }
    for (uint32_t degree = 1; degree <= row_count; degree++) {
        counts[degree] += counts[degree - 1];
    }
    for (uint32_t row = 0; row < row_count; row++) {
        permuter->by_degree[counts[permuter->degrees[row]]++] = row;
    }
}

/* Breadth first from `first` over sorted lists; returns how many rows are in order now. */
static uint32_t append_component(struct hwi_permuter *permuter, const uint32_t *lists,
                                 uint32_t first, uint32_t filled, uint8_t mark) {
    uint32_t *order = permuter->order;
    uint32_t head = filled;
    order[filled++] = first;
    permuter->seen[first] = mark;
    while (head < filled) {
        uint32_t row = order[head++];
        for (uint32_t k = 0; k < permuter->degrees[row]; k++) {
            uint32_t other = lists[permuter->starts[row] + k];
            if (permuter->seen[other] != mark) {
                permuter->seen[other] = mark;
                order[filled++] = other;
            }
        }
    }
    return filled;
}

/* Cuthill-McKee: components by lowest row, each from its row of fewest neighbours. */
static void order_rows(struct hwi_permuter *permuter, uint32_t row_count) {
    memset(permuter->seen, 0, row_count);
    uint32_t filled = 0;
    for (uint32_t row = 0; row < row_count; row++) {
        if (permuter->seen[row] != 0) {
            continue;
        }
        uint32_t end = append_component(permuter, permuter->sorted_neighbours, row, filled, 1);
        uint32_t first = row;
        for (uint32_t n = filled; n < end; n++) {
            uint32_t other = permuter->order[n];
            uint32_t degree = permuter->degrees[other], least = permuter->degrees[first];
            if (degree < least || (degree == least && other < first)) {
                first = other;
            }
        }
        filled = append_component(permuter, permuter->sorted_neighbours, first, filled, 2);
    }
}

void hwi_permute_rows(struct hwi_permuter *permuter, const struct hwi_walk *walk,
                      uint16_t *out_perm) {
    uint32_t row_count = walk->row_count, place = 0;
    link_rows(permuter, row_count);
    relink(permuter, NULL, row_count, permuter->neighbours, permuter->degrees,
           permuter->sorted_neighbours, permuter->degree_counts);
    memcpy(permuter->degrees, permuter->degree_counts, row_count * sizeof(uint32_t));
    memcpy(permuter->neighbours, permuter->sorted_neighbours,
           2 * (size_t)permuter->edge_count * sizeof(uint32_t));
    sort_by_degree(permuter, row_count);
    relink(permuter, permuter->by_degree, row_count, permuter->neighbours, permuter->degrees,
           permuter->sorted_neighbours, permuter->degree_counts);
    order_rows(permuter, row_count);
    for (uint32_t n = row_count; n-- > 0;) {
        const struct hwi_visit *visit = &walk->visits[permuter->order[n]];
        for (uint32_t k = 0; k < visit->cell_count; k++) {
            out_perm[place++] = (uint16_t)(visit->cell_start + k);
        }
    }
    for (; place < walk->plan->shape.sequence_length; place++) {
        out_perm[place] = (uint16_t)place;
    }
}

/* ---- scratch ----------------------------------------------------------------------------- */

hw_status hwi_permuter_open(const struct hwi_plan *plan, struct hwi_permuter *permuter,
                            hw_error *error) {
    size_t rows = plan->shape.max_rows, edges = rows * plan->shape.parent_slots;
    size_t tables = (size_t)plan->store->info->table_count + 1;
    *permuter = (struct hwi_permuter){
        .column_counts = calloc((size_t)plan->store->info->column_count + 1, sizeof(uint32_t)),
        .table_stamps = calloc(tables, sizeof(uint32_t)),
        .touched = calloc(tables, sizeof(uint32_t)),
        .starts = calloc(rows + 1, sizeof(uint32_t)),
        .degrees = calloc(rows + 1, sizeof(uint32_t)),
        .neighbours = calloc(2 * edges + 1, sizeof(uint32_t)),
        .sorted_neighbours = calloc(2 * edges + 1, sizeof(uint32_t)),
        .by_degree = calloc(rows + 1, sizeof(uint32_t)),
        .degree_counts = calloc(rows + 2, sizeof(uint32_t)),
        .order = calloc(rows + 1, sizeof(uint32_t)),
        .seen = calloc(rows + 1, 1),
        .edges = calloc(2 * edges + 1, sizeof(uint16_t)),
    };
    if (!permuter->column_counts || !permuter->table_stamps || !permuter->touched ||
        !permuter->starts || !permuter->degrees || !permuter->neighbours ||
        !permuter->sorted_neighbours || !permuter->by_degree || !permuter->degree_counts ||
        !permuter->order || !permuter->seen || !permuter->edges) {
        hwi_permuter_release(permuter);
        return hwi_no_memory(error, "the scratch of the permutations", edges * 12);
    }
    return HW_OK;
}

void hwi_permuter_release(struct hwi_permuter *permuter) {
    free(permuter->column_counts);
    free(permuter->table_stamps);
    free(permuter->touched);
    free(permuter->starts);
    free(permuter->degrees);
    free(permuter->neighbours);
    free(permuter->sorted_neighbours);
    free(permuter->by_degree);
    free(permuter->degree_counts);
    free(permuter->order);
    free(permuter->seen);
    free(permuter->edges);
    *permuter = (struct hwi_permuter){0};
}
