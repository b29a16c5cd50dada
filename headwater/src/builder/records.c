/*
 * tables/NNNNN.bin: one pass over a table's spilled rows, with its parents and child counts beside
 * it, all sequential. Numbers become z-scores here, because only now are their moments known.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "builder/builder.h"

#define PASS_ROWS 65536u /* pages that were read are handed back this often */

static void encode_links(const hw_builder *b, const struct hwi_build_table *table, uint32_t row,
                         uint32_t *child_start, uint8_t *record) {
    for (uint32_t slot = 0; slot < table->info.key_count; slot++) {
        const struct hwi_build_key *key = &b->keys[table->info.key_start + slot];
        uint32_t parent = hwi_read_u32(key->parents.data + 4 * (uint64_t)row);
        if (parent != HWI_NONE) {
            parent += b->tables[key->info.parent_table].info.row_start;
        }
        hwi_write_u32(record + 4 * (uint64_t)slot, parent);
    }
    uint32_t slot_count = table->info.child_slot_count;
    if (slot_count > 0) {
        const uint8_t *counts = table->child_counts.data + 4 * (uint64_t)row * slot_count;
        uint8_t *at = record + table->info.child_offset;
        hwi_write_u32(at, *child_start);
        for (uint32_t slot = 0; slot < slot_count; slot++) {
            uint32_t count = hwi_read_u32(counts + 4 * (uint64_t)slot);
            hwi_write_u32(at + 4 + 4 * (uint64_t)slot, count);
            *child_start += count;
        }
    }
}

static void encode_cells(const hw_builder *b, const struct hwi_build_table *table,
                         const uint8_t *spilled, uint8_t *record) {
    memcpy(record + table->info.null_offset, spilled + table->spill_null_offset,
           table->spill_row_bytes - table->spill_null_offset);
    for (uint32_t i = 0; i < table->info.column_count; i++) {
        const struct hwi_build_column *column = &b->columns[table->info.column_start + i];
        const struct hwi_column_info *info = &column->info;
        if (info->lane_offset == HWI_NONE ||
            hwi_bit(record + table->info.null_offset, info->null_bit)) {
            continue; /* nothing stored, or NULL: the lane stays zero */
        }
        const uint8_t *value = spilled + column->spill_offset;
        if (info->stype == HW_NUMERICAL) {
            hwi_write_f32(record + info->lane_offset,
                          hwi_z_score(hwi_read_f64(value), info->mean, info->std));
        } else if (info->stype == HW_TIMESTAMP || info->stype == HW_IGNORED) {
            memcpy(record + info->lane_offset, value, 8);
        } else {
            memcpy(record + info->lane_offset, value, 4);
        }
    }
}

/* Whether, and how far off, the rows' times stand in their records. */
struct time_check {
    const struct hwi_column_info *column; /* NULL: they do not */
    int64_t offset_us;
    uint32_t row_count; /* with a time */
};

static struct time_check begin_check(const hw_builder *b, const struct hwi_build_table *table) {
    struct time_check check = {0};
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        const struct hwi_column_info *column = &b->columns[table->info.temporal_column].info;
        check.column = column->lane_offset == HWI_NONE ? NULL : column;
    }
    return check;
}

static void check_time(struct time_check *check, const struct hwi_build_table *table, uint32_t row,
                       const uint8_t *record) {
    if (check->column == NULL) {
        return;
    }
    int64_t time = hwi_read_i64(table->times.data + 8 * (uint64_t)row), offset = 0;
    int is_null = hwi_bit(record + table->info.null_offset, check->column->null_bit);
    if (row - table->info.timed_start >= table->info.timed_count) {
        check->column = is_null ? check->column : NULL;
        return;
    }
    if (is_null ||
        __builtin_sub_overflow(time, hwi_read_i64(record + check->column->lane_offset), &offset)) {
        check->column = NULL;
        return;
    }
    if (check->row_count++ == 0) {
        check->offset_us = offset;
    } else if (offset != check->offset_us) {
        check->column = NULL;
    }
}

/* Hands back what the rows before this one needed: the pass is over data larger than memory. */
static void pass_rows(const hw_builder *b, struct hwi_build_table *table, uint32_t row) {
    hwi_spill_pass(&table->rows, (uint64_t)row * table->spill_row_bytes);
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        hwi_spill_pass(&table->times, 8 * (uint64_t)row);
    }
    hwi_spill_pass(&table->child_counts, 4 * (uint64_t)row * table->info.child_slot_count);
    for (uint32_t slot = 0; slot < table->info.key_count; slot++) {
        hwi_spill_pass(&b->keys[table->info.key_start + slot].parents, 4 * (uint64_t)row);
    }
}

static hw_status write_records(const hw_builder *b, struct hwi_build_table *table,
                               struct hwi_writer *writer, uint8_t *record, hw_error *error) {
    uint32_t record_bytes = table->info.record_bytes, child_start = 0;
    struct time_check check = begin_check(b, table);
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_RECORDS, 0), record_bytes, error));
    for (uint32_t row = 0; row < table->info.row_count; row++) {
        memset(record, 0, record_bytes);
        encode_links(b, table, row, &child_start, record);
        encode_cells(b, table, table->rows.data + (uint64_t)row * table->spill_row_bytes, record);
        check_time(&check, table, row, record);
        HW_TRY(hwi_writer_append(writer, record, record_bytes, error));
        if (row % PASS_ROWS == 0) {
            pass_rows(b, table, row);
        }
    }
    HW_TRY(hwi_writer_end(writer, error));
    if (check.column != NULL) {
        table->info.flags |= HWI_TABLE_TIME_IN_LANE;
        table->info.time_offset_us = check.offset_us;
    }
    if (table->info.flags & HWI_TABLE_TEMPORAL) {
        HW_TRY(hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_TIMES, 0), 8, &table->times,
                                table->info.row_count, error));
    }
    return HW_OK;
}

hw_status hwi_build_records(hw_builder *b, uint32_t table, struct hwi_file_info *file,
                            hw_error *error) {
    struct hwi_build_table *source = &b->tables[table];
    struct hwi_writer writer = {.fd = -1};
    uint32_t section_count = (source->info.flags & HWI_TABLE_TEMPORAL) ? 2 : 1;
    uint8_t *record = malloc(source->info.record_bytes);
    if (record == NULL) {
        return hwi_no_memory(error, "a record", source->info.record_bytes);
    }
    hw_status status =
        hwi_writer_open(&writer, b->directory, HWI_FILE_TABLE, table, section_count, error);
    if (status == HW_OK) {
        status = write_records(b, source, &writer, record, error);
    }
    status = hwi_writer_close(&writer, status, file, error);
    hwi_spill_close(&source->rows);
    hwi_spill_close(&source->child_counts);
    free(record);
    return status;
}
