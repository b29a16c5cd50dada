/*
 * The builder's declarations: tables, columns, foreign keys, tasks. They are checked one by one as
 * they come and as a whole by the first write (`freeze`), which also fixes the record layouts.
 */
#define _DEFAULT_SOURCE 1

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sized.h"
#include "builder/builder.h"
#include "builder/publish.h"
#include "format/record_layout.h"

static hw_status copy_text(const char *text, const char *what, char **copy, hw_error *error) {
    if (text == NULL || text[0] == 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the %s is missing or empty", what);
    }
    size_t bytes = strlen(text);
    if (bytes > HWI_MAX_TEXT_BYTES) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the %s has %llu bytes, at most %u", what,
                        (unsigned long long)bytes, HWI_MAX_TEXT_BYTES);
    }
    if (!hwi_is_utf8(text, bytes)) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the %s is not UTF-8: '%.200s'", what, text);
    }
    *copy = malloc(bytes + 1);
    if (*copy == NULL) {
        return hwi_no_memory(error, "a text", bytes + 1);
    }
    memcpy(*copy, text, bytes + 1);
    return HW_OK;
}

static hw_status copy_ids(const uint32_t *ids, uint32_t count, uint32_t **copy, hw_error *error) {
    *copy = malloc(sizeof *ids * ((size_t)count + 1));
    if (*copy == NULL) {
        return hwi_no_memory(error, "a list of columns", sizeof *ids * (uint64_t)count);
    }
    if (count > 0) {
        memcpy(*copy, ids, sizeof *ids * count);
    }
    return HW_OK;
}

/* Room for one more element of a growing array; new elements are zero. */
static hw_status reserve(void **array, uint32_t count, uint32_t *capacity, size_t element_bytes,
                         hw_error *error) {
    if (count < *capacity) {
        return HW_OK;
    }
    uint32_t grown = *capacity > 0 ? *capacity * 2 : 16;
    uint8_t *larger = realloc(*array, element_bytes * grown);
    if (larger == NULL) {
        return hwi_no_memory(error, "the schema", element_bytes * (uint64_t)grown);
    }
    memset(larger + element_bytes * *capacity, 0, element_bytes * (grown - *capacity));
    *array = larger;
    *capacity = grown;
    return HW_OK;
}

static hw_status check_declaring(const hw_builder *b, hw_error *error) {
    if (b->is_failed || b->is_finished || b->is_frozen) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        b->is_failed     ? "an earlier call on this builder failed; start again"
                        : b->is_finished ? "the build is finished"
                                         : "declarations must come before the first write");
    }
    return HW_OK;
}

static hw_status check_limit(uint64_t count, uint32_t limit, const char *what, hw_error *error) {
    if (count > limit) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "more than %u %s", limit, what);
    }
    return HW_OK;
}

hw_status hw_builder_open(const char *directory, const hw_builder_options *options,
                          hw_builder **builder, hw_error *error) {
    hw_builder_options given;
    if (directory == NULL || builder == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "hw_builder_open: an argument is NULL");
    }
    HW_TRY(HWI_TAKE(hw_builder_options, options, &given, error));
    hw_builder *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return hwi_no_memory(error, "a builder", sizeof *b);
    }
    b->stats_until_us = given.stats_until_us;
    hw_status status = copy_text(given.name, "name of a database", &b->name, error);
    if (status == HW_OK) {
        status = hwi_build_directory_create(directory, &b->directory, error);
    }
    if (status == HW_OK) {
        status = hwi_dictionary_open(&b->texts, directory, error);
    }
    if (status != HW_OK) {
        hw_builder_close(b);
        return status;
    }
    *builder = b;
    return HW_OK;
}

static void close_tables(hw_builder *b) {
    for (uint32_t i = 0; i < b->table_count; i++) {
        struct hwi_build_table *table = &b->tables[i];
        free(table->name);
        for (uint32_t part = 0; part < table->key_part_count && table->key_names != NULL; part++) {
            free(table->key_names[part]);
        }
        free(table->key_names);
        hwi_spill_close(&table->rows);
        hwi_spill_close(&table->times);
        hwi_spill_close(&table->key_offsets);
        hwi_spill_close(&table->key_bytes);
        hwi_spill_close(&table->key_hashes);
        hwi_spill_close(&table->child_counts);
    }
    free(b->tables);
}

