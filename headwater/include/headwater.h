/*
 * headwater: from a relational database to batches of contexts.
 *
 * The header reads in the order of the data: errors and types, the builder (rows to a store), the
 * store, the sampler (a store to batches), the batch.
 *
 * Conventions. A function that can fail returns hw_status and fills an optional, caller-owned
 * hw_error; outputs are written only on HW_OK unless said otherwise. Handles are opaque; closing
 * NULL is fine. Structs, lists and texts that are passed may go when the call returns. Nothing here
 * prints, exits or keeps global state, but for the threads that samplers share, which end with the
 * last of them. Times are int64 microseconds since 1970-01-01 UTC; INT64_MAX is "no time,
 * everything is visible". Flags and masks, given and handed out, are uint8_t and exactly 0 or 1,
 * whatever a store's files hold. Words quoted after "the documentation"
 * are a heading in it.
 *
 * Structs. Each begins with struct_bytes, which the caller sets to sizeof(the struct), of outputs
 * too: `hw_shape shape = {.struct_bytes = sizeof shape};`. The library reads and writes no further,
 * so that a program and a library of another version go together, if hw_abi() is at least the
 * HW_ABI that the program was compiled with. A member that struct_bytes does not cover has its
 * default: of hw_sampler_options that of hw_sampler_options_init, else 0. HW_BAD_ARGUMENT if
 * struct_bytes was not set, or if anything is set that the library does not know. Only hw_error and
 * Arrow's structs have no struct_bytes: they never change.
 *
 * Texts. Names of tensors, fields and options, their words and docs are ASCII and static. Texts
 * from a store are the bytes that its builder was given: names, descriptions and categories
 * are UTF-8, which the builder proves; keys and texts may be any bytes. Paths are bytes, too. A
 * message may quote any of these, and be cut within a character; a zero ends it.
 *
 * Threads. Any thread may use a store, a sampler, a pass or a batch, and several may at once; one
 * at a time a builder or a pool of seeds. Handles with a `retain` are counted: any thread drops a
 * reference at any time, but the last one, like a handle without, when no call on it is running.
 *
 * Caveats. A file that is truncated while it is mapped ends the process with SIGBUS: builds never
 * do that (they write beside and rename), load = HW_LOAD_RAM avoids it on foreign file systems. In
 * a child of fork() the parent's samplers and passes are refused (HW_FORKED), and closing them does
 * nothing; its stores may be used, samplers opened, batches read; a builder must not be used.
 */
#ifndef HEADWATER_H
#define HEADWATER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HW_VERSION "0.1.0"
#define HW_FORMAT_VERSION 2 /* of stores */
#define HW_ABI 1 /* of this header: one more with each function, member or number that is added */

#if defined(__GNUC__)
#define HW_API __attribute__((visibility("default")))
#define HW_CHECK __attribute__((visibility("default"), warn_unused_result))
#else
#define HW_API
#define HW_CHECK
#endif

/* ---- errors and types ------------------------------------------------------------------- */

typedef enum hw_status {
    HW_OK = 0,
    HW_NO_MEMORY = 1, /* says what the memory was for */
    HW_BAD_ARGUMENT = 2, /* a value the caller passed */
    HW_BAD_SOURCE = 3, /* data handed to the builder */
    HW_BAD_STORE = 4, /* missing, truncated, damaged, or another version's file */
    HW_BAD_TASK = 5, /* a task cannot do what was asked, e.g. a split without seeds */
    HW_IO = 6, /* the operating system refused; the message has its reason */
    HW_TIMED_OUT = 7,
    HW_SHUT_DOWN = 8, /* hw_sampler_shutdown was called */
    HW_END = 9, /* a pass has no more batches */
    HW_INTERRUPTED = 10, /* the interrupt callback asked to stop waiting */
    HW_FORKED = 11, /* a sampler was used in a process forked after it was opened */
} hw_status;

typedef struct hw_error {
    hw_status status;
    char message[500];
} hw_error; /* never changes */

typedef enum hw_semantic_type {
    HW_IDENTIFIER = 0,
    HW_NUMERICAL = 1,
    HW_TIMESTAMP = 2,
    HW_BOOLEAN = 3,
    HW_CATEGORICAL = 4,
    HW_TEXT = 5,
    HW_IGNORED = 6, /* in the schema, never in a context */
} hw_semantic_type;

typedef enum hw_split { HW_TRAIN = 0, HW_VAL = 1, HW_TEST = 2 } hw_split;
#define HW_SPLIT_COUNT 3
#define HW_SPLIT_NONE 3 /* in hw_sampler_splits: of a seed that time_split leaves out */

/* When a column is known (the documentation, "Columns known later"). */
typedef enum hw_known {
    HW_KNOWN_CREATION = 0,
    HW_KNOWN_NEVER = 1,
    HW_KNOWN_COLUMN = 2,
    HW_KNOWN_OFFSET = 3,
} hw_known;

/* hw_option_field_at explains each of these; 0 is the default everywhere. */
typedef enum hw_context_labels {
    HW_LABELS_DEFAULT = 0, /* in a sampler: as the task says; in a task: train, or none if its
                              target is a column of a foreign key */
    HW_LABELS_TRAIN = 1,
    HW_LABELS_NONE = 2,
    HW_LABELS_ALL = 3,
} hw_context_labels;
typedef enum hw_child_order { HW_CHILDREN_UNIFORM = 0, HW_CHILDREN_RECENT = 1 } hw_child_order;
typedef enum hw_width_scope { HW_WIDTH_PER_KEY = 0, HW_WIDTH_PER_ROW = 1 } hw_width_scope;
typedef enum hw_identifier_cells {
    HW_IDENTIFIERS_ALL = 0,
    HW_IDENTIFIERS_KEYS = 1, /* foreign keys only */
    HW_IDENTIFIERS_NONE = 2,
} hw_identifier_cells;
typedef enum hw_objective {
    HW_OBJECTIVE_TASK = 0, /* a task's target; with mask_ratio, also masked cells in train */
    /* masked cells only (the documentation, "Masked cells") */
    HW_OBJECTIVE_MASKED_CELLS = 1,
} hw_objective;
typedef enum hw_shard {
    HW_SHARD_FIXED = 0, /* a seed belongs to one rank for good */
    HW_SHARD_DEALT = 1, /* each epoch deals the seeds anew, so that world_size may change */
} hw_shard;
typedef enum hw_task_order { HW_TASKS_WEIGHTED = 0, HW_TASKS_ROUND_ROBIN = 1 } hw_task_order;
typedef enum hw_layout {
    HW_LAYOUT_DENSE = 0, /* an array per slot and fk_adj, ready to compute with */
    HW_LAYOUT_COMPACT = 1, /* one value lane, packed flags and times: for transfer */
    HW_LAYOUT_FLAT = 2, /* compact cells of all contexts in one row, without padding between
                           (the documentation, "Flat") */
} hw_layout;
typedef enum hw_targets { HW_TARGETS_INLINE = 0, HW_TARGETS_SEPARATE = 1 } hw_targets;
typedef enum hw_text_mode {
    HW_TEXTS_BATCH = 0, /* each batch brings its texts' vectors */
    HW_TEXTS_RESIDENT = 1, /* the caller has all vectors; cells name texts of the store */
    HW_TEXTS_NUMBERS = 2, /* the caller has all vectors; each batch lists those that it needs */
} hw_text_mode;
typedef enum hw_load {
    HW_LOAD_MMAP = 0,
    HW_LOAD_RAM = 1, /* read into memory at open, on huge pages where the kernel gives them */
} hw_load;

