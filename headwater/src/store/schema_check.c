/*
 * The schema's proof. After it every count, range, slot, lane and name of schema.bin may be used
 * without a check: tables partition the rows, columns and keys are runs of their tables, slots are
 * numbered as the builder numbers them, records are laid out as format/record_layout.c lays them
 * out, categories are consecutive blocks. O(columns + keys), no row is read.
 */
#include "store/schema_check.h"

#include <math.h>
#include <stdlib.h>

#include "format/file_names.h"
#include "format/record_layout.h"

#define ALL_TABLE_FLAGS                                                                            \
    (HWI_TABLE_TEMPORAL | HWI_TABLE_NULL_TIME_VISIBLE | HWI_TABLE_DAYS | HWI_TABLE_CHILD_TIMES |   \
     HWI_TABLE_KEYED | HWI_TABLE_TIME_IN_LANE)
#define ALL_TASK_FLAGS                                                                             \
    (HWI_TASK_CELL | HWI_TASK_EXCLUSIVE | HWI_TASK_GIVEN_SPLIT | HWI_TASK_LABEL_TIMES)

static hw_status bad(const struct hwi_schema *schema, const char *section, uint32_t index,
                     const char *what, hw_error *error) {
    return hwi_fail(error, HW_BAD_STORE, "%s (in '%s', section %s, entry %u)", what, schema->path,
                    section, index);
}

static int has_name(const struct hwi_schema *schema, struct hwi_name name) {
    return name.offset <= schema->names_bytes && name.bytes <= schema->names_bytes - name.offset;
}

static hw_status check_info(const struct hwi_schema *schema, hw_error *error) {
    const struct hwi_store_info *info = schema->info;
    if (info->table_count > HWI_MAX_TABLES || info->column_count > HWI_MAX_COLUMNS ||
        info->task_count > HWI_MAX_TASKS || info->row_count > HWI_MAX_ROWS || info->text_dim == 0 ||
        info->text_dim > HWI_MAX_TEXT_DIM || info->text_count >= HWI_NONE ||
        info->category_count >= HWI_NONE) {
        return bad(schema, "STORE", 0, "a count is past its limit", error);
    }
    if (!has_name(schema, info->name) || !has_name(schema, info->embedder)) {
        return bad(schema, "STORE", 0, "a name lies outside of NAMES", error);
    }
    if (!isfinite(info->time_mean_us) || !isfinite(info->time_std_us) || info->time_std_us < 0) {
        return bad(schema, "STORE", 0, "the moments of times are not finite", error);
    }
    return HW_OK;
}

static hw_status check_table(const struct hwi_schema *schema, uint32_t t, hw_error *error) {
    const struct hwi_table_info *table = &schema->tables[t];
    int is_temporal = (table->flags & HWI_TABLE_TEMPORAL) != 0;
    uint32_t timed_end = table->timed_start + table->timed_count;
    if (!has_name(schema, table->name) || (table->flags & ~(uint32_t)ALL_TABLE_FLAGS) != 0) {
        return bad(schema, "TABLES", t, "a name lies outside of NAMES, or an unknown flag", error);
    }
    if (table->key_count > HWI_MAX_TABLE_KEYS || table->child_slot_count > HWI_MAX_TABLE_KEYS ||
        table->edge_count > HWI_MAX_TABLE_EDGES || table->record_bytes == 0 ||
        table->record_bytes > HWI_MAX_RECORD_BYTES) {
        return bad(schema, "TABLES", t, "a count is past its limit", error);
    }
    if (is_temporal != (table->temporal_column != HWI_NONE) ||
        (is_temporal && table->temporal_column - table->column_start >= table->column_count)) {
        return bad(schema, "TABLES", t, "the temporal column is not a column of the table", error);
    }
    /* Rows with time are a prefix, or a suffix where rows without time come first. */
    if (table->timed_start > table->row_count ||
        table->timed_count > table->row_count - table->timed_start ||
        (table->timed_start > 0 && timed_end != table->row_count) ||
        (!is_temporal && timed_end != 0)) {
        return bad(schema, "TABLES", t, "the rows with time lie outside of the table", error);
    }
    return HW_OK;
}