void hw_builder_close(hw_builder *b) {
    if (b == NULL) {
        return;
    }
    close_tables(b);
    for (uint32_t i = 0; i < b->column_count; i++) {
        free(b->columns[i].name);
        free(b->columns[i].description);
        hwi_dictionary_close(&b->columns[i].categories);
    }
    for (uint32_t i = 0; i < b->key_count; i++) {
        free(b->keys[i].columns);
        hwi_spill_close(&b->keys[i].parents);
    }
    for (uint32_t i = 0; i < b->task_count; i++) {
        free(b->tasks[i].name);
        free(b->tasks[i].hidden);
    }
    free(b->columns);
    free(b->keys);
    free(b->tasks);
    free(b->files);
    free(b->embedder);
    free(b->name);
    hwi_dictionary_close(&b->texts);
    for (int i = 0; i < 3; i++) {
        hwi_writer_abandon(&b->vectors[i]);
    }
    if (b->directory != NULL && !b->is_finished && !b->is_published) {
        hwi_build_directory_remove(b->directory);
    }
    free(b->directory);
    free(b);
}

hw_status hw_builder_add_table(hw_builder *b, const hw_table_spec *spec, uint32_t *index,
                               hw_error *error) {
    hw_table_spec given;
    HW_TRY(HWI_TAKE(hw_table_spec, spec, &given, error));
    HW_TRY(hwi_check_reserved("hw_table_spec", given.reserved, sizeof given.reserved, error));
    HW_TRY(check_declaring(b, error));
    if (b->column_count > 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "table '%s' is declared after the first column",
                        given.name != NULL ? given.name : "");
    }
    HW_TRY(check_limit((uint64_t)b->table_count + 1, HWI_MAX_TABLES, "tables", error));
    for (uint32_t i = 0; i < b->table_count && given.name != NULL; i++) {
        if (strcmp(b->tables[i].name, given.name) == 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "two tables are called '%s'", given.name);
        }
    }
    HW_TRY(
        reserve((void **)&b->tables, b->table_count, &b->table_capacity, sizeof *b->tables, error));
    struct hwi_build_table *table = &b->tables[b->table_count];
    HW_TRY(copy_text(given.name, "name of a table", &table->name, error));
    table->key_part_count = given.key_part_count;
    table->info.flags = (given.temporal ? HWI_TABLE_TEMPORAL : 0) |
                        (given.null_time_visible ? HWI_TABLE_NULL_TIME_VISIBLE : 0) |
                        (given.days ? HWI_TABLE_DAYS : 0) |
                        (given.key_part_count > 0 ? HWI_TABLE_KEYED : 0);
    table->info.temporal_column = HWI_NONE;
    *index = b->table_count++;
    return HW_OK;
}

static hw_status check_column(hw_builder *b, uint32_t table, const hw_column_spec *given,
                              hw_error *error) {
    if (table >= b->table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "a column names table %u of %u", table,
                        b->table_count);
    }
    const struct hwi_build_table *owner = &b->tables[table];
    const char *name = given->name != NULL ? given->name : "";
    if (b->key_count > 0 || b->task_count > 0 ||
        (b->column_count > 0 && b->columns[b->column_count - 1].info.table > table)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "column '%s.%s' is declared out of order: columns come table by table, "
                        "before keys and tasks",
                        owner->name, name);
    }
    if ((unsigned)given->stype > HW_IGNORED || (unsigned)given->known > HW_KNOWN_OFFSET) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "column '%s.%s' has type %u and known_at %u",
                        owner->name, name, (unsigned)given->stype, (unsigned)given->known);
    }
    if (given->temporal &&
        (!(owner->info.flags & HWI_TABLE_TEMPORAL) || owner->info.temporal_column != HWI_NONE ||
         (given->stype != HW_TIMESTAMP && given->stype != HW_IGNORED))) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "column '%s.%s' cannot be the temporal column: the table is not temporal, "
                        "has one already, or the column is not a timestamp",
                        owner->name, name);
    }
    for (uint32_t i = owner->info.column_start; i < b->column_count; i++) {
        if (b->columns[i].info.table == table && strcmp(b->columns[i].name, name) == 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "table '%s' has two columns '%s'", owner->name,
                            name);
        }
    }
    return HW_OK;
}

