#include "walk/shown_edges.h"

#include <string.h>

#include "plan/label_edges.h"

/* ---- one list ---------------------------------------------------------------------------- */

struct list {
    const struct hwi_key_info *key;
    const struct hwi_label_edges *labels; /* NULL: all may be shown */
    const struct hwi_table *children;
    const uint32_t *all; /* children of the parent table */
    uint64_t start; /* of the list among these */
};

static struct list list_of(const struct hwi_walk *walk, uint32_t key, uint64_t start) {
    const hw_store *store = walk->plan->store;
    const struct hwi_task_plan *task = walk->view.task;
    struct list list = {.key = &store->keys[key], .start = start};
    list.children = &store->tables[list.key->child_table];
    list.all = store->tables[list.key->parent_table].children;
    for (uint32_t i = 0; i < task->label_edge_count; i++) {
        if (task->label_edges[i].key == key) {
            list.labels = &task->label_edges[i];
        }
    }
    return list;
}

/* The first row of a table with times whose time is not before this one. */
static uint32_t first_row_from(const struct hwi_table *table, int64_t time_us) {
    uint32_t low = 0, high = table->row_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table->times[middle] < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return table->row_start + low;
}

/* Which rows of the child table show the key, as hwi_view_withholds says of a row that is not a
 * chain row; but for the anchor, and for labels that may not be shown. */
static void find_rows(const struct hwi_walk *walk, const struct list *list, uint8_t special,
                      struct hwi_shown_children *shown) {
    const struct hwi_view *view = &walk->view;
    const struct hwi_table *table = list->children;
    int is_timed = view->anchor_timed && table->times != NULL;
    shown->start = table->row_start;
    shown->end = table->row_start + table->row_count;
    if ((special & HWI_SPECIAL_HIDDEN) || view->inclusive) {
        shown->end = is_timed ? first_row_from(table, view->anchor_time) : shown->start;
    }
    if ((special & HWI_SPECIAL_HIDDEN) && is_timed) { /* of both a time is known */
        int is_known = view->anchor_time != INT64_MIN && view->anchor_time != INT64_MAX;
        shown->start = first_row_from(table, INT64_MIN + 1);
        shown->end = is_known ? shown->end : shown->start;
    }
}

/* The first of `count` places of a list in the order of its rows that holds none before this one.
 */
static uint32_t place_of(const uint32_t *rows, uint32_t count, uint32_t row) {
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (rows[middle] < row) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

/* The place of the anchor among the children that are shown but for it. */
static uint32_t place_of_anchor(const struct hwi_walk *walk, const struct hwi_visit *visit,
                                const struct list *list, const struct hwi_shown_children *shown) {
    uint32_t anchor = walk->seed.anchor, parent, at = shown->low;
    if (anchor < shown->start || anchor >= shown->end || !hwi_table_has(list->children, anchor)) {
        return HWI_NONE;
    }
    memcpy(&parent, hwi_record(list->children, anchor) + list->key->parent_slot * sizeof parent,
           sizeof parent);
    if (parent != visit->row) {
        return HWI_NONE;
    }
    const uint32_t *rows = list->all + list->start;
    if (!list->key->known_late) {
        at = place_of(rows, shown->high, anchor);
    }
    while (list->key->known_late && at < shown->high && rows[at] != anchor) {
        at++; /* in no order of rows; once in a context */
    }
    int is_there = at >= shown->low && at < shown->high && rows[at] == anchor;
    return is_there && hwi_label_edges_show(list->labels, list->start + at) ? at : HWI_NONE;
}

static int is_shown_at(const struct list *list, const struct hwi_shown_children *shown,
                       uint32_t at) {
    uint32_t row = list->all[list->start + at];
    return row >= shown->start && row < shown->end && at != shown->hole &&
           hwi_label_edges_show(list->labels, list->start + at);
}

/* How many of the visible children of one list are shown. */
static uint32_t filter_list(struct hwi_walk *walk, const struct hwi_visit *visit,
                            const struct list *list, uint8_t special, uint32_t place) {
    struct hwi_shown_children *shown = &walk->shown_children[place];
    const uint32_t *rows = list->all + list->start;
    uint32_t visible = walk->hops.segments[place], count = 0;
    *shown = (struct hwi_shown_children){.high = visible, .hole = HWI_NONE};
    find_rows(walk, list, special, shown);
    if (list->key->known_late) {
        shown->is_mixed = shown->end - shown->start < list->children->row_count;
        shown->high = shown->start < shown->end ? visible : 0;
    } else {
        shown->low = place_of(rows, visible, shown->start);
        shown->high = place_of(rows, visible, shown->end);
    }
    shown->hole = place_of_anchor(walk, visit, list, shown);
    if (!shown->is_mixed) {
        return (uint32_t)(hwi_label_edges_rank(list->labels, list->start + shown->high) -
                          hwi_label_edges_rank(list->labels, list->start + shown->low)) -
               (shown->hole != HWI_NONE);
    }
    for (uint32_t at = shown->low; at < shown->high; at++) {
        count += (uint32_t)is_shown_at(list, shown, at);
    }
    return count;
}

/* ---- a hop ------------------------------------------------------------------------------- */

void hwi_shown_edges_filter(struct hwi_walk *walk) {
    uint32_t place = 0;
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
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
            if (walk->hops.segments[place] > 0 && hwi_is_partly_shown(walk, key)) {
                struct list list = list_of(walk, key, start);
                walk->hops.segments[place] =
                    filter_list(walk, visit, &list, walk->view.task->special_keys[key], place);
            }
            start += count;
        }
    }
}

const uint32_t *hwi_shown_edges_child(const struct hwi_walk *walk, uint32_t key,
                                      const uint32_t *children, uint32_t place, uint32_t at) {
    const hw_store *store = walk->plan->store;
    const struct hwi_shown_children *shown = &walk->shown_children[place];
    const uint32_t *all = store->tables[store->keys[key].parent_table].children;
    struct list list = list_of(walk, key, (uint64_t)(children - all));
    if (!shown->is_mixed) {
        uint64_t rank = hwi_label_edges_rank(list.labels, list.start + shown->low) + at;
        if (shown->hole != HWI_NONE &&
            rank >= hwi_label_edges_rank(list.labels, list.start + shown->hole)) {
            rank++;
        }
        return all + hwi_label_edges_find(list.labels, rank, list.start, list.start + shown->high);
    }
    uint32_t found = shown->low;
    while (found + 1 < shown->high && (!is_shown_at(&list, shown, found) || at-- > 0)) {
        found++;
    }
    return children + found;
}
