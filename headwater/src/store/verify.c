/*
 * Proof of a store's contents, after open has proved its structure: checksums and gaps of every
 * file, then what each number means. All faults are counted; the first VERIFY_MAX_MESSAGES are
 * reported. Reads everything once, children at random: minutes for a billion rows.
 *
 * Links are proved in both directions: every listed child points back at the list's row, lists are
 * strictly ascending, and a key lists as many children as it has parents. So the lists hold exactly
 * the edges that the records hold.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "store/checksums.h"
#include "store/store.h"

#define VERIFY_MAX_MESSAGES 1000u

struct verifier {
    const hw_store *store;
    hw_fault_callback fault;
    void *context;
    uint64_t fault_count;
};

static void count_message(void *context, const char *message) {
    struct verifier *v = context;
    v->fault_count++;
    if (v->fault != NULL && v->fault_count <= VERIFY_MAX_MESSAGES) {
        v->fault(v->context, message);
    }
}

__attribute__((format(printf, 2, 3))) static void report(struct verifier *v, const char *format,
                                                         ...) {
    char message[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    count_message(v, message);
}

/* ---- records ----------------------------------------------------------------------------- */

/* One table while it is verified, and where messages say it is. */
struct table_check {
    struct verifier *v;
    const struct hwi_table *table;
    char name[100];
    uint64_t child_start; /* edges of the rows before */
    uint64_t *edge_counts; /* by parent slot: parents that are not NULL */
    uint64_t *list_counts; /* by child slot: children listed */
    uint64_t *null_counts; /* by column of the table */
};

static void bad_row(struct table_check *check, uint32_t row, const char *what, uint64_t found,
                    uint64_t limit) {
    report(check->v, "%s is %llu, expected less than %llu (table '%s', row %u)", what,
           (unsigned long long)found, (unsigned long long)limit, check->name, row);
}

static void verify_parents(struct table_check *check, uint32_t row, const uint8_t *record) {
    const hw_store *store = check->v->store;
    for (uint32_t slot = 0; slot < check->table->info->key_count; slot++) {
        const struct hwi_key_info *key = &store->keys[check->table->info->key_start + slot];
        const struct hwi_table_info *parents = store->tables[key->parent_table].info;
        uint32_t parent = hwi_read_u32(record + 4 * (uint64_t)slot);
        if (parent == HWI_NONE) {
            continue;
        }
        check->edge_counts[slot]++;
        if (parent - parents->row_start >= parents->row_count) {
            bad_row(check, row, "a parent within its table", parent - parents->row_start,
                    parents->row_count);
        }
    }
}

/* The later of a child's time and the known times of the key's columns. */
static int64_t edge_time(const hw_store *store, const struct hwi_key_info *key, uint32_t local) {
    const struct hwi_table *table = &store->tables[key->child_table];
    int64_t latest = table->times != NULL ? table->times[local] : INT64_MIN;
    for (uint32_t i = 0; i < key->column_count && key->known_late; i++) {
        uint32_t column = store->key_columns[key->column_start + i];
        int64_t time = hwi_cell_known_time(store, table, local, &store->columns[column]);
        latest = time > latest ? time : latest;
    }
    return latest;
}

/* One child list: of the right table, ascending, pointing back. Its range is inside CHILDREN. */
static void verify_list(struct table_check *check, uint32_t row, uint32_t slot, uint64_t start,
                        uint32_t count) {
    const hw_store *store = check->v->store;
    const struct hwi_table *table = check->table;
    const struct hwi_key_info *key = &store->keys[table->incoming[slot]];
    const struct hwi_table *child_table = &store->tables[key->child_table];
    for (uint64_t i = start; i < start + count; i++) {
        uint32_t child = table->children[i];
        if (!hwi_table_has(child_table, child)) {
            bad_row(check, row, "a listed child within its table",
                    child - child_table->info->row_start, child_table->info->row_count);
            continue;
        }
        const uint8_t *record = hwi_record(child_table, child);
        if (hwi_read_u32(record + 4 * (uint64_t)key->parent_slot) != table->info->row_start + row) {
            report(check->v, "child %u is listed but points elsewhere (table '%s', row %u)", child,
                   check->name, row);
        }
        if (table->child_times != NULL &&
            table->child_times[i] != edge_time(store, key, child - child_table->info->row_start)) {
            report(check->v, "child %u has a wrong edge time (table '%s', row %u)", child,
                   check->name, row);
        }
        if (i == start) {
            continue;
        }
        int64_t time = 0, previous = 0;
        if (table->child_times != NULL) {
            time = table->child_times[i];
            previous = table->child_times[i - 1];
        }
        if (time < previous || (time == previous && child <= table->children[i - 1])) {
            report(check->v, "child %u is out of order in its list (table '%s', row %u)", child,
                   check->name, row);
        }
    }
}

