/*
 * The walk. Parents wait in a queue and go first; children wait as rows whose lists are opened hop
 * by hop (children.c), and are drawn one at a time when nothing else is left (child_draws.c). A
 * list is never expanded: drawing k of v children touches k of them, whatever v is, so a hub of
 * millions costs a search. A sequence's cost is O(visited rows * (parents + keys) + draws); nothing
 * is allocated, and nothing of the size of the database or of S is cleared.
 */
#include "walk/walk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "walk/child_counts.h"
#include "walk/child_draws.h"
#include "walk/children.h"
#include "walk/label_rows.h"
#include "walk/scratch.h"
#include "walk/shown_edges.h"

enum { MOST_STAMP = UINT16_MAX, TAG_SHIFT = 16 };

/* ---- visited rows ------------------------------------------------------------------------ */

static int is_taken(const struct hwi_walk *walk, uint32_t slot) {
    return walk->slots[slot].tag >> TAG_SHIFT == walk->stamp;
}

static uint32_t slot_of(const struct hwi_walk *walk, uint32_t row) {
    uint32_t slot = (row * 2654435761u) >> (32 - walk->slot_bits);
    uint32_t mask = (1u << walk->slot_bits) - 1;
    while (is_taken(walk, slot) && walk->slots[slot].row != row) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

uint32_t hwi_walk_local(const struct hwi_walk *walk, uint32_t row) {
    uint32_t slot = slot_of(walk, row);
    return is_taken(walk, slot) ? walk->slots[slot].tag & UINT16_MAX : HWI_NONE;
}

/* Local row of a row that was visited before; else HWI_NONE, and the row is marked as the next. */
static uint32_t mark_visited(struct hwi_walk *walk, uint32_t row) {
    uint32_t slot = slot_of(walk, row);
    if (is_taken(walk, slot)) {
        return walk->slots[slot].tag & UINT16_MAX;
    }
    walk->slots[slot] =
        (struct hwi_slot){.row = row, .tag = walk->stamp << TAG_SHIFT | walk->context.row_count};
    return HWI_NONE;
}

/* ---- cells of a row ---------------------------------------------------------------------- */

static int is_withheld(const struct hwi_walk *walk, const struct hwi_visit *visit,
                       uint32_t column) {
    return hwi_view_withholds(&walk->view, walk->plan, visit->table, visit->row, column,
                              visit->chain);
}

static int is_known(const struct hwi_walk *walk, const struct hwi_visit *visit, uint32_t column) {
    return hwi_view_knows(&walk->view, walk->plan, visit->table, visit->row, column, visit->chain);
}

static int is_shown(const struct hwi_walk *walk, const struct hwi_visit *visit, uint32_t column) {
    return !is_withheld(walk, visit, column) && is_known(walk, visit, column);
}

/* Lists the cells of a row that does not simply emit all of them. Few do, so that its registers are
 * not to be saved on every visit. */
__attribute__((noinline)) static uint32_t list_cells(struct hwi_walk *walk,
                                                     const struct hwi_visit *visit) {
    const struct hwi_table_plan *cells = &walk->plan->tables[visit->table];
    const struct hwi_view *view = &walk->view;
    uint32_t limit = walk->plan->shape.context_length;
    uint32_t *list = walk->context.cell_lists + walk->context.list_count;
    uint32_t count = 0;
    int holds_target = view->has_target_cell && visit->row == view->seed->anchor;
    for (uint32_t i = 0; i < cells->cell_count; i++) {
        if (holds_target && cells->columns[i] == view->info->target_column) {
            walk->context.target_cell = count;
            list[count++] = i;
        } else if (is_withheld(walk, visit, cells->columns[i])) {
            walk->context.withheld_count++;
        } else if (is_known(walk, visit, cells->columns[i])) {
            list[count++] = i;
        }
    }
    for (uint32_t i = cells->cell_count; i < cells->all_count && count == 0; i++) {
        if (is_shown(walk, visit, cells->columns[i])) {
            list[count++] = i;
        }
    }
    if (holds_target && walk->context.target_cell >= limit) { /* the anchor is the first row */
        list[limit - 1] = list[walk->context.target_cell];
        walk->context.target_cell = limit - 1;
    }
    return count;
}

static void take_cells(struct hwi_walk *walk, struct hwi_visit *visit) {
    const struct hwi_table_plan *cells = &walk->plan->tables[visit->table];
    uint32_t room = walk->plan->shape.context_length - walk->context.cell_count;
    uint32_t count = cells->cell_count;
    visit->list = HWI_NONE;
    if (cells->late_cells || count == 0 || walk->view.task->special_tables[visit->table]) {
        count = list_cells(walk, visit);
        visit->list = walk->context.list_count;
        walk->context.list_count += count < room ? count : room;
    }
    visit->cell_start = walk->context.cell_count;
    visit->cell_count = count < room ? count : room;
    walk->context.cell_count += visit->cell_count;
    visit->tally_cells = 0;
    if (walk->plan->options.child_counts) {
        const struct hwi_table_info *info = walk->plan->store->tables[visit->table].info;
        count = HWI_TALLY_CELLS * info->child_slot_count;
        room -= visit->cell_count;
        visit->tally_cells = (uint16_t)(count < room ? count : room);
        visit->tally_list = HWI_NONE;
        walk->context.cell_count += visit->tally_cells;
    }
}

/* ---- edges of a row ---------------------------------------------------------------------- */

static hw_status bad_row(const struct hwi_walk *walk, const char *what, uint32_t found,
                         uint32_t table, hw_error *error) {
    char name[128];
    const struct hwi_table_info *info = walk->plan->store->tables[table].info;
    return hwi_fail(error, HW_BAD_STORE,
                    "%s is row %u, outside table '%s' (rows %u to %u); run "
                    "`headwater verify`",
                    what, found, hwi_store_name(walk->plan->store, info->name, name, sizeof name),
                    info->row_start, info->row_start + info->row_count);
}

/* 1 if the edge of a key is walked and listed on this row. */
static int is_edge_shown(const struct hwi_walk *walk, const struct hwi_visit *visit,
                         uint32_t key_index) {
    const struct hwi_plan *plan = walk->plan;
    const struct hwi_key_info *key = &plan->store->keys[key_index];
    if (!key->known_late && !walk->view.task->special_keys[key_index]) {
        return 1;
    }
    for (uint32_t i = 0; i < key->column_count; i++) {
        if (!is_shown(walk, visit, plan->store->key_columns[key->column_start + i])) {
            return 0;
        }
    }
    return 1;
}

static int is_parent_visible(struct hwi_walk *walk, uint32_t table, uint32_t row, int chain) {
    const struct hwi_table *where = &walk->plan->store->tables[table];
    if (chain && !walk->view.inclusive && where->times != NULL) {
        return hwi_view_passes(&walk->view, where->times[row - where->row_start], 1);
    }
    return row < hwi_cutoff(&walk->cutoffs, walk->plan, &walk->view, table);
}

/* The lines of a record; of a long one the first two, where parents and lists stand. */
static void ask_for_record(const struct hwi_table *table, uint32_t row) {
    const uint8_t *record = hwi_record(table, row);
    __builtin_prefetch(record);
    if ((uintptr_t)record % HWI_LINE_BYTES + table->record_bytes > HWI_LINE_BYTES) {
        __builtin_prefetch(record + HWI_LINE_BYTES);
    }
}

/* Reads the row's parents, hides what is withheld, and queues those that may be visited. Their
 * records are asked for unless that `was_asked` a step ago. */
static hw_status take_parents(struct hwi_walk *walk, const struct hwi_visit *visit, int push,
                              int was_asked, hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t key_start = plan->store->tables[visit->table].key_start;
    size_t at = (size_t)walk->context.row_count * plan->shape.parent_slots;
    int checks =
        plan->tables[visit->table].late_keys || walk->view.task->special_tables[visit->table];
    for (uint32_t slot = 0; slot < visit->key_count; slot++) {
        uint32_t row, key = key_start + slot;
        memcpy(&row, visit->record + slot * sizeof row, sizeof row);
        walk->context.parents[at + slot] = row;
        walk->context.local_parents[at + slot] = HWI_UNKNOWN_LOCAL;
        if (row == HWI_NONE) {
            continue;
        }
        uint32_t parent_table = plan->store->keys[key].parent_table;
        const struct hwi_table *table = &plan->store->tables[parent_table];
        if (!hwi_table_has(table, row)) {
            return bad_row(walk, "a parent", row, parent_table, error);
        }
        if (checks && !is_edge_shown(walk, visit, key)) {
            walk->context.parents[at + slot] = HWI_NONE;
            continue;
        }
        if (!push || !is_parent_visible(walk, parent_table, row, visit->chain)) {
            continue;
        }
        if (!was_asked) {
            ask_for_record(table, row);
        }
        walk->queue[walk->queue_tail++] = (struct hwi_parent_entry){
            .row = row,
            .depth = visit->depth + 1,
            .asked = was_asked ? walk->step - 1 : walk->step,
            .table = (uint16_t)parent_table,
            .child = (uint16_t)walk->context.row_count,
            .slot = (uint16_t)slot,
            .chain = visit->chain,
        };
    }
    return HW_OK;
}

/* ---- visits ------------------------------------------------------------------------------ */

/* Visits a row that is marked already; its parents and children are reached if it is to `push`. */
static hw_status visit_row(struct hwi_walk *walk, uint32_t row, uint32_t table, uint32_t depth,
                           uint8_t chain, int push, int was_asked, hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    struct hwi_visit *visit = &walk->context.visits[walk->context.row_count];
    const struct hwi_table *where = &plan->store->tables[table];
    if (where->times != NULL && plan->tables[table].time_lane == 0) { /* for its age */
        __builtin_prefetch(where->times + (row - where->row_start));
    }
    visit->record = hwi_record(where, row);
    visit->row = row;
    visit->table = table;
    visit->depth = depth;
    visit->chain = chain;
    visit->key_count = where->key_count;
    take_cells(walk, visit);
    HW_TRY(take_parents(walk, visit, push, was_asked, error));
    if (push) {
        hwi_children_wait(walk, walk->context.row_count);
    }
    walk->context.row_count++;
    return HW_OK;
}

/* A derived task's own row: obs_time and the target, one key to the anchor. */
static void visit_seed(struct hwi_walk *walk) {
    walk->context.visits[0] = (struct hwi_visit){.row = HWI_NONE,
                                                 .table = HWI_NONE,
                                                 .cell_count = 2,
                                                 .key_count = 1,
                                                 .list = HWI_NONE,
                                                 .chain = 1};
    walk->context.cell_count = 2;
    walk->context.target_cell = 1;
    walk->context.parents[0] = walk->context.seed.anchor;
    walk->context.local_parents[0] = HWI_UNKNOWN_LOCAL;
    walk->context.row_count = 1;
}

/* The anchor waits like a parent: of the seed row, or of none. */
static void push_anchor(struct hwi_walk *walk) {
    const hw_store *store = walk->plan->store;
    uint32_t table = walk->view.info->anchor_table;
    ask_for_record(&store->tables[table], walk->context.seed.anchor);
    walk->queue[walk->queue_tail++] = (struct hwi_parent_entry){
        .row = walk->context.seed.anchor,
        .depth = walk->context.row_count,
        .asked = walk->step,
        .table = (uint16_t)table,
        .chain = 1,
    };
}

/* Cutoffs hold for the next seed too where it sees as far. */
static void renew_cutoffs(struct hwi_walk *walk, const struct hwi_view *last) {
    if (walk->cutoffs.stamp != 0 && last->until == walk->view.until &&
        last->inclusive == walk->view.inclusive) {
        return;
    }
    if (++walk->cutoffs.stamp == 0) { /* 2^32 sequences later: old stamps would look new */
        memset(walk->cutoffs.found, 0,
               walk->plan->store->info->table_count * sizeof *walk->cutoffs.found);
        walk->cutoffs.stamp = 1;
    }
}

/* Seconds by which the seed's cutoff is earlier. */
static uint32_t draw_staleness(struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    if (plan->stale_seconds == 0 || walk->context.seed.split != HW_TRAIN ||
        hwi_rng_next(&walk->rng) < plan->fresh_words) {
        return 0;
    }
    return hwi_rng_below(&walk->rng, plan->stale_seconds + 1);
}

/* max_hops from the anchor, which has 1 hop from the first row where that is the seed's. */
static uint32_t deepest_of(const struct hwi_plan *plan, const struct hwi_view *view) {
    uint32_t most = plan->options.max_hops;
    return most == 0 ? UINT32_MAX : most - 1 + !view->is_cell;
}

hw_status hwi_walk_start(struct hwi_walk *walk, const struct hwi_seed *seed, hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    const struct hwi_task_info *info = plan->tasks[seed->task].info;
    if (!hwi_table_has(&plan->store->tables[info->anchor_table], seed->anchor)) {
        return hwi_fail(error, HW_BAD_STORE, "the anchor of seed %u is row %u, outside its table",
                        seed->index, seed->anchor);
    }
    struct hwi_view last = walk->view;
    walk->context.seed = *seed;
    walk->rng = hwi_rng_make(plan->options.seed, seed->index, seed->epoch,
                             plan->tasks[seed->task].task * 4 + seed->split);
    walk->context.task = &plan->tasks[seed->task];
    hwi_view_init(&walk->view, plan, &walk->context.seed, draw_staleness(walk));
    renew_cutoffs(walk, &last);
    walk->deepest = deepest_of(plan, &walk->view);
    walk->context.newest =
        walk->view.is_cell ? INT64_MIN : hwi_newest_visible(&walk->cutoffs, plan, &walk->view);
    walk->context.row_count = walk->context.cell_count = walk->context.list_count =
        walk->context.withheld_count = 0;
    walk->context.stopped_by_rows = 0;
    walk->context.chosen.count = walk->context.chosen.surplus_count = 0;
    walk->context.target_cell = HWI_NONE;
    walk->queue_head = walk->queue_tail = 0;
    hwi_children_reset(walk);
    hwi_draw_reset(walk);
    hwi_labels_start(walk);
    if (walk->stamp == MOST_STAMP) {
        memset(walk->slots, 0, sizeof *walk->slots << walk->slot_bits);
        walk->stamp = 0;
    }
    walk->stamp++;
    walk->step = 1;
    walk->state = HWI_WALK_VISIT;
    if (!walk->view.is_cell) {
        visit_seed(walk);
    }
    push_anchor(walk);
    return HW_OK;
}

/* ---- steps ------------------------------------------------------------------------------- */

/* The next parent in the queue. */
static hw_status visit_parent(struct hwi_walk *walk, hw_error *error) {
    const struct hwi_parent_entry *entry = &walk->queue[walk->queue_head++];
    size_t place = (size_t)entry->child * walk->plan->shape.parent_slots + entry->slot;
    uint32_t local = mark_visited(walk, entry->row);
    if (local != HWI_NONE) {
        walk->context.local_parents[place] = (uint16_t)local;
        return HW_OK;
    }
    if (walk->context.row_count > 0) { /* else it is the anchor itself */
        walk->context.local_parents[place] = (uint16_t)walk->context.row_count;
    }
    int push = !entry->is_end && entry->depth < walk->deepest;
    return visit_row(walk, entry->row, entry->table, entry->depth, entry->chain, push, 0, error);
}

/* A drawn child: visits it unless it was visited or its edge is withheld. */
static hw_status visit_child(struct hwi_walk *walk, const struct hwi_drawn *drawn,
                             hw_error *error) {
    uint32_t table = walk->plan->store->keys[drawn->key].child_table;
    if (walk->view.task->special_keys[drawn->key]) {
        struct hwi_visit child = {.row = drawn->row, .table = table};
        if (!is_edge_shown(walk, &child, drawn->key)) {
            return HW_OK;
        }
    }
    if (mark_visited(walk, drawn->row) != HWI_NONE) {
        return HW_OK;
    }
    return visit_row(walk, drawn->row, table, drawn->depth, 0, drawn->depth < walk->deepest, 1,
                     error);
}

/* Which rows were drawn; asks for their records. */
static hw_status name_children(struct hwi_walk *walk, hw_error *error) {
    const hw_store *store = walk->plan->store;
    for (uint32_t i = 0; i < walk->draws.ahead_count; i++) {
        struct hwi_drawn *drawn = &walk->draws.ahead[i];
        uint32_t table = store->keys[drawn->key].child_table;
        drawn->row = *drawn->child;
        if (!hwi_table_has(&store->tables[table], drawn->row)) {
            return bad_row(walk, "a child", drawn->row, table, error);
        }
        ask_for_record(&store->tables[table], drawn->row);
    }
    return HW_OK;
}

/* Asks for the records of the drawn children's parents, which are visited right after them. */
static void reach_parents(const struct hwi_walk *walk) {
    const hw_store *store = walk->plan->store;
    for (uint32_t i = 0; i < walk->draws.ahead_count; i++) {
        const struct hwi_drawn *drawn = &walk->draws.ahead[i];
        const struct hwi_table *table = &store->tables[store->keys[drawn->key].child_table];
        const uint8_t *record = hwi_record(table, drawn->row);
        for (uint32_t slot = 0; slot < table->key_count; slot++) {
            const struct hwi_key_info *key = &store->keys[table->key_start + slot];
            uint32_t row;
            memcpy(&row, record + slot * sizeof row, sizeof row);
            if (hwi_table_has(&store->tables[key->parent_table], row)) {
                ask_for_record(&store->tables[key->parent_table], row);
            }
        }
    }
}

/* Parents that were not visited from the queue may be in the context all the same. */
static void resolve_parents(struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    for (uint32_t row = 0; row < walk->context.row_count; row++) {
        uint32_t keys = walk->context.visits[row].key_count;
        size_t at = (size_t)row * plan->shape.parent_slots;
        for (uint32_t slot = 0; slot < keys; slot++) {
            if (walk->context.local_parents[at + slot] == HWI_UNKNOWN_LOCAL &&
                walk->context.parents[at + slot] != HWI_NONE) {
                walk->context.local_parents[at + slot] =
                    (uint16_t)hwi_walk_local(walk, walk->context.parents[at + slot]);
            }
        }
    }
}

static int is_full(const struct hwi_walk *walk) {
    return walk->context.cell_count >= walk->plan->shape.context_length ||
           walk->context.row_count >= walk->plan->shape.max_context_rows;
}

/* The anchor of a label row that is not the seed's own waits like a parent; the walk ends there. */
static hw_status push_peer(struct hwi_walk *walk, uint32_t anchor, hw_error *error) {
    uint32_t table = walk->view.info->anchor_table;
    const struct hwi_table *where = &walk->plan->store->tables[table];
    if (!hwi_table_has(where, anchor)) {
        return bad_row(walk, "the anchor of a label", anchor, table, error);
    }
    if (is_parent_visible(walk, table, anchor, 0)) {
        ask_for_record(where, anchor);
        walk->queue[walk->queue_tail++] = (struct hwi_parent_entry){
            .row = anchor,
            .depth = HWI_LABEL_DEPTH + 1,
            .asked = walk->step,
            .table = (uint16_t)table,
            .child = (uint16_t)walk->context.row_count,
            .is_end = 1,
        };
    }
    return HW_OK;
}

/* The next label row: obs_time and the answer, one key to its anchor. */
static hw_status visit_label(struct hwi_walk *walk, hw_error *error) {
    if (walk->labels.sought) {
        hwi_labels_find(walk);
    }
    if (walk->labels.next == walk->labels.count) {
        return HW_OK;
    }
    uint32_t label = walk->labels.seeds[walk->labels.next++];
    uint32_t anchor = walk->plan->store->seeds[walk->view.task->task].anchors[label];
    uint32_t room = walk->plan->shape.context_length - walk->context.cell_count;
    size_t at = (size_t)walk->context.row_count * walk->plan->shape.parent_slots;
    walk->context.visits[walk->context.row_count] = (struct hwi_visit){
        .row = HWI_NONE,
        .table = HWI_NONE,
        .depth = HWI_LABEL_DEPTH,
        .cell_start = walk->context.cell_count,
        .cell_count = room < 2 ? room : 2,
        .key_count = 1,
        .list = label,
    };
    walk->context.cell_count += walk->context.visits[walk->context.row_count].cell_count;
    walk->context.parents[at] = anchor;
    walk->context.local_parents[at] = HWI_UNKNOWN_LOCAL;
    if (anchor != walk->context.seed.anchor) {
        HW_TRY(push_peer(walk, anchor, error));
    }
    walk->context.row_count++;
    return HW_OK;
}

/* Visits what waits until a record is not here yet (0), or nothing waits (1). */
static hw_status visit_waiting(struct hwi_walk *walk, int *is_empty, hw_error *error) {
    *is_empty = 0;
    while (!is_full(walk)) {
        if (walk->queue_head < walk->queue_tail) {
            if (walk->queue[walk->queue_head].asked == walk->step) {
                return HW_OK;
            }
            HW_TRY(visit_parent(walk, error));
        } else if (hwi_labels_left(&walk->labels)) {
            HW_TRY(visit_label(walk, error));
        } else if (walk->draws.ahead_next < walk->draws.ahead_count) {
            HW_TRY(visit_child(walk, &walk->draws.ahead[walk->draws.ahead_next++], error));
        } else {
            *is_empty = 1;
            return HW_OK;
        }
    }
    return HW_OK;
}

/* The next children of the hop, else the next hop; the walk is done if there is none. */
static hw_status draw_or_open(struct hwi_walk *walk, int *is_done, hw_error *error) {
    int is_open = 1;
    if (hwi_draw_ahead(walk) > 0) {
        walk->state = HWI_WALK_NAME;
        return HW_OK;
    }
    HW_TRY(hwi_children_open(walk, &is_open, error));
    *is_done = !is_open;
    walk->state = HWI_WALK_COUNT;
    return HW_OK;
}

/* 1 if the frontier of a full context is not empty. */
static int is_cut(struct hwi_walk *walk) {
    if (walk->labels.sought) {
        hwi_labels_find(walk);
    }
    return walk->queue_head < walk->queue_tail ||
           walk->draws.ahead_next < walk->draws.ahead_count ||
           walk->labels.next < walk->labels.count || walk->draws.bucket_count > 0 ||
           walk->draws.turn_count > 0 || hwi_children_waits(walk);
}

static hw_status take_step(struct hwi_walk *walk, int *is_done, hw_error *error) {
    int is_empty = 0;
    switch (walk->state) {
    case HWI_WALK_NAME:
        walk->state = HWI_WALK_REACH;
        return name_children(walk, error);
    case HWI_WALK_REACH:
        reach_parents(walk);
        walk->state = HWI_WALK_VISIT;
        return HW_OK;
    case HWI_WALK_COUNT:
        hwi_children_count(walk);
        if (walk->hops.search_count > 0) {
            walk->state = HWI_WALK_SEARCH;
            return HW_OK;
        }
        hwi_draw_lay_out(walk);
        return draw_or_open(walk, is_done, error);
    case HWI_WALK_SEARCH:
        if (!hwi_children_search(walk)) {
            return HW_OK;
        }
        hwi_draw_lay_out(walk);
        return draw_or_open(walk, is_done, error);
    case HWI_WALK_TALLY:
        return hwi_tally_step(walk, is_done, error);
    case HWI_WALK_VISIT:
    default:
        HW_TRY(visit_waiting(walk, &is_empty, error));
        if (is_empty) {
            return draw_or_open(walk, is_done, error);
        }
        if (is_full(walk)) {
            *is_done = 1;
            walk->context.stopped_by_rows =
                walk->context.cell_count < walk->plan->shape.context_length && is_cut(walk);
        }
        return HW_OK;
    }
}

hw_status hwi_walk_step(struct hwi_walk *walk, int *is_done, hw_error *error) {
    *is_done = 0;
    walk->step++;
    HW_TRY(take_step(walk, is_done, error));
    if (*is_done && walk->state != HWI_WALK_TALLY) {
        resolve_parents(walk);
        if (walk->plan->options.child_counts) {
            *is_done = 0;
            walk->state = HWI_WALK_TALLY;
            return hwi_tally_begin(walk, error);
        }
    }
    return HW_OK;
}

hw_status hwi_walk_seed(struct hwi_walk *walk, const struct hwi_seed *seed, hw_error *error) {
    int is_done = 0;
    HW_TRY(hwi_walk_start(walk, seed, error));
    while (!is_done) {
        HW_TRY(hwi_walk_step(walk, &is_done, error));
    }
    return HW_OK;
}

/* ---- scratch ----------------------------------------------------------------------------- */

/* Bits of a table of at least twice as many slots as rows. */
static uint32_t slot_bits_for(uint64_t rows) {
    uint32_t bits = 4;
    while ((uint64_t)1 << bits < 2 * rows) {
        bits++;
    }
    return bits;
}

static int allocate(struct hwi_walk *walk, void *pointer, uint64_t count, size_t bytes) {
    uint64_t size = 0;
    if (hwi_mul_overflows(count + 1, bytes, &size) ||
        size > HWI_MAX_SCRATCH_BYTES - walk->scratch_bytes) {
        walk->scratch_bytes = HWI_MAX_SCRATCH_BYTES;
        return 0;
    }
    walk->scratch_bytes += size;
    assert(walk->array_count < HWI_WALK_ARRAYS);
    void *memory = walk->arrays[walk->array_count++] = calloc(1, size);
    memcpy(pointer, &memory, sizeof memory);
    return memory != NULL;
}

static int hides_edges(const struct hwi_plan *plan) {
    int found = 0;
    for (uint32_t t = 0; t < plan->task_count; t++) {
        found |= plan->tasks[t].hides_edges;
    }
    return found;
}

static int allocate_all(const struct hwi_plan *plan, struct hwi_walk *walk) {
    const hw_store *store = plan->store;
    uint64_t rows = plan->shape.max_context_rows, keys = store->info->key_count, widest = 0;
    uint64_t groups = rows * plan->child_slots, draws = groups * plan->options.child_width;
    for (uint32_t table = 0; table < store->info->table_count; table++) {
        widest = plan->tables[table].all_count > widest ? plan->tables[table].all_count : widest;
    }
#define ALLOCATE(field, count) allocate(walk, &walk->field, count, sizeof *walk->field)
    return ALLOCATE(context.visits, rows) &&
           ALLOCATE(context.parents, rows * plan->shape.parent_slots) &&
           ALLOCATE(context.local_parents, rows * plan->shape.parent_slots) &&
           ALLOCATE(context.cell_lists, plan->shape.context_length + widest) &&
           ALLOCATE(slots, (uint64_t)1 << walk->slot_bits) &&
           ALLOCATE(cutoffs.found, store->info->table_count) &&
           ALLOCATE(queue, rows * plan->shape.parent_slots + 1) && ALLOCATE(draws.groups, groups) &&
           ALLOCATE(hops.first, rows + 2) && ALLOCATE(hops.last, rows + 2) &&
           ALLOCATE(draws.bucket, draws) && ALLOCATE(draws.entries, draws) &&
           ALLOCATE(hops.segments, groups) && ALLOCATE(hops.searches, groups) &&
           ALLOCATE(draws.turns, keys) && ALLOCATE(draws.quotas, plan->child_slots) &&
           ALLOCATE(labels.seeds, (uint64_t)plan->options.label_rows + plan->options.peer_labels) &&
           ALLOCATE(shown_children, hides_edges(plan) ? groups : 0) &&
           ALLOCATE(context.tallies, plan->options.child_counts ? groups : 0) &&
           ALLOCATE(context.chosen.cells, plan->mask_words > 0 ? plan->shape.context_length : 0);
#undef ALLOCATE
}

static hw_status no_scratch(const struct hwi_plan *plan, uint64_t bytes, hw_error *error) {
    if (bytes < HWI_MAX_SCRATCH_BYTES) {
        return hwi_no_memory(error, "the scratch of a walk", bytes);
    }
    const char *rows_name = plan->options.max_context_rows != 0 ? "max_context_rows" : "max_rows";
    return hwi_fail(error, HW_BAD_ARGUMENT,
                    "a walk of %s %llu, %u keys at one table and child_width %u needs more "
                    "than %llu bytes of scratch for each thread: lower %s or child_width",
                    rows_name, (unsigned long long)plan->shape.max_context_rows, plan->child_slots,
                    plan->options.child_width, (unsigned long long)HWI_MAX_SCRATCH_BYTES,
                    rows_name);
}

hw_status hwi_walk_open(const struct hwi_plan *plan, struct hwi_walk **walk, hw_error *error) {
    uint32_t rows = plan->shape.max_context_rows;
    struct hwi_walk *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return hwi_no_memory(error, "a walk", sizeof *made);
    }
    made->plan = made->context.plan = plan;
    made->slot_bits = slot_bits_for(rows);
    if (!allocate_all(plan, made)) {
        uint64_t bytes = made->scratch_bytes;
        hwi_walk_close(made);
        return no_scratch(plan, bytes, error);
    }
    memset(made->hops.first, 0xff, ((size_t)rows + 3) * sizeof *made->hops.first);
    *walk = made;
    return HW_OK;
}

void hwi_walk_close(struct hwi_walk *walk) {
    for (uint32_t i = 0; walk != NULL && i < walk->array_count; i++) {
        free(walk->arrays[i]);
    }
    free(walk);
}

struct hwi_context *hwi_walk_context(struct hwi_walk *walk) {
    return &walk->context;
}

uint64_t hwi_walk_bytes(const struct hwi_walk *walk) {
    return walk->scratch_bytes;
}