/* HW_VERSION of the library that is loaded, for who does not compile against this header. */
HW_API const char *hw_version(void);
/* HW_ABI of the library that is loaded; one that is less lacks some of what this header declares.
 */
HW_API uint32_t hw_abi(void);

/*
 * XXH64 (Yann Collet's published algorithm) of `size` bytes: checksums, key hashes, name hashes.
 * Any thread; data may be NULL if size is 0.
 */
HW_API uint64_t hw_hash64(const void *data, size_t size, uint64_t seed);

/* ---- Arrow C data interface (the published ABI) ------------------------------------------ */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/*
 * Makes of a stream, in its place, one that stays failed once it failed: a reader with several
 * threads asks again, and what a producer then says is not why it failed. What remains to be read
 * is the same; the stream is released as before.
 */
HW_CHECK hw_status hw_steady_stream(struct ArrowArrayStream *stream, hw_error *error);

/*
 * Arrays of the caller as a stream of rows, without a copy. hw_arrays_open makes an empty *stream,
 * hw_arrays_add adds its columns in order, the builder or any other consumer reads it once, and
 * stream->release frees it. The arrays stay the caller's: they must not change or go before the
 * stream and all that was taken from it are released. name and format are copied.
 *
 * values: [row_count] by `format`: "i" int32, "I" uint32, "l" int64, "L" uint64, "g" double, "b"
 * bits, that of row k at 1 << k % 8 of byte k / 8; "u" and "U": the UTF-8 bytes of all texts, of
 * which that of row k is at offsets[k] to offsets[k + 1], int32 or int64 [row_count + 1], else
 * NULL. validity: bits, 0 of a row that is NULL; NULL: no row is. HW_BAD_ARGUMENT, also if the
 * stream was read before. One thread uses a stream.
 */
HW_CHECK hw_status hw_arrays_open(uint64_t row_count, struct ArrowArrayStream *stream,
                                  hw_error *error);
HW_CHECK hw_status hw_arrays_add(struct ArrowArrayStream *stream, const char *name,
                                 const char *format, const void *values, const void *offsets,
                                 const void *validity, hw_error *error);

/* ---- builder: rows to a store ------------------------------------------------------------ */

/*
 * One thread uses a builder. Order of calls: declare every table, then per table its columns, then
 * the foreign keys, then the tasks; then write, table by table in declared order, rows and then
 * the parents of each foreign key; then the seeds of each task; then embeddings; then finish.
 * A stream is read to its end but not released; its errors come back as HW_BAD_SOURCE. Names,
 * descriptions and categories are UTF-8.
 */
typedef struct hw_builder hw_builder;

typedef struct hw_builder_options {
    size_t struct_bytes;
    const char *name; /* of the database */
    int64_t stats_until_us; /* moments use what is known by then; INT64_MAX: all rows */
} hw_builder_options;

typedef struct hw_table_spec {
    size_t struct_bytes;
    const char *name;
    uint32_t key_part_count; /* columns of the primary key; 0: the table has none */
    uint8_t temporal, null_time_visible, days;
    uint8_t reserved[1]; /* 0 */
} hw_table_spec;

typedef struct hw_column_spec {
    size_t struct_bytes;
    const char *name;
    hw_semantic_type stype;
    hw_known known;
    uint32_t known_column; /* global column, HW_KNOWN_COLUMN */
    int64_t known_offset_us; /* HW_KNOWN_OFFSET: after the row's time; HW_KNOWN_COLUMN: after that
                                column's time (one day if it holds dates) */
    uint8_t temporal; /* this column is the table's temporal column */
    uint8_t stored; /* of an ignored column: keep its times for known_at (a timestamp lane) */
    const char *description; /* NULL: none. The `hash` embedder reads it with the names */
} hw_column_spec;

typedef struct hw_key_spec {
    size_t struct_bytes;
    uint32_t child_table, parent_table;
    const uint32_t *columns; /* global columns of the child table, [column_count] */
    uint32_t column_count;
    uint8_t reserved[4]; /* 0 */
} hw_key_spec;

typedef struct hw_task_spec {
    size_t struct_bytes;
    const char *name;
    uint32_t anchor_table;
    uint32_t target_column; /* global column for a cell task; UINT32_MAX for a derived one */
    const char *target_name; /* of a derived task's target */
    hw_semantic_type target_stype;
    const char *const *categories; /* of a derived categorical target, in order */
    uint32_t category_count;
    const uint32_t *hidden; /* global columns, [hidden_count] */
    uint32_t hidden_count;
    uint8_t exclusive, given_split;
    hw_context_labels context_labels;
    uint8_t label_times; /* the seeds say when their labels are known */
    uint8_t reserved[3]; /* 0 */
} hw_task_spec;

/* Creates `directory`, which must not exist, to hold the files of the build. It must lie on the
 * file system of the store: hw_builder_publish renames it into the store. */
HW_CHECK hw_status hw_builder_open(const char *directory, const hw_builder_options *options,
                                   hw_builder **builder, hw_error *error);
/* Closes; removes the directory unless the build was published or finished. */
HW_API void hw_builder_close(hw_builder *builder);

/* Declarations; *index receives the global number. Tables come first, then columns by table. A
 * derived task adds two columns after those of the tables: obs_time, then the target. */
HW_CHECK hw_status hw_builder_add_table(hw_builder *b, const hw_table_spec *spec, uint32_t *index,
                                        hw_error *error);
HW_CHECK hw_status hw_builder_add_column(hw_builder *b, uint32_t table, const hw_column_spec *spec,
                                         uint32_t *index, hw_error *error);
HW_CHECK hw_status hw_builder_add_key(hw_builder *b, const hw_key_spec *spec, uint32_t *index,
                                      hw_error *error);
HW_CHECK hw_status hw_builder_add_task(hw_builder *b, const hw_task_spec *spec, uint32_t *index,
                                       hw_error *error);
/* Categories of a categorical column of a table, in value order, before its rows are written. */
HW_CHECK hw_status hw_builder_set_categories(hw_builder *b, uint32_t column,
                                             const char *const *categories, uint32_t count,
                                             hw_error *error);

/*
 * Rows of a table in row order: by time ascending (rows without time first if null_time_visible,
 * else last), then primary key. Struct columns of the stream, in this order:
 *   time   int64 us, nullable         only if the table is temporal: when the row becomes visible
 *   key    utf8 or int64, per key part never NULL: canonical text, or an integer that stands for
 *                                     its decimal digits; its name in the stream is what the
 *                                     builder's metadata.json calls it, and should be a column's
 *   then one per column that is not ignored (or is `stored`), in schema order:
 *   identifier  anything, NULL where it is NULL (or bool: and where it is false)
 *   numerical   float64, int64 or int32
 *   timestamp   int64 us                                       boolean      bool
 *   categorical utf8 (one of the categories)                   text         utf8
 * Arrow formats taken: b, i, I, l, L, g, u, U. NaN and infinities become NULL and are counted by
 * the caller. Errors name table, column and row.
 */
HW_CHECK hw_status hw_builder_write_rows(hw_builder *b, uint32_t table,
                                         struct ArrowArrayStream *stream, hw_error *error);
