#include "target_edges.h"

#include <stdlib.h>
#include <string.h>

enum { RANK_WORDS = 8, RANK_BITS = 64 * RANK_WORDS };

/* ---- bits -------------------------------------------------------------------------------- */

static int is_set(const struct hwi_target_edges *edges, uint64_t at) {
    return edges->shown == NULL || (edges->shown[at / 64] >> (at % 64) & 1);
}

/* How many edges before `at` are shown. */
static uint64_t rank_of(const struct hwi_target_edges *edges, uint64_t at) {
    if (edges->shown == NULL) {
        return at;
    }
    uint64_t rank = edges->ranks[at / RANK_BITS];
    for (uint64_t word = at / RANK_BITS * RANK_WORDS; word < at / 64; word++) {
        rank += (uint64_t)__builtin_popcountll(edges->shown[word]);
    }
    uint64_t below = (UINT64_C(1) << (at % 64)) - 1;
    return rank + (uint64_t)__builtin_popcountll(edges->shown[at / 64] & below);
}

/* The edge before which `rank` are shown, and which is shown; it is in [low, high). */
static uint64_t edge_of(const struct hwi_target_edges *edges, uint64_t rank, uint64_t low,
                        uint64_t high) {
    if (edges->shown == NULL) {
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

/* ---- opening ----------------------------------------------------------------------------- */

/* Sets the bits of the children in one list whose label may be shown. */
static hw_status mark_list(const hw_store *store, const struct hwi_task_plan *task,
                           struct hwi_target_edges *edges, uint64_t start, uint32_t count,
                           hw_error *error) {
    const struct hwi_key_info *key = &store->keys[edges->key];
    const struct hwi_table *parents = &store->tables[key->parent_table];
    const struct hwi_table *children = &store->tables[key->child_table];
    if (start + count > parents->info->edge_count) {
        return hwi_fail(error, HW_BAD_STORE,
                        "a list of children ends at %llu, its table has %llu; run "
                        "`headwater verify`",
                        (unsigned long long)(start + count),
                        (unsigned long long)parents->info->edge_count);
    }
    for (uint64_t at = start; at < start + count; at++) {
        uint32_t row = parents->children[at];
        if (!hwi_table_has(children, row)) {
            return hwi_fail(error, HW_BAD_STORE,
                            "a child is row %u, outside its table; run `headwater verify`", row);
        }
        uint32_t local = row - children->row_start;
        uint64_t is_hidden = task->label_hidden[local / 64] >> (local % 64) & 1;
        edges->shown[at / 64] |= (is_hidden ^ 1) << (at % 64);
    }
    return HW_OK;
}

static hw_status mark_shown(const hw_store *store, const struct hwi_task_plan *task,
                            struct hwi_target_edges *edges, hw_error *error) {
    const struct hwi_key_info *key = &store->keys[edges->key];
    const struct hwi_table *parents = &store->tables[key->parent_table];
    uint64_t blocks = parents->info->edge_count / RANK_BITS + 1;
    edges->shown = calloc(blocks, RANK_BITS / 8);
    edges->ranks = calloc(blocks, sizeof *edges->ranks);
    if (edges->shown == NULL || edges->ranks == NULL) {
        return hwi_no_memory(error, "the edges of a task's target", blocks * RANK_BITS / 8);
    }
    for (uint32_t i = 0; i < parents->row_count; i++) {
        const uint8_t *head = hwi_record(parents, parents->row_start + i) + parents->child_offset;
        uint32_t first, count = 0;
        memcpy(&first, head, sizeof first);
        uint64_t start = first;
        for (uint32_t slot = 0; slot <= key->child_slot; slot++) {
            start += count;
            memcpy(&count, head + 4 + slot * sizeof count, sizeof count);
        }
        HW_TRY(mark_list(store, task, edges, start, count, error));
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

hw_status hwi_target_edges_open(const hw_store *store, struct hwi_task_plan *task,
                                hw_error *error) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < store->info->key_count; k++) {
        count += (task->special_keys[k] & HWI_SPECIAL_TARGET) != 0;
    }
    if (count == 0) {
        return HW_OK;
    }
    task->target_edges = calloc(count, sizeof *task->target_edges);
    if (task->target_edges == NULL) {
        return hwi_no_memory(error, "the edges of a task's target",
                             count * sizeof *task->target_edges);
    }
    for (uint32_t k = 0; k < store->info->key_count; k++) {
        if (task->special_keys[k] & HWI_SPECIAL_TARGET) {
            struct hwi_target_edges *edges = &task->target_edges[task->target_edge_count++];
            edges->key = k;
            if (task->label_hidden != NULL &&
                store->tables[store->keys[k].parent_table].children != NULL) {
                HW_TRY(mark_shown(store, task, edges, error));
            }
        }
    }
    return HW_OK;
}

void hwi_target_edges_release(struct hwi_task_plan *task) {
    for (uint32_t i = 0; i < task->target_edge_count; i++) {
        free(task->target_edges[i].shown);
        free(task->target_edges[i].ranks);
    }
    free(task->target_edges);
    task->target_edges = NULL;
    task->target_edge_count = 0;
}

/* ---- one list ---------------------------------------------------------------------------- */

static const struct hwi_target_edges *edges_of(const struct hwi_walk *walk, uint32_t key) {
    const struct hwi_target_edges *edges = walk->view.task->target_edges;
    while (edges->key != key) {
        edges++;
    }
    return edges;
}

/* The lists of a key: the children are rows of the anchor's table. */
struct list {
    const struct hwi_target_edges *edges;
    const struct hwi_table *parents, *children;
    uint64_t start;
    uint8_t known_late; /* in the order of edge times, else of rows */
};

static struct list list_of(const struct hwi_walk *walk, uint32_t key, uint64_t start) {
    const hw_store *store = walk->plan->store;
    const struct hwi_key_info *info = &store->keys[key];
    return (struct list){
        .edges = edges_of(walk, key),
        .parents = &store->tables[info->parent_table],
        .children = &store->tables[info->child_table],
        .start = start,
        .known_late = info->known_late != 0,
    };
}

/* INT64_MAX also of a row outside the table, which a walk that meets it names. */
static int64_t row_time(const struct list *list, uint32_t at) {
    uint32_t row = list->parents->children[list->start + at];
    return hwi_table_has(list->children, row)
               ? list->children->times[row - list->children->row_start]
               : INT64_MAX;
}

/* Whether a place past the head is shown: the edge was known late, the row may be early. */
static int is_shown_in_tail(const struct hwi_walk *walk, const struct list *list, uint32_t at) {
    return list->known_late && walk->view.anchor_timed && is_set(list->edges, list->start + at) &&
           row_time(list, at) < walk->view.anchor_time;
}

/* The first place that is not before the anchor in the order of the list. */
static uint32_t places_before_anchor(const struct hwi_walk *walk, const struct list *list,
                                     uint32_t visible) {
    uint32_t low = 0, high = walk->view.anchor_timed ? visible : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int64_t time_us = list->known_late ? list->parents->child_times[list->start + middle]
                                           : row_time(list, middle);
        if (time_us < walk->view.anchor_time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The place of the anchor among the visible ones; HWI_NONE if it is not shown there anyway. */
static uint32_t place_of_anchor(const struct hwi_walk *walk, const struct hwi_visit *visit,
                                const struct list *list, uint32_t visible) {
    const struct hwi_key_info *key = &walk->plan->store->keys[list->edges->key];
    uint32_t anchor = walk->seed.anchor, parent, low = 0, high = visible;
    memcpy(&parent, hwi_record(list->children, anchor) + key->parent_slot * sizeof parent,
           sizeof parent);
    if (parent != visit->row) {
        return HWI_NONE;
    }
    const uint32_t *rows = list->parents->children + list->start;
    if (list->known_late) { /* in no order of rows; once in a context */
        while (low < visible && rows[low] != anchor) {
            low++;
        }
    } else {
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (rows[middle] < anchor) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    int is_there = low < visible && rows[low] == anchor && is_set(list->edges, list->start + low);
    return is_there ? low : HWI_NONE;
}

/* ---- a hop ------------------------------------------------------------------------------- */

/* How many of the visible children of one list are shown. */
static uint32_t filter_list(struct hwi_walk *walk, const struct hwi_visit *visit,
                            const struct list *list, uint32_t place) {
    struct hwi_shown_children *shown = &walk->shown_children[place];
    uint32_t visible = walk->segments[place], tail_count = 0;
    int is_cut = walk->view.inclusive; /* children are no chain rows */
    *shown = (struct hwi_shown_children){.visible = visible, .head = visible, .hole = HWI_NONE};
    if (is_cut) {
        shown->head = places_before_anchor(walk, list, visible);
    } else {
        shown->hole = place_of_anchor(walk, visit, list, visible);
    }
    shown->head_count = (uint32_t)(rank_of(list->edges, list->start + shown->head) -
                                   rank_of(list->edges, list->start)) -
                        (shown->hole != HWI_NONE);
    for (uint32_t at = shown->head; at < visible; at++) {
        tail_count += (uint32_t)is_shown_in_tail(walk, list, at);
    }
    return shown->head_count + tail_count;
}

void hwi_target_edges_filter(struct hwi_walk *walk) {
    uint32_t place = 0;
    for (uint32_t local = walk->hop_first[walk->hop]; local != HWI_NONE;
         local = walk->visits[local].next) {
        const struct hwi_visit *visit = &walk->visits[local];
        const struct hwi_table *table = &walk->plan->store->tables[visit->table];
        const uint8_t *head = visit->record + table->child_offset;
        uint32_t first;
        memcpy(&first, head, sizeof first);
        uint64_t start = first;
        for (uint32_t slot = 0; slot < table->child_slot_count; slot++, place++) {
            uint32_t count, key = table->incoming[slot];
            memcpy(&count, head + 4 + slot * sizeof count, sizeof count);
            if (walk->segments[place] > 0 &&
                (walk->view.task->special_keys[key] & HWI_SPECIAL_TARGET)) {
                struct list list = list_of(walk, key, start);
                walk->segments[place] = filter_list(walk, visit, &list, place);
            }
            start += count;
        }
    }
}

const uint32_t *hwi_target_edges_child(const struct hwi_walk *walk, uint32_t key,
                                       const uint32_t *children, uint32_t place, uint32_t at) {
    const hw_store *store = walk->plan->store;
    const struct hwi_shown_children *shown = &walk->shown_children[place];
    const uint32_t *all = store->tables[store->keys[key].parent_table].children;
    uint64_t start = (uint64_t)(children - all);
    struct list list = list_of(walk, key, start);
    if (at < shown->head_count) {
        uint64_t rank = rank_of(list.edges, start) + at;
        if (shown->hole != HWI_NONE && rank >= rank_of(list.edges, start + shown->hole)) {
            rank++;
        }
        return all + edge_of(list.edges, rank, start, start + shown->head);
    }
    uint32_t left = at - shown->head_count, found = shown->head;
    while (found + 1 < shown->visible && (!is_shown_in_tail(walk, &list, found) || left-- > 0)) {
        found++;
    }
    return children + found;
}
