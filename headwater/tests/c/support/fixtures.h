/*
 * Small named databases for the C tests, built in code through the public builder, and what is
 * needed to build more: Arrow streams over C arrays, temporary directories. Anything that fails
 * here prints why and aborts, because no test can go on without its store.
 */
#ifndef FIXTURES_H
#define FIXTURES_H

#include "headwater.h"

#define DAY_US (INT64_C(86400000000))
#define FIXTURE_TEXT_DIM 16u

/* ---- streams ----------------------------------------------------------------------------- */

/*
 * A column: format b (values uint8_t, 0 or 1), i (int32_t), I (uint32_t), l (int64_t), L
 * (uint64_t), g (double), u and U (const char *, a NULL pointer is NULL). `valid` has a byte per
 * row, 0 = NULL; a NULL pointer: nothing is.
 */
struct fixture_column {
    const char *name;
    const char *format;
    const void *values;
    const uint8_t *valid;
};

/* A stream over copies of the columns in chunks of `chunk_rows` rows (0: one chunk), which are
 * slices with offsets. The caller releases it: stream->release(stream). */
void fixture_stream(struct ArrowArrayStream *stream, const struct fixture_column *columns,
                    uint32_t column_count, uint64_t row_count, uint64_t chunk_rows);
/* The builder's write calls over such a stream; they must succeed. */
void fixture_rows(hw_builder *b, uint32_t table, const struct fixture_column *columns,
                  uint32_t column_count, uint64_t row_count, uint64_t chunk_rows);
/* Parents as int64, -1 for NULL. */
void fixture_parents(hw_builder *b, uint32_t key, const int64_t *parents, uint64_t row_count,
                     uint64_t dangling_count);
/* Of 7 columns the last one says when labels are known. */
void fixture_seeds(hw_builder *b, uint32_t task, const struct fixture_column *columns,
                   uint32_t column_count, uint64_t seed_count);
/* Embeds texts, and stand-in names for columns and categories; finishes. */
void fixture_complete(hw_builder *b, uint32_t column_count, uint32_t category_count,
                      uint32_t text_dim);
/* The same with FIXTURE_TEXT_DIM, and publishes. */
void fixture_finish_as(hw_builder *b, uint32_t column_count, uint32_t category_count,
                       const char *metadata, const char *store_path);
/* With a metadata.json that says nothing. */
void fixture_finish(hw_builder *b, uint32_t column_count, uint32_t category_count,
                    const char *store_path);
/* Aborts with the message unless the status is HW_OK. */
void fixture_check(hw_status status, const hw_error *error, const char *what);
/* A call of the library, with &error as its last argument, that must succeed. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        hw_error error = {.message = ""};                                                          \
        hw_status must_succeed_ = (call);                                                          \
        fixture_check(must_succeed_, &error, #call);                                               \
    } while (0)

/* ---- declaring --------------------------------------------------------------------------- */

/* A builder in a folder of the store, which is created if missing. */
hw_builder *fixture_builder(const char *name, const char *store_path, int64_t stats_until_us);
/* The builder's calls, which must succeed; struct_bytes is filled in. */
void fixture_table(hw_builder *b, hw_table_spec spec);
void fixture_add_column(hw_builder *b, uint32_t table, hw_column_spec spec);
void fixture_key(hw_builder *b, uint32_t child, uint32_t parent, uint32_t column);
void fixture_task(hw_builder *b, hw_task_spec spec);

/* ---- directories ------------------------------------------------------------------------- */

/* A new empty directory under $TMPDIR or /tmp; malloc'ed. */
char *fixture_directory(void);
/* Removes a directory with everything in it, and frees the name. */
void fixture_remove(char *directory);
/* "<directory>/<name>", malloc'ed. */
char *fixture_path(const char *directory, const char *name);
/* How many entries a directory has. */
uint32_t fixture_entries(const char *path);

/* ---- stores and batches ------------------------------------------------------------------ */

hw_store *fixture_open(const char *path, hw_load load);
/* Aborts unless verify finds nothing. */
void fixture_sound(const hw_store *store);
/* The store that `make` builds at "<directory>/<name>", open. */
hw_store *fixture_store(const char *directory, const char *name,
                        hw_store *(*make)(const char *store_path));
/* Setup and teardown of tests over one store in a directory of its own: *state is a shelf. */
struct shelf {
    char *directory;
    hw_store *store;
};
int fixture_setup(void **state, hw_store *(*make)(const char *store_path));
int open_bookstore(void **state);
int open_deliveries(void **state);
int open_letters(void **state);
int close_shelf(void **state);
hw_store *store_of(void **state);

