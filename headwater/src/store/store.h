/*
 * An open store as the walk sees it: one resolved view per table, every pointer inside a mapped
 * file whose bounds were proved at open. Immutable; shared by all threads through const pointers.
 *
 * Ids inside the data are not proved at open (that would read everything): whoever takes a row
 * number, a child position, a category or a text from a record or a list checks it against the
 * counts here before it indexes anything, and answers HW_BAD_STORE.
 */
#ifndef HWI_STORE_H
#define HWI_STORE_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/error.h"
#include "format/file.h"
#include "format/format.h"
#include "headwater.h"

/* What a walk reads of a table for each row stands here, copied from its info, in one line. */
struct hwi_table {
    const uint8_t *records; /* [row_count, record_bytes] */
    uint32_t row_start, row_count, record_bytes, child_offset;
    uint32_t key_start, key_count, child_slot_count;
    const struct hwi_table_info *info;
    const int64_t *times; /* [row_count] ascending, NULL if the table is not temporal */
    const uint32_t *children; /* [edge_count] global rows, NULL without incoming keys */
    const int64_t *child_times; /* [edge_count], NULL unless HWI_TABLE_CHILD_TIMES */
    const uint32_t *incoming; /* [child_slot_count] global key numbers by child slot */
    const uint8_t *key_bytes; /* keys.bin; NULL without a primary key */
    const uint64_t *key_offsets;
    const uint32_t *key_order;
    const uint64_t *key_hashes;
    uint64_t key_bytes_count;
};

struct hwi_on_demand;

struct hw_store {
    atomic_uint reference_count;
    char *directory;
    int directory_fd; /* its files are looked at by name from here, wherever it is moved */
    char fingerprint[33];
    const struct hwi_store_info *info;
    const struct hwi_column_info *columns; /* [column_count] */
    const struct hwi_key_info *keys; /* [key_count] */
    const uint32_t *key_columns; /* [key_column_count] */
    uint64_t key_column_count;
    const struct hwi_task_info *tasks; /* [task_count] */
    const uint32_t *hidden;
    const char *names;
    uint64_t names_bytes;
    struct hwi_table *tables; /* [table_count] */
    hw_seeds *seeds; /* [task_count] */
    const void *vectors[3]; /* by hw_embedding_kind: float16 [count, text_dim] */
    uint64_t vector_counts[3];
    const uint64_t *text_offsets; /* [text_count + 1] */
    const uint8_t *text_bytes;
    uint64_t text_bytes_count;
    uint32_t *incoming; /* storage of hwi_table.incoming */
    struct hwi_file *files; /* schema.bin, then those that it lists */
    uint32_t file_count;
    const struct hwi_file_info *listed; /* [file_count - 1] */
    struct hwi_on_demand *on_demand; /* described.h */
    struct hwi_file manifest; /* closed; its path is NULL if the build was opened by itself */
};

/* Record of a global row of a known table; the caller has checked the row. */
static inline const uint8_t *hwi_record(const struct hwi_table *table, uint32_t row) {
    return table->records + (uint64_t)(row - table->row_start) * table->record_bytes;
}

/* 1 if a global row belongs to the table. */
static inline int hwi_table_has(const struct hwi_table *table, uint32_t row) {
    return row - table->row_start < table->row_count;
}

/* When a cell of a row counted within its table is known, INT64_MAX if never. */
static inline int64_t hwi_cell_known_time(const hw_store *store, const struct hwi_table *table,
                                          uint32_t local, const struct hwi_column_info *column) {
    int64_t told_us = INT64_MAX;
    if (column->known_kind == HWI_KNOWN_COLUMN) {
        const struct hwi_column_info *source = &store->columns[column->known_column];
        const uint8_t *record = table->records + (uint64_t)local * table->record_bytes;
        if (!hwi_bit(record + table->info->null_offset, source->null_bit)) {
            told_us = hwi_read_i64(record + source->lane_offset);
        }
    }
    return hwi_known_time(column, table->times != NULL ? table->times[local] : INT64_MIN, told_us);
}

/* HW_BAD_STORE unless every mapped file still has the size it was opened with (a stat per file). */
HWI_CHECK hw_status hwi_store_check_sizes(const hw_store *store, hw_error *error);

/* A name of the schema as a C string in `buffer` (cut to its size), for messages. */
const char *hwi_store_name(const hw_store *store, struct hwi_name name, char *buffer,
                           size_t buffer_bytes);

/* A cell as hw_store_column has it: NaN where it is NULL. */
HWI_CHECK hw_status hwi_store_number(const hw_store *store, uint32_t row, uint32_t column,
                                     double *number, hw_error *error);

#endif
