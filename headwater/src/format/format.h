/*
 * The byte layout of a store: the only place where it is written down in code. The writer and the
 * reader both include this header; docs/reference/store-format.md explains it with the same names.
 *
 * Every file is
 *
 *     header (64 bytes) | section table (32 bytes each) | sections, each 64-byte aligned
 *
 * little-endian, fixed width, gaps zero. A file proves its structure by `header_checksum` (over the
 * header with `build_id` and the checksum itself zeroed, then the section table) and its contents
 * by one checksum per section. `schema.bin` lists every other file with its size and header
 * checksum, so one small file ties a build together: a file of another build cannot slip in.
 */
#ifndef HWI_FORMAT_H
#define HWI_FORMAT_H

#include <assert.h> /* static_assert, until C23 */
#include <stddef.h>
#include <stdint.h>

#include "headwater.h"

/* 8 bytes; the first is not text, the last catches CRLF damage. */
#define HWI_MAGIC {0x89, 'H', 'W', 'S', 'T', 'O', 'R', '\n'}
#define HWI_FORMAT_VERSION ((uint32_t)HW_FORMAT_VERSION)
#define HWI_BYTE_ORDER 0x01020304u
#define HWI_SECTION_ALIGN 64u
#define HWI_NONE 0xffffffffu /* no row, no column, no offset */

/* Limits, each checked by the writer and the reader. */
#define HWI_MAX_ROWS 0xfffffffeu /* rows of a store */
#define HWI_MAX_COLUMNS 65535u /* columns of a store, the tasks' own included */
#define HWI_MAX_TABLES 65535u /* 65535 marks a task's seed row in a batch */
#define HWI_MAX_TABLE_KEYS 4096u /* foreign keys of one table, and keys that point at it */
#define HWI_MAX_TASKS 65535u
#define HWI_MAX_TABLE_EDGES 0xffffffffu /* edges that point at one table */
#define HWI_MAX_TEXT_BYTES 0x7fffffffu /* bytes of one text, key or name */
#define HWI_MAX_TEXT_DIM 16384u
#define HWI_MAX_RECORD_BYTES 1048576u

enum hwi_file_kind {
    HWI_FILE_SCHEMA = 1, /* schema.bin */
    HWI_FILE_TABLE = 2, /* tables/<index, 5 digits>.bin */
    HWI_FILE_GRAPH = 3, /* graph.bin */
    HWI_FILE_TASK = 4, /* tasks/<index, 5 digits>.bin */
    HWI_FILE_TEXT_EMBEDDINGS = 5, /* text_embeddings.bin */
    HWI_FILE_COLUMN_EMBEDDINGS = 6, /* column_embeddings.bin */
    HWI_FILE_CATEGORY_EMBEDDINGS = 7, /* categorical_embeddings.bin */
    HWI_FILE_KEYS = 8, /* keys.bin */
    HWI_FILE_TEXTS = 9, /* texts.bin */
    HWI_FILE_METADATA = 10, /* metadata.json: listed in FILES, but plain JSON without header */
};

/* A section id is kind << 16 | index; index is a table, else 0. */
#define HWI_SECTION(kind, index) ((uint32_t)(kind) << 16 | (uint32_t)(index))
enum hwi_section_kind {
    /* schema.bin */
    HWI_SECTION_STORE = 1, /* struct hwi_store_info, one */
    HWI_SECTION_TABLES = 2, /* struct hwi_table_info [tables] */
    HWI_SECTION_COLUMNS = 3, /* struct hwi_column_info [columns] */
    HWI_SECTION_KEYS = 4, /* struct hwi_key_info [foreign keys] */
    HWI_SECTION_KEY_COLUMNS = 5, /* uint32 column ids, runs owned by hwi_key_info */
    HWI_SECTION_TASKS = 6, /* struct hwi_task_info [tasks] */
    HWI_SECTION_HIDDEN = 7, /* uint32 column ids, runs owned by hwi_task_info */
    HWI_SECTION_FILES = 8, /* struct hwi_file_info [files] */
    HWI_SECTION_NAMES = 9, /* bytes, UTF-8 */
    /* tables/NNNNN.bin */
    HWI_SECTION_RECORDS = 16, /* bytes [rows, record_bytes] */
    HWI_SECTION_TIMES = 17, /* int64 [rows], ascending; only if the table has a temporal column */
    /* graph.bin, index = parent table */
    HWI_SECTION_CHILDREN = 32, /* uint32 global rows, by (parent row, child slot), each list by
                                  (edge time, row) */
    HWI_SECTION_CHILD_TIMES = 33, /* int64, same order; only if HWI_TABLE_CHILD_TIMES */
    /* tasks/NNNNN.bin, all [seeds] */
    HWI_SECTION_ANCHORS = 48, /* uint32 global row, ascending */
    HWI_SECTION_OBS_TIMES = 49, /* int64 us; INT64_MAX = everything is visible */
    HWI_SECTION_TARGETS = 50, /* uint64: float64 bits, int64 us, 0/1, or index in the block */
    HWI_SECTION_STATES = 51, /* uint8: label state | split << 4 */
    HWI_SECTION_SEED_HASHES = 52, /* uint64 hash of the anchor key (docs/reference/sampling.md) */
    HWI_SECTION_POSITIONS = 53, /* uint32 position in the query's result */
    HWI_SECTION_LABEL_TIMES = 54, /* int64 us when the label is known; INT64_MAX = never; only if
                                     HWI_TASK_LABEL_TIMES */
    /* *_embeddings.bin */
    HWI_SECTION_VECTORS = 64, /* float16 [count, text_dim]; element_bytes = 2 * text_dim */
    /* keys.bin, index = table; only for tables with a primary key */
    HWI_SECTION_KEY_OFFSETS = 80, /* uint64 [rows + 1] into KEY_BYTES */
    HWI_SECTION_KEY_BYTES = 81, /* per row: each part as uint32 length + UTF-8 bytes */
    HWI_SECTION_KEY_ORDER = 82, /* uint32 [rows]: rows within the table, by (hash, row) */
    HWI_SECTION_KEY_HASHES = 83, /* uint64 [rows], by row: XXH64(key bytes, 0) */
    /* texts.bin */
    HWI_SECTION_TEXT_OFFSETS = 96, /* uint64 [texts + 1] */
    HWI_SECTION_TEXT_BYTES = 97,
};