/* Appends a column of a table or a task; the caller has checked it. */
static hw_status append_column(hw_builder *b, const char *name, uint8_t stype,
                               struct hwi_build_column **column, hw_error *error) {
    HW_TRY(check_limit((uint64_t)b->column_count + 1, HWI_MAX_COLUMNS, "columns", error));
    HW_TRY(reserve((void **)&b->columns, b->column_count, &b->column_capacity, sizeof *b->columns,
                   error));
    *column = &b->columns[b->column_count];
    HW_TRY(copy_text(name, "name of a column", &(*column)->name, error));
    (*column)->info.stype = stype;
    (*column)->info.table = HWI_NONE;
    (*column)->info.task = HWI_NONE;
    (*column)->info.null_bit = HWI_NONE;
    (*column)->info.lane_offset = HWI_NONE;
    (*column)->info.known_column = HWI_NONE;
    b->column_count++;
    return HW_OK;
}

hw_status hw_builder_add_column(hw_builder *b, uint32_t table, const hw_column_spec *spec,
                                uint32_t *index, hw_error *error) {
    hw_column_spec given;
    struct hwi_build_column *column = NULL;
    HW_TRY(HWI_TAKE(hw_column_spec, spec, &given, error));
    HW_TRY(check_declaring(b, error));
    HW_TRY(check_column(b, table, &given, error));
    HW_TRY(append_column(b, given.name, (uint8_t)given.stype, &column, error));
    if (given.description != NULL && given.description[0] != 0) {
        HW_TRY(hwi_builder_latch(b, copy_text(given.description, "description of a column",
                                              &column->description, error)));
    }
    struct hwi_table_info *owner = &b->tables[table].info;
    *index = b->column_count - 1;
    column->info.table = table;
    column->info.known_kind = (uint8_t)given.known;
    if (given.known == HW_KNOWN_COLUMN) {
        column->info.known_column = given.known_column;
    }
    if (given.known == HW_KNOWN_COLUMN || given.known == HW_KNOWN_OFFSET) {
        column->info.known_offset_us = given.known_offset_us;
    }
    if (given.stype != HW_IGNORED || given.stored) {
        column->info.null_bit = 0; /* stored; freeze gives the bit */
    }
    column->is_temporal = given.temporal != 0;
    if (given.temporal) {
        owner->temporal_column = *index;
    }
    if (owner->column_count == 0) {
        owner->column_start = *index;
    }
    owner->column_count++;
    b->table_column_count = b->column_count;
    return HW_OK;
}

hw_status hw_builder_add_key(hw_builder *b, const hw_key_spec *spec, uint32_t *index,
                             hw_error *error) {
    hw_key_spec given;
    HW_TRY(HWI_TAKE(hw_key_spec, spec, &given, error));
    HW_TRY(hwi_check_reserved("hw_key_spec", given.reserved, sizeof given.reserved, error));
    HW_TRY(check_declaring(b, error));
    if (b->task_count > 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "a foreign key is declared after the first task");
    }
    if (given.child_table >= b->table_count || given.parent_table >= b->table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "a foreign key leads from table %u to %u of %u",
                        given.child_table, given.parent_table, b->table_count);
    }
    struct hwi_table_info *child = &b->tables[given.child_table].info;
    struct hwi_table_info *parent = &b->tables[given.parent_table].info;
    const char *child_name = b->tables[given.child_table].name;
    if (b->key_count > 0 && b->keys[b->key_count - 1].info.child_table > given.child_table) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "a foreign key of table '%s' comes after keys of later tables", child_name);
    }
    if (given.column_count == 0 || given.columns == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "a foreign key of table '%s' has no columns",
                        child_name);
    }
    for (uint32_t i = 0; i < given.column_count; i++) {
        if (given.columns[i] - child->column_start >= child->column_count) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "a foreign key of table '%s' names column %u, which it does not have",
                            child_name, given.columns[i]);
        }
    }
    HW_TRY(check_limit((uint64_t)child->key_count + 1, HWI_MAX_TABLE_KEYS,
                       "foreign keys in one table", error));
    HW_TRY(check_limit((uint64_t)parent->child_slot_count + 1, HWI_MAX_TABLE_KEYS,
                       "foreign keys that point at one table", error));
    HW_TRY(reserve((void **)&b->keys, b->key_count, &b->key_capacity, sizeof *b->keys, error));
    struct hwi_build_key *key = &b->keys[b->key_count];
    HW_TRY(copy_ids(given.columns, given.column_count, &key->columns, error));
    key->info.child_table = given.child_table;
    key->info.parent_table = given.parent_table;
    key->info.column_count = given.column_count;
    key->info.parent_slot = child->key_count++;
    key->info.child_slot = parent->child_slot_count++;
    if (key->info.parent_slot == 0) {
        child->key_start = b->key_count;
    }
    *index = b->key_count++;
    return HW_OK;
}

