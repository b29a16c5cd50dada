/*
 * keys.bin: the primary keys of every table that has one, and their order by hash, so that a key is
 * found by binary search. The hashes are uniform, so the order is made by one counting pass on
 * their top bits into buckets of a few rows and a sort inside each.
 */
#include <stdlib.h>

#include "base/bytes.h"
#include "builder/builder.h"

#define BUCKET_ROWS 8u
#define MAX_BUCKET_BITS 22u
#define INSERTION_ROWS 48u /* up to here insertion beats qsort */

struct hashed_row {
    uint64_t hash;
    uint32_t row;
};

static int compare_hashed_rows(const void *left, const void *right) {
    const struct hashed_row *a = left, *b = right;
    if (a->hash != b->hash) {
        return a->hash < b->hash ? -1 : 1;
    }
    return (a->row > b->row) - (a->row < b->row);
}

static void sort_bucket(struct hashed_row *rows, uint32_t count) {
    if (count > INSERTION_ROWS) {
        qsort(rows, count, sizeof *rows, compare_hashed_rows);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        struct hashed_row row = rows[i];
        uint32_t to = i;
        while (to > 0 && compare_hashed_rows(&rows[to - 1], &row) > 0) {
            rows[to] = rows[to - 1];
            to--;
        }
        rows[to] = row;
    }
}

static inline uint64_t bucket_of(uint64_t hash, uint32_t bucket_bits) {
    return bucket_bits > 0 ? hash >> (64 - bucket_bits) : 0;
}

/* Fills sorted [row_count] with rows by (hash, row). */
static hw_status sort_rows(const struct hwi_build_table *table, struct hashed_row *sorted,
                           hw_error *error) {
    uint32_t row_count = table->info.row_count, bucket_bits = 0;
    while (bucket_bits < MAX_BUCKET_BITS && row_count >> bucket_bits > BUCKET_ROWS) {
        bucket_bits++;
    }
    uint64_t bucket_count = (uint64_t)1 << bucket_bits;
    uint32_t *ends = calloc((size_t)bucket_count, sizeof *ends);
    if (ends == NULL) {
        return hwi_no_memory(error, "the order of keys", bucket_count * sizeof *ends);
    }
    const uint8_t *hashes = table->key_hashes.data;
    for (uint32_t row = 0; row < row_count; row++) {
        ends[bucket_of(hwi_read_u64(hashes + 8 * (uint64_t)row), bucket_bits)]++;
    }
    uint32_t start = 0;
    for (uint64_t i = 0; i < bucket_count; i++) {
        uint32_t count = ends[i];
        ends[i] = start;
        start += count;
    }
    for (uint32_t row = 0; row < row_count; row++) {
        uint64_t hash = hwi_read_u64(hashes + 8 * (uint64_t)row);
        sorted[ends[bucket_of(hash, bucket_bits)]++] = (struct hashed_row){hash, row};
    }
    start = 0;
    for (uint64_t i = 0; i < bucket_count; i++) {
        sort_bucket(sorted + start, ends[i] - start);
        start = ends[i];
    }
    free(ends);
    return HW_OK;
}

static int keys_equal(const struct hwi_build_table *table, uint32_t a, uint32_t b) {
    const uint8_t *offsets = table->key_offsets.data;
    uint64_t a_start = hwi_read_u64(offsets + 8 * (uint64_t)a);
    uint64_t b_start = hwi_read_u64(offsets + 8 * (uint64_t)b);
    uint64_t a_bytes = hwi_read_u64(offsets + 8 * ((uint64_t)a + 1)) - a_start;
    uint64_t b_bytes = hwi_read_u64(offsets + 8 * ((uint64_t)b + 1)) - b_start;
    return a_bytes == b_bytes && memcmp(table->key_bytes.data + a_start,
                                        table->key_bytes.data + b_start, (size_t)a_bytes) == 0;
}

/* Equal keys have equal hashes, so they stand in one run; runs of more than one are very rare. */
static hw_status check_unique(const struct hwi_build_table *table, const struct hashed_row *sorted,
                              hw_error *error) {
    for (uint32_t i = 1; i < table->info.row_count; i++) {
        for (uint32_t j = i; j > 0 && sorted[j - 1].hash == sorted[i].hash; j--) {
            if (keys_equal(table, sorted[j - 1].row, sorted[i].row)) {
                return hwi_fail(error, HW_BAD_SOURCE,
                                "rows %u and %u of table '%s' have the same primary key",
                                sorted[j - 1].row, sorted[i].row, table->name);
            }
        }
    }
    return HW_OK;
}

static hw_status write_order(const hw_builder *b, const struct hwi_build_table *table,
                             struct hwi_writer *writer, hw_error *error) {
    struct hwi_spill spill = {0};
    uint8_t *at = NULL;
    uint32_t row_count = table->info.row_count;
    hw_status status = hwi_spill_open(&spill, b->directory, error);
    if (status == HW_OK) {
        status =
            hwi_spill_extend(&spill, sizeof(struct hashed_row) * (uint64_t)row_count, &at, error);
    }
    struct hashed_row *sorted = (struct hashed_row *)(void *)at;
    if (status == HW_OK) {
        status = sort_rows(table, sorted, error);
    }
    if (status == HW_OK) {
        status = check_unique(table, sorted, error);
    }
    for (uint32_t i = 0; i < row_count && status == HW_OK; i++) {
        status = hwi_writer_append(writer, &sorted[i].row, 4, error);
    }
    hwi_spill_close(&spill);
    return status;
}

static hw_status write_table(const hw_builder *b, uint32_t index, struct hwi_writer *writer,
                             hw_error *error) {
    struct hwi_build_table *table = &b->tables[index];
    uint64_t row_count = table->info.row_count;
    HW_TRY(hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_KEY_OFFSETS, index), 8,
                            &table->key_offsets, row_count + 1, error));
    HW_TRY(hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_KEY_BYTES, index), 1, &table->key_bytes,
                            table->key_bytes.bytes, error));
    HW_TRY(hwi_writer_begin(writer, HWI_SECTION(HWI_SECTION_KEY_ORDER, index), 4, error));
    HW_TRY(write_order(b, table, writer, error));
    HW_TRY(hwi_writer_end(writer, error));
    return hwi_writer_spill(writer, HWI_SECTION(HWI_SECTION_KEY_HASHES, index), 8,
                            &table->key_hashes, row_count, error);
}

hw_status hwi_build_keys_file(hw_builder *b, struct hwi_file_info *file, hw_error *error) {
    struct hwi_writer writer = {.fd = -1};
    uint32_t section_count = 0;
    for (uint32_t t = 0; t < b->table_count; t++) {
        section_count += (b->tables[t].info.flags & HWI_TABLE_KEYED) ? 4 : 0;
    }
    hw_status status =
        hwi_writer_open(&writer, b->directory, HWI_FILE_KEYS, 0, section_count, error);
    for (uint32_t t = 0; t < b->table_count && status == HW_OK; t++) {
        if (b->tables[t].info.flags & HWI_TABLE_KEYED) {
            status = write_table(b, t, &writer, error);
        }
    }
    return hwi_writer_close(&writer, status, file, error);
}
