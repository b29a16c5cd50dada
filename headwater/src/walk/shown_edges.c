#include "walk/shown_edges.h"

#include <string.h>

#include "base/search.h"

/* ---- one list ---------------------------------------------------------------------------- */

/* Which rows of the child table show the key, as hwi_view_withholds says of a hidden column: those
 * that have a time before that of the anchor. */
static void find_rows(const struct hwi_view *view, const struct hwi_table *table,
                      struct hwi_shown_children *shown) {
    shown->start = shown->end = table->row_start;
    if (table->times != NULL && view->anchor_timed && view->anchor_time != INT64_MIN &&
        view->anchor_time != INT64_MAX) {
        shown->start += hwi_first_i64(table->times, table->row_count, INT64_MIN + 1);
        shown->end += hwi_first_i64(table->times, table->row_count, view->anchor_time);
    }
}

static int is_shown(const struct hwi_shown_children *shown, uint32_t row) {
    return row >= shown->start && row < shown->end;
}

/* How many of the visible children of one list are shown. */
static uint32_t filter_list(struct hwi_walk *walk, uint32_t key_index, const uint32_t *rows,
                            uint32_t visible, struct hwi_shown_children *shown) {
    const hw_store *store = walk->plan->store;
    const struct hwi_key_info *key = &store->keys[key_index];
    const struct hwi_table *children = &store->tables[key->child_table];
    *shown = (struct hwi_shown_children){.high = visible};
    if (walk->view.task->special_keys[key_index] & HWI_SPECIAL_TARGET) {
        return 0;
    }
    find_rows(&walk->view, children, shown);
    if (shown->start >= shown->end) {
        return 0;
    }
    if (!key->known_late) {
        shown->low = hwi_first_u32(rows, visible, shown->start);
        shown->high = hwi_first_u32(rows, visible, shown->end);
        return shown->high - shown->low;
    }
    uint32_t count = 0;
    shown->is_mixed = 1;
    for (uint32_t at = 0; at < visible; at++) {
        count += (uint32_t)is_shown(shown, rows[at]);
    }
    return count;
}

/* ---- a hop ------------------------------------------------------------------------------- */

void hwi_shown_edges_filter(struct hwi_walk *walk) {
    uint32_t place = 0;
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
         local = walk->context.visits[local].next) {
        const struct hwi_visit *visit = &walk->context.visits[local];
        const struct hwi_table *table = &walk->plan->store->tables[visit->table];
        const uint8_t *head = visit->record + table->child_offset;
        uint32_t first;
        memcpy(&first, head, sizeof first);
        const uint32_t *rows = table->children + first;
        for (uint32_t slot = 0; slot < table->child_slot_count; slot++, place++) {
            uint32_t count, key = table->incoming[slot], *visible = &walk->hops.segments[place];
            memcpy(&count, head + 4 + slot * sizeof count, sizeof count);
            if (*visible > 0 && hwi_is_partly_shown(walk, key)) {
                *visible = filter_list(walk, key, rows, *visible, &walk->shown_children[place]);
            }
            rows += count;
        }
    }
}

const uint32_t *hwi_shown_edges_child(const struct hwi_walk *walk, const uint32_t *children,
                                      uint32_t place, uint32_t at) {
    const struct hwi_shown_children *shown = &walk->shown_children[place];
    uint32_t found = shown->low + at;
    if (shown->is_mixed) {
        found = 0;
        while (found + 1 < shown->high && (!is_shown(shown, children[found]) || at-- > 0)) {
            found++;
        }
    }
    return children + found;
}
