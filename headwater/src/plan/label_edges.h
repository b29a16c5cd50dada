/*
 * Edges whose labels contexts may not show: of a foreign key that is what a cell task asks for, a
 * bit for each edge, counted once when the sampler opens, so that how many of a list are shown, and
 * which is the n-th of them, takes a search however long the list is.
 */
#ifndef HWI_LABEL_EDGES_H
#define HWI_LABEL_EDGES_H

#include "plan/plan.h"

/* Of a foreign key that has the target: which edges of its parents' lists have labels that contexts
 * may show. Only where some may not. */
struct hwi_label_edges {
    uint32_t key;
    uint64_t *shown; /* a bit for each of the parent table's edges */
    uint32_t *ranks; /* how many are set before every RANK_WORDS-th word */
};

/* One pass over the lists of each key that has the target of a task, into task->label_edges. Reads
 * task->label_hidden and task->special_keys. HW_BAD_STORE, HW_NO_MEMORY. */
HWI_CHECK hw_status hwi_label_edges_open(const hw_store *store, struct hwi_task_plan *task,
                                         hw_error *error);
void hwi_label_edges_release(struct hwi_task_plan *task);

/* 1 if edge `at` is shown. edges NULL, also below: the key is hidden and has no target, or all
 * labels may be shown. */
static inline int hwi_label_edges_show(const struct hwi_label_edges *edges, uint64_t at) {
    return edges == NULL || (edges->shown[at / 64] >> (at % 64) & 1);
}

/* How many edges before `at` are shown. */
uint64_t hwi_label_edges_rank(const struct hwi_label_edges *edges, uint64_t at);
/* The edge before which `rank` are shown, and which is shown; it is in [low, high). */
uint64_t hwi_label_edges_find(const struct hwi_label_edges *edges, uint64_t rank, uint64_t low,
                              uint64_t high);

#endif