static void verify_children(struct table_check *check, uint32_t row, const uint8_t *record) {
    const struct hwi_table_info *info = check->table->info;
    if (info->child_slot_count == 0) {
        return;
    }
    const uint8_t *at = record + info->child_offset;
    uint64_t start = hwi_read_u32(at);
    if (start != check->child_start) {
        report(check->v, "child_start is %llu, expected %llu (table '%s', row %u)",
               (unsigned long long)start, (unsigned long long)check->child_start, check->name, row);
    }
    for (uint32_t slot = 0; slot < info->child_slot_count; slot++) {
        uint32_t count = hwi_read_u32(at + 4 + 4 * (uint64_t)slot);
        if (start + count > info->edge_count) {
            bad_row(check, row, "the end of a child list", start + count, info->edge_count + 1);
        } else {
            verify_list(check, row, slot, start, count);
        }
        start += count;
        check->child_start += count;
        check->list_counts[slot] += count;
    }
}

static void verify_value(struct table_check *check, uint32_t row,
                         const struct hwi_column_info *column, const uint8_t *lane) {
    uint32_t value = hwi_read_u32(lane);
    switch ((hw_semantic_type)column->stype) {
    case HW_NUMERICAL:
        if (!isfinite(hwi_read_f32(lane))) {
            report(check->v, "a number is not finite (table '%s', row %u)", check->name, row);
        }
        break;
    case HW_BOOLEAN:
        if (value > 1) {
            bad_row(check, row, "a boolean", value, 2);
        }
        break;
    case HW_CATEGORICAL:
        if (value - column->category_start >= column->category_count) {
            bad_row(check, row, "a category of its column", value - column->category_start,
                    column->category_count);
        }
        break;
    case HW_TEXT:
        if (value >= check->v->store->info->text_count) {
            bad_row(check, row, "a text", value, check->v->store->info->text_count);
        }
        break;
    case HW_IDENTIFIER:
    case HW_TIMESTAMP:
    case HW_IGNORED:
        break;
    }
}

static void verify_cells(struct table_check *check, uint32_t row, const uint8_t *record) {
    const struct hwi_table_info *info = check->table->info;
    for (uint32_t i = 0; i < info->column_count; i++) {
        const struct hwi_column_info *column = &check->v->store->columns[info->column_start + i];
        if (column->null_bit == HWI_NONE) {
            continue;
        }
        int is_null = hwi_bit(record + info->null_offset, column->null_bit);
        check->null_counts[i] += (uint64_t)is_null;
        if (column->lane_offset == HWI_NONE) {
            continue;
        }
        const uint8_t *lane = record + column->lane_offset;
        int is_time = column->stype == HW_TIMESTAMP || column->stype == HW_IGNORED;
        if (!is_null) {
            verify_value(check, row, column, lane);
        } else if ((is_time ? hwi_read_u64(lane) : hwi_read_u32(lane)) != 0) {
            report(check->v, "a NULL cell is not zero (table '%s', row %u, column %u)", check->name,
                   row, info->column_start + i);
        }
    }
}

/* The time of a row stands in its record too, where the table says so. */
static int is_time_in_lane(const struct table_check *check, uint32_t row, int has_time) {
    const struct hwi_table_info *info = check->table->info;
    const struct hwi_column_info *column = &check->v->store->columns[info->temporal_column];
    const uint8_t *record = check->table->records + (uint64_t)row * info->record_bytes;
    if (hwi_bit(record + info->null_offset, column->null_bit)) {
        return !has_time;
    }
    uint64_t time = hwi_read_u64(record + column->lane_offset) + (uint64_t)info->time_offset_us;
    return has_time && time == (uint64_t)check->table->times[row];
}