/*
 * Parents of a foreign key, after the rows of both tables, as pairs in any order: child and parent,
 * each an int32, uint32 or int64 row within its table, for the child rows that have a parent, each
 * once. `null_count` of the others had a NULL in their key; the rest dangle. *edge_count is the
 * number of pairs.
 */
HW_CHECK hw_status hw_builder_write_edges(hw_builder *b, uint32_t key,
                                          struct ArrowArrayStream *stream, uint64_t null_count,
                                          uint64_t *edge_count, hw_error *error);
/*
 * Seeds of a task, sorted by (anchor, obs_time, target, split). Columns: anchor (row within the
 * anchor table: int32, uint32 or int64), obs_time int64 (NULL: INT64_MAX), target (float64, int64
 * us, bool or utf8 category by stype; nullable), labelled bool, split int32 (0, 1, 2; NULL: by
 * hash), position (int32, uint32 or int64), and if the task has label_times known_at int64 us: when
 * the label is known (NULL: never). A NULL target that is labelled is the label NULL; the target of
 * a seed that is not is ignored. `position` is the caller's own number of the seed, less than
 * UINT32_MAX, such as its place before sorting: kept for hw_store_seeds, and no more.
 */
HW_CHECK hw_status hw_builder_write_seeds(hw_builder *b, uint32_t task,
                                          struct ArrowArrayStream *stream, hw_error *error);
/* Seeds of a task that were written, [train, val, test]: as they say, else as a sampler with the
 * default ratios and split_seed deals them. */
HW_CHECK hw_status hw_builder_seed_splits(const hw_builder *b, uint32_t task, uint64_t counts[3],
                                          hw_error *error);

/* What the builder measured, for metadata.json; valid once the rows or seeds are written. */
typedef struct hw_column_stats {
    size_t struct_bytes;
    uint64_t value_count, null_count; /* over all rows */
    double mean, std, min, max; /* numerical: mean and std of what is known by stats_until, min and
                                   max of all */
    int64_t min_us, max_us; /* timestamps */
    uint64_t true_count; /* booleans */
    uint32_t category_start, category_count;
} hw_column_stats;
HW_CHECK hw_status hw_builder_column_stats(const hw_builder *b, uint32_t column,
                                           hw_column_stats *stats, hw_error *error);

/* Distinct texts so far, in order of first appearance (by table, row, column). */
HW_API uint32_t hw_builder_text_count(const hw_builder *b);
/* Text `index`; *text is not terminated and is valid until the next call on the builder. */
HW_CHECK hw_status hw_builder_text(hw_builder *b, uint32_t index, const char **text, size_t *bytes,
                                   hw_error *error);

typedef enum hw_embedding_kind {
    HW_EMBED_TEXTS = 0,
    HW_EMBED_COLUMNS = 1,
    HW_EMBED_CATEGORIES = 2,
} hw_embedding_kind;
/* The embedder's name and width, before any vector is written; without this call `hash`, 256 wide.
 * With `hash` hw_builder_finish makes each kind of vectors of which none was written. */
HW_CHECK hw_status hw_builder_set_embedder(hw_builder *b, const char *name, uint32_t text_dim,
                                           hw_error *error);
/* Appends `count` float16 vectors [count, text_dim] of a kind, in order of index. */
HW_CHECK hw_status hw_builder_write_vectors(hw_builder *b, hw_embedding_kind kind,
                                            const void *vectors, uint64_t count, hw_error *error);

/*
 * Writes graph, schema and metadata.json, computes the fingerprint (32 lower-case hex digits and a
 * zero) from the contents, stamps it on every file and syncs them. metadata: the bytes of
 * metadata.json, which are taken as they are; NULL and 0: the builder writes one with all that
 * Python reads (the documentation, "metadata.json").
 */
HW_CHECK hw_status hw_builder_finish(hw_builder *b, const void *metadata, size_t metadata_bytes,
                                     char fingerprint[33], hw_error *error);
/*
 * Moves the finished directory to store_path/<fingerprint>, replaces store_path/manifest.json
 * atomically and removes builds that it no longer names. An equal build already there is kept. May
 * be called again after it failed.
 *
 * Nothing else is removed or replaced: HW_BAD_STORE if store_path has a manifest.json that is not a
 * store's, or of a newer format; and a folder is taken for a build only by the headers of its
 * files, and stays if it holds anything else. The manifest is first written as
 * `<directory>.manifest.json`, a new file.
 */
HW_CHECK hw_status hw_builder_publish(hw_builder *b, const char *store_path, hw_error *error);

/*
 * The `hash` embedder: signed hashing of words and character n-grams, L2-normalised; no weights,
 * the same bits on any machine. Writes float16 [text_dim]. Any thread.
 */
HW_CHECK hw_status hw_hash_embed(const char *text, size_t bytes, uint32_t text_dim, void *vector,
                                 hw_error *error);

/* ---- store ------------------------------------------------------------------------------- */

/* Immutable after open; any number of threads may use it, and many samplers may share it. */
typedef struct hw_store hw_store;

/* Opens a store directory (through its manifest) or one build inside it. A build that is published
 * meanwhile is opened in place of the one that it removes. O(files), not O(data):
 * hw_store_check_files proves the contents of the files. */
HW_CHECK hw_status hw_store_open(const char *path, hw_load load, hw_store **store, hw_error *error);
HW_API void hw_store_close(hw_store *store); /* drops one reference */
HW_API hw_store *hw_store_retain(hw_store *store);
/* Directory of the build that is open. */
HW_API const char *hw_store_directory(const hw_store *store);
HW_API const char *hw_store_fingerprint(const hw_store *store);

typedef struct hw_store_counts {
    size_t struct_bytes;
    uint32_t table_count, column_count, key_count, task_count;
    uint32_t row_count, category_count, text_count, text_dim;
    double time_mean_us, time_std_us; /* by which all times are shown */
} hw_store_counts;
HW_CHECK hw_status hw_store_get_counts(const hw_store *store, hw_store_counts *counts,
                                       hw_error *error);

/*
 * The tables, columns, foreign keys, tasks and categories of the store, by number and by name.
 * Texts and lists belong to the store and last until its last reference is dropped; names end with
 * a zero. A number that is too large and a name that the store does not have are HW_BAD_ARGUMENT;
 * the message lists names that it has.
 *
 * The first call of any of these functions reads all of metadata.json, and the store keeps it.
 * HW_BAD_STORE if the build wrote another one, or if it contradicts schema.bin; HW_IO,
 * HW_NO_MEMORY. Any thread.
 */
typedef struct hw_table_info {
    size_t struct_bytes;
    const char *name;
    uint32_t first_row, row_count; /* global rows */
    uint32_t first_column, column_count; /* global columns, ignored ones included */
    uint32_t first_key, key_count; /* its foreign keys */
    uint32_t temporal_column; /* UINT32_MAX: none */
    uint32_t primary_key_count; /* 0 also if metadata.json does not have the columns */
    const uint32_t *primary_key; /* columns, as hw_store_row_key has the parts */
    uint8_t is_keyed; /* 1: it has a primary key */
    uint8_t reserved[7]; /* 0 */
} hw_table_info;
HW_CHECK hw_status hw_store_table_info(const hw_store *store, uint32_t table, hw_table_info *info,
                                       hw_error *error);