static int is_target_stype(unsigned stype) {
    return stype == HW_NUMERICAL || stype == HW_TIMESTAMP || stype == HW_BOOLEAN ||
           stype == HW_CATEGORICAL;
}

static hw_status check_task(const hw_builder *b, const hw_task_spec *given, hw_error *error) {
    const char *name = given->name != NULL ? given->name : "";
    if (given->anchor_table >= b->table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "task '%s' has anchor table %u of %u", name,
                        given->anchor_table, b->table_count);
    }
    const struct hwi_table_info *anchor = &b->tables[given->anchor_table].info;
    unsigned stype = (unsigned)given->target_stype;
    if (given->target_column != UINT32_MAX) {
        uint32_t at = given->target_column - anchor->column_start;
        if (at >= anchor->column_count) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "the target of task '%s' is not a column of its anchor table '%s'",
                            name, b->tables[given->anchor_table].name);
        }
        stype = b->columns[given->target_column].info.stype;
    }
    if (!is_target_stype(stype)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "the target of task '%s' has type %u, expected numerical, timestamp, "
                        "boolean or categorical",
                        name, stype);
    }
    if ((given->hidden == NULL && given->hidden_count > 0) ||
        (given->categories == NULL && given->category_count > 0)) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "%s of task '%s' is NULL, but is to have entries",
                        given->hidden == NULL && given->hidden_count > 0 ? "hidden" : "categories",
                        name);
    }
    for (uint32_t i = 0; i < given->hidden_count; i++) {
        if (given->hidden[i] >= b->table_column_count) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "task '%s' hides column %u of %u", name,
                            given->hidden[i], b->table_column_count);
        }
    }
    if ((unsigned)given->context_labels > HW_LABELS_ALL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "task '%s' has context_labels %u", name,
                        (unsigned)given->context_labels);
    }
    for (uint32_t i = 0; i < b->task_count; i++) {
        if (strcmp(b->tasks[i].name, name) == 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "two tasks are called '%s'", name);
        }
    }
    return check_limit((uint64_t)b->task_count + 1, HWI_MAX_TASKS, "tasks", error);
}

/* obs_time and target of a derived task, as the last two columns of the store. */
static hw_status add_task_columns(hw_builder *b, const hw_task_spec *given,
                                  struct hwi_task_info *info, hw_error *error) {
    struct hwi_build_column *column = NULL;
    HW_TRY(append_column(b, "obs_time", HW_TIMESTAMP, &column, error));
    column->info.task = b->task_count;
    HW_TRY(append_column(b, given->target_name, (uint8_t)given->target_stype, &column, error));
    column->info.task = b->task_count;
    info->obs_time_column = b->column_count - 2;
    info->target_column = b->column_count - 1;
    info->target_stype = (uint8_t)given->target_stype;
    if (given->target_stype == HW_CATEGORICAL) {
        HW_TRY(hw_builder_set_categories(b, info->target_column, given->categories,
                                         given->category_count, error));
    }
    return HW_OK;
}

