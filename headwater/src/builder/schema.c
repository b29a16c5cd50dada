/*
 * schema.bin: the declarations and what was counted, as sections of fixed-width structs. All names
 * lie one after the other in NAMES, in the order database, embedder, tables, columns, tasks.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/builder.h"

#define SCHEMA_SECTIONS 9u

/* NAMES while it is being filled. */
struct names {
    char *bytes;
    uint64_t count, capacity;
};

static struct hwi_name add_name(struct names *names, const char *name) {
    size_t bytes = strlen(name);
    struct hwi_name place = {(uint32_t)names->count, (uint32_t)bytes};
    memcpy(names->bytes + names->count, name, bytes);
    names->count += bytes;
    return place;
}

static uint64_t count_name_bytes(const hw_builder *b) {
    uint64_t bytes = strlen(b->name) + strlen(b->embedder);
    for (uint32_t i = 0; i < b->table_count; i++) {
        bytes += strlen(b->tables[i].name);
    }
    for (uint32_t i = 0; i < b->column_count; i++) {
        bytes += strlen(b->columns[i].name);
    }
    for (uint32_t i = 0; i < b->task_count; i++) {
        bytes += strlen(b->tasks[i].name);
    }
    return bytes;
}

/* Of the times of all columns: of what is known by stats_until, unless these are all equal. */
static void take_time_moments(const hw_builder *b, struct hwi_store_info *info) {
    struct hwi_moments known = {0}, late = {0};
    for (uint32_t i = 0; i < b->column_count; i++) {
        if (b->columns[i].info.stype == HW_TIMESTAMP) {
            hwi_moments_merge(&known, &b->columns[i].moments);
            hwi_moments_merge(&late, &b->columns[i].row_moments);
        }
    }
    hwi_moments_result(&known, &info->time_mean_us, &info->time_std_us);
    if (!(info->time_std_us > 0) && late.count > 0) {
        hwi_moments_result(&late, &info->time_mean_us, &info->time_std_us);
    }
}

static void fill_store_info(const hw_builder *b, struct names *names, struct hwi_store_info *info) {
    *info = (struct hwi_store_info){
        .table_count = b->table_count,
        .column_count = b->column_count,
        .key_count = b->key_count,
        .task_count = b->task_count,
        .row_count = b->row_count,
        .category_count = b->category_count,
        .text_count = b->texts.count,
        .text_dim = b->text_dim,
        .stats_until_us = b->stats_until_us,
    };
    info->name = add_name(names, b->name);
    info->embedder = add_name(names, b->embedder);
    take_time_moments(b, info);
}

static hw_status write_tables(hw_builder *b, struct hwi_writer *writer, struct names *names,
                              hw_error *error) {
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_TABLES, 0),
                            sizeof(struct hwi_table_info), error));
    for (uint32_t i = 0; i < b->table_count; i++) {
        b->tables[i].info.name = add_name(names, b->tables[i].name);
        HW_TRY(hwi_writer_append(writer, &b->tables[i].info, sizeof b->tables[i].info, error));
    }
    return hwi_writer_end(writer, error);
}

static hw_status write_columns(hw_builder *b, struct hwi_writer *writer, struct names *names,
                               hw_error *error) {
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_COLUMNS, 0),
                            sizeof(struct hwi_column_info), error));
    for (uint32_t i = 0; i < b->column_count; i++) {
        b->columns[i].info.name = add_name(names, b->columns[i].name);
        HW_TRY(hwi_writer_append(writer, &b->columns[i].info, sizeof b->columns[i].info, error));
    }
    return hwi_writer_end(writer, error);
}

static hw_status write_keys(hw_builder *b, struct hwi_writer *writer, hw_error *error) {
    uint32_t column_start = 0;
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_KEYS, 0), sizeof(struct hwi_key_info),
                            error));
    for (uint32_t i = 0; i < b->key_count; i++) {
        b->keys[i].info.column_start = column_start;
        column_start += b->keys[i].info.column_count;
        HW_TRY(hwi_writer_append(writer, &b->keys[i].info, sizeof b->keys[i].info, error));
    }
    HW_TRY(hwi_writer_end(writer, error));
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_KEY_COLUMNS, 0), 4, error));
    for (uint32_t i = 0; i < b->key_count; i++) {
        HW_TRY(hwi_writer_append(writer, b->keys[i].columns,
                                 4 * (uint64_t)b->keys[i].info.column_count, error));
    }
    return hwi_writer_end(writer, error);
}

static hw_status write_tasks(hw_builder *b, struct hwi_writer *writer, struct names *names,
                             hw_error *error) {
    uint32_t hidden_start = 0;
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_TASKS, 0), sizeof(struct hwi_task_info),
                            error));
    for (uint32_t i = 0; i < b->task_count; i++) {
        struct hwi_task_info *info = &b->tasks[i].info;
        info->name = add_name(names, b->tasks[i].name);
        info->hidden_start = hidden_start;
        hidden_start += info->hidden_count;
        HW_TRY(hwi_writer_append(writer, info, sizeof *info, error));
    }
    HW_TRY(hwi_writer_end(writer, error));
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_HIDDEN, 0), 4, error));
    for (uint32_t i = 0; i < b->task_count; i++) {
        HW_TRY(hwi_writer_append(writer, b->tasks[i].hidden,
                                 4 * (uint64_t)b->tasks[i].info.hidden_count, error));
    }
    return hwi_writer_end(writer, error);
}

static hw_status write_sections(hw_builder *b, struct hwi_writer *writer, struct names *names,
                                hw_error *error) {
    struct hwi_store_info info;
    fill_store_info(b, names, &info);
    HW_TRY(hwi_writer_section(writer, HWI_SECTION(HWI_SECTION_STORE, 0), sizeof info, &info, 1,
                              error));
    HW_TRY(write_tables(b, writer, names, error));
    HW_TRY(write_columns(b, writer, names, error));
    HW_TRY(write_keys(b, writer, error));
    HW_TRY(write_tasks(b, writer, names, error));
    HW_TRY(hwi_writer_section(writer, HWI_SECTION(HWI_SECTION_FILES, 0),
                              sizeof(struct hwi_file_info), b->files, b->file_count, error));
    return hwi_writer_section(writer, HWI_SECTION(HWI_SECTION_NAMES, 0), 1, names->bytes,
                              names->count, error);
}

hw_status hwi_build_schema(hw_builder *b, hw_error *error) {
    struct names names = {.capacity = count_name_bytes(b)};
    struct hwi_writer writer = {.fd = -1};
    struct hwi_file_info file = {0};
    if (names.capacity > HWI_NONE) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "the names of the schema have %llu bytes, at most "
                        "%u",
                        (unsigned long long)names.capacity, HWI_NONE);
    }
    names.bytes = malloc((size_t)names.capacity + 1);
    if (names.bytes == NULL) {
        return hwi_no_memory(error, "the names of the schema", names.capacity);
    }
    hw_status status =
        hwi_writer_open(&writer, b->directory, HWI_FILE_SCHEMA, 0, SCHEMA_SECTIONS, error);
    if (status == HW_OK) {
        status = write_sections(b, &writer, &names, error);
    }
    status = hwi_writer_close(&writer, status, &file, error);
    b->schema_checksum = file.checksum;
    b->schema_bytes = file.file_bytes;
    free(names.bytes);
    return status;
}