/* Rows, columns and keys of the tables are runs, one after the other, with nothing left over. */
static hw_status check_tables(const struct hwi_schema *schema, uint32_t *table_columns,
                              hw_error *error) {
    uint32_t row = 0, column = 0, key = 0;
    for (uint32_t t = 0; t < schema->info->table_count; t++) {
        const struct hwi_table_info *table = &schema->tables[t];
        HW_TRY(check_table(schema, t, error));
        if (table->row_start != row || table->row_count > schema->info->row_count - row ||
            table->column_start != column ||
            table->column_count > schema->info->column_count - column || table->key_start != key ||
            table->key_count > schema->info->key_count - key) {
            return bad(schema, "TABLES", t, "rows, columns or keys do not follow those before",
                       error);
        }
        row += table->row_count;
        column += table->column_count;
        key += table->key_count;
    }
    if (row != schema->info->row_count || key != schema->info->key_count) {
        return bad(schema, "TABLES", schema->info->table_count, "rows or keys are left over",
                   error);
    }
    *table_columns = column;
    return HW_OK;
}

static hw_status check_known(const struct hwi_schema *schema, uint32_t c, hw_error *error) {
    const struct hwi_column_info *column = &schema->columns[c];
    const struct hwi_table_info *table = &schema->tables[column->table];
    if (column->known_kind != HWI_KNOWN_COLUMN) {
        return HW_OK;
    }
    if (column->known_column - table->column_start >= table->column_count) {
        return bad(schema, "COLUMNS", c, "known_column is not a column of the table", error);
    }
    const struct hwi_column_info *source = &schema->columns[column->known_column];
    if (source->null_bit == HWI_NONE ||
        (source->stype != HW_TIMESTAMP && source->stype != HW_IGNORED)) {
        return bad(schema, "COLUMNS", c, "known_column holds no times", error);
    }
    return HW_OK;
}

static hw_status check_columns(const struct hwi_schema *schema, uint32_t table_columns,
                               hw_error *error) {
    uint32_t category = 0, table = 0;
    for (uint32_t c = 0; c < schema->info->column_count; c++) {
        const struct hwi_column_info *column = &schema->columns[c];
        if (!has_name(schema, column->name) || column->stype > HW_IGNORED ||
            column->known_kind > HWI_KNOWN_OFFSET || !isfinite(column->mean) ||
            !isfinite(column->std) || column->std < 0) {
            return bad(schema, "COLUMNS", c, "a name, type or moment is out of range", error);
        }
        int is_categorical = column->stype == HW_CATEGORICAL;
        if (is_categorical ? (column->category_start != category ||
                              column->category_count > schema->info->category_count - category)
                           : (column->category_start | column->category_count) != 0) {
            return bad(schema, "COLUMNS", c, "categories do not follow those before", error);
        }
        category += column->category_count;
        if (c < table_columns) {
            while (c - schema->tables[table].column_start >= schema->tables[table].column_count) {
                table++;
            }
            if (column->table != table || column->task != HWI_NONE) {
                return bad(schema, "COLUMNS", c, "the column belongs to another table", error);
            }
            HW_TRY(check_known(schema, c, error));
        } else if (column->table != HWI_NONE || column->task >= schema->info->task_count ||
                   column->null_bit != HWI_NONE || column->lane_offset != HWI_NONE) {
            return bad(schema, "COLUMNS", c, "the column belongs to no table and no task", error);
        }
    }
    if (category != schema->info->category_count) {
        return bad(schema, "COLUMNS", schema->info->column_count, "categories are left over",
                   error);
    }
    return HW_OK;
}

