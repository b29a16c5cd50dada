/*
 * The walk. Parents wait in a queue and go first; children wait as groups, one for each visited row
 * and key, from which single children are drawn when nothing else is left, fewest hops first. A
 * group is never expanded: drawing k of v children touches k of them, whatever v is, so a hub of
 * millions costs two binary searches. A sequence's cost is O(visited rows * (parents + keys) +
 * draws); nothing is allocated, and nothing of the size of the database or of S is cleared.
 */
#include "walk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "error.h"

/* ---- visited rows ------------------------------------------------------------------------ */

static uint32_t slot_of(const struct hwi_walk *walk, uint32_t row) {
    uint32_t slot = (row * 2654435761u) & walk->slot_mask;
    while (walk->slots[slot].stamp == walk->stamp && walk->slots[slot].row != row) {
        slot = (slot + 1) & walk->slot_mask;
    }
    return slot;
}

uint32_t hwi_walk_local(const struct hwi_walk *walk, uint32_t row) {
    const struct hwi_slot *slot = &walk->slots[slot_of(walk, row)];
    return slot->stamp == walk->stamp ? slot->local : HWI_NONE;
}

/* 0 if the row was visited before. */
static int mark_visited(struct hwi_walk *walk, uint32_t row) {
    struct hwi_slot *slot = &walk->slots[slot_of(walk, row)];
    if (slot->stamp == walk->stamp) {
        return 0;
    }
    *slot = (struct hwi_slot){.stamp = walk->stamp, .row = row, .local = walk->row_count};
    return 1;
}

static uint32_t cutoff_of(struct hwi_walk *walk, uint32_t table) {
    struct hwi_cutoff *cutoff = &walk->cutoffs[table];
    if (cutoff->stamp != walk->stamp) {
        cutoff->stamp = walk->stamp;
        cutoff->row = hwi_view_cutoff(&walk->view, &walk->plan->store->tables[table]);
    }
    return cutoff->row;
}

/* ---- cells of a row ---------------------------------------------------------------------- */

static int is_shown(const struct hwi_walk *walk, const struct hwi_visit *visit, uint32_t column) {
    const struct hwi_view *view = &walk->view;
    return !hwi_view_withholds(view, walk->plan, visit->table, visit->row, column, visit->chain) &&
           hwi_view_knows(view, walk->plan, visit->table, visit->row, column, visit->chain);
}

/* Lists the cells of a row that does not simply emit all of them. */
static uint32_t list_cells(struct hwi_walk *walk, const struct hwi_visit *visit) {
    const struct hwi_table_plan *cells = &walk->plan->tables[visit->table];
    const struct hwi_view *view = &walk->view;
    uint32_t limit = walk->plan->shape.sequence_length;
    uint32_t *list = walk->cell_lists + walk->list_count;
    uint32_t count = 0;
    int holds_target = view->is_cell && visit->row == view->seed->anchor;
    for (uint32_t i = 0; i < cells->cell_count; i++) {
        if (holds_target && cells->columns[i] == view->info->target_column) {
            walk->target_cell = count;
            list[count++] = i;
        } else if (is_shown(walk, visit, cells->columns[i])) {
            list[count++] = i;
        }
    }
    for (uint32_t i = cells->cell_count; i < cells->all_count && count == 0; i++) {
        if (is_shown(walk, visit, cells->columns[i])) {
            list[count++] = i;
        }
    }
    if (holds_target && walk->target_cell >= limit) { /* the anchor is the first row */
        list[limit - 1] = list[walk->target_cell];
        walk->target_cell = limit - 1;
    }
    return count;
}

static void take_cells(struct hwi_walk *walk, struct hwi_visit *visit) {
    const struct hwi_table_plan *cells = &walk->plan->tables[visit->table];
    uint32_t room = walk->plan->shape.sequence_length - walk->cell_count;
    uint32_t count = cells->cell_count;
    visit->list = HWI_NONE;
    if (cells->late_cells || count == 0 || walk->view.task->special_tables[visit->table]) {
        count = list_cells(walk, visit);
        visit->list = walk->list_count;
        walk->list_count += count < room ? count : room;
    }
    visit->cell_start = walk->cell_count;
    visit->cell_count = count < room ? count : room;
    walk->cell_count += visit->cell_count;
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
        return hwi_view_passes(&walk->view, where->times[row - where->info->row_start], 1);
    }
    return row < cutoff_of(walk, table);
}

