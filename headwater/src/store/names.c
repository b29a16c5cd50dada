/* The parts of an open store, by number and by name. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "store/described.h"

#define SHOWN_NAME_BYTES 60 /* of a name in a message */
#define COMPARED_BYTES 60u /* of a name that may be meant */
#define LIST_BYTES 250u /* of a message, for the names that there are */

/* ---- by number --------------------------------------------------------------------------- */

static hw_status check_number(const char *what, uint32_t number, uint32_t count, hw_error *error) {
    return number < count
               ? HW_OK
               : hwi_fail(error, HW_BAD_ARGUMENT, "%s %u, expected less than the %u of the store",
                          what, number, count);
}

hw_status hw_store_table_info(const hw_store *store, uint32_t table, hw_table_info *info,
                              hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(check_number("table", table, store->info->table_count, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_table_info *found = store->tables[table].info;
    const uint32_t *parts = &described->primary_key_starts[table];
    const hw_table_info full = {
        .name = described->table_names[table],
        .first_row = found->row_start,
        .row_count = found->row_count,
        .first_column = found->column_start,
        .column_count = found->column_count,
        .first_key = found->key_start,
        .key_count = found->key_count,
        .temporal_column = found->temporal_column,
        .primary_key = parts[1] > parts[0] ? described->primary_keys + parts[0] : NULL,
        .primary_key_count = parts[1] - parts[0],
        .is_keyed = (found->flags & HWI_TABLE_KEYED) != 0,
    };
    return HWI_GIVE(hw_table_info, info, &full, error);
}

hw_status hw_store_column_info(const hw_store *store, uint32_t column, hw_column_info *info,
                               hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(check_number("column", column, store->info->column_count, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_column_info *found = &store->columns[column];
    const hw_column_info full = {
        .name = described->column_names[column],
        .table = found->table,
        .task = found->task,
        .stype = (hw_semantic_type)found->stype,
        .known = (hw_known)found->known_kind,
        .known_column = found->known_column,
        .first_category = found->category_start,
        .category_count = found->category_count,
        .known_offset_us = found->known_offset_us,
        .mean = found->mean,
        .std = found->std,
        .value_count = found->value_count,
        .null_count = found->null_count,
    };
    return HWI_GIVE(hw_column_info, info, &full, error);
}

hw_status hw_store_key_info(const hw_store *store, uint32_t key, hw_key_info *info,
                            hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(check_number("foreign key", key, store->info->key_count, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_key_info *found = &store->keys[key];
    const uint32_t *parent_columns = described->parent_columns + found->column_start;
    const hw_key_info full = {
        .name = described->key_names[key],
        .child_table = found->child_table,
        .parent_table = found->parent_table,
        .columns = store->key_columns + found->column_start,
        .parent_columns = parent_columns[0] != HWI_NONE ? parent_columns : NULL,
        .column_count = found->column_count,
        .edge_count = found->edge_count,
        .null_count = found->null_count,
        .dangling_count = found->dangling_count,
    };
    return HWI_GIVE(hw_key_info, info, &full, error);
}

hw_status hw_store_task_info(const hw_store *store, uint32_t task, hw_task_info *info,
                             hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(check_number("task", task, store->info->task_count, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_task_info *found = &store->tasks[task];
    const hw_task_info full = {
        .name = described->task_names[task],
        .anchor_table = found->anchor_table,
        .target_column = found->target_column,
        .target_stype = (hw_semantic_type)found->target_stype,
        .obs_time_column = found->obs_time_column,
        .seed_count = found->seed_count,
        .hidden = store->hidden + found->hidden_start,
        .hidden_count = found->hidden_count,
        .context_labels = (hw_context_labels)found->context_labels,
        .is_cell = (found->flags & HWI_TASK_CELL) != 0,
        .exclusive = (found->flags & HWI_TASK_EXCLUSIVE) != 0,
        .given_split = (found->flags & HWI_TASK_GIVEN_SPLIT) != 0,
        .label_times = (found->flags & HWI_TASK_LABEL_TIMES) != 0,
    };
    return HWI_GIVE(hw_task_info, info, &full, error);
}

hw_status hw_store_category(const hw_store *store, uint32_t category, const char **text,
                            size_t *bytes, hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(check_number("category", category, store->info->category_count, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_words *words = &described->categories[category];
    if (words->text == NULL) {
        return hwi_fail(error, HW_BAD_STORE, "metadata.json has no text of category %u (in '%s')",
                        category, store->directory);
    }
    *text = words->text;
    *bytes = words->bytes;
    return HW_OK;
}

/* ---- by name ----------------------------------------------------------------------------- */

/* How many letters of one name become another's, by the shortest way. */
static uint32_t distance(const char *a, const char *b) {
    uint32_t row[COMPARED_BYTES + 1], columns = (uint32_t)strnlen(b, COMPARED_BYTES);
    for (uint32_t j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (uint32_t i = 1; i <= COMPARED_BYTES && a[i - 1] != 0; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= columns; j++) {
            uint32_t changed = diagonal + (a[i - 1] != b[j - 1]);
            uint32_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = changed < shorter ? changed : shorter;
        }
    }
    return row[columns];
}

/* The name that is meant: the nearest, if at most a third of it is another. */
static const char *nearest(const char *name, const char *const *names, uint32_t count) {
    const char *found = NULL;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t letters = distance(name, names[i]);
        if (letters < least && 3 * letters <= strnlen(names[i], COMPARED_BYTES)) {
            least = letters;
            found = names[i];
        }
    }
    return found;
}

static hw_status not_found(const char *owner, const char *what, const char *name,
                           const char *const *names, uint32_t count, hw_error *error) {
    char list[LIST_BYTES + 100] = "", meant[SHOWN_NAME_BYTES + 30] = "";
    const char *near = nearest(name, names, count);
    size_t length = 0;
    uint32_t shown = 0;
    while (shown < count && length < LIST_BYTES) {
        length += (size_t)snprintf(list + length, sizeof list - length, "%s'%.*s'",
                                   shown == 0 ? "" : ", ", SHOWN_NAME_BYTES, names[shown]);
        shown++;
    }
    if (shown < count) {
        snprintf(list + length, sizeof list - length, " and %u more", count - shown);
    }
    if (near != NULL) {
        snprintf(meant, sizeof meant, ", did you mean '%.*s'?", SHOWN_NAME_BYTES, near);
    }
    return hwi_fail(error, HW_BAD_ARGUMENT, "%s has no %s '%.*s'%s%s%s", owner, what,
                    SHOWN_NAME_BYTES, name, meant, count == 0 ? "" : "; it has ", list);
}

/* The last of the names that are equal. */
static hw_status find(const char *owner, const char *what, const char *name,
                      const char *const *names, uint32_t count, uint32_t *index, hw_error *error) {
    if (name == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the name of the %s is NULL", what);
    }
    for (uint32_t i = count; i-- > 0;) {
        if (strcmp(names[i], name) == 0) {
            *index = i;
            return HW_OK;
        }
    }
    return not_found(owner, what, name, names, count, error);
}

hw_status hw_store_find_table(const hw_store *store, const char *name, uint32_t *table,
                              hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(hwi_store_described(store, &described, error));
    return find("the store", "table", name, described->table_names, store->info->table_count, table,
                error);
}

hw_status hw_store_find_column(const hw_store *store, const char *table, const char *name,
                               uint32_t *column, hw_error *error) {
    const struct hwi_described *described = NULL;
    char owner[SHOWN_NAME_BYTES + 10];
    uint32_t number = 0;
    HW_TRY(hw_store_find_table(store, table, &number, error));
    HW_TRY(hwi_store_described(store, &described, error));
    const struct hwi_table_info *info = store->tables[number].info;
    snprintf(owner, sizeof owner, "table '%.*s'", SHOWN_NAME_BYTES, table);
    HW_TRY(find(owner, "column", name, described->column_names + info->column_start,
                info->column_count, &number, error));
    *column = info->column_start + number;
    return HW_OK;
}

hw_status hw_store_find_key(const hw_store *store, const char *name, uint32_t *key,
                            hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(hwi_store_described(store, &described, error));
    return find("the store", "foreign key", name, described->key_names, store->info->key_count, key,
                error);
}

hw_status hw_store_find_task(const hw_store *store, const char *name, uint32_t *task,
                             hw_error *error) {
    const struct hwi_described *described = NULL;
    HW_TRY(hwi_store_described(store, &described, error));
    return find("the store", "task", name, described->task_names, store->info->task_count, task,
                error);
}
