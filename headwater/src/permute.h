/*
 * The attention orders of a context: cells by column, and cells by row in reverse Cuthill-McKee
 * order of the rows' graph. Counting sorts only; O(cells + edges).
 */
#ifndef HWI_PERMUTE_H
#define HWI_PERMUTE_H

#include "error.h"
#include "walk.h"

struct hwi_permuter {
    uint32_t *column_counts; /* [columns] */
    uint32_t *table_stamps; /* [tables + 1] */
    uint32_t *touched; /* tables of the context, ascending */
    uint32_t stamp;
    /* Rows' graph: neighbours of i are in neighbours[starts[i] ..+ degrees[i]]. */
    uint32_t *starts, *degrees, *neighbours, *sorted_neighbours;
    uint32_t *by_degree, *degree_counts, *order;
    uint8_t *seen;
    uint16_t *edges; /* [rows, parent slots, 2] local (i, j), i != j */
    uint32_t edge_count;
};

HWI_CHECK hw_status hwi_permuter_open(const struct hwi_plan *plan, struct hwi_permuter *permuter,
                                      hw_error *error);
void hwi_permuter_release(struct hwi_permuter *permuter);
/* Orders cells by (column, position): col_perm[S]; padding keeps its place at the end. */
void hwi_permute_columns(struct hwi_permuter *permuter, const struct hwi_walk *walk,
                         const int32_t *column_ids, uint16_t *col_perm);
/* Orders cells by row along permuter->edges: out_perm[S]. */
void hwi_permute_rows(struct hwi_permuter *permuter, const struct hwi_walk *walk,
                      uint16_t *out_perm);

#endif