static void verify_times(struct table_check *check) {
    const struct hwi_table *table = check->table;
    const struct hwi_table_info *info = table->info;
    int64_t without = (info->flags & HWI_TABLE_NULL_TIME_VISIBLE) ? INT64_MIN : INT64_MAX;
    for (uint32_t row = 0; table->times != NULL && row < info->row_count; row++) {
        if (row > 0 && table->times[row] < table->times[row - 1]) {
            report(check->v, "times do not ascend (table '%s', row %u)", check->name, row);
        }
        int has_time = row - info->timed_start < info->timed_count;
        int is_sentinel = table->times[row] == INT64_MIN || table->times[row] == INT64_MAX;
        if (has_time ? is_sentinel : table->times[row] != without) {
            report(check->v,
                   "a time does not agree with the rows that have one (table '%s', row "
                   "%u)",
                   check->name, row);
        }
        if ((info->flags & HWI_TABLE_TIME_IN_LANE) && !is_time_in_lane(check, row, has_time)) {
            report(check->v, "a time is not that of the row's record (table '%s', row %u)",
                   check->name, row);
        }
    }
}

/* Compares the counts made on the way with those of the schema. */
static void verify_counts(struct table_check *check) {
    const hw_store *store = check->v->store;
    const struct hwi_table_info *info = check->table->info;
    for (uint32_t slot = 0; slot < info->key_count; slot++) {
        const struct hwi_key_info *key = &store->keys[info->key_start + slot];
        if (check->edge_counts[slot] != key->edge_count) {
            report(check->v, "foreign key %u of table '%s' has %llu edges, the schema has %llu",
                   info->key_start + slot, check->name,
                   (unsigned long long)check->edge_counts[slot],
                   (unsigned long long)key->edge_count);
        }
    }
    for (uint32_t slot = 0; slot < info->child_slot_count; slot++) {
        const struct hwi_key_info *key = &store->keys[check->table->incoming[slot]];
        if (check->list_counts[slot] != key->edge_count) {
            report(check->v,
                   "table '%s' lists %llu children by foreign key %u, the schema has "
                   "%llu",
                   check->name, (unsigned long long)check->list_counts[slot],
                   check->table->incoming[slot], (unsigned long long)key->edge_count);
        }
    }
    for (uint32_t i = 0; i < info->column_count; i++) {
        const struct hwi_column_info *column = &store->columns[info->column_start + i];
        if (column->null_bit != HWI_NONE &&
            (check->null_counts[i] != column->null_count ||
             column->value_count + column->null_count != info->row_count)) {
            report(check->v,
                   "column %u has %llu NULLs and %u rows, the schema has %llu and %llu "
                   "values (table '%s')",
                   info->column_start + i, (unsigned long long)check->null_counts[i],
                   info->row_count, (unsigned long long)column->null_count,
                   (unsigned long long)column->value_count, check->name);
        }
    }
}

static hw_status verify_table(struct verifier *v, uint32_t t, hw_error *error) {
    struct table_check check = {.v = v, .table = &v->store->tables[t]};
    const struct hwi_table_info *info = check.table->info;
    uint64_t count = (uint64_t)info->key_count + info->child_slot_count + info->column_count;
    uint64_t *counts = calloc((size_t)count + 1, sizeof *counts);
    if (counts == NULL) {
        return hwi_no_memory(error, "counts of a table", count * sizeof *counts);
    }
    check.edge_counts = counts;
    check.list_counts = counts + info->key_count;
    check.null_counts = check.list_counts + info->child_slot_count;
    (void)hwi_store_name(v->store, info->name, check.name, sizeof check.name);
    for (uint32_t row = 0; row < info->row_count; row++) {
        const uint8_t *record = check.table->records + (uint64_t)row * info->record_bytes;
        verify_parents(&check, row, record);
        verify_children(&check, row, record);
        verify_cells(&check, row, record);
    }
    verify_times(&check);
    verify_counts(&check);
    free(counts);
    return HW_OK;
}

