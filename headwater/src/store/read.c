/*
 * Rows, cells, links, keys, texts and seeds of an open store, one at a time, for people,
 * predictions and tests; the walk reads records directly. Every id taken from data is checked here
 * before it indexes anything: HW_BAD_STORE if the data are damaged, HW_BAD_ARGUMENT if the caller's
 * is wrong.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/sized.h"
#include "store/store.h"

const char *hw_store_directory(const hw_store *store) {
    return store->directory;
}

const char *hw_store_fingerprint(const hw_store *store) {
    return store->fingerprint;
}

hw_status hw_store_get_counts(const hw_store *store, hw_store_counts *counts, hw_error *error) {
    const struct hwi_store_info *info = store->info;
    const hw_store_counts full = {
        .table_count = info->table_count,
        .column_count = info->column_count,
        .key_count = info->key_count,
        .task_count = info->task_count,
        .row_count = info->row_count,
        .category_count = info->category_count,
        .text_count = info->text_count,
        .text_dim = info->text_dim,
        .time_mean_us = info->time_mean_us,
        .time_std_us = info->time_std_us,
    };
    return HWI_GIVE(hw_store_counts, counts, &full, error);
}

/* The table of a row by binary search over the starts of tables, empty ones included. */
static const struct hwi_table *find_table(const hw_store *store, uint32_t row) {
    uint32_t low = 0, high = store->info->table_count; /* the answer is in [low, high) */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (store->tables[middle].info->row_start <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &store->tables[low];
}

static hw_status get_table(const hw_store *store, uint32_t row, const struct hwi_table **table,
                           hw_error *error) {
    if (row >= store->info->row_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "row %u of a store with %u rows", row,
                        store->info->row_count);
    }
    *table = find_table(store, row);
    return HW_OK;
}

static hw_status damaged(const hw_store *store, uint32_t row, const char *what, uint64_t found,
                         uint64_t limit, hw_error *error) {
    char name[100];
    const struct hwi_table *table = find_table(store, row);
    return hwi_fail(
        error, HW_BAD_STORE, "%s is %llu, expected less than %llu (in '%s', table '%s', row %u)",
        what, (unsigned long long)found, (unsigned long long)limit, store->directory,
        hwi_store_name(store, table->info->name, name, sizeof name), row - table->info->row_start);
}

hw_status hw_store_row_table(const hw_store *store, uint32_t row, uint32_t *table,
                             hw_error *error) {
    const struct hwi_table *found = NULL;
    HW_TRY(get_table(store, row, &found, error));
    *table = (uint32_t)(found - store->tables);
    return HW_OK;
}

hw_status hw_store_row_time(const hw_store *store, uint32_t row, int64_t *time_us,
                            hw_error *error) {
    const struct hwi_table *table = NULL;
    HW_TRY(get_table(store, row, &table, error));
    /* A table without a temporal column is visible always, like a row before all times. */
    *time_us = table->times != NULL ? table->times[row - table->info->row_start] : INT64_MIN;
    return HW_OK;
}

hw_status hw_store_row_times(const hw_store *store, uint32_t table, const int64_t **times_us,
                             uint32_t *rows, hw_error *error) {
    if (table >= store->info->table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "table %u of %u", table, store->info->table_count);
    }
    *times_us = store->tables[table].times;
    *rows = store->tables[table].info->row_count;
    return HW_OK;
}

