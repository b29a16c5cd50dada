/* Edges with labels; see label_edges.h. */
#include "plan/label_edges.h"

#include <stdlib.h>

enum { RANK_WORDS = 8, RANK_BITS = 64 * RANK_WORDS };

/* Sets the bits of the children of one parent whose label may be shown; adds them to *count. */
static hw_status mark_children(const hw_store *store, const struct hwi_task_plan *task,
                               struct hwi_label_edges *edges, uint32_t parent, uint64_t *count,
                               hw_error *error) {
    const struct hwi_key_info *key = &store->keys[edges->key];
    const struct hwi_table *parents = &store->tables[key->parent_table];
    const struct hwi_table *children = &store->tables[key->child_table];
    const uint32_t *rows = NULL;
    uint32_t row_count = 0;
    HW_TRY(hw_store_children(store, parent, edges->key, &rows, &row_count, error));
    *count += row_count;
    if (*count > parents->info->edge_count) { /* lists that overlap would take for ever */
        return hwi_fail(error, HW_BAD_STORE,
                        "lists of children hold more than the %llu of their table; run "
                        "`headwater verify`",
                        (unsigned long long)parents->info->edge_count);
    }
    for (uint32_t i = 0; i < row_count; i++) {
        if (!hwi_table_has(children, rows[i])) {
            return hwi_fail(error, HW_BAD_STORE,
                            "a child is row %u, outside its table; run `headwater verify`",
                            rows[i]);
        }
        uint64_t at = (uint64_t)(rows - parents->children) + i;
        uint32_t local = rows[i] - children->row_start;
        uint64_t is_hidden = task->label_hidden[local / 64] >> (local % 64) & 1;
        edges->shown[at / 64] |= (is_hidden ^ 1) << (at % 64);
    }
    return HW_OK;
}

static hw_status mark_shown(const hw_store *store, const struct hwi_task_plan *task,
                            struct hwi_label_edges *edges, hw_error *error) {
    const struct hwi_table *parents = &store->tables[store->keys[edges->key].parent_table];
    uint64_t blocks = parents->info->edge_count / RANK_BITS + 1, count = 0;
    edges->shown = calloc(blocks, RANK_BITS / 8);
    edges->ranks = calloc(blocks, sizeof *edges->ranks);
    if (edges->shown == NULL || edges->ranks == NULL) {
        return hwi_no_memory(error, "the edges of a task's target", blocks * RANK_BITS / 8);
    }
    for (uint32_t i = 0; i < parents->row_count; i++) {
        HW_TRY(mark_children(store, task, edges, parents->row_start + i, &count, error));
    }
    for (uint64_t block = 1; block < blocks; block++) {
        uint32_t sum = edges->ranks[block - 1];
        for (uint32_t word = 0; word < RANK_WORDS; word++) {
            sum += (uint32_t)__builtin_popcountll(edges->shown[(block - 1) * RANK_WORDS + word]);
        }
        edges->ranks[block] = sum;
    }
    return HW_OK;
}

hw_status hwi_label_edges_open(const hw_store *store, struct hwi_task_plan *task, hw_error *error) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < store->info->key_count; k++) {
        count += (task->special_keys[k] & HWI_SPECIAL_TARGET) != 0;
    }
    task->label_edges = calloc((size_t)count + 1, sizeof *task->label_edges);
    if (task->label_edges == NULL) {
        return hwi_no_memory(error, "the edges of a task's target",
                             count * sizeof *task->label_edges);
    }
    for (uint32_t k = 0; k < store->info->key_count && task->label_hidden != NULL; k++) {
        if (task->special_keys[k] & HWI_SPECIAL_TARGET) {
            struct hwi_label_edges *edges = &task->label_edges[task->label_edge_count++];
            edges->key = k;
            HW_TRY(mark_shown(store, task, edges, error));
        }
    }
    return HW_OK;
}

void hwi_label_edges_release(struct hwi_task_plan *task) {
    for (uint32_t i = 0; i < task->label_edge_count; i++) {
        free(task->label_edges[i].shown);
        free(task->label_edges[i].ranks);
    }
    free(task->label_edges);
    task->label_edges = NULL;
    task->label_edge_count = 0;
}

uint64_t hwi_label_edges_rank(const struct hwi_label_edges *edges, uint64_t at) {
    if (edges == NULL) {
        return at;
    }
    uint64_t rank = edges->ranks[at / RANK_BITS];
    for (uint64_t word = at / RANK_BITS * RANK_WORDS; word < at / 64; word++) {
        rank += (uint64_t)__builtin_popcountll(edges->shown[word]);
    }
    uint64_t below = (UINT64_C(1) << (at % 64)) - 1;
    return rank + (uint64_t)__builtin_popcountll(edges->shown[at / 64] & below);
}

uint64_t hwi_label_edges_find(const struct hwi_label_edges *edges, uint64_t rank, uint64_t low,
                              uint64_t high) {
    if (edges == NULL) {
        return rank;
    }
    uint64_t block = low / RANK_BITS, end = (high - 1) / RANK_BITS;
    while (block < end) {
        uint64_t middle = block + (end - block + 1) / 2;
        if (edges->ranks[middle] <= rank) {
            block = middle;
        } else {
            end = middle - 1;
        }
    }
    uint64_t left = rank - edges->ranks[block], word = block * RANK_WORDS;
    for (uint64_t count; (count = (uint64_t)__builtin_popcountll(edges->shown[word])) <= left;) {
        left -= count;
        word++;
    }
    uint64_t bits = edges->shown[word];
    while (left-- > 0) {
        bits &= bits - 1;
    }
    return word * 64 + (uint64_t)__builtin_ctzll(bits);
}