typedef struct hw_column_info {
    size_t struct_bytes;
    const char *name;
    uint32_t table; /* UINT32_MAX: the obs_time or target of a derived task */
    uint32_t task; /* of those, else UINT32_MAX */
    hw_semantic_type stype;
    hw_known known;
    uint32_t known_column; /* HW_KNOWN_COLUMN */
    uint32_t first_category, category_count; /* categories of the store */
    int64_t known_offset_us;
    double mean, std; /* numerical: z = (x - mean) / std */
    uint64_t value_count, null_count; /* over all rows */
} hw_column_info;
HW_CHECK hw_status hw_store_column_info(const hw_store *store, uint32_t column,
                                        hw_column_info *info, hw_error *error);
typedef struct hw_key_info {
    size_t struct_bytes;
    const char *name; /* "orders.customer_id", "lines.order_id+line": the child's table, columns */
    uint32_t child_table, parent_table;
    uint32_t column_count;
    const uint32_t *columns; /* of the child table, [column_count] */
    const uint32_t *parent_columns; /* that they refer to; NULL: metadata.json does not have them */
    uint64_t edge_count, null_count, dangling_count; /* rows of the child table */
} hw_key_info;
HW_CHECK hw_status hw_store_key_info(const hw_store *store, uint32_t key, hw_key_info *info,
                                     hw_error *error);
typedef struct hw_task_info {
    size_t struct_bytes;
    const char *name;
    uint32_t anchor_table;
    uint32_t target_column; /* of the anchor table, or the task's own */
    hw_semantic_type target_stype;
    uint32_t obs_time_column; /* the task's own; UINT32_MAX: is_cell */
    uint32_t seed_count;
    uint32_t hidden_count;
    const uint32_t *hidden; /* columns */
    hw_context_labels context_labels; /* as in hw_task_spec */
    uint8_t is_cell; /* 1: the target is a column of the anchor table; 0: a derived task */
    uint8_t exclusive, given_split, label_times; /* as in hw_task_spec */
} hw_task_info;
HW_CHECK hw_status hw_store_task_info(const hw_store *store, uint32_t task, hw_task_info *info,
                                      hw_error *error);
/* The text of a category of the store (hw_cell.index, categorical_embed_ids), UTF-8 and a zero;
 * HW_BAD_STORE if metadata.json has none. */
HW_CHECK hw_status hw_store_category(const hw_store *store, uint32_t category, const char **text,
                                     size_t *bytes, hw_error *error);

HW_CHECK hw_status hw_store_find_table(const hw_store *store, const char *name, uint32_t *table,
                                       hw_error *error);
HW_CHECK hw_status hw_store_find_column(const hw_store *store, const char *table, const char *name,
                                        uint32_t *column, hw_error *error);
/* By the name that hw_key_info has. */
HW_CHECK hw_status hw_store_find_key(const hw_store *store, const char *name, uint32_t *key,
                                     hw_error *error);
HW_CHECK hw_status hw_store_find_task(const hw_store *store, const char *name, uint32_t *task,
                                      hw_error *error);
/* metadata.json of the build that is open: UTF-8 and a zero. It has descriptions and statistics
 * besides. */
HW_CHECK hw_status hw_store_metadata(const hw_store *store, const char **text, size_t *bytes,
                                     hw_error *error);

/* Called as work begins and about every 100 ms; nonzero ends it with HW_INTERRUPTED. */
typedef int (*hw_progress_callback)(void *context, uint64_t done_bytes, uint64_t total_bytes);

typedef enum hw_verify {
    HW_VERIFY_ONCE = 0, /* read everything, unless that was done on this machine before */
    HW_VERIFY_HEADER = 1, /* what hw_store_open proves is enough */
    HW_VERIFY_FULL = 2, /* read everything */
} hw_verify;
typedef enum hw_verified {
    HW_VERIFIED_HEADER = 0, /* nothing was read */
    HW_VERIFIED_BEFORE = 1, /* nothing was read: it is remembered */
    HW_VERIFIED_NOW = 2,
} hw_verified;
typedef struct hw_verification {
    size_t struct_bytes;
    hw_verified how;
    char not_remembered[200]; /* why HW_VERIFY_ONCE will read it again the next time, or "" */
    uint8_t reserved[4]; /* 0 */
} hw_verification;
/* 32 hex digits of this build in these very files: they change with the device, inode, size, mtime
 * or ctime of any file. Nobody can set a ctime: a file that is put back with its times has a new
 * one. */
HW_API void hw_store_identity(const hw_store *store, char identity[33]);
/*
 * Proves by the checksums of an open store that its files hold what its build wrote, which
 * hw_store_open does not: HW_BAD_STORE with the file and the byte of the first fault.
 *
 * `folder`, made if it is not there, remembers what was read and was sound: it has a file for each
 * identity, which a fault removes. A process that wants the store while another one reads it waits
 * (flock). NULL, or a folder that cannot be used: nothing is remembered, and *verification says
 * why.
 *
 * The callback (NULL: none) is called in this thread, with 0 done_bytes while another process
 * reads. Any thread. HW_INTERRUPTED, HW_NO_MEMORY. About 4 GB/s from the page cache.
 */
HW_CHECK hw_status hw_store_check_files(const hw_store *store, hw_verify verify, const char *folder,
                                        hw_progress_callback progress, void *context,
                                        hw_verification *verification, hw_error *error);

/* Calls fault(context, message) for every fault found in contents; *count receives how many. */
typedef void (*hw_fault_callback)(void *context, const char *message);
HW_CHECK hw_status hw_store_verify(const hw_store *store, hw_fault_callback fault, void *context,
                                   uint64_t *count, hw_error *error);

/* One cell of one row in store units, for people and tests. */
typedef struct hw_cell {
    size_t struct_bytes;
    uint32_t column;
    hw_semantic_type stype;
    uint8_t is_null;
    double number; /* numerical (undone z-score), boolean 0/1 */
    int64_t time_us;
    uint32_t index; /* category within the store, or text */
    uint8_t reserved[4]; /* 0 */
} hw_cell;
/* The table of a global row; HW_BAD_ARGUMENT past the last row. */
HW_CHECK hw_status hw_store_row_table(const hw_store *store, uint32_t row, uint32_t *table,
                                      hw_error *error);
/* Time of a row; INT64_MAX or INT64_MIN where it has none. */
HW_CHECK hw_status hw_store_row_time(const hw_store *store, uint32_t row, int64_t *time_us,
                                     hw_error *error);
/* The times of all rows of a table, in row order: a view of the map, valid while the store is open;
 * NULL if the rows have no times and are visible always. */
HW_CHECK hw_status hw_store_row_times(const hw_store *store, uint32_t table,
                                      const int64_t **times_us, uint32_t *rows, hw_error *error);
/* Cell of `row` in global column `column` of its table. */
HW_CHECK hw_status hw_store_cell(const hw_store *store, uint32_t row, uint32_t column,
                                 hw_cell *cell, hw_error *error);
/* Parent by foreign key (global number) or UINT32_MAX; children of `row` by a key that points at
 * its table: a view of the map, valid while the store is open. */
HW_CHECK hw_status hw_store_parent(const hw_store *store, uint32_t row, uint32_t key,
                                   uint32_t *parent, hw_error *error);
HW_CHECK hw_status hw_store_children(const hw_store *store, uint32_t row, uint32_t key,
                                     const uint32_t **children, uint32_t *count, hw_error *error);
/* Key of a row: length-prefixed parts (uint32 little-endian, bytes); HW_BAD_ARGUMENT if the table
 * has no primary key. View of the map. */
