/*
 * Whole foreign keys and columns of an open store at once, for whoever computes over tables rather
 * than walks: features of baselines, reports. Each value comes with the time at which it may be
 * seen, so that the rules of docs/reference/sampling.md can be followed outside too.
 */
#include "base/error.h"
#include "store/store.h"

hw_status hw_store_edge_counts(const hw_store *store, uint32_t key, uint32_t *parent_rows,
                               uint64_t *edges, hw_error *error) {
    if (key >= store->info->key_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "foreign key %u of %u", key,
                        store->info->key_count);
    }
    *parent_rows = store->tables[store->keys[key].parent_table].row_count;
    *edges = store->keys[key].edge_count;
    return HW_OK;
}

/* When an edge becomes visible: with the child, or later where the key is known later. */
static hw_status edge_time(const hw_store *store, const struct hwi_table *parents,
                           const struct hwi_table *children, uint64_t place, int64_t *time_us,
                           hw_error *error) {
    uint32_t row = parents->children[place];
    if (!hwi_table_has(children, row)) {
        char name[100];
        return hwi_fail(error, HW_BAD_STORE,
                        "child %llu is row %u, which is not of table '%s' (in '%s/graph.bin', "
                        "section CHILDREN)",
                        (unsigned long long)place, row,
                        hwi_store_name(store, children->info->name, name, sizeof name),
                        store->directory);
    }
    if (parents->child_times != NULL) {
        *time_us = parents->child_times[place];
    } else {
        *time_us = children->times != NULL ? children->times[row - children->row_start] : INT64_MIN;
    }
    return HW_OK;
}

hw_status hw_store_edges(const hw_store *store, uint32_t key, uint64_t *starts, uint32_t *rows,
                         int64_t *times_us, hw_error *error) {
    uint32_t parent_rows = 0;
    uint64_t edges = 0, count = 0;
    HW_TRY(hw_store_edge_counts(store, key, &parent_rows, &edges, error));
    const struct hwi_table *parents = &store->tables[store->keys[key].parent_table];
    const struct hwi_table *children = &store->tables[store->keys[key].child_table];
    starts[0] = 0;
    for (uint32_t local = 0; local < parent_rows; local++) {
        const uint32_t *list = NULL;
        uint32_t length = 0;
        HW_TRY(hw_store_children(store, parents->row_start + local, key, &list, &length, error));
        if (length > edges - count) {
            return hwi_fail(error, HW_BAD_STORE,
                            "foreign key %u has more edges than %llu (in '%s/graph.bin')", key,
                            (unsigned long long)edges, store->directory);
        }
        for (uint32_t i = 0; i < length; i++, count++) {
            uint64_t place = (uint64_t)(list + i - parents->children);
            HW_TRY(edge_time(store, parents, children, place, &times_us[count], error));
            rows[count] = list[i];
        }
        starts[local + (uint64_t)1] = count;
    }
    return HW_OK;
}

hw_status hw_store_column_rows(const hw_store *store, uint32_t column, uint32_t *rows,
                               hw_error *error) {
    if (column >= store->info->column_count || store->columns[column].table == HWI_NONE) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column %u is not of a table", column);
    }
    *rows = store->tables[store->columns[column].table].row_count;
    return HW_OK;
}

hw_status hw_store_column(const hw_store *store, uint32_t column, double *numbers,
                          int64_t *times_us, hw_error *error) {
    uint32_t rows = 0;
    HW_TRY(hw_store_column_rows(store, column, &rows, error));
    const struct hwi_column_info *info = &store->columns[column];
    const struct hwi_table *table = &store->tables[info->table];
    for (uint32_t local = 0; local < rows; local++) {
        HW_TRY(hwi_store_number(store, table->row_start + local, column, &numbers[local], error));
        times_us[local] = info->known_kind == HWI_KNOWN_CREATION
                              ? INT64_MIN
                              : hwi_cell_known_time(store, table, local, info);
    }
    return HW_OK;
}