struct hwi_file_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint8_t build_id[16];
    uint32_t kind;
    uint32_t index;
    uint64_t file_bytes;
    uint32_t section_count;
    uint32_t reserved;
    uint64_t header_checksum;
};
static_assert(sizeof(struct hwi_file_header) == 64, "header is one cache line");

struct hwi_section_info {
    uint32_t id;
    uint32_t element_bytes;
    uint64_t offset; /* from the start of the file, a multiple of 64 */
    uint64_t count; /* elements; the section has element_bytes * count bytes */
    uint64_t checksum; /* XXH64(bytes, 0) */
};
static_assert(sizeof(struct hwi_section_info) == 32, "section table entry");

struct hwi_name {
    uint32_t offset, bytes;
}; /* into NAMES */

struct hwi_store_info {
    uint32_t table_count, column_count, key_count, task_count;
    uint32_t row_count, category_count, text_count, text_dim;
    struct hwi_name name;
    struct hwi_name embedder;
    double time_mean_us, time_std_us; /* of all timestamp cells: the z-scored epoch */
    int64_t stats_until_us; /* INT64_MAX: all rows */
    uint64_t reserved[3];
};
static_assert(sizeof(struct hwi_store_info) == 96, "store info");

enum hwi_table_flag {
    HWI_TABLE_TEMPORAL = 1u, /* rows have times; TIMES is present */
    HWI_TABLE_NULL_TIME_VISIBLE = 2u, /* rows without time come first, at INT64_MIN */
    HWI_TABLE_DAYS = 4u, /* time_resolution "day": a row counts from the end of its day */
    HWI_TABLE_CHILD_TIMES = 8u, /* some incoming key has known_at: CHILD_TIMES is present */
    HWI_TABLE_KEYED = 16u, /* has a primary key in keys.bin */
    HWI_TABLE_TIME_IN_LANE = 32u, /* rows that have a time hold it, less time_offset_us, in the lane
                                     of the temporal column; the others hold NULL there */
};

/*
 * A record: parents uint32[key_count] at 0 (global rows, HWI_NONE where NULL or dangling), then, if
 * child_slot_count > 0, uint32 child_start (index into the table's CHILDREN) and uint32
 * child_counts[child_slot_count]; then null bits, one per stored column in schema order, bit k of
 * byte k / 8 = 1 where NULL; then 4-byte aligned lanes.
 */
struct hwi_table_info {
    struct hwi_name name;
    uint32_t flags;
    uint32_t row_start, row_count; /* global rows row_start .. row_start + row_count */
    uint32_t column_start, column_count; /* global columns, ignored ones included */
    uint32_t key_start, key_count; /* its foreign keys in KEYS */
    uint32_t child_slot_count; /* foreign keys that point at it */
    uint32_t record_bytes;
    uint32_t child_offset; /* of child_start in a record; HWI_NONE without incoming keys */
    uint32_t null_offset; /* of the null bits */
    uint32_t temporal_column; /* global column, or HWI_NONE */
    uint32_t timed_start, timed_count; /* rows that have a time, counted within the table */
    uint64_t edge_count; /* of CHILDREN */
    int64_t time_offset_us; /* 0 without HWI_TABLE_TIME_IN_LANE */
    uint64_t reserved[2];
};
static_assert(sizeof(struct hwi_table_info) == 96, "table info");