HW_CHECK hw_status hw_store_row_key(const hw_store *store, uint32_t row, const void **key,
                                    size_t *bytes, hw_error *error);
/* Global row of a length-prefixed key; UINT32_MAX where there is none. */
HW_CHECK hw_status hw_store_find(const hw_store *store, uint32_t table, const void *key,
                                 size_t bytes, uint32_t *row, hw_error *error);
HW_CHECK hw_status hw_store_text(const hw_store *store, uint32_t index, const char **text,
                                 size_t *bytes, hw_error *error);
/* float16 [count, text_dim], a view of the map. */
HW_CHECK hw_status hw_store_vectors(const hw_store *store, hw_embedding_kind kind,
                                    const void **vectors, uint64_t *count, hw_error *error);
/* Seeds of a task, views of the map, all [count], as they were written. `states`: in the low 4 bits
 * 0 a label, 1 the label NULL, 2 none; in the high 4 bits the split, or 15: each sampler deals it.
 * `targets`: of a label, by its type, the bits of a double, us, 0 or 1, or the place among the
 * target's categories; else 0. `key_hashes`: hw_hash64 with seed 0 of the anchor's key, or without
 * one of its row within its table as uint64. */
typedef struct hw_seeds {
    size_t struct_bytes;
    uint32_t count;
    const uint32_t *anchors; /* global rows */
    const int64_t *obs_times;
    const uint64_t *targets;
    const uint8_t *states;
    const uint64_t *key_hashes;
    const uint32_t *positions; /* as hw_builder_write_seeds was given them */
    const int64_t *label_times; /* INT64_MAX: never; NULL where the task does not say */
} hw_seeds;
HW_CHECK hw_status hw_store_seeds(const hw_store *store, uint32_t task, hw_seeds *seeds,
                                  hw_error *error);
/*
 * A whole foreign key (global number): the child rows of each parent, oldest first, and when each
 * edge becomes visible: with the child, or when the key is known if that is later; INT64_MIN:
 * always, INT64_MAX: never. Those of parent p, counted within its table, are at starts[p] to
 * starts[p + 1]. starts is [parent_rows + 1], rows and times_us [edges], as hw_store_edge_counts
 * says. Outputs are undefined after an error. O(parent_rows + edges).
 */
HW_CHECK hw_status hw_store_edge_counts(const hw_store *store, uint32_t key, uint32_t *parent_rows,
                                        uint64_t *edges, hw_error *error);
HW_CHECK hw_status hw_store_edges(const hw_store *store, uint32_t key, uint64_t *starts,
                                  uint32_t *rows, int64_t *times_us, hw_error *error);
/*
 * A whole column (global number) of a table that is not ignored, both [rows of the table, as
 * hw_store_column_rows says]: its cells as numbers, NaN where NULL (numerical; boolean 0 or 1;
 * timestamp in us; categorical by its place among the column's categories; text by its index;
 * identifier 1), and when each is known where its row is visible; INT64_MIN: with its row,
 * INT64_MAX: never. O(rows).
 */
HW_CHECK hw_status hw_store_column_rows(const hw_store *store, uint32_t column, uint32_t *rows,
                                        hw_error *error);
HW_CHECK hw_status hw_store_column(const hw_store *store, uint32_t column, double *numbers,
                                   int64_t *times_us, hw_error *error);
/* Reads every page once with `threads` threads, so that later reads do not wait for the disk. */
HW_CHECK hw_status hw_store_warm_up(const hw_store *store, uint32_t threads, hw_error *error);

/* ---- sampler: a store to batches --------------------------------------------------------- */

/* Samplers without num_threads share the threads of the process, as many as the thread that opens
 * the first of them has usable cores, at most 16; each has its turn when it wants batches. */
typedef struct hw_sampler hw_sampler;
typedef struct hw_pass hw_pass;
typedef struct hw_batch hw_batch;

/* Called about every 100 ms while waiting; nonzero ends the wait with HW_INTERRUPTED. */
typedef int (*hw_interrupt_callback)(void *context);

/* hw_sampler_options_init makes the defaults. An option that is 0 takes its default if 0 is below
 * its least value. What each means: hw_option_field_at. */
typedef struct hw_sampler_options {
    size_t struct_bytes;
    uint32_t rank, world_size; /* world_size 0: 1 */
    hw_shard shard; /* the documentation, "Shards" */
    double split_ratios[3]; /* sum to 1 */
    uint64_t split_seed, seed; /* taken as given */
    uint32_t batch_size; /* 0: 32 */
    uint32_t sequence_length; /* 0: 1024 */
    uint32_t max_rows; /* 0: chosen (the documentation, "Budgets") and reported by
                          hw_sampler_shape */
    uint32_t child_width; /* 0: 16 */
    uint32_t max_hops; /* from the anchor. 0: no limit; else limit + 1 (1 = no row beyond it) */
    hw_width_scope width_scope;
    hw_child_order child_order;
    hw_identifier_cells identifier_cells;
    hw_context_labels context_labels;
    hw_targets targets;
    hw_task_order task_order;
    const uint32_t *tasks; /* store's task numbers, ascending; NULL: all */
    uint32_t task_count;
    const double
        *task_weights; /* of each of `tasks` or `seed_tables`, else of all; NULL: uniform */
    const int64_t *visible_until; /* [3] by split, NULL: INT64_MAX */
    uint32_t num_threads; /* of its own; 0: those that samplers share */
    int32_t num_prefetch; /* batches made ahead, at most. 0: synchronous, no threads; -1: 3, or as
                             many as keep all threads at work (the documentation, "Tuning") */
    int32_t num_prefetch_val;
    uint32_t text_budget; /* U of every batch; 0: chosen from a sample, with usual_texts
                             (the documentation, "Budgets"); resident: always 0 */
    uint8_t with_rows; /* row_depths, and row_ids in info */
    hw_layout layout;
    hw_text_mode text_mode;
    uint8_t attention_masks; /* column_mask, feature_mask, neighbor_mask, padding_mask */
    uint8_t packing; /* several contexts to a sequence (the documentation, "Packing") */
    uint32_t contexts_per_batch; /* with packing: seeds of a batch; 0: chosen from a sample */
    uint32_t level_block; /* flat: K, batches of a task whose lengths are levelled together;
                             1: batches keep the order of the stream */
    uint32_t level_parts; /* flat: consecutive batches of a task that a trainer's step takes,
                             levelled as one batch first; 0: 1 */
    double staleness_zero_share, staleness_max_days; /* train seeds see less by a gap, 0 with this
                                                        probability, else up to max_days; 0: off
                                                        (the documentation, "Staleness") */
    uint8_t child_counts; /* cells for the visible children of each row, with three columns of their
                             own for each foreign key, after those of the store */
    uint32_t label_rows; /* most earlier seeds of the anchor, with their known labels, in a context
                            of a derived task (the documentation, "Label rows") */
    const int64_t *time_split; /* [2] from and until, NULL: off. Deals the seeds of train anew:
                                  train are those whose label is known by `from`, val those asked
                                  from then until before `until`; all others are in no split
                                  (the documentation, "Splits by time") */
    uint8_t train_on_val; /* the seeds of val are train's, before time_split; val has none */
    hw_objective objective;
    double mask_ratio; /* probability that a cell is masked, up to 1; 0: none for a task, 0.15 for
                          masked cells. Not with packing */
    const uint32_t *seed_tables; /* objective masked cells: the rows of these tables, at their own
                                    times, are the seeds instead of the tasks'; NULL: the tasks' */
    uint32_t seed_table_count;
    uint32_t max_targets_per_type; /* M: masked cells of one type in a sequence, at most; 0: chosen
                                      from a sample, reported by hw_sampler_shape */
    /* most seeds of other anchors, with their known labels, in a context of a derived task
       (the documentation, "Peer labels"); at most 1024 */
    uint32_t peer_labels;
    double cell_dropout; /* probability, less than 1, that a cell is left out of a train context
                            (the documentation, "Cell dropout") */
    uint32_t context_length; /* with packing: most cells of a context, at most sequence_length;
                                0: sequence_length (the documentation, "Packing") */
    uint32_t max_context_rows; /* with packing: most rows of a context, at most max_rows; 0:
                                  max_rows, or chosen where that is 0 */
} hw_sampler_options;