/* Reads a lane that is not NULL. */
static hw_status read_lane(const hw_store *store, uint32_t row, const struct hwi_column_info *info,
                           const uint8_t *lane, hw_cell *cell, hw_error *error) {
    switch (cell->stype) {
    case HW_IDENTIFIER:
        break;
    case HW_NUMERICAL:
        cell->number = (double)hwi_read_f32(lane) * info->std + info->mean;
        break;
    case HW_TIMESTAMP:
    case HW_IGNORED:
        cell->time_us = hwi_read_i64(lane);
        break;
    case HW_BOOLEAN:
        cell->number = hwi_read_u32(lane) != 0;
        break;
    case HW_CATEGORICAL:
        cell->index = hwi_read_u32(lane);
        if (cell->index - info->category_start >= info->category_count) {
            return damaged(store, row, "a category of its column",
                           cell->index - info->category_start, info->category_count, error);
        }
        break;
    case HW_TEXT:
        cell->index = hwi_read_u32(lane);
        if (cell->index >= store->info->text_count) {
            return damaged(store, row, "a text", cell->index, store->info->text_count, error);
        }
        break;
    }
    return HW_OK;
}

hw_status hw_store_cell(const hw_store *store, uint32_t row, uint32_t column, hw_cell *cell,
                        hw_error *error) {
    const struct hwi_table *table = NULL;
    HW_TRY(get_table(store, row, &table, error));
    if (column - table->info->column_start >= table->info->column_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column %u is not of the table of row %u", column,
                        row);
    }
    const struct hwi_column_info *info = &store->columns[column];
    if (info->null_bit == HWI_NONE) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column %u is ignored: the store has no values",
                        column);
    }
    const uint8_t *record = hwi_record(table, row);
    hw_cell read = {.column = column, .stype = (hw_semantic_type)info->stype};
    read.is_null = (uint8_t)hwi_bit(record + table->info->null_offset, info->null_bit);
    if (!read.is_null) {
        HW_TRY(read_lane(store, row, info, record + info->lane_offset, &read, error));
    }
    return HWI_GIVE(hw_cell, cell, &read, error);
}

hw_status hw_store_parent(const hw_store *store, uint32_t row, uint32_t key, uint32_t *parent,
                          hw_error *error) {
    const struct hwi_table *table = NULL;
    HW_TRY(get_table(store, row, &table, error));
    if (key - table->info->key_start >= table->info->key_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "foreign key %u is not of the table of row %u", key,
                        row);
    }
    const struct hwi_key_info *info = &store->keys[key];
    const struct hwi_table_info *target = store->tables[info->parent_table].info;
    uint32_t found = hwi_read_u32(hwi_record(table, row) + 4 * (uint64_t)info->parent_slot);
    if (found != HWI_NONE && found - target->row_start >= target->row_count) {
        return damaged(store, row, "a parent within its table", found - target->row_start,
                       target->row_count, error);
    }
    *parent = found;
    return HW_OK;
}

hw_status hw_store_children(const hw_store *store, uint32_t row, uint32_t key,
                            const uint32_t **children, uint32_t *count, hw_error *error) {
    const struct hwi_table *table = NULL;
    HW_TRY(get_table(store, row, &table, error));
    if (key >= store->info->key_count ||
        store->keys[key].parent_table != (uint32_t)(table - store->tables)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "foreign key %u does not point at the table of row %u", key, row);
    }
    const uint8_t *at = hwi_record(table, row) + table->info->child_offset;
    uint64_t start = hwi_read_u32(at);
    for (uint32_t slot = 0; slot < store->keys[key].child_slot; slot++) {
        start += hwi_read_u32(at + 4 + 4 * (uint64_t)slot);
    }
    uint32_t found = hwi_read_u32(at + 4 + 4 * (uint64_t)store->keys[key].child_slot);
    if (start + found > table->info->edge_count) {
        return damaged(store, row, "the end of a child list", start + found,
                       table->info->edge_count + 1, error);
    }
    *children = table->children + start;
    *count = found;
    return HW_OK;
}

/* Key of row `local` of a keyed table. */
static hw_status read_key(const hw_store *store, const struct hwi_table *table, uint32_t local,
                          const uint8_t **key, uint64_t *bytes, hw_error *error) {
    uint64_t start = table->key_offsets[local], end = table->key_offsets[local + (uint64_t)1];
    if (start > end || end > table->key_bytes_count) {
        return damaged(store, table->info->row_start + local, "the end of a key", end,
                       table->key_bytes_count + 1, error);
    }
    *key = table->key_bytes + start;
    *bytes = end - start;
    return HW_OK;
}

