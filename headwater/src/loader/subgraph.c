/* One context as a graph. It is walked in the calling thread, with scratch of its own. */
#include <stdlib.h>

#include "base/error.h"
#include "base/sized.h"
#include "loader/batch_seeds.h"
#include "loader/loader.h"
#include "loader/sampler.h"
#include "walk/walk.h"

struct hw_subgraph {
    uint32_t row_count, edge_count;
    uint32_t *rows; /* [row_count] */
    int32_t *row_tables; /* [row_count] */
    uint8_t *row_depths; /* [row_count] */
    uint16_t *edges; /* [edge_count, 2] */
};

void hw_subgraph_close(hw_subgraph *subgraph) {
    if (subgraph == NULL) {
        return;
    }
    free(subgraph->rows);
    free(subgraph->row_tables);
    free(subgraph->row_depths);
    free(subgraph->edges);
    free(subgraph);
}

static void take_rows(const struct hwi_context *context, hw_subgraph *subgraph) {
    subgraph->row_count = context->row_count;
    for (uint32_t row = 0; row < context->row_count; row++) {
        const struct hwi_visit *visit = &context->visits[row];
        subgraph->rows[row] = visit->row;
        subgraph->row_tables[row] = visit->table == HWI_NONE ? -1 : (int32_t)visit->table;
        subgraph->row_depths[row] = (uint8_t)(visit->depth < 255 ? visit->depth : 255);
    }
}

static void add_edge(hw_subgraph *subgraph, uint32_t from, uint32_t to) {
    subgraph->edges[2 * (size_t)subgraph->edge_count] = (uint16_t)from;
    subgraph->edges[2 * (size_t)subgraph->edge_count++ + 1] = (uint16_t)to;
}

/* Each pair of rows once, by child, then by foreign key. */
static void take_edges(const struct hwi_context *context, hw_subgraph *subgraph) {
    size_t slots = context->plan->shape.parent_slots;
    for (uint32_t row = 0; row < context->row_count; row++) {
        const uint16_t *parents = context->local_parents + row * slots;
        for (uint32_t slot = 0; slot < context->visits[row].key_count; slot++) {
            if (parents[slot] != HWI_UNKNOWN_LOCAL &&
                !hwi_lists_parent(parents, slot, parents[slot])) {
                add_edge(subgraph, row, parents[slot]);
            }
        }
    }
}

/* Behind them the same from parent to child, unless that pair is already there. */
static void take_edges_back(const struct hwi_context *context, hw_subgraph *subgraph) {
    uint32_t count = subgraph->edge_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t child = subgraph->edges[2 * (size_t)i],
                 parent = subgraph->edges[2 * (size_t)i + 1];
        if (!hwi_is_edge(context, parent, child)) {
            add_edge(subgraph, parent, child);
        }
    }
}

static hw_status subgraph_of(const struct hwi_context *context, int both, hw_subgraph **subgraph,
                             hw_error *error) {
    size_t rows = context->row_count, edges = 0;
    hw_subgraph *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a subgraph", sizeof *made);
    }
    for (size_t row = 0; row < rows; row++) {
        edges += context->visits[row].key_count;
    }
    made->rows = calloc(rows + 1, sizeof *made->rows);
    made->row_tables = calloc(rows + 1, sizeof *made->row_tables);
    made->row_depths = calloc(rows + 1, sizeof *made->row_depths);
    made->edges = calloc(2 * edges + 1, 2 * sizeof *made->edges);
    if (made->rows == NULL || made->row_tables == NULL || made->row_depths == NULL ||
        made->edges == NULL) {
        hw_subgraph_close(made);
        return hwi_no_memory(error, "a subgraph", rows * 9 + edges * 8);
    }
    take_rows(context, made);
    take_edges(context, made);
    if (both) {
        take_edges_back(context, made);
    }
    *subgraph = made;
    return HW_OK;
}

/* A seed of a task that is in some split. */
static hw_status find_seed(const struct hwi_plan *plan, uint32_t task, uint32_t number,
                           uint32_t epoch, struct hwi_seed *seed, hw_error *error) {
    struct hwi_pass_plan pass = {0};
    hw_status status = hwi_pass_plan_chosen(plan, task, &number, &epoch, 1, &pass, error);
    if (status == HW_OK) {
        *seed = hwi_task_seed(plan, pass.parts[0].task, number, epoch);
    }
    hwi_pass_plan_release(&pass);
    return status;
}

hw_status hw_sampler_subgraph(const hw_sampler *sampler, uint32_t task, uint32_t seed,
                              uint32_t epoch, uint8_t both, hw_subgraph **subgraph,
                              hw_error *error) {
    const struct hwi_plan *plan = sampler->plan;
    struct hwi_walk *walk = NULL;
    struct hwi_seed found;
    HW_TRY(hwi_sampler_check_process(sampler, error));
    HW_TRY(atomic_load(&sampler->shut_down)
               ? hwi_fail(error, HW_SHUT_DOWN, "the sampler was shut down")
               : HW_OK);
    HW_TRY(find_seed(plan, task, seed, epoch, &found, error));
    HW_TRY(hwi_store_check_sizes(plan->store, error));
    HW_TRY(hwi_walk_open(hwi_making_plan(plan), &walk, error));
    hw_status status = hwi_walk_seed(walk, &found, error);
    if (status == HW_OK) {
        status = subgraph_of(hwi_walk_context(walk), both, subgraph, error);
    }
    hwi_walk_close(walk);
    return status;
}

hw_status hw_subgraph_get(const hw_subgraph *subgraph, hw_subgraph_arrays *arrays,
                          hw_error *error) {
    const hw_subgraph_arrays full = {
        .row_count = subgraph->row_count,
        .edge_count = subgraph->edge_count,
        .rows = subgraph->rows,
        .row_tables = subgraph->row_tables,
        .row_depths = subgraph->row_depths,
        .local_edges = subgraph->edges,
    };
    return HWI_GIVE(hw_subgraph_arrays, arrays, &full, error);
}
