/*
 * A cutoff by two searches: among every table's few time marks, which stay in the caches, and in
 * the stretch between two of them, by interpolation with halving in turn: real times are smooth
 * there, so it takes two or three reads, and never more than twice a binary search.
 */
#include "walk/cutoff.h"

#include "plan/time_marks.h"

/* First of times[low..high) that does not pass, else high. */
static uint32_t halve(const struct hwi_view *view, const int64_t *times, uint32_t low,
                      uint32_t high) {
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

/* The same between first, which passes, and last, which does not: times at low - 1 and at high. */
static uint32_t interpolate(const struct hwi_view *view, const int64_t *times, uint32_t low,
                            uint32_t high, int64_t first, int64_t last) {
    for (int turn = 0; high - low >= HWI_LEAST_STRETCH; turn++) {
        uint32_t rows = high - low, guess = low + rows / 2;
        double span = (double)last - (double)first;
        if (turn % 2 == 0 && span > 0) {
            double share = ((double)view->until - (double)first) / span;
            uint32_t offset = (uint32_t)(share * (double)rows);
            guess = low + (offset < rows ? offset : rows - 1);
        }
        if (hwi_view_passes(view, times[guess], 0)) {
            first = times[guess];
            low = guess + 1;
        } else {
            last = times[guess];
            high = guess;
        }
    }
    return halve(view, times, low, high);
}

uint32_t hwi_cutoff_find(const struct hwi_plan *plan, const struct hwi_view *view,
                         uint32_t table_index) {
    const struct hwi_table *table = &plan->store->tables[table_index];
    const struct hwi_time_marks *marks = &plan->tables[table_index].marks;
    uint32_t low = 0, high = table->info->row_count;
    if (table->times == NULL || view->until == INT64_MAX) {
        return table->info->row_start + high;
    }
    if (marks->count == 0) {
        return table->info->row_start + halve(view, table->times, low, high);
    }
    uint32_t mark = halve(view, marks->times, 0, marks->count);
    if (mark > 0) {
        low = mark * marks->stretch + 1;
    }
    if (mark == 0 || mark == marks->count) {
        high = mark == marks->count ? high : marks->stretch;
        return table->info->row_start + halve(view, table->times, low, high);
    }
    high = (mark + 1) * marks->stretch;
    return table->info->row_start +
           interpolate(view, table->times, low, high, marks->times[mark - 1], marks->times[mark]);
}

int64_t hwi_newest_visible(struct hwi_cutoffs *cutoffs, const struct hwi_plan *plan,
                           const struct hwi_view *view) {
    const hw_store *store = plan->store;
    int64_t newest = INT64_MIN;
    for (uint32_t t = 0; t < store->info->table_count; t++) {
        const struct hwi_table *table = &store->tables[t];
        uint32_t end =
            table->times == NULL ? 0 : hwi_cutoff(cutoffs, plan, view, t) - table->info->row_start;
        if (end > 0 && table->times[end - 1] > newest) {
            newest = table->times[end - 1];
        }
    }
    return newest;
}