hw_status hw_store_row_key(const hw_store *store, uint32_t row, const void **key, size_t *bytes,
                           hw_error *error) {
    const struct hwi_table *table = NULL;
    const uint8_t *found = NULL;
    uint64_t found_bytes = 0;
    HW_TRY(get_table(store, row, &table, error));
    if (table->key_offsets == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the table of row %u has no primary key", row);
    }
    HW_TRY(read_key(store, table, row - table->info->row_start, &found, &found_bytes, error));
    *key = found;
    *bytes = (size_t)found_bytes;
    return HW_OK;
}

/* First place in key_order whose hash is not less; key_order's rows are checked as they are met. */
static hw_status find_hash(const hw_store *store, const struct hwi_table *table, uint64_t hash,
                           uint32_t *place, hw_error *error) {
    uint32_t low = 0, high = table->info->row_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t local = table->key_order[middle];
        if (local >= table->info->row_count) {
            return damaged(store, table->info->row_start + middle, "a row in the order of keys",
                           local, table->info->row_count, error);
        }
        if (table->key_hashes[local] < hash) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *place = low;
    return HW_OK;
}

hw_status hw_store_find(const hw_store *store, uint32_t table, const void *key, size_t bytes,
                        uint32_t *row, hw_error *error) {
    if (table >= store->info->table_count || store->tables[table].key_offsets == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "table %u of %u does not exist or has no key",
                        table, store->info->table_count);
    }
    const struct hwi_table *target = &store->tables[table];
    uint64_t hash = hw_hash64(key, bytes, 0);
    uint32_t place = 0, row_count = target->info->row_count;
    HW_TRY(find_hash(store, target, hash, &place, error));
    for (; place < row_count; place++) {
        const uint8_t *found = NULL;
        uint64_t found_bytes = 0;
        uint32_t local = target->key_order[place];
        if (local >= row_count) {
            return damaged(store, target->info->row_start + place, "a row in the order of keys",
                           local, row_count, error);
        }
        if (target->key_hashes[local] != hash) {
            break;
        }
        HW_TRY(read_key(store, target, local, &found, &found_bytes, error));
        if (found_bytes == bytes && (bytes == 0 || memcmp(found, key, bytes) == 0)) {
            *row = target->info->row_start + local;
            return HW_OK;
        }
    }
    *row = UINT32_MAX;
    return HW_OK;
}

hw_status hw_store_text(const hw_store *store, uint32_t index, const char **text, size_t *bytes,
                        hw_error *error) {
    if (index >= store->info->text_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "text %u of %u", index, store->info->text_count);
    }
    uint64_t start = store->text_offsets[index], end = store->text_offsets[index + (uint64_t)1];
    if (start > end || end > store->text_bytes_count) {
        return hwi_fail(error, HW_BAD_STORE,
                        "text %u ends at byte %llu of %llu (in '%s/texts.bin', section "
                        "TEXT_OFFSETS)",
                        index, (unsigned long long)end, (unsigned long long)store->text_bytes_count,
                        store->directory);
    }
    *text = (const char *)store->text_bytes + start;
    *bytes = (size_t)(end - start);
    return HW_OK;
}

hw_status hw_store_vectors(const hw_store *store, hw_embedding_kind kind, const void **vectors,
                           uint64_t *count, hw_error *error) {
    if ((unsigned)kind > HW_EMBED_CATEGORIES) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "embeddings of kind %u", (unsigned)kind);
    }
    *vectors = store->vectors[kind];
    *count = store->vector_counts[kind];
    return HW_OK;
}

hw_status hw_store_seeds(const hw_store *store, uint32_t task, hw_seeds *seeds, hw_error *error) {
    if (task >= store->info->task_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "task %u of %u", task, store->info->task_count);
    }
    return HWI_GIVE(hw_seeds, seeds, &store->seeds[task], error);
}
