/*
 * The rows and cells that a seed may see: the rules of docs/reference/sampling.md, "Seeds and
 * time", one function each. They fail closed: if a time is missing, the cell or row is not shown.
 */
#include "walk/visible.h"

/* INT64_MAX means that there is no cutoff, INT64_MIN that there is no time. */
static int64_t earlier(int64_t time_us, uint32_t seconds) {
    int64_t less;
    if (time_us == INT64_MAX || seconds == 0) {
        return time_us;
    }
    if (__builtin_sub_overflow(time_us, seconds * INT64_C(1000000), &less) || less == INT64_MIN) {
        return INT64_MIN + 1;
    }
    return less;
}

void hwi_view_init(struct hwi_view *view, const struct hwi_plan *plan, const struct hwi_seed *seed,
                   uint32_t stale_seconds) {
    const struct hwi_task_plan *task = &plan->tasks[seed->task];
    const struct hwi_task_info *info = task->info;
    const struct hwi_table *table = &plan->store->tables[info->anchor_table];
    uint32_t split = seed->split < HW_SPLIT_COUNT ? seed->split : HW_TEST;
    int64_t until = plan->visible_until[split];
    *view = (struct hwi_view){
        .seed = seed,
        .task = task,
        .info = info,
        .until = earlier(seed->obs_time < until ? seed->obs_time : until, stale_seconds),
        .inclusive = !(info->flags & HWI_TASK_EXCLUSIVE),
        .is_cell = (info->flags & HWI_TASK_CELL) != 0 || !hwi_is_task_objective(plan),
        .has_target_cell = (info->flags & HWI_TASK_CELL) != 0 && hwi_is_task_objective(plan),
        .anchor_timed = table->times != NULL,
    };
    if (table->times != NULL) {
        view->anchor_time = table->times[seed->anchor - table->info->row_start];
    }
}

/* Not before the anchor; without times nothing is known to be before. */
static int is_not_before_anchor(const struct hwi_view *view, const struct hwi_table *table,
                                uint32_t row) {
    if (!view->anchor_timed || table->times == NULL) {
        return 1;
    }
    return table->times[row - table->info->row_start] >= view->anchor_time;
}

/* Both have a time, and the row's is earlier. */
static int is_older_than_anchor(const struct hwi_view *view, const struct hwi_table *table,
                                uint32_t row) {
    if (is_not_before_anchor(view, table, row)) {
        return 0;
    }
    return view->anchor_time != INT64_MAX &&
           table->times[row - table->info->row_start] != INT64_MIN;
}

int hwi_view_withholds(const struct hwi_view *view, const struct hwi_plan *plan, uint32_t table,
                       uint32_t row, uint32_t column, int chain) {
    uint8_t special = view->task->special_columns[column];
    if (!special) {
        return 0;
    }
    const struct hwi_table *where = &plan->store->tables[table];
    if (special & HWI_SPECIAL_LABELS) {
        uint32_t local = row - where->info->row_start;
        if (plan->hidden_labels[column][local / 64] >> (local % 64) & 1) {
            return 1;
        }
        if (special == HWI_SPECIAL_LABELS) {
            return 0;
        }
    }
    if (row == view->seed->anchor) {
        return 1;
    }
    if ((special & HWI_SPECIAL_HIDDEN) && !is_older_than_anchor(view, where, row)) {
        return 1;
    }
    if (!(special & HWI_SPECIAL_TARGET)) {
        return 0;
    }
    if (view->task->asks_for_key ||
        ((view->inclusive || chain) && is_not_before_anchor(view, where, row))) {
        return 1;
    }
    if (view->task->label_hidden != NULL) {
        uint32_t local = row - where->info->row_start;
        return (int)(view->task->label_hidden[local / 64] >> (local % 64) & 1);
    }
    return 0;
}

int hwi_view_knows(const struct hwi_view *view, const struct hwi_plan *plan, uint32_t table,
                   uint32_t row, uint32_t column, int chain) {
    const struct hwi_column_info *info = &plan->store->columns[column];
    const struct hwi_table *where = &plan->store->tables[table];
    switch ((enum hwi_known_kind)info->known_kind) {
    case HWI_KNOWN_CREATION:
        return 1;
    case HWI_KNOWN_COLUMN:
    case HWI_KNOWN_OFFSET:
        return hwi_view_passes(
            view, hwi_cell_known_time(plan->store, where, row - where->row_start, info), chain);
    case HWI_KNOWN_NEVER:
    default:
        return 0;
    }
}
