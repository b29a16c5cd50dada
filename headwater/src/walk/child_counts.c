/*
 * Tallies are made when the walk is over, for all rows at once, in four kinds of steps that each
 * end where reads are on their way: the ends of the lists are asked for; the visible prefix of each
 * is found (children.c, which takes all rows for one hop); its first and last child are named and
 * their times asked for; the times are read. Cost per row and key: the search, and at most four
 * lines.
 */
#include "walk/child_counts.h"

#include <string.h>

#include "walk/children.h"
#include "walk/scratch.h"

enum tally_state { TALLY_COUNT, TALLY_SEARCH, TALLY_NAME, TALLY_READ };
enum { CELL_COUNT, CELL_LAST, CELL_FIRST };

#define COUNT_SCALE 4.0
#define AGE_SCALE 8.0
#define DAY_US 86400e6
#define LN_2 0.69314718055994530942
#define SQRT_2 1.41421356237309504880

/* log(1 + x) of x >= 0 to 1e-14, the same bits on any machine: y = m * 2^e with m around 1, and
 * log(m) = 2 atanh((m - 1) / (m + 1)) by its series. */
static double log_of_one_and(double x) {
    double y = 1 + x, m, series = 0;
    uint64_t bits;
    memcpy(&bits, &y, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > SQRT_2) {
        m /= 2;
        exponent++;
    }
    double s = (m - 1) / (m + 1), z = s * s;
    for (int term = 17; term >= 1; term -= 2) {
        series = series * z + 1.0 / term;
    }
    return exponent * LN_2 + 2 * s * series;
}

/* ---- lists ------------------------------------------------------------------------------- */

/* One of the lists of the rows of a walk, in the order of walk->hops.segments. */
struct list {
    const struct hwi_table *table;
    const struct hwi_key_info *key;
    uint64_t start; /* among the table's children */
    uint32_t visible; /* 0 also where the task withholds a column of the key */
    struct hwi_tally *tally;
};

/* Calls visit_list(walk, list, error) for every list of every row. */
static hw_status each_list(struct hwi_walk *walk,
                           hw_status (*visit_list)(struct hwi_walk *, const struct list *,
                                                   hw_error *),
                           hw_error *error) {
    const hw_store *store = walk->plan->store;
    uint32_t place = 0;
    for (uint32_t local = walk->hops.first[walk->hops.current]; local != HWI_NONE;
         local = walk->context.visits[local].next) {
        const struct hwi_visit *visit = &walk->context.visits[local];
        struct list list = {.table = &store->tables[visit->table]};
        const uint8_t *head = visit->record + list.table->info->child_offset;
        uint32_t start;
        memcpy(&start, head, sizeof start);
        list.start = start;
        for (uint32_t slot = 0; slot < list.table->info->child_slot_count; slot++, place++) {
            uint32_t count, key = list.table->incoming[slot];
            memcpy(&count, head + 4 + slot * sizeof count, sizeof count);
            list.key = &store->keys[key];
            list.visible = walk->view.task->special_keys[key] ? 0 : walk->hops.segments[place];
            list.tally = &walk->context.tallies[place];
            HW_TRY(visit_list(walk, &list, error));
            list.start += count;
        }
    }
    return HW_OK;
}

static hw_status name_child(const struct hwi_walk *walk, const struct list *list, uint32_t at,
                            uint32_t *row, hw_error *error) {
    const struct hwi_table *children = &walk->plan->store->tables[list->key->child_table];
    *row = list->table->children[list->start + at];
    if (!hwi_table_has(children, *row)) {
        return hwi_fail(error, HW_BAD_STORE,
                        "a child is row %u, outside its table; run `headwater verify`", *row);
    }
    __builtin_prefetch(children->times + (*row - children->info->row_start));
    return HW_OK;
}

/* Names the children whose times say the ages; with edge times those stand in the list. */
static hw_status name_ends(struct hwi_walk *walk, const struct list *list, hw_error *error) {
    if (list->visible == 0 || list->key->known_late ||
        walk->plan->store->tables[list->key->child_table].times == NULL) {
        return HW_OK;
    }
    HW_TRY(name_child(walk, list, list->visible - 1, &list->tally->last, error));
    return name_child(walk, list, 0, &list->tally->first, error);
}

/* ---- values ------------------------------------------------------------------------------ */

/* The time of the edge of the list's child `at`, which is `row` where it was named. */
static int64_t edge_time(const struct hwi_walk *walk, const struct list *list, uint32_t at,
                         uint32_t row) {
    const struct hwi_table *children = &walk->plan->store->tables[list->key->child_table];
    if (list->key->known_late) {
        return list->table->child_times[list->start + at];
    }
    return children->times == NULL ? INT64_MAX : children->times[row - children->info->row_start];
}

static void set_age(const struct hwi_walk *walk, struct hwi_tally *tally, uint32_t cell,
                    int64_t time_us) {
    int64_t obs_time = walk->context.seed.obs_time;
    tally->is_null[cell] = obs_time == INT64_MAX || time_us == INT64_MAX || time_us == INT64_MIN;
    tally->values[cell] = 0;
    if (!tally->is_null[cell]) {
        double days = ((double)obs_time - (double)time_us) / DAY_US;
        tally->values[cell] = (float)(log_of_one_and(days) / AGE_SCALE);
    }
}

static hw_status set_values(struct hwi_walk *walk, const struct list *list, hw_error *error) {
    struct hwi_tally *tally = list->tally;
    int64_t last = INT64_MAX, first = INT64_MAX;
    (void)error;
    if (list->visible > 0) {
        last = edge_time(walk, list, list->visible - 1, tally->last);
        first = edge_time(walk, list, 0, tally->first);
    }
    tally->is_null[CELL_COUNT] = 0;
    tally->values[CELL_COUNT] = (float)(log_of_one_and(list->visible) / COUNT_SCALE);
    set_age(walk, tally, CELL_LAST, last);
    set_age(walk, tally, CELL_FIRST, first);
    return HW_OK;
}

/* ---- steps ------------------------------------------------------------------------------- */

hw_status hwi_tally_begin(struct hwi_walk *walk, hw_error *error) {
    walk->tally_state = TALLY_COUNT;
    return hwi_children_open_all(walk, error);
}

hw_status hwi_tally_step(struct hwi_walk *walk, int *is_done, hw_error *error) {
    switch ((enum tally_state)walk->tally_state) {
    case TALLY_COUNT:
        hwi_children_count(walk);
        walk->tally_state = walk->hops.search_count > 0 ? TALLY_SEARCH : TALLY_NAME;
        return HW_OK;
    case TALLY_SEARCH:
        walk->tally_state = hwi_children_search(walk) ? TALLY_NAME : TALLY_SEARCH;
        return HW_OK;
    case TALLY_NAME:
        walk->tally_state = TALLY_READ;
        return each_list(walk, name_ends, error);
    case TALLY_READ:
    default:
        *is_done = 1;
        return each_list(walk, set_values, error);
    }
}