/* A record and its next line on their way while the rows before it are visited. */
static void push_parent(struct hwi_walk *walk, uint32_t row, uint32_t table, uint32_t depth,
                        uint8_t chain) {
    const uint8_t *record = hwi_record(&walk->plan->store->tables[table], row);
    __builtin_prefetch(record);
    __builtin_prefetch(record + 64);
    walk->queue[walk->queue_tail++] =
        (struct hwi_parent_entry){.row = row, .table = table, .depth = depth, .chain = chain};
}

/* Reads the row's parents, hides what is withheld, and queues those that may be visited. */
static hw_status take_parents(struct hwi_walk *walk, const struct hwi_visit *visit, int push,
                              hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    const struct hwi_table_info *info = plan->store->tables[visit->table].info;
    uint32_t *parents = walk->parents + (size_t)walk->row_count * plan->shape.parent_slots;
    int checks =
        plan->tables[visit->table].late_keys || walk->view.task->special_tables[visit->table];
    memcpy(parents, visit->record, info->key_count * sizeof *parents);
    for (uint32_t slot = 0; slot < info->key_count; slot++) {
        uint32_t row = parents[slot], key = info->key_start + slot;
        if (row == HWI_NONE) {
            continue;
        }
        uint32_t table = plan->store->keys[key].parent_table;
        if (!hwi_table_has(&plan->store->tables[table], row)) {
            return bad_row(walk, "a parent", row, table, error);
        }
        if (checks && !is_edge_shown(walk, visit, key)) {
            parents[slot] = HWI_NONE;
        } else if (push && is_parent_visible(walk, table, row, visit->chain)) {
            push_parent(walk, row, table, visit->depth + 1, visit->chain);
        }
    }
    return HW_OK;
}