/* The record layout is computed again and must come out the same. */
static hw_status check_layout(const struct hwi_schema *schema, uint32_t t, hw_error *error) {
    struct hwi_table_info table = schema->tables[t];
    const struct hwi_column_info *found = schema->columns + table.column_start;
    struct hwi_column_info *columns = calloc((size_t)table.column_count + 1, sizeof *columns);
    if (columns == NULL) {
        return hwi_no_memory(error, "a record layout", table.column_count * sizeof *columns);
    }
    for (uint32_t i = 0; i < table.column_count; i++) {
        columns[i] = found[i];
    }
    uint64_t record_bytes = hwi_layout_record(&table, columns);
    int is_equal = record_bytes == schema->tables[t].record_bytes &&
                   table.child_offset == schema->tables[t].child_offset &&
                   table.null_offset == schema->tables[t].null_offset;
    for (uint32_t i = 0; i < table.column_count; i++) {
        is_equal &= columns[i].null_bit == found[i].null_bit &&
                    columns[i].lane_offset == found[i].lane_offset &&
                    (found[i].null_bit != HWI_NONE || found[i].stype == HW_IGNORED);
    }
    free(columns);
    if (!is_equal) {
        return bad(schema, "TABLES", t, "lanes do not lie where the format puts them", error);
    }
    if (table.flags & HWI_TABLE_TIME_IN_LANE) {
        const struct hwi_column_info *temporal =
            found + (table.temporal_column - table.column_start);
        if (!(table.flags & HWI_TABLE_TEMPORAL) || temporal->lane_offset == HWI_NONE ||
            hwi_layout_lane_bytes(temporal->stype) != sizeof(int64_t)) {
            return bad(schema, "TABLES", t, "the rows' times do not stand in their records", error);
        }
    } else if (table.time_offset_us != 0) {
        return bad(schema, "TABLES", t, "an offset of times without times", error);
    }
    return HW_OK;
}

static hw_status check_key(const struct hwi_schema *schema, uint32_t k, uint32_t child,
                           uint32_t *child_slots, uint64_t *edges, hw_error *error) {
    const struct hwi_key_info *key = &schema->keys[k];
    const struct hwi_table_info *table = &schema->tables[child];
    if (key->child_table != child || key->parent_table >= schema->info->table_count ||
        key->parent_slot != k - table->key_start ||
        key->child_slot != child_slots[key->parent_table]) {
        return bad(schema, "KEYS", k, "tables or slots are not those of its place", error);
    }
    const struct hwi_table_info *parent = &schema->tables[key->parent_table];
    child_slots[key->parent_table]++;
    edges[key->parent_table] += key->edge_count;
    if (key->edge_count > table->row_count || key->dangling_count > table->row_count ||
        key->null_count > table->row_count || key->known_late > 1 ||
        (key->known_late && !(parent->flags & HWI_TABLE_CHILD_TIMES))) {
        return bad(schema, "KEYS", k, "a count is past the table's rows, or times are missing",
                   error);
    }
    if (key->column_count == 0 || key->column_start > schema->key_column_count ||
        key->column_count > schema->key_column_count - key->column_start) {
        return bad(schema, "KEYS", k, "its columns lie outside of KEY_COLUMNS", error);
    }
    for (uint32_t i = 0; i < key->column_count; i++) {
        uint32_t column = schema->key_columns[key->column_start + i];
        if (column - table->column_start >= table->column_count) {
            return bad(schema, "KEY_COLUMNS", key->column_start + i,
                       "the column is not of the child table", error);
        }
    }
    return HW_OK;
}

static hw_status check_keys(const struct hwi_schema *schema, hw_error *error) {
    uint32_t table_count = schema->info->table_count;
    uint32_t *child_slots = calloc((size_t)table_count + 1, sizeof *child_slots);
    uint64_t *edges = calloc((size_t)table_count + 1, sizeof *edges);
    hw_status status = HW_OK;
    if (child_slots == NULL || edges == NULL) {
        status = hwi_no_memory(error, "slots of keys", table_count * sizeof *edges);
    }
    for (uint32_t t = 0; t < table_count && status == HW_OK; t++) {
        const struct hwi_table_info *table = &schema->tables[t];
        for (uint32_t i = 0; i < table->key_count && status == HW_OK; i++) {
            status = check_key(schema, table->key_start + i, t, child_slots, edges, error);
        }
    }
    for (uint32_t t = 0; t < table_count && status == HW_OK; t++) {
        if (child_slots[t] != schema->tables[t].child_slot_count ||
            edges[t] != schema->tables[t].edge_count) {
            status =
                bad(schema, "TABLES", t, "child slots or edges are not those of the keys", error);
        }
    }
    free(child_slots);
    free(edges);
    return status;
}