hw_status hw_builder_add_task(hw_builder *b, const hw_task_spec *spec, uint32_t *index,
                              hw_error *error) {
    hw_task_spec given;
    HW_TRY(HWI_TAKE(hw_task_spec, spec, &given, error));
    HW_TRY(hwi_check_reserved("hw_task_spec", given.reserved, sizeof given.reserved, error));
    HW_TRY(check_declaring(b, error));
    HW_TRY(check_task(b, &given, error));
    HW_TRY(reserve((void **)&b->tasks, b->task_count, &b->task_capacity, sizeof *b->tasks, error));
    struct hwi_build_task *task = &b->tasks[b->task_count];
    struct hwi_task_info *info = &task->info;
    HW_TRY(copy_text(given.name, "name of a task", &task->name, error));
    hw_status status = copy_ids(given.hidden, given.hidden_count, &task->hidden, error);
    info->anchor_table = given.anchor_table;
    info->hidden_count = given.hidden_count;
    info->context_labels = (uint8_t)given.context_labels;
    info->name_hash = hw_hash64(task->name, strlen(task->name), 0);
    info->flags = (given.exclusive ? HWI_TASK_EXCLUSIVE : 0) |
                  (given.given_split ? HWI_TASK_GIVEN_SPLIT : 0) |
                  (given.label_times ? HWI_TASK_LABEL_TIMES : 0);
    if (status == HW_OK && given.target_column != UINT32_MAX) {
        info->flags |= HWI_TASK_CELL;
        info->target_column = given.target_column;
        info->obs_time_column = HWI_NONE;
        info->target_stype = b->columns[given.target_column].info.stype;
    } else if (status == HW_OK) {
        status = add_task_columns(b, &given, info, error);
    }
    uint32_t added = b->task_count++; /* owned from here on, whole or not */
    if (status == HW_OK) {
        *index = added;
    }
    return hwi_builder_latch(b, status);
}

hw_status hw_builder_set_categories(hw_builder *b, uint32_t column, const char *const *categories,
                                    uint32_t count, hw_error *error) {
    HW_TRY(check_declaring(b, error));
    if (column >= b->column_count || b->columns[column].info.stype != HW_CATEGORICAL ||
        b->columns[column].has_categories) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "categories for column %u, which is not categorical or has them already",
                        column);
    }
    struct hwi_build_column *target = &b->columns[column];
    hw_status status = hwi_dictionary_open(&target->categories, b->directory, error);
    target->has_categories = 1;
    for (uint32_t i = 0; i < count && status == HW_OK; i++) {
        uint32_t index = 0;
        size_t bytes = strlen(categories[i]);
        if (bytes > HWI_MAX_TEXT_BYTES) {
            status = hwi_fail(error, HW_BAD_ARGUMENT, "a category of column '%s' has %llu bytes",
                              target->name, (unsigned long long)bytes);
            break;
        }
        if (!hwi_is_utf8(categories[i], bytes)) {
            status = hwi_fail(error, HW_BAD_ARGUMENT,
                              "category %u of column '%s' is not UTF-8: '%.200s'", i, target->name,
                              categories[i]);
            break;
        }
        status =
            hwi_dictionary_add(&target->categories, categories[i], (uint32_t)bytes, &index, error);
        if (status == HW_OK && index != i) {
            status = hwi_fail(error, HW_BAD_ARGUMENT,
                              "category '%.200s' of column '%s' is given "
                              "twice",
                              categories[i], target->name);
        }
    }
    hwi_dictionary_seal(&target->categories);
    return hwi_builder_latch(b, status);
}

/* ---- freeze ------------------------------------------------------------------------------ */

static hw_status check_known(const hw_builder *b, uint32_t index, hw_error *error) {
    const struct hwi_build_column *column = &b->columns[index];
    if (column->info.known_kind != HWI_KNOWN_COLUMN) {
        return HW_OK;
    }
    uint32_t known = column->info.known_column;
    const struct hwi_build_column *source =
        known < b->table_column_count ? &b->columns[known] : NULL;
    if (source == NULL || source->info.table != column->info.table ||
        source->info.null_bit == HWI_NONE ||
        (source->info.stype != HW_TIMESTAMP && source->info.stype != HW_IGNORED)) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "known_at of column '%s.%s' names column %u, expected a timestamp (or a "
                        "stored ignored column) of the same table",
                        b->tables[column->info.table].name, column->name, known);
    }
    return HW_OK;
}