/* Sets the first `bytes` of *options, sizeof(hw_sampler_options) of the caller's header and at
 * least sizeof(size_t), to the defaults; lists are NULL. Any thread. */
HW_API void hw_sampler_options_init(hw_sampler_options *options, size_t bytes);

typedef enum hw_option_type {
    HW_OPTION_FLAG = 0, /* uint8_t, 0 or 1 */
    HW_OPTION_WORD = 1, /* an enum: the place of its word in `words` */
    HW_OPTION_UINT32 = 2,
    HW_OPTION_INT32 = 3,
    HW_OPTION_UINT64 = 4,
    HW_OPTION_DOUBLE = 5,
    HW_OPTION_TIMES = 6, /* const int64_t *, us; NULL: none */
    HW_OPTION_NUMBERS = 7, /* const uint32_t *, and how many; NULL: none */
    HW_OPTION_WEIGHTS = 8, /* const double *, one per task; NULL: none */
} hw_option_type;

/* A member of hw_sampler_options as data, for bindings and docs. */
typedef struct hw_option_field {
    size_t struct_bytes;
    const char *name; /* of the member */
    hw_option_type type;
    uint32_t offset, count; /* bytes; how many values there are, or NUMBERS: the offset of the
                               member that says so */
    double standard[3]; /* the defaults */
    double least, most; /* the standard may be less than that: chosen, or off */
    const char *const *words; /* up to a NULL; NULL: not of type WORD */
    uint8_t decides_contexts; /* 0: other batches, threads or ranks, of the same contexts */
    const char *doc;
} hw_option_field;
/* All of them, in the order of this table; what they point at is static. Any thread. */
HW_API uint32_t hw_option_field_count(void);
HW_CHECK hw_status hw_option_field_at(uint32_t index, hw_option_field *field, hw_error *error);

/*
 * With seed_tables a table stands where functions below speak of a task: its number is the store's
 * task count plus its own, task_weights are by seed table, and lists by task of the store have one
 * entry more for each table of the store.
 */

/* Retains the store. Reads the seeds of the selected tasks once, and walks a sample of them.
 * HW_NO_MEMORY also if the batches of a full queue would not fit into the machine's memory. */
HW_CHECK hw_status hw_sampler_open(hw_store *store, const hw_sampler_options *options,
                                   hw_sampler **sampler, hw_error *error);
/* Ends production and drops queued batches; waits end with HW_SHUT_DOWN, of passes too.
 * Idempotent. */
HW_API void hw_sampler_shutdown(hw_sampler *sampler);
HW_API hw_sampler *hw_sampler_retain(hw_sampler *sampler);
/* Drops one reference, of which each open pass has one; the last shuts down and frees. Passes
 * continue without the caller's: shut down first to end them. Batches handed out stay valid. */
HW_API void hw_sampler_close(hw_sampler *sampler);

/* B, S, R, D_t and P of this sampler's batches; seeds that a batch owns, and T, the most of them
 * in one sequence: B and 1 without packing. The most cells and rows of a context are context_length
 * and max_context_rows: S and R without packing. U, the rows of text_batch_embeddings or
 * text_numbers, is usual_texts in a batch that needs no more, else text_budget; both are 0 with
 * resident texts. In the flat layout a batch has one row of at most cells_per_batch cells and
 * rows_per_batch rows. */
typedef struct hw_shape {
    size_t struct_bytes;
    uint32_t batch_size, sequence_length, max_rows, text_budget, text_dim, parent_slots;
    uint32_t contexts_per_batch, contexts_per_sequence;
    uint32_t max_targets_per_type; /* M; 0 where no cell is masked */
    uint32_t usual_texts; /* at most text_budget, which it is where that is given */
    uint32_t cells_per_batch, rows_per_batch; /* 0 but in the flat layout: most of any task */
    uint32_t context_length, max_context_rows; /* at most sequence_length and max_rows */
} hw_shape;
HW_CHECK hw_status hw_sampler_shape(const hw_sampler *sampler, hw_shape *shape, hw_error *error);

/* Sizes of the flat batches of a task, chosen from a sample of its contexts
 * (the documentation, "Flat"). */
typedef struct hw_flat_shape {
    size_t struct_bytes;
    uint32_t cells, rows; /* N and R_n of the batches of the stream of train */
    uint32_t pass_cells[3], pass_rows[3]; /* of passes over each split, in the order of the seeds;
                                             of seeds that are given: the largest of them */
    uint32_t sampled, capped; /* contexts of the sample; those that S or R ended, dropped cells
                                 counted */
} hw_flat_shape;
/* HW_BAD_ARGUMENT if the layout is another, or the task is not one of this sampler's. */
HW_CHECK hw_status hw_sampler_flat_shape(const hw_sampler *sampler, uint32_t task,
                                         hw_flat_shape *shape, hw_error *error);

/* Next batch of the stream of HW_TRAIN or HW_VAL. timeout_ms < 0 waits for ever. A stream without
 * prefetch makes the batch in the calling thread: nothing to wait for, time out or interrupt. */
HW_CHECK hw_status hw_sampler_next(hw_sampler *sampler, hw_split split, int64_t timeout_ms,
                                   hw_interrupt_callback interrupt, void *context, hw_batch **batch,
                                   hw_error *error);
/* Batch k of a split's stream, a pure function; made in the calling thread. */
HW_CHECK hw_status hw_sampler_batch(hw_sampler *sampler, hw_split split, uint64_t k,
                                    hw_batch **batch, hw_error *error);

/* A finite pass over the seeds of a split, by the workers: task number, or UINT32_MAX for every
 * selected task in turn. */
HW_CHECK hw_status hw_pass_open(hw_sampler *sampler, hw_split split, uint32_t task, uint32_t index,
                                hw_pass **pass, hw_error *error);
/* A pass over ad-hoc seeds of a task, unlabelled: anchors are global rows of its anchor table. The
 * arrays are copied. */
HW_CHECK hw_status hw_pass_open_seeds(hw_sampler *sampler, uint32_t task, const uint32_t *anchors,
                                      const int64_t *obs_times, uint32_t count, hw_pass **pass,
                                      hw_error *error);
/* A pass over chosen seeds of a task, by their numbers (`seed_index` of a batch; of a seed table
 * rows within it), in the order given, any of them several times. Each is drawn in its own split
 * and the epoch given for it (NULL: 0): its context, labels included, is that of
 * hw_pass_open(split, task, epoch). All of them are this rank's; count 0: one empty batch, so that
 * ranks stay in step. HW_BAD_ARGUMENT if a number is out of range, or of a seed in no split. The
 * arrays are copied. */
