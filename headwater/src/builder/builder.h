/*
 * What the builder knows while it builds; private to this folder.
 *
 *     declare.c   tables, columns, keys, tasks: the schema, frozen by the first write
 *     rows.c      a table's rows from Arrow into spilled rows, moments, keys and texts
 *     parents.c   parents of each key into a spill
 *     seeds.c     seeds of each task into tasks/NNNNN.bin
 *     vectors.c   texts and embeddings
 *     graph.c     at finish: child lists by counting sort into graph.bin
 *     records.c   at finish: spilled rows, parents and child counts into tables/NNNNN.bin
 *     keys.c      at finish: keys.bin
 *     metadata.c  at finish: metadata.json, if the caller has none
 *     finish.c    at finish: texts, schema, fingerprint; publication
 *
 * Rows pass twice because three things of a record are known only later: the moments of its
 * numbers, the global rows of its parents, and where its children lie.
 */
#ifndef HWI_BUILDER_H
#define HWI_BUILDER_H

#include "base/error.h"
#include "base/moments.h"
#include "base/spill.h"
#include "builder/dictionary.h"
#include "format/format.h"
#include "format/writer.h"
#include "headwater.h"

struct hwi_build_table {
    struct hwi_table_info info;
    char *name;
    uint32_t key_part_count;
    char **key_names; /* [key_part_count] as the stream of its rows has them */
    uint8_t written;
    uint32_t spill_row_bytes; /* values, then null bits */
    uint32_t spill_null_offset;
    struct hwi_spill rows; /* [row_count, spill_row_bytes] */
    struct hwi_spill times; /* int64 [row_count], effective; temporal tables only */
    struct hwi_spill key_offsets; /* uint64 [row_count + 1] */
    struct hwi_spill key_bytes;
    struct hwi_spill key_hashes; /* uint64 [row_count] */
    struct hwi_spill child_counts; /* uint32 [row_count, child_slot_count], during finish */
};

struct hwi_build_column {
    struct hwi_column_info info;
    char *name;
    char *description; /* NULL: none */
    uint32_t spill_offset; /* in a spilled row: double, int64 or uint32 */
    uint8_t is_temporal, has_categories;
    struct hwi_dictionary categories;
    hw_column_stats stats;
    struct hwi_moments moments;
    struct hwi_moments row_moments; /* of a column known late: whenever each is known */
};

struct hwi_build_key {
    struct hwi_key_info info;
    uint32_t *columns; /* [info.column_count] global */
    uint8_t written;
    uint8_t is_never; /* some column is known "never": the key has no edges */
    struct hwi_spill parents; /* uint32 [rows of the child table], within the parent table */
};

struct hwi_build_task {
    struct hwi_task_info info;
    char *name;
    uint32_t *hidden; /* [info.hidden_count] */
    uint8_t written;
    uint64_t split_counts[HW_SPLIT_COUNT]; /* of its seeds; dealt by hash with the defaults */
    uint64_t unlabelled_count;
    int64_t first_us, last_us; /* of the times of its seeds; first > last: they have none */
    struct hwi_file_info file;
};

struct hw_builder {
    char *directory;
    char *name;
    char *embedder;
    int64_t stats_until_us;
    uint8_t is_frozen, is_failed, is_finished, is_published;
    struct hwi_build_table *tables;
    struct hwi_build_column *columns;
    struct hwi_build_key *keys;
    struct hwi_build_task *tasks;
    uint32_t table_count, column_count, key_count, task_count;
    uint32_t table_capacity, column_capacity, key_capacity, task_capacity;
    uint32_t table_column_count; /* columns of tables; those of tasks follow */
    uint32_t written_table_count;
    uint32_t row_count, category_count;
    uint32_t text_dim;
    struct hwi_dictionary texts;
    struct hwi_writer vectors[3]; /* by hw_embedding_kind, open from set_embedder to finish */
    uint64_t vector_counts[3];
    struct hwi_file_info *files; /* FILES, at finish */
    uint32_t file_count;
    uint64_t schema_checksum, schema_bytes;
    uint8_t build_id[16];
    char fingerprint[33];
};

/* HW_BAD_ARGUMENT unless the builder may be written to; freezes the schema. */
HWI_CHECK hw_status hwi_builder_start_write(hw_builder *b, hw_error *error);
/* Remembers that a write failed half way, so that nothing more can be built on it. */
hw_status hwi_builder_latch(hw_builder *b, hw_status status);

int hwi_is_utf8(const char *text, size_t bytes);

/* Time of a table's row as the walk compares it: INT64_MIN without a temporal column. */
int64_t hwi_build_row_time(const struct hwi_build_table *table, uint32_t row);

/* When a column of a row is known: the row's time if with the row, INT64_MAX if never. spilled_row:
 * the row as it is in the table's spill. */
int64_t hwi_build_known_time(const hw_builder *b, const struct hwi_column_info *column,
                             int64_t row_time, const uint8_t *spilled_row);

HWI_CHECK hw_status hwi_build_graph(hw_builder *b, struct hwi_file_info *file, hw_error *error);
HWI_CHECK hw_status hwi_build_records(hw_builder *b, uint32_t table, struct hwi_file_info *file,
                                      hw_error *error);
HWI_CHECK hw_status hwi_build_keys_file(hw_builder *b, struct hwi_file_info *file, hw_error *error);
/* Sets the embedder if the caller did not, and writes the missing vectors of `hash`. */
HWI_CHECK hw_status hwi_build_missing_vectors(hw_builder *b, hw_error *error);
HWI_CHECK hw_status hwi_build_vectors(hw_builder *b, struct hwi_file_info files[3],
                                      hw_error *error);
/* A metadata.json of the declarations and counts; *text is the caller's to free. */
HWI_CHECK hw_status hwi_build_metadata(const hw_builder *b, char **text, size_t *bytes,
                                       hw_error *error);
HWI_CHECK hw_status hwi_build_schema(hw_builder *b, hw_error *error);

#endif