/* ---- keys, texts, vectors ---------------------------------------------------------------- */

/* Offsets from 0 to `bytes`, ascending; 1 if they are. */
static int verify_offsets(struct verifier *v, const char *what, const char *name,
                          const uint64_t *offsets, uint64_t count, uint64_t bytes) {
    uint64_t fault_count = v->fault_count;
    if (offsets[0] != 0 || offsets[count] != bytes) {
        report(v, "%s of '%s' do not span their bytes", what, name);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (offsets[i] > offsets[i + 1] || offsets[i + 1] > bytes) {
            report(v, "%s of '%s' do not ascend at %llu", what, name, (unsigned long long)i);
        }
    }
    return fault_count == v->fault_count;
}

static int is_key(const uint8_t *key, uint64_t bytes) {
    while (bytes >= 4) {
        uint64_t part = (uint64_t)hwi_read_u32(key) + 4;
        if (part > bytes) {
            return 0;
        }
        key += part;
        bytes -= part;
    }
    return bytes == 0;
}

static void verify_key_order(struct verifier *v, const struct hwi_table *table, const char *name) {
    for (uint32_t i = 0; i < table->info->row_count; i++) {
        uint32_t row = table->key_order[i];
        if (row >= table->info->row_count) {
            report(v, "the order of keys names row %u of %u (table '%s')", row,
                   table->info->row_count, name);
            return;
        }
        if (i == 0) {
            continue;
        }
        uint32_t previous = table->key_order[i - 1];
        uint64_t hash = table->key_hashes[row], previous_hash = table->key_hashes[previous];
        if (hash < previous_hash || (hash == previous_hash && row <= previous)) {
            report(v, "keys are out of order at %u (table '%s')", i, name);
        }
    }
}

/* Offsets and the order are right. Equal keys stand in runs of equal hashes, which are short. */
static void verify_unique(struct verifier *v, const struct hwi_table *table, const char *name) {
    const uint64_t *offsets = table->key_offsets;
    for (uint32_t i = 1; i < table->info->row_count; i++) {
        uint64_t a = table->key_order[i];
        for (uint32_t j = i; j > 0; j--) {
            uint64_t b = table->key_order[j - 1];
            if (table->key_hashes[a] != table->key_hashes[b]) {
                break;
            }
            uint64_t bytes = offsets[a + 1] - offsets[a];
            if (bytes == offsets[b + 1] - offsets[b] &&
                memcmp(table->key_bytes + offsets[a], table->key_bytes + offsets[b],
                       (size_t)bytes) == 0) {
                report(v, "rows %llu and %llu have the same key (table '%s')",
                       (unsigned long long)b, (unsigned long long)a, name);
            }
        }
    }
}

static void verify_keys(struct verifier *v, uint32_t t) {
    const struct hwi_table *table = &v->store->tables[t];
    char name[100];
    if (table->key_offsets == NULL) {
        return;
    }
    (void)hwi_store_name(v->store, table->info->name, name, sizeof name);
    uint64_t fault_count = v->fault_count;
    if (!verify_offsets(v, "keys", name, table->key_offsets, table->info->row_count,
                        table->key_bytes_count)) {
        return;
    }
    for (uint32_t row = 0; row < table->info->row_count; row++) {
        uint64_t start = table->key_offsets[row];
        uint64_t bytes = table->key_offsets[row + (uint64_t)1] - start;
        if (!is_key(table->key_bytes + start, bytes) ||
            hw_hash64(table->key_bytes + start, (size_t)bytes, 0) != table->key_hashes[row]) {
            report(v, "a key is malformed or has a wrong hash (table '%s', row %u)", name, row);
        }
    }
    verify_key_order(v, table, name);
    if (v->fault_count == fault_count) {
        verify_unique(v, table, name);
    }
}

