/*
 * Lists of children are in time order, so what a seed may see of one is a prefix. Where the last
 * child is visible, all are, and one read says so; else a binary search finds the end. A hop is
 * counted as a whole, when the first child is drawn from it: the reads of its lists overlap, and
 * rows that the context has no room to go beyond, which are most, are never counted at all.
 */
#include "walk/children.h"

#include <string.h>

#include "walk/scratch.h"

/* Elements of a list that a search reads at once: about a cache line. */
#define SEARCH_RUN 16u

void hwi_children_reset(struct hwi_walk *walk) {
    for (uint32_t hop = 0; hop < walk->hops.end; hop++) {
        walk->hops.first[hop] = HWI_NONE;
    }
    walk->hops.current = walk->hops.end = 0;
    walk->hops.search_count = 0;
}

void hwi_children_wait(struct hwi_walk *walk, uint32_t local) {
    struct hwi_visit *visit = &walk->context.visits[local];
    uint32_t hop = visit->depth + 1;
    if (walk->plan->store->tables[visit->table].child_slot_count == 0) {
        return;
    }
    visit->next = HWI_NONE;
    if (walk->hops.first[hop] == HWI_NONE) {
        walk->hops.first[hop] = local;
    } else {
        walk->context.visits[walk->hops.last[hop]].next = local;
    }
    walk->hops.last[hop] = local;
    walk->hops.end = hop >= walk->hops.end ? hop + 1 : walk->hops.end;
}

/* ---- lists ------------------------------------------------------------------------------- */

/* The lists of a row, one after another: slot by slot. */
struct lists {
    const struct hwi_table *table;
    const uint8_t *counts; /* unaligned uint32 [slots] */
    uint64_t start; /* of the current list among the table's children */
    uint32_t slot;
};

static struct lists lists_of(const struct hwi_walk *walk, const struct hwi_visit *visit) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    const uint8_t *head = visit->record + table->child_offset;
    uint32_t start;
    memcpy(&start, head, sizeof start);
    return (struct lists){.table = table, .counts = head + 4, .start = start};
}

static uint32_t length_of(const struct lists *lists) {
    uint32_t count;
    memcpy(&count, lists->counts + lists->slot * sizeof count, sizeof count);
    return count;
}

static const struct hwi_key_info *key_of(const struct hwi_walk *walk, const struct lists *lists) {
    return &walk->plan->store->keys[lists->table->incoming[lists->slot]];
}

/* 1 if child `at` of the list passes. */
static int passes(struct hwi_walk *walk, const struct lists *lists, uint32_t at) {
    const struct hwi_key_info *key = key_of(walk, lists);
    if (key->known_late) {
        return hwi_view_passes(&walk->view, lists->table->child_times[lists->start + at], 0);
    }
    return lists->table->children[lists->start + at] <
           hwi_cutoff(&walk->cutoffs, walk->plan, &walk->view, key->child_table);
}

int hwi_children_waits(struct hwi_walk *walk) {
    for (uint32_t hop = walk->hops.current + 1; hop < walk->hops.end; hop++) {
        for (uint32_t local = walk->hops.first[hop]; local != HWI_NONE;
             local = walk->context.visits[local].next) {
            struct lists lists = lists_of(walk, &walk->context.visits[local]);
            for (; lists.slot < lists.table->child_slot_count; lists.slot++) {
                uint32_t count = length_of(&lists);
                if (lists.start + count > lists.table->info->edge_count) {
                    return 1; /* damaged; the count of contexts is all that hangs on it */
                }
                if (count > 0 && passes(walk, &lists, 0)) {
                    return 1;
                }
                lists.start += count;
            }
        }
    }
    return 0;
}

/* ---- opening a hop ----------------------------------------------------------------------- */

static hw_status ask_for_ends(const struct hwi_walk *walk, const struct hwi_visit *visit,
                              hw_error *error) {
    struct lists lists = lists_of(walk, visit);
    for (; lists.slot < lists.table->child_slot_count; lists.slot++) {
        uint32_t count = length_of(&lists);
        lists.start += count;
        if (count > 0 && lists.start <= lists.table->info->edge_count) {
            __builtin_prefetch(key_of(walk, &lists)->known_late
                                   ? (const void *)(lists.table->child_times + lists.start - 1)
                                   : (const void *)(lists.table->children + lists.start - 1));
        }
    }
    if (lists.start > lists.table->info->edge_count) {
        return hwi_fail(error, HW_BAD_STORE,
                        "row %u lists children up to %llu, its table has %llu; "
                        "run `headwater verify`",
                        visit->row, (unsigned long long)lists.start,
                        (unsigned long long)lists.table->info->edge_count);
    }
    return HW_OK;
}