static hw_status check_target(const struct hwi_schema *schema, uint32_t k, uint32_t *next_column,
                              hw_error *error) {
    const struct hwi_task_info *task = &schema->tasks[k];
    const struct hwi_table_info *anchor = &schema->tables[task->anchor_table];
    if (task->flags & HWI_TASK_CELL) {
        if (task->target_column - anchor->column_start >= anchor->column_count ||
            task->obs_time_column != HWI_NONE) {
            return bad(schema, "TASKS", k, "the target is not a column of the anchor table", error);
        }
    } else {
        uint32_t obs_time = *next_column;
        if (schema->info->column_count - obs_time < 2 || task->obs_time_column != obs_time ||
            task->target_column != obs_time + 1 || schema->columns[obs_time].task != k ||
            schema->columns[obs_time + 1].task != k ||
            schema->columns[obs_time].stype != HW_TIMESTAMP) {
            return bad(schema, "TASKS", k, "its own columns are not in their place", error);
        }
        *next_column += 2;
    }
    uint8_t stype = schema->columns[task->target_column].stype;
    if (task->target_stype != stype || (stype != HW_NUMERICAL && stype != HW_TIMESTAMP &&
                                        stype != HW_BOOLEAN && stype != HW_CATEGORICAL)) {
        return bad(schema, "TASKS", k, "the target has a wrong type", error);
    }
    return HW_OK;
}

static hw_status check_tasks(const struct hwi_schema *schema, uint32_t table_columns,
                             hw_error *error) {
    uint32_t next_column = table_columns;
    for (uint32_t k = 0; k < schema->info->task_count; k++) {
        const struct hwi_task_info *task = &schema->tasks[k];
        if (!has_name(schema, task->name) || (task->flags & ~(uint32_t)ALL_TASK_FLAGS) != 0 ||
            task->anchor_table >= schema->info->table_count ||
            task->context_labels > HW_LABELS_ALL || task->seed_count == HWI_NONE ||
            task->name_hash != hw_hash64(schema->names + task->name.offset, task->name.bytes, 0)) {
            return bad(schema, "TASKS", k, "a name, flag or table is out of range", error);
        }
        HW_TRY(check_target(schema, k, &next_column, error));
        if (task->hidden_start > schema->hidden_count ||
            task->hidden_count > schema->hidden_count - task->hidden_start) {
            return bad(schema, "TASKS", k, "its columns lie outside of HIDDEN", error);
        }
        for (uint32_t i = 0; i < task->hidden_count; i++) {
            if (schema->hidden[task->hidden_start + i] >= table_columns) {
                return bad(schema, "HIDDEN", task->hidden_start + i, "there is no such column",
                           error);
            }
        }
    }
    if (next_column != schema->info->column_count) {
        return bad(schema, "COLUMNS", next_column, "the column belongs to no table and no task",
                   error);
    }
    return HW_OK;
}

static hw_status check_files(const struct hwi_schema *schema, hw_error *error) {
    const struct hwi_store_info *info = schema->info;
    uint64_t expected = (uint64_t)info->table_count + info->task_count + 7;
    if (schema->file_count != expected) {
        return hwi_fail(error, HW_BAD_STORE,
                        "%llu files are listed, expected %llu (in '%s', "
                        "section FILES)",
                        (unsigned long long)schema->file_count, (unsigned long long)expected,
                        schema->path);
    }
    for (uint32_t i = 0; i < expected; i++) {
        uint32_t kind = 0, index = 0;
        if (!hwi_file_at(info->table_count, info->task_count, i, &kind, &index) ||
            schema->files[i].kind != kind || schema->files[i].index != index) {
            return bad(schema, "FILES", i, "files are not in their order", error);
        }
    }
    return HW_OK;
}

hw_status hwi_schema_check(const struct hwi_schema *schema, hw_error *error) {
    uint32_t table_columns = 0;
    HW_TRY(check_info(schema, error));
    HW_TRY(check_tables(schema, &table_columns, error));
    HW_TRY(check_columns(schema, table_columns, error));
    for (uint32_t t = 0; t < schema->info->table_count; t++) {
        HW_TRY(check_layout(schema, t, error));
    }
    HW_TRY(check_keys(schema, error));
    HW_TRY(check_tasks(schema, table_columns, error));
    return check_files(schema, error);
}