hw_sampler *fixture_sampler(hw_store *store, const hw_sampler_options *options);
hw_batch *fixture_next(hw_sampler *sampler, hw_split split);
/* An array of a batch by name; NULL if it has none. */
const void *fixture_array(const hw_batch *batch, const char *name);
/* One hash over every array of a batch, which it releases. */
uint64_t fixture_digest(hw_batch *batch);
/* Aborts unless the first batches of a split are the same by number, and by any count of threads
 * and prefetch depth. */
void fixture_threads_agree(hw_store *store, hw_sampler_options options, hw_split split);

/* ---- databases --------------------------------------------------------------------------- */

/*
 * bookstore: two tables, two foreign keys (one to itself), two tasks.
 *
 *   authors (no time)            global rows 0..2
 *   row  key  name   rating
 *   0    1    Ann    1
 *   1    2    Bob    2
 *   2    3    Cy     3
 *
 *   books (by published, NULL hidden)   global rows 3..8
 *   row  key  author_id  sequel_of  title     genre   price  in_print  published
 *   3    b1   0          -          Fog       crime   10     1         day 10
 *   4    b2   0          b1         Fog II    crime   20     0         day 20
 *   5    b3   1          -          Ann       poetry  -      -         day 20
 *   6    b4   dangling   b2         (empty)   travel  30     1         day 30
 *   7    b5   1          -          Fog       -       40     1         day 40
 *   8    b6   0          b3         -         poetry  50     0         -
 *
 * Texts: Ann 0, Bob 1, Cy 2, Fog 3, Fog II 4, (empty) 5. Genres: crime 0, poetry 1, travel 2.
 *
 *   task 0 `price`    cell of books.price, cutoff exclusive: books 3, 4, 6, 7 at their own time
 *   task 1 `returns`  derived boolean on authors, split given:
 *                     (0, day 25, true, train), (0, day 45, false, val), (1, day 25, NULL, train),
 *                     (2, day 25, unlabelled, test)
 */
enum bookstore_column {
    AUTHORS_ID,
    AUTHORS_NAME,
    AUTHORS_RATING,
    BOOKS_ID,
    BOOKS_AUTHOR_ID,
    BOOKS_SEQUEL_OF,
    BOOKS_TITLE,
    BOOKS_GENRE,
    BOOKS_PRICE,
    BOOKS_IN_PRINT,
    BOOKS_PUBLISHED,
    RETURNS_OBS_TIME,
    RETURNS_TARGET,
    BOOKSTORE_COLUMNS
};
enum bookstore_table { AUTHORS, BOOKS };
enum bookstore_key { BOOKS_AUTHOR, BOOKS_SEQUEL };
enum bookstore_task { TASK_PRICE, TASK_RETURNS };

/* Builds it and publishes it in store_path (created if missing). */
void bookstore_build(const char *store_path);
/* The same, opened. */
hw_store *bookstore(const char *store_path);

/*
 * deliveries: foreign keys and cells that are known later than their row.
 *
 *   couriers (no time)  rows 0..1            keys c0, c1
 *   parcels (by sent)   rows 2..6            keys p0..p4
 *   row  courier_id  assigned   sent     weight
 *   2    0           day 9      day 1    1
 *   3    0           day 3      day 2    2
 *   4    1           -          day 3    3
 *   5    0           day 4      day 4    4
 *   6    0           day 3      day 5    5
 *
 * courier_id is known at `assigned` (ignored but stored), weight is known 2 days after the row, and
 * `lost_by` repeats courier_id but is never known, so it has no edges. Courier 0's parcels by edge
 * time: 3 (day 3), 5 (day 4), 6 (day 5, later than its assignment), 2 (day 9); courier 1's: 4
 * (no time). No tasks but `heavy`, a cell task on weight with parcel 4 as its one seed.
 */
enum deliveries_column {
    COURIERS_ID,
    PARCELS_ID,
    PARCELS_COURIER_ID,
    PARCELS_LOST_BY,
    PARCELS_ASSIGNED,
    PARCELS_WEIGHT,
    PARCELS_SENT,
    DELIVERIES_COLUMNS
};
enum deliveries_key { PARCELS_COURIER, PARCELS_LOST };
hw_store *deliveries(const char *store_path);

/*
 * letters: one table without time or keys, id, body (text) and weight; letter i has the text i and
 * weight i, and is seed i of the cell task `weigh`, in train. Vectors are wide, so that those of a
 * batch of 256 are gathered in parts: 4 of 128 KB.
 */
enum { LETTERS_COUNT = 512, LETTERS_TEXT_DIM = 1024, LETTERS_BODY = 1 };
hw_store *letters(const char *store_path);

#endif