static hw_status freeze_columns(hw_builder *b, hw_error *error) {
    uint64_t category_count = 0;
    for (uint32_t i = 0; i < b->column_count; i++) {
        struct hwi_build_column *column = &b->columns[i];
        if (column->info.table != HWI_NONE) {
            HW_TRY(check_known(b, i, error));
        }
        if (column->info.stype != HW_CATEGORICAL) {
            continue;
        }
        if (!column->has_categories) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "categorical column '%s' has no categories",
                            column->name);
        }
        column->info.category_start = (uint32_t)category_count;
        column->info.category_count = column->categories.count;
        column->stats.category_start = column->info.category_start;
        column->stats.category_count = column->info.category_count;
        category_count += column->info.category_count;
        HW_TRY(check_limit(category_count, HWI_NONE - 1, "categories", error));
    }
    b->category_count = (uint32_t)category_count;
    return HW_OK;
}

static void freeze_keys(hw_builder *b) {
    for (uint32_t k = 0; k < b->key_count; k++) {
        struct hwi_build_key *key = &b->keys[k];
        for (uint32_t i = 0; i < key->info.column_count; i++) {
            const struct hwi_column_info *column = &b->columns[key->columns[i]].info;
            key->info.known_late |= column->known_kind != HWI_KNOWN_CREATION;
            key->is_never |= column->known_kind == HWI_KNOWN_NEVER;
        }
        if (key->info.known_late) {
            b->tables[key->info.parent_table].info.flags |= HWI_TABLE_CHILD_TIMES;
        }
    }
}

/* Spilled rows: 8 bytes per number or time, 4 per other lane, then null bits. */
static void lay_out_spill(hw_builder *b, struct hwi_build_table *table) {
    uint32_t bytes = 0, stored_count = 0;
    for (uint32_t i = 0; i < table->info.column_count; i++) {
        struct hwi_build_column *column = &b->columns[table->info.column_start + i];
        if (column->info.null_bit != HWI_NONE) {
            uint32_t lane_bytes = hwi_layout_lane_bytes(column->info.stype);
            column->spill_offset = bytes;
            bytes += column->info.stype == HW_NUMERICAL ? 8 : lane_bytes;
            stored_count++;
        }
    }
    table->spill_null_offset = bytes;
    table->spill_row_bytes = bytes + (stored_count + 7) / 8;
}

static hw_status freeze_tables(hw_builder *b, hw_error *error) {
    uint32_t column_end = 0, key_end = 0;
    for (uint32_t t = 0; t < b->table_count; t++) {
        struct hwi_build_table *table = &b->tables[t];
        if (table->info.column_count == 0) {
            table->info.column_start = column_end;
        }
        if (table->info.key_count == 0) {
            table->info.key_start = key_end;
        }
        column_end = table->info.column_start + table->info.column_count;
        key_end = table->info.key_start + table->info.key_count;
        if ((table->info.flags & HWI_TABLE_TEMPORAL) && table->info.temporal_column == HWI_NONE) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "table '%s' is temporal but no column of it is the temporal one",
                            table->name);
        }
        struct hwi_column_info *columns =
            calloc((size_t)table->info.column_count + 1, sizeof *columns);
        if (columns == NULL) {
            return hwi_no_memory(error, "a record layout", table->info.column_count);
        }
        for (uint32_t i = 0; i < table->info.column_count; i++) {
            columns[i] = b->columns[table->info.column_start + i].info;
        }
        uint64_t record_bytes = hwi_layout_record(&table->info, columns);
        for (uint32_t i = 0; i < table->info.column_count; i++) {
            b->columns[table->info.column_start + i].info = columns[i];
        }
        free(columns);
        if (record_bytes > HWI_MAX_RECORD_BYTES) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "a row of table '%s' takes %llu bytes, at most %u", table->name,
                            (unsigned long long)record_bytes, HWI_MAX_RECORD_BYTES);
        }
        lay_out_spill(b, table);
    }
    return HW_OK;
}

hw_status hwi_builder_start_write(hw_builder *b, hw_error *error) {
    if (b->is_failed || b->is_finished) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        b->is_failed ? "an earlier call on this builder failed; start again"
                                     : "the build is finished");
    }
    if (!b->is_frozen) {
        HW_TRY(freeze_columns(b, error));
        freeze_keys(b);
        HW_TRY(freeze_tables(b, error));
        b->is_frozen = 1;
    }
    return HW_OK;
}

hw_status hwi_builder_latch(hw_builder *b, hw_status status) {
    b->is_failed |= status != HW_OK;
    return status;
}