enum hwi_known_kind {
    HWI_KNOWN_CREATION = 0, /* with its row */
    HWI_KNOWN_NEVER = 1,
    HWI_KNOWN_COLUMN = 2, /* known_offset_us after the time in known_column of the same row (one
                             day after a date: it is over then); NULL = INT64_MAX */
    HWI_KNOWN_OFFSET = 3, /* known_offset_us after the row's time; INT64_MAX without one */
};

/* offset_us after a time: how HWI_KNOWN_COLUMN and HWI_KNOWN_OFFSET count. INT64_MAX and INT64_MIN
 * stand for "no time"; after none there is none. */
static inline int64_t hwi_known_after(int64_t time_us, int64_t offset_us) {
    int64_t sum;
    if (time_us == INT64_MAX || time_us == INT64_MIN ||
        __builtin_add_overflow(time_us, offset_us, &sum)) {
        return INT64_MAX;
    }
    return sum;
}

struct hwi_column_info {
    struct hwi_name name;
    uint32_t table; /* HWI_NONE for the obs_time and target columns of a derived task */
    uint32_t task; /* of those; else HWI_NONE */
    uint8_t stype; /* hw_semantic_type */
    uint8_t known_kind;
    uint8_t reserved8[2];
    uint32_t null_bit; /* HWI_NONE if the column has no place in the record */
    uint32_t lane_offset; /* bytes from the start of the record; HWI_NONE: no lane */
    uint32_t known_column;
    int64_t known_offset_us;
    double mean, std; /* numerical: z = std > 0 ? (x - mean) / std : 0, as float32 */
    uint32_t category_start, category_count;
    uint64_t value_count, null_count;
    uint64_t reserved[1];
};
static_assert(sizeof(struct hwi_column_info) == 88, "column info");

/* When a cell of a column is known: row_time if with its row, INT64_MAX if never. told_us: of
 * HWI_KNOWN_COLUMN the time in that column of the row, INT64_MAX where it is NULL. */
static inline int64_t hwi_known_time(const struct hwi_column_info *column, int64_t row_time,
                                     int64_t told_us) {
    switch ((enum hwi_known_kind)column->known_kind) {
    case HWI_KNOWN_CREATION:
        break;
    case HWI_KNOWN_NEVER:
        return INT64_MAX;
    case HWI_KNOWN_COLUMN:
        return hwi_known_after(told_us, column->known_offset_us);
    case HWI_KNOWN_OFFSET:
        return hwi_known_after(row_time, column->known_offset_us);
    }
    return row_time;
}

struct hwi_key_info {
    uint32_t child_table, parent_table;
    uint32_t parent_slot; /* index among the child table's foreign keys = place in the record */
    uint32_t child_slot; /* index among the keys that point at the parent table */
    uint32_t column_start, column_count; /* run of KEY_COLUMNS: the key's columns in child_table */
    uint32_t known_late; /* 1: some column of the key has known_at other than "creation" */
    uint32_t reserved32;
    uint64_t edge_count, dangling_count, null_count;
    uint64_t reserved[1];
};
static_assert(sizeof(struct hwi_key_info) == 64, "key info");

enum hwi_task_flag {
    HWI_TASK_CELL = 1u, /* the target is a column of the anchor table */
    HWI_TASK_EXCLUSIVE = 2u, /* cutoff "exclusive" */
    HWI_TASK_GIVEN_SPLIT = 4u,
    HWI_TASK_LABEL_TIMES = 8u, /* LABEL_TIMES is present */
};
struct hwi_task_info {
    struct hwi_name name;
    uint32_t flags;
    uint32_t anchor_table;
    uint32_t target_column; /* global column: the anchor table's, or the task's own */
    uint32_t obs_time_column; /* the task's own; HWI_NONE for a cell task */
    uint32_t hidden_start, hidden_count; /* run of HIDDEN */
    uint32_t seed_count;
    uint8_t target_stype;
    uint8_t context_labels; /* hw_context_labels: the task's default */
    uint8_t reserved8[2];
    uint64_t name_hash; /* XXH64(name, 0) */
    uint64_t reserved[2];
};
static_assert(sizeof(struct hwi_task_info) == 64, "task info");

/* STATES: low 4 bits label, high 4 bits split. */
enum hwi_label_state { HWI_LABEL_VALUE = 0, HWI_LABEL_NULL = 1, HWI_LABEL_NONE = 2 };
#define HWI_SPLIT_HASHED 15u /* not given: by hash of the key */

struct hwi_file_info {
    uint32_t kind, index;
    uint64_t file_bytes;
    uint64_t checksum; /* the file's header_checksum; for metadata.json XXH64 of its bytes */
    uint64_t reserved;
};
static_assert(sizeof(struct hwi_file_info) == 32, "file info");

#endif