/* Visible children of a list: a prefix of it. */
static uint32_t visible_by_row(const uint32_t *children, uint32_t count, uint32_t cutoff) {
    if (count == 0 || children[count - 1] < cutoff) {
        return count;
    }
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (children[middle] < cutoff) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint32_t visible_by_time(const struct hwi_view *view, const int64_t *times, uint32_t count) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (hwi_view_passes(view, times[middle], 0)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Counts the visible children of a row by child slot into counts[slots]. */
static void count_children(struct hwi_walk *walk, const struct hwi_table *table, uint64_t start,
                           const uint8_t *list_counts, uint32_t *counts) {
    for (uint32_t slot = 0; slot < table->info->child_slot_count; slot++) {
        uint32_t count;
        memcpy(&count, list_counts + slot * sizeof count, sizeof count);
        const struct hwi_key_info *key = &walk->plan->store->keys[table->incoming[slot]];
        if (count == 0) {
            counts[slot] = 0;
        } else if (key->known_late) {
            counts[slot] = visible_by_time(&walk->view, table->child_times + start, count);
        } else {
            counts[slot] =
                visible_by_row(table->children + start, count, cutoff_of(walk, key->child_table));
        }
        start += count;
    }
}

static hw_status take_children(struct hwi_walk *walk, const struct hwi_visit *visit,
                               hw_error *error) {
    const struct hwi_table *table = &walk->plan->store->tables[visit->table];
    uint32_t slot_count = table->info->child_slot_count;
    if (slot_count == 0) {
        return HW_OK;
    }
    const uint8_t *lists = visit->record + table->info->child_offset;
    uint32_t start, *visible = walk->segments + walk->segment_count;
    memcpy(&start, lists, sizeof start);
    uint64_t end = start;
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        uint32_t count;
        memcpy(&count, lists + 4 + slot * sizeof count, sizeof count);
        end += count;
        if (end <= table->info->edge_count) { /* whether all are visible is read next */
            __builtin_prefetch(table->children + end - (count > 0));
        }
    }
    if (end > table->info->edge_count) {
        return hwi_fail(error, HW_BAD_STORE,
                        "row %u lists children up to %llu, its table has %llu; "
                        "run `headwater verify`",
                        visit->row, (unsigned long long)end,
                        (unsigned long long)table->info->edge_count);
    }
    if (end > start) {
        count_children(walk, table, start, lists + 4, visible);
        hwi_draw_add(walk, visit, start, lists + 4, visible);
    }
    return HW_OK;
}

/* ---- visits ------------------------------------------------------------------------------ */

/* Visits a row that is marked already. */
static hw_status visit_row(struct hwi_walk *walk, uint32_t row, uint32_t table, uint32_t depth,
                           uint8_t chain, hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    struct hwi_visit *visit = &walk->visits[walk->row_count];
    *visit = (struct hwi_visit){
        .record = hwi_record(&plan->store->tables[table], row),
        .row = row,
        .table = table,
        .depth = depth,
        .chain = chain,
    };
    take_cells(walk, visit);
    int push = plan->options.max_hops == 0 || depth + 1 < plan->options.max_hops;
    HW_TRY(take_parents(walk, visit, push, error));
    if (push) {
        HW_TRY(take_children(walk, visit, error));
    }
    walk->row_count++;
    return HW_OK;
}

/* A derived task's own row: obs_time and the target, one key to the anchor. */
static void visit_seed(struct hwi_walk *walk) {
    const struct hwi_plan *plan = walk->plan;
    const struct hwi_seed *seed = walk->view.seed;
    walk->visits[0] = (struct hwi_visit){
        .row = HWI_NONE, .table = HWI_NONE, .cell_count = 2, .list = HWI_NONE, .chain = 1};
    walk->cell_count = 2;
    walk->target_cell = 1;
    walk->parents[0] = seed->anchor;
    walk->row_count = 1;
    if (plan->options.max_hops != 1) {
        push_parent(walk, seed->anchor, walk->view.info->anchor_table, 1, 1);
    }
}

static void reset(struct hwi_walk *walk, const struct hwi_seed *seed) {
    const struct hwi_plan *plan = walk->plan;
    hwi_view_init(&walk->view, plan, seed);
    walk->rng = hwi_rng_make(plan->options.seed, seed->index, seed->epoch,
                             plan->tasks[seed->task].task * 4 + seed->split);
    walk->row_count = walk->cell_count = walk->list_count = 0;
    walk->stopped_by_rows = 0;
    walk->queue_head = walk->queue_tail = 0;
    hwi_draw_reset(walk);
    if (++walk->stamp == 0) { /* 2^32 sequences later: old stamps would look new */
        memset(walk->slots, 0, ((size_t)walk->slot_mask + 1) * sizeof *walk->slots);
        memset(walk->cutoffs, 0, plan->store->info->table_count * sizeof *walk->cutoffs);
        walk->stamp = 1;
    }
}

/* A drawn child of `key`: visits it unless it was visited or its edge is withheld. */
static hw_status visit_child(struct hwi_walk *walk, const struct hwi_drawn *drawn,
                             hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    uint32_t table = plan->store->keys[drawn->key].child_table;
    if (!hwi_table_has(&plan->store->tables[table], drawn->row)) {
        return bad_row(walk, "a child", drawn->row, table, error);
    }
    if (walk->view.task->special_keys[drawn->key]) {
        struct hwi_visit child = {.row = drawn->row, .table = table};
        if (!is_edge_shown(walk, &child, drawn->key)) {
            return HW_OK;
        }
    }
    return mark_visited(walk, drawn->row)
               ? visit_row(walk, drawn->row, table, drawn->depth, 0, error)
               : HW_OK;
}

hw_status hwi_walk_seed(struct hwi_walk *walk, const struct hwi_seed *seed, hw_error *error) {
    const struct hwi_plan *plan = walk->plan;
    const struct hwi_task_info *info = &plan->store->tasks[plan->tasks[seed->task].task];
    if (!hwi_table_has(&plan->store->tables[info->anchor_table], seed->anchor)) {
        return hwi_fail(error, HW_BAD_STORE, "the anchor of seed %u is row %u, outside its table",
                        seed->index, seed->anchor);
    }
    reset(walk, seed);
    if (walk->view.is_cell) {
        push_parent(walk, seed->anchor, info->anchor_table, 0, 1);
    } else {
        visit_seed(walk);
    }
    const uint32_t most_cells = plan->shape.sequence_length, most_rows = plan->shape.max_rows;
    while (walk->cell_count < most_cells && walk->row_count < most_rows) {
        struct hwi_drawn drawn;
        if (walk->queue_head < walk->queue_tail) {
            struct hwi_parent_entry entry = walk->queue[walk->queue_head++];
            if (mark_visited(walk, entry.row)) {
                HW_TRY(visit_row(walk, entry.row, entry.table, entry.depth, entry.chain, error));
            }
        } else if (hwi_draw_next(walk, &drawn)) {
            HW_TRY(visit_child(walk, &drawn, error));
        } else {
            break;
        }
    }
    walk->stopped_by_rows = walk->cell_count < most_cells && walk->row_count == most_rows &&
                            (walk->queue_head < walk->queue_tail || hwi_draw_waits(walk));
    return HW_OK;
}

/* ---- scratch ----------------------------------------------------------------------------- */

static uint32_t power_of_two(uint64_t least) {
    uint32_t size = 16;
    while (size < least) {
        size *= 2;
    }
    return size;
}

static int allocate(void *pointer, uint64_t count, size_t bytes, uint64_t *total) {
    uint64_t size = 0;
    if (hwi_mul_overflows(count + 1, bytes, &size) || size > HWI_MAX_SCRATCH_BYTES - *total) {
        *total = HWI_MAX_SCRATCH_BYTES;
        return 0;
    }
    *total += size;
    void *memory = calloc(1, size);
    memcpy(pointer, &memory, sizeof memory);
    return memory != NULL;
}

hw_status hwi_walk_open(const struct hwi_plan *plan, struct hwi_walk *walk, hw_error *error) {
    const hw_store *store = plan->store;
    uint64_t rows = plan->shape.max_rows, keys = store->info->key_count, widest = 0;
    uint64_t groups = rows * plan->child_slots, draws = groups * plan->options.child_width;
    uint64_t total = 0;
    for (uint32_t table = 0; table < store->info->table_count; table++) {
        widest = plan->tables[table].all_count > widest ? plan->tables[table].all_count : widest;
    }
    *walk = (struct hwi_walk){.plan = plan, .slot_mask = power_of_two(2 * rows) - 1};
#define ALLOCATE(field, count) allocate(&walk->field, count, sizeof *walk->field, &total)
    if (!ALLOCATE(visits, rows) || !ALLOCATE(parents, rows * plan->shape.parent_slots) ||
        !ALLOCATE(cell_lists, plan->shape.sequence_length + widest) ||
        !ALLOCATE(slots, walk->slot_mask) || !ALLOCATE(cutoffs, store->info->table_count) ||
        !ALLOCATE(queue, rows * plan->shape.parent_slots + 1) || !ALLOCATE(groups, groups) ||
        !ALLOCATE(hop_first, rows + 2) || !ALLOCATE(hop_last, rows + 2) ||
        !ALLOCATE(bucket, draws) || !ALLOCATE(draws, draws) || !ALLOCATE(segments, groups) ||
        !ALLOCATE(turns, keys) || !ALLOCATE(quotas, plan->child_slots)) {
        hwi_walk_release(walk);
        if (total == HWI_MAX_SCRATCH_BYTES) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "a walk of max_rows %llu, %u keys at one table "
                            "and bfs_child_width %u needs more than %llu bytes of scratch for each "
                            "thread: lower max_rows or bfs_child_width",
                            (unsigned long long)rows, plan->child_slots, plan->options.child_width,
                            (unsigned long long)HWI_MAX_SCRATCH_BYTES);
        }
        return hwi_no_memory(error, "the scratch of a walk", total);
    }
#undef ALLOCATE
    memset(walk->hop_first, 0xff, (size_t)(rows + 3) * sizeof *walk->hop_first);
    return HW_OK;
}

void hwi_walk_release(struct hwi_walk *walk) {
    free(walk->visits);
    free(walk->parents);
    free(walk->cell_lists);
    free(walk->slots);
    free(walk->cutoffs);
    free(walk->queue);
    free(walk->groups);
    free(walk->hop_first);
    free(walk->hop_last);
    free(walk->bucket);
    free(walk->draws);
    free(walk->segments);
    free(walk->turns);
    free(walk->quotas);
    *walk = (struct hwi_walk){0};
}