HW_CHECK hw_status hw_pass_open_chosen(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                                       const uint32_t *epochs, uint32_t count, hw_pass **pass,
                                       hw_error *error);
/* The same, with batches of the size of a stream's: each has the next contexts_per_batch seeds, and
 * the last one those that are left. In the flat layout a batch is levelled by itself, to the cells
 * and rows of hw_flat_shape, so its contexts may be cut: the seeds of a batch of HW_TRAIN make that
 * batch again if level_block and level_parts are 1 and no other rank has a part of it. In other
 * layouts this is hw_pass_open_chosen. */
HW_CHECK hw_status hw_pass_open_levelled(hw_sampler *sampler, uint32_t task, const uint32_t *seeds,
                                         const uint32_t *epochs, uint32_t count, hw_pass **pass,
                                         hw_error *error);
/* Batches of the whole pass. In the flat layout ranks may have different numbers of batches, if
 * their batches are not levelled. */
HW_API uint64_t hw_pass_batch_count(const hw_pass *pass);
/* As hw_sampler_next; any thread, and of several each gets other batches. HW_END after the last. */
HW_CHECK hw_status hw_pass_next(hw_pass *pass, int64_t timeout_ms, hw_interrupt_callback interrupt,
                                void *context, hw_batch **batch, hw_error *error);
HW_API void hw_pass_close(hw_pass *pass);

/*
 * The rows that the context of a seed visits and the links between them, without its cells, as
 * batches of any layout have them before packing cuts them. Seed and epoch as in
 * hw_pass_open_chosen, whose errors it has. `both` 1: each link also from parent to child. Walked
 * in the calling thread, whatever the others do; it counts in no statistics.
 */
typedef struct hw_subgraph hw_subgraph;
HW_CHECK hw_status hw_sampler_subgraph(const hw_sampler *sampler, uint32_t task, uint32_t seed,
                                       uint32_t epoch, uint8_t both, hw_subgraph **subgraph,
                                       hw_error *error);
/* Arrays of the subgraph, until it is closed. Rows are in the order of the walk: the first is the
 * seed row of a derived task, else the anchor. */
typedef struct hw_subgraph_arrays {
    size_t struct_bytes;
    uint32_t row_count, edge_count;
    const uint32_t *rows; /* [row_count] global; UINT32_MAX: of the task, a seed or label row */
    const int32_t *row_tables; /* [row_count]; -1: of the task */
    const uint8_t *row_depths; /* [row_count] hops from the first row, at most 255 */
    const uint16_t *local_edges; /* [edge_count, 2] child and parent, places in `rows`, each pair
                                    once; with `both` behind them (parent, child), if that is new */
} hw_subgraph_arrays;
HW_CHECK hw_status hw_subgraph_get(const hw_subgraph *subgraph, hw_subgraph_arrays *arrays,
                                   hw_error *error);
HW_API void hw_subgraph_close(hw_subgraph *subgraph);

/* Seeds of a (split, task) over all ranks; the split of every seed of a task, uint8 [count], count
 * as in hw_store_seeds, of a seed table its rows. */
HW_CHECK hw_status hw_sampler_seed_count(const hw_sampler *sampler, hw_split split, uint32_t task,
                                         uint32_t *count, hw_error *error);
HW_CHECK hw_status hw_sampler_splits(const hw_sampler *sampler, uint32_t task, uint8_t *splits,
                                     uint32_t count, hw_error *error);
/* Normalisation of a task's target under this sampler's train split. */
typedef struct hw_target_stats {
    size_t struct_bytes;
    uint64_t train_count, null_count;
    double mean, std; /* numerical; of booleans the share of true; else 0 */
    double column_mean, column_std; /* how the target's z-scores are scaled; times: in us */
} hw_target_stats;
HW_CHECK hw_status hw_sampler_target_stats(const hw_sampler *sampler, uint32_t task,
                                           hw_target_stats *stats, hw_error *error);
/* How the cells of a column of a table are shown: z = (x - mean) / std; timestamps, all alike: in
 * us; 0 and 0 of other types. As the store says, or by what was known at time_split[0], where that
 * is before the store's stats_until. HW_BAD_ARGUMENT if there is no such column. */
HW_CHECK hw_status hw_sampler_column_scale(const hw_sampler *sampler, uint32_t column, double *mean,
                                           double *std, hw_error *error);

/*
 * Which rows are asked about, in which order, in the hands of the caller; it needs a store only.
 *
 * A pool has the seeds of one split of the options' tasks, or of the rows of their seed_tables (no
 * objective is needed for that). Of the options it takes those that decide seeds: tasks,
 * task_weights, task_order, seed_tables, split_ratios, split_seed, seed, visible_until, time_split,
 * train_on_val, rank and world_size with fixed shards. A sampler of the same options has the same
 * seeds in the same order, as hw_pass_open_chosen makes contexts of them.
 *
 * One thread at a time (the documentation, "Pools of seeds").
 */
typedef struct hw_seed_pool hw_seed_pool;
/*
 * require_label 1: only seeds whose label is there and not NULL; of a seed table those whose cell
 * in label_columns is not NULL, global columns [seed_table_count] (UINT32_MAX, or label_columns
 * NULL: no label, every row). HW_BAD_TASK if no seed is left in any task. O(seeds).
 */
HW_CHECK hw_status hw_seed_pool_open(hw_store *store, const hw_sampler_options *options,
                                     hw_split split, uint8_t require_label,
                                     const uint32_t *label_columns, hw_seed_pool **pool,
                                     hw_error *error);
HW_API void hw_seed_pool_close(hw_seed_pool *pool);
/* From now on tasks do not take turns: the seeds of all of them are one list, task behind task,
 * which each epoch shuffles as one. Begins anew, with all seeds. Rank, world_size and
 * hw_seed_pool_keep take entries of that list, and each of `positions` is the position in it.
 * HW_BAD_ARGUMENT with task_weights, with a task_order, or for 2^32 seeds or more. */
HW_CHECK hw_status hw_seed_pool_together(hw_seed_pool *pool, hw_error *error);
/* Has of each task's seeds, in stored order, entry first, first + step, ..., `most` at most, for
 * all epochs, and begins anew. Rank r of W: first r, step W. Another call starts from all seeds
 * again. */
HW_CHECK hw_status hw_seed_pool_keep(hw_seed_pool *pool, uint32_t first, uint32_t step,
                                     uint32_t most, hw_error *error);
/* Seeds of the pool; those left to the end of the epoch that each task is in. */
HW_API uint64_t hw_seed_pool_count(const hw_seed_pool *pool);
HW_API uint64_t hw_seed_pool_remaining(const hw_seed_pool *pool);
/* Where hw_seed_pool_next writes, [count] each, of the caller. */
typedef struct hw_drawn_seeds {
    size_t struct_bytes;
    uint32_t *seeds; /* numbers within the task; of a seed table the row within the table */
    uint32_t *epochs;
    uint32_t *rows; /* global row of the anchor */
    int64_t *obs_times;
    double *labels; /* in source units, 0 or 1, index within the categories, or us; NaN: none */
    uint32_t *tasks; /* task of each seed; may be NULL unless seeds are drawn together */
} hw_drawn_seeds;
/* The next `count` seeds of one task, which takes its turn as in a sampler's stream; they run on
 * into its next epoch. *taken is 0 if the pool has no seeds of that task, else count. Together:
 * the next of all tasks, and *task is UINT32_MAX. */