static void verify_vectors(struct verifier *v) {
    static const char *const kinds[3] = {"texts", "columns", "categories"};
    for (uint32_t kind = 0; kind < 3; kind++) {
        const uint8_t *numbers = v->store->vectors[kind];
        uint32_t text_dim = v->store->info->text_dim;
        uint64_t count = v->store->vector_counts[kind] * text_dim;
        for (uint64_t i = 0; i < count; i++) {
            if ((numbers[2 * i + 1] & 0x7c) == 0x7c) {
                report(v, "embedding %llu of %s is not finite", (unsigned long long)(i / text_dim),
                       kinds[kind]);
            }
        }
    }
}

/* ---- seeds ------------------------------------------------------------------------------- */

static int is_target(const hw_store *store, const struct hwi_task_info *task, uint64_t target) {
    double number;
    switch ((hw_semantic_type)task->target_stype) {
    case HW_NUMERICAL:
        memcpy(&number, &target, sizeof number);
        return isfinite(number);
    case HW_BOOLEAN:
        return target <= 1;
    case HW_CATEGORICAL:
        return target < store->columns[task->target_column].category_count;
    case HW_TIMESTAMP:
    case HW_IDENTIFIER:
    case HW_TEXT:
    case HW_IGNORED:
        break;
    }
    return 1;
}

static uint64_t anchor_hash(const struct hwi_table *anchor, uint32_t local) {
    uint64_t number = local;
    return anchor->key_hashes != NULL ? anchor->key_hashes[local]
                                      : hw_hash64(&number, sizeof number, 0);
}

static void verify_seed(struct verifier *v, uint32_t k, uint32_t i, const char *name) {
    const struct hwi_task_info *task = &v->store->tasks[k];
    const hw_seeds *seeds = &v->store->seeds[k];
    const struct hwi_table *anchor = &v->store->tables[task->anchor_table];
    uint32_t label = seeds->states[i] & 15u, split = seeds->states[i] >> 4;
    if (!hwi_table_has(anchor, seeds->anchors[i])) {
        report(v, "seed %u of task '%s' has anchor %u outside of its table", i, name,
               seeds->anchors[i]);
    } else if (anchor_hash(anchor, seeds->anchors[i] - anchor->info->row_start) !=
               seeds->key_hashes[i]) {
        report(v, "seed %u of task '%s' has a wrong key hash", i, name);
    }
    if (label > HWI_LABEL_NONE || (split >= HW_SPLIT_COUNT && split != HWI_SPLIT_HASHED)) {
        report(v, "seed %u of task '%s' has state %u", i, name, seeds->states[i]);
    }
    if (label == HWI_LABEL_VALUE ? !is_target(v->store, task, seeds->targets[i])
                                 : seeds->targets[i] != 0) {
        report(v, "seed %u of task '%s' has an impossible target", i, name);
    }
    if (i > 0 && (seeds->anchors[i] < seeds->anchors[i - 1] ||
                  (seeds->anchors[i] == seeds->anchors[i - 1] &&
                   seeds->obs_times[i] < seeds->obs_times[i - 1]))) {
        report(v, "seed %u of task '%s' is out of order", i, name);
    }
}

hw_status hw_store_verify(const hw_store *store, hw_fault_callback fault, void *context,
                          uint64_t *count, hw_error *error) {
    struct verifier v = {.store = store, .fault = fault, .context = context};
    char name[100];
    const struct hwi_listener listener = {.fault = count_message, .fault_context = &v};
    HW_TRY(hwi_store_check_sizes(store, error));
    HW_TRY(hwi_store_check_contents(store, &listener, error));
    for (uint32_t t = 0; t < store->info->table_count; t++) {
        HW_TRY(verify_table(&v, t, error));
        verify_keys(&v, t);
    }
    (void)verify_offsets(&v, "texts", "texts.bin", store->text_offsets, store->info->text_count,
                         store->text_bytes_count);
    verify_vectors(&v);
    for (uint32_t k = 0; k < store->info->task_count; k++) {
        (void)hwi_store_name(store, store->tasks[k].name, name, sizeof name);
        for (uint32_t i = 0; i < store->seeds[k].count; i++) {
            verify_seed(&v, k, i, name);
        }
    }
    *count = v.fault_count;
    return HW_OK;
}
