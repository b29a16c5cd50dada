/*
 * The attention orders of a context: cells by column, and cells by row in reverse Cuthill-McKee
 * order of the rows' graph. Counting sorts only; O(cells + edges).
 */
#ifndef HWI_CELL_ORDER_H
#define HWI_CELL_ORDER_H

#include "base/error.h"
#include "walk/context.h"

struct hwi_permuter {
    /* By column: the rows of each table. */
    uint32_t *table_stamps; /* [tables + 1] */
    uint32_t *table_counts; /* [tables + 1] rows, then where they start in `grouped` */
    uint32_t *touched; /* tables of the context, ascending */
    uint32_t stamp;
    uint16_t *grouped; /* [rows] by table, in visit order */
    uint16_t *cell_starts; /* [rows] of a table's rows */
    uint32_t *column_counts; /* [most columns of a table + 1] */
    /* Rows' graph: neighbours of i are in neighbours[starts[i] ..+ degrees[i]]. */
    uint16_t *edges; /* [rows, parent slots, 2] local (i, j), i != j, each pair of rows once */
    uint32_t edge_count;
    uint32_t *starts, *fills; /* [rows + 1] */
    uint16_t *degrees, *by_degree, *order; /* [rows] */
    uint16_t *neighbours, *sorted_neighbours; /* [2 * edges] */
    uint8_t *seen; /* [rows] */
};

HWI_CHECK hw_status hwi_permuter_open(const struct hwi_plan *plan, struct hwi_permuter *permuter,
                                      hw_error *error);
void hwi_permuter_release(struct hwi_permuter *permuter);
/* Orders cells by (column, position): col_perm[S]; padding keeps its place at the end. */
void hwi_permute_columns(struct hwi_permuter *permuter, const struct hwi_context *context,
                         uint16_t *col_perm);
/* Orders rows along permuter->edges: permuter->order[row_count] is the Cuthill-McKee order, to be
 * read from its end. */
void hwi_order_rows(struct hwi_permuter *permuter, uint32_t row_count);
/* The rows from its end, 65535 behind the last: row_order[R]. */
void hwi_list_rows(const struct hwi_permuter *permuter, const struct hwi_context *context,
                   uint16_t *row_order);
/* Orders cells by row, in that order: out_perm[S]. */
void hwi_permute_rows(const struct hwi_permuter *permuter, const struct hwi_context *context,
                      uint16_t *out_perm);

#endif