/* After ask_for_ends, which checked that they are there. */
static void ask_for_starts(const struct hwi_walk *walk, const struct hwi_visit *visit) {
    struct lists lists = lists_of(walk, visit);
    for (; lists.slot < lists.table->child_slot_count; lists.slot++) {
        uint32_t count = length_of(&lists);
        if (count > 0) {
            __builtin_prefetch(key_of(walk, &lists)->known_late
                                   ? (const void *)(lists.table->child_times + lists.start)
                                   : (const void *)(lists.table->children + lists.start));
        }
        lists.start += count;
    }
}

hw_status hwi_children_open(struct hwi_walk *walk, int *is_open, hw_error *error) {
    *is_open = 0;
    do {
        if (++walk->hops.current >= walk->hops.end) {
            walk->hops.current = walk->hops.end;
            return HW_OK;
        }
    } while (walk->hops.first[walk->hops.current] == HWI_NONE);
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
         local = walk->context.visits[local].next) {
        HW_TRY(ask_for_ends(walk, &walk->context.visits[local], error));
    }
    *is_open = 1;
    return HW_OK;
}

hw_status hwi_children_open_all(struct hwi_walk *walk, hw_error *error) {
    uint32_t *next = &walk->hops.first[0]; /* a hop of no children */
    walk->hops.current = 0;
    walk->hops.end = walk->hops.end > 0 ? walk->hops.end : 1;
    for (uint32_t local = 0; local < walk->context.row_count; local++) {
        struct hwi_visit *visit = &walk->context.visits[local];
        if (visit->table == HWI_NONE ||
            walk->plan->store->tables[visit->table].child_slot_count == 0) {
            continue;
        }
        HW_TRY(ask_for_ends(walk, visit, error));
        ask_for_starts(walk, visit);
        *next = local;
        next = &visit->next;
    }
    *next = HWI_NONE;
    return HW_OK;
}

static void ask(const struct hwi_search *search) {
    uint32_t middle = search->low + (search->high - search->low) / 2;
    if (search->times != NULL) {
        __builtin_prefetch(search->times + middle);
    } else {
        __builtin_prefetch(search->children + middle);
    }
}

void hwi_children_count(struct hwi_walk *walk) {
    uint32_t place = 0;
    walk->hops.search_count = 0;
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
         local = walk->context.visits[local].next) {
        struct lists lists = lists_of(walk, &walk->context.visits[local]);
        for (; lists.slot < lists.table->child_slot_count; lists.slot++, place++) {
            uint32_t count = length_of(&lists);
            walk->hops.segments[place] = count;
            if (count > 0 && !passes(walk, &lists, count - 1)) {
                const struct hwi_key_info *key = key_of(walk, &lists);
                struct hwi_search *search = &walk->hops.searches[walk->hops.search_count++];
                *search = (struct hwi_search){
                    .children = lists.table->children + lists.start,
                    .times = key->known_late ? lists.table->child_times + lists.start : NULL,
                    .cutoff = key->known_late ? 0
                                              : hwi_cutoff(&walk->cutoffs, walk->plan, &walk->view,
                                                           key->child_table),
                    .high = count - 1,
                    .place = place,
                };
                ask(search);
            }
            lists.start += count;
        }
    }
}

/* Halves a search, or ends it within what one line holds; 1 when it is over. */
static int probe(const struct hwi_walk *walk, struct hwi_search *search) {
    do {
        if (search->low == search->high) {
            return 1;
        }
        uint32_t middle = search->low + (search->high - search->low) / 2;
        int is_visible = search->times != NULL
                             ? hwi_view_passes(&walk->view, search->times[middle], 0)
                             : search->children[middle] < search->cutoff;
        if (is_visible) {
            search->low = middle + 1;
        } else {
            search->high = middle;
        }
    } while (search->high - search->low < SEARCH_RUN);
    return 0;
}

int hwi_children_search(struct hwi_walk *walk) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < walk->hops.search_count; i++) {
        struct hwi_search *search = &walk->hops.searches[i];
        if (probe(walk, search)) {
            walk->hops.segments[search->place] = search->low;
        } else {
            walk->hops.searches[left] = *search;
            ask(&walk->hops.searches[left++]);
        }
    }
    walk->hops.search_count = left;
    return left == 0;
}