HW_CHECK hw_status hw_seed_pool_next(hw_seed_pool *pool, uint32_t count,
                                     const hw_drawn_seeds *drawn, uint32_t *task, uint32_t *taken,
                                     hw_error *error);
/* What a resume needs: seeds drawn by task, as in hw_sampler_get_position, and calls of next. */
HW_API void hw_seed_pool_get_position(const hw_seed_pool *pool, uint64_t *positions,
                                      uint64_t *batches);
HW_API void hw_seed_pool_set_position(hw_seed_pool *pool, const uint64_t *positions,
                                      uint64_t batches);

/* What a resume needs: global positions consumed by task [store's task count; with seed tables
 * more] and batches of a split. Setting drops what was prefetched. With fixed shards a position is
 * a multiple of world_size, else HW_BAD_ARGUMENT. */
HW_CHECK hw_status hw_sampler_get_position(hw_sampler *sampler, hw_split split, uint64_t *positions,
                                           uint64_t *batches, hw_error *error);
HW_CHECK hw_status hw_sampler_set_position(hw_sampler *sampler, hw_split split,
                                           const uint64_t *positions, uint64_t batches,
                                           hw_error *error);

typedef struct hw_sampler_stats {
    size_t struct_bytes;
    uint64_t batches, sequences, cells, padded_cells, rows;
    uint64_t walk_ns, emit_ns, text_ns; /* summed over threads */
    uint64_t producer_wait_ns; /* summed over threads: without work for this sampler, until now */
    uint64_t consumer_wait_ns;
    uint64_t elapsed_ns; /* since the sampler was opened */
    uint64_t stopped_by_rows, texts_over_budget;
    uint32_t threads, train_queue, val_queue, pass_queue; /* that serve it; batches ready now */
    uint64_t slab_bytes, slab_count;
    /* packing: contexts cut and dropped, cells lost by both; cells and sequences of batches. Flat:
       contexts cut, cells lost by it, and cells of batches without those; padded_cells are N */
    uint64_t contexts_cut, contexts_dropped, cells_cut, packed_cells, packed_sequences;
    uint64_t masked_cells,
        masked_over_limit; /* masked; chosen beyond M of their type, not masked */
    uint64_t withheld_cells; /* of visited rows: hidden columns, targets, labels; not counted
                                are targets that are masked and cells that are not known yet */
} hw_sampler_stats;
HW_CHECK hw_status hw_sampler_get_stats(hw_sampler *sampler, hw_sampler_stats *stats,
                                        hw_error *error);

/* ---- batch ------------------------------------------------------------------------------- */

typedef enum hw_dtype {
    HW_INT8 = 0,
    HW_UINT8 = 1,
    HW_UINT16 = 2,
    HW_INT32 = 3,
    HW_UINT32 = 4,
    HW_INT64 = 5,
    HW_FLOAT16 = 6,
    HW_FLOAT32 = 7,
} hw_dtype;
HW_API uint32_t hw_dtype_bytes(hw_dtype dtype);

/* Bits of a compact cell (`cells`), and of its time (`cell_times`); the documentation,
 * "Compact". */
#define HW_CELL_TYPE_MASK 7u /* hw_semantic_type */
#define HW_CELL_NULL 8u
#define HW_CELL_TARGET 16u
#define HW_CELL_PADDING 32u
#define HW_TIME_WEEKDAY_SHIFT 17u /* above the second of the day; Monday 0 */
#define HW_TIME_YEAR_DAY_SHIFT 20u /* above the weekday; from 0, + 366 in a leap year */

typedef struct hw_tensor {
    size_t struct_bytes;
    const char *name;
    hw_dtype dtype;
    uint32_t rank; /* number of dimensions */
    uint64_t shape[3];
    const void *data; /* 64-byte aligned, C-contiguous */
    size_t bytes;
    uint8_t info; /* 1: host-side only, 64-bit allowed */
    uint8_t reserved[7]; /* 0 */
} hw_tensor;

/* A batch is immutable and reference-counted; its memory returns to the sampler's pool, or is freed
 * if that is gone, when the last reference is dropped. Any thread. */
HW_API hw_batch *hw_batch_retain(hw_batch *batch);
HW_API void hw_batch_release(hw_batch *batch);
HW_API uint32_t hw_batch_tensor_count(const hw_batch *batch);
HW_CHECK hw_status hw_batch_tensor(const hw_batch *batch, uint32_t index, hw_tensor *tensor,
                                   hw_error *error);
/* The array of a name; HW_BAD_ARGUMENT if the batch has no such array, with the option that adds it
 * if there is one. */
HW_CHECK hw_status hw_batch_find(const hw_batch *batch, const char *name, hw_tensor *tensor,
                                 hw_error *error);
/* The one piece of memory with all arrays of a batch, and its size (NULL: not wanted). All batches
 * of a sampler have the same arrays, at the same places in it, and with equal sizes (below) of the
 * same shapes. */
HW_API const void *hw_batch_memory(const hw_batch *batch, size_t *bytes);
/* Dimensions that differ from batch to batch; 0: as hw_sampler_shape says. hw_batch_tensor counts
 * them in. */
typedef struct hw_batch_sizes {
    size_t struct_bytes;
    uint32_t texts; /* U */
    uint32_t cells, rows; /* N, R_n of the flat layout */
    uint8_t reserved[4]; /* 0 */
} hw_batch_sizes;
HW_CHECK hw_status hw_batch_get_sizes(const hw_batch *batch, hw_batch_sizes *sizes,
                                      hw_error *error);

/* The batch format as data, one row per array; static. Any thread. */
typedef struct hw_batch_field {
    size_t struct_bytes;
    const char *name;
    hw_dtype dtype;
    const char *dims[3]; /* "B", "B+1", "S", "R", "R+1", "U", "D_t", "P", "M", "15", "1"; NULL past
                            the rank */
    uint8_t info;
    const char *when; /* NULL: always; else the option that adds it */
    const char *meaning;
} hw_batch_field;
/* With packing, arrays [B] and [B,15] have T behind B, num_contexts excepted. In the flat layout
 * arrays [B,S] are [1,N], [B,R] and [B,R+1] are [1,R_n] and [1,R_n+1], row_starts is uint32 and
 * num_contexts [1]. */
HW_API uint32_t hw_batch_field_count(void);
HW_CHECK hw_status hw_batch_field_at(uint32_t index, hw_batch_field *field, hw_error *error);

/*
 * The 14 cyclic parts of `timestamp_values` as (sin, cos) pairs, for whoever expands the compact
 * layout: `sixtieths` of second and minute, then hour and weekday (Monday 0), and `dates` with the
 * pairs of day, month and day of year, by day of year from 0, + 366 in a leap year. Day 365 of a
 * common year does not exist and holds 0.
 */
#define HW_DATE_COUNT 732
typedef struct hw_calendar_tables {
    size_t struct_bytes;
    float sixtieths[60][2];
    float hours[24][2];
    float weekdays[7][2];
    float dates[HW_DATE_COUNT][6];
} hw_calendar_tables;
/* Any thread. */
HW_CHECK hw_status hw_calendar_tables_fill(hw_calendar_tables *tables, hw_error *error);

#ifdef __cplusplus
}
#endif
#endif
