/* Memory that runs out (support/trials.h) where a store is built, and rows are put in order. */
#define _DEFAULT_SOURCE 1

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fixtures.h"
#include "support/scarce.h"
#include "support/trials.h"
#include "support/unit_test.h"

/* ---- a builder ----------------------------------------------------------------------------- */

/*
 * authors (no time, 50 rows) and books (by published, 6 rows) with a key that is known late and one
 * to books; a cell task, and one with categories of its own. More columns than the first room for
 * them, more names of authors than the first slots of the dictionary.
 */
enum { AUTHOR_COUNT = 50, BOOK_COUNT = 6 };
enum {
    WORKS_NAME,
    WORKS_AUTHOR = 12,
    WORKS_SEQUEL,
    WORKS_LISTED,
    WORKS_GENRE,
    WORKS_PRICE,
    WORKS_PUBLISHED
};

struct works {
    char *directory;
    char fingerprint[33]; /* empty: not known yet */
};

static int open_works(void **state) {
    struct works *works = calloc(1, sizeof *works);
    assert_non_null(works);
    works->directory = fixture_directory();
    *state = works;
    return 0;
}

static int close_works(void **state) {
    struct works *works = *state;
    fixture_remove(works->directory);
    free(works);
    return 0;
}

static hw_builder *open_builder(const struct works *works) {
    hw_builder *b = NULL;
    hw_builder_options options = {sizeof options, "works", INT64_MAX};
    char *path = fixture_path(works->directory, ".building");
    AGAIN(hw_builder_open(path, &options, &b, &error));
    free(path);
    return b;
}

static void declare_tables(hw_builder *b) {
    uint32_t index = 0;
    hw_table_spec tables[] = {
        {.name = "authors", .key_part_count = 1},
        {.name = "books", .key_part_count = 1, .temporal = 1},
    };
    hw_column_spec books[] = {
        {.name = "author_id",
         .stype = HW_IDENTIFIER,
         .known = HW_KNOWN_COLUMN,
         .known_column = WORKS_LISTED},
        {.name = "sequel_of", .stype = HW_IDENTIFIER},
        {.name = "listed", .stype = HW_IGNORED, .stored = 1},
        {.name = "genre", .stype = HW_CATEGORICAL},
        {.name = "price", .stype = HW_NUMERICAL},
        {.name = "published", .stype = HW_TIMESTAMP, .temporal = 1},
    };
    for (uint32_t t = 0; t < 2; t++) {
        tables[t].struct_bytes = sizeof *tables;
        AGAIN(hw_builder_add_table(b, &tables[t], &index, &error));
        assert_int_equal(index, t);
    }
    for (uint32_t i = WORKS_NAME; i < WORKS_AUTHOR; i++) {
        char name[16];
        snprintf(name, sizeof name, "column%u", i);
        hw_column_spec spec = {.struct_bytes = sizeof spec, .name = name};
        spec.stype = i == WORKS_NAME ? HW_TEXT : HW_IGNORED;
        AGAIN(hw_builder_add_column(b, 0, &spec, &index, &error));
        assert_int_equal(index, i);
    }
    for (uint32_t i = 0; i < sizeof books / sizeof *books; i++) {
        books[i].struct_bytes = sizeof *books;
        AGAIN(hw_builder_add_column(b, 1, &books[i], &index, &error));
        assert_int_equal(index, WORKS_AUTHOR + i);
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t column = WORKS_AUTHOR + k;
        hw_key_spec key = {.struct_bytes = sizeof key,
                           .child_table = 1,
                           .parent_table = k,
                           .columns = &column,
                           .column_count = 1};
        AGAIN(hw_builder_add_key(b, &key, &index, &error));
        assert_int_equal(index, k);
    }
}

/* From here on a builder that lacked memory has to be given up: 0. */
static int declare_rest(hw_builder *b) {
    static const char *const genres[] = {"crime", "poetry"}, *const moods[] = {"glum", "merry"};
    static const uint32_t hidden[] = {WORKS_GENRE};
    uint32_t index = 0;
    hw_error error = {.message = ""};
    hw_task_spec tasks[] = {
        {.name = "price", .anchor_table = 1, .target_column = WORKS_PRICE, .exclusive = 1},
        {.name = "mood",
         .anchor_table = 0,
         .target_column = UINT32_MAX,
         .target_name = "mood",
         .target_stype = HW_CATEGORICAL,
         .categories = moods,
         .category_count = 2,
         .hidden = hidden,
         .hidden_count = 1,
         .label_times = 1},
    };
    if (is_refused(hw_builder_set_categories(b, WORKS_GENRE, genres, 2, &error), &error)) {
        return 0;
    }
    for (uint32_t k = 0; k < 2; k++) {
        tasks[k].struct_bytes = sizeof *tasks;
        if (is_refused(hw_builder_add_task(b, &tasks[k], &index, &error), &error)) {
            return 0;
        }
    }
    return 1;
}

/* Writes the rows of a table, or the seeds of a task. */
typedef hw_status write_call(hw_builder *, uint32_t, struct ArrowArrayStream *, hw_error *);

static int write_stream(hw_builder *b, write_call *call, uint32_t index,
                        const struct fixture_column *columns, uint32_t column_count,
                        uint64_t count) {
    struct ArrowArrayStream stream;
    hw_error error = {.message = ""};
    fixture_stream(&stream, columns, column_count, count, 4);
    int is_written = !is_refused(call(b, index, &stream, &error), &error);
    stream.release(&stream);
    return is_written;
}

static int write_edges(hw_builder *b, uint32_t key, const int32_t children[],
                       const int32_t parents[], uint64_t count, uint64_t null_count) {
    struct ArrowArrayStream stream;
    hw_error error = {.message = ""};
    uint64_t edge_count = 0;
    AGAIN(hw_arrays_open(count, &stream, &error));
    AGAIN(hw_arrays_add(&stream, "child", "i", children, NULL, NULL, &error));
    AGAIN(hw_arrays_add(&stream, "parent", "i", parents, NULL, NULL, &error));
    int is_written = !is_refused(
        hw_builder_write_edges(b, key, &stream, null_count, &edge_count, &error), &error);
    stream.release(&stream);
    assert_int_equal(edge_count, is_written ? count : 0);
    return is_written;
}

static const int64_t published[] = {DAY_US,     2 * DAY_US, 3 * DAY_US,
                                    4 * DAY_US, 5 * DAY_US, 6 * DAY_US};

/* The rows of the tables that are not there yet. */
static int write_table_rows(hw_builder *b) {
    static const uint8_t yes[AUTHOR_COUNT] = {1, 1, 1, 1, 1, 1};
    char names[AUTHOR_COUNT][16];
    const char *texts[AUTHOR_COUNT];
    for (int i = 0; i < AUTHOR_COUNT; i++) {
        snprintf(names[i], sizeof names[i], "author %d", i);
        texts[i] = names[i];
    }
    const struct fixture_column authors[] = {{"key", "u", texts, NULL}, {"name", "u", texts, NULL}};
    const struct fixture_column books[] = {
        {"time", "l", published, NULL},
        {"key", "u", (const char *[]){"a", "b", "c", "d", "e", "f"}, NULL},
        {"author_id", "b", yes, (uint8_t[]){1, 1, 1, 1, 0, 1}},
        {"sequel_of", "b", yes, (uint8_t[]){0, 1, 0, 1, 0, 1}},
        {"listed", "l", (int64_t[]){9 * DAY_US, 8 * DAY_US, 3, 4, 5, 6}, NULL},
        {"genre", "u", (const char *[]){"crime", "crime", NULL, "poetry", "crime", "poetry"}, NULL},
        {"price", "g", (double[]){1, 2, 3, 4, 5, 6}, NULL},
        {"published", "l", published, NULL},
    };
    return write_stream(b, hw_builder_write_rows, 0, authors, 2, AUTHOR_COUNT) &&
           write_stream(b, hw_builder_write_rows, 1, books, 8, BOOK_COUNT);
}

static int write_tables(hw_builder *b) {
    return write_table_rows(b) &&
           write_edges(b, 0, (int32_t[]){5, 0, 2, 3, 1}, (int32_t[]){7, 7, 7, 49, 7}, 5, 1) &&
           write_edges(b, 1, (int32_t[]){1, 3, 5}, (int32_t[]){0, 1, 2}, 3, 3);
}

static int write_tasks(hw_builder *b) {
    static const int64_t places[] = {0, 1, 2, 3, 4, 5};
    static const uint8_t yes[] = {1, 1, 1, 1, 1, 1};
    const struct fixture_column price[] = {
        {"anchor", "l", places, NULL},
        {"obs_time", "l", published, NULL},
        {"target", "g", (double[]){1, 2, 3, 4, 5, 6}, NULL},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 0, 0, 0, 1, 2}, NULL},
        {"position", "l", places, NULL},
    };
    const struct fixture_column mood[] = {
        {"anchor", "l", places, NULL},
        {"obs_time", "l", published, NULL},
        {"target", "u", (const char *[]){"merry", "glum", "glum"}, NULL},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 0, 1}, NULL},
        {"position", "l", places, NULL},
        {"known_at", "l", published, NULL},
    };
    return write_stream(b, hw_builder_write_seeds, 0, price, 6, BOOK_COUNT) &&
           write_stream(b, hw_builder_write_seeds, 1, mood, 7, 3);
}

/* A builder that lacked memory takes no more calls and closes. */
static void give_up(hw_builder *b) {
    hw_table_spec spec = {.struct_bytes = sizeof spec, .name = "more"};
    hw_error error = {.message = ""};
    uint32_t index = 0;
    assert_int_equal(hw_builder_add_table(b, &spec, &index, &error), HW_BAD_ARGUMENT);
    assert_true(error.message[0] != 0);
    hw_builder_close(b);
}

/* A builder up to the end; NULL if it lacked memory and is gone. */
static hw_builder *build(struct works *works) {
    hw_builder *b = open_builder(works);
    hw_error error = {.message = ""};
    char fingerprint[33] = "";
    declare_tables(b);
    int is_whole = declare_rest(b) && write_tables(b) && write_tasks(b) &&
                   !is_refused(hw_builder_finish(b, NULL, 0, fingerprint, &error), &error);
    if (!is_whole) {
        give_up(b);
        return NULL;
    }
    if (works->fingerprint[0] == 0) {
        memcpy(works->fingerprint, fingerprint, sizeof fingerprint);
    }
    assert_string_equal(fingerprint, works->fingerprint);
    return b;
}

static void publish(const struct works *works, hw_builder *b, const char *path) {
    AGAIN(hw_builder_publish(b, path, &error));
    hw_builder_close(b);
    scarce_pause();
    assert_int_equal(fixture_entries(path), 2); /* manifest.json and one build */
    hw_store *store = fixture_open(path, HW_LOAD_MMAP);
    assert_string_equal(hw_store_fingerprint(store), works->fingerprint);
    fixture_sound(store);
    hw_store_close(store);
    scarce_resume();
}

static void build_and_publish(void *context) {
    struct works *works = context;
    char *path = fixture_path(works->directory, "works.hw");
    hw_builder *b = build(works);
    if (b != NULL) {
        publish(works, b, path);
    }
    assert_int_equal(fixture_entries(works->directory), b != NULL);
    fixture_remove(path);
}

static void a_builder_builds_all_or_leaves_nothing(void **state) {
    try_all(build_and_publish, *state, 0);
}

/* Over another build, or over the same one. */
struct edition {
    struct works *works;
    int is_equal;
};

static void publish_edition(void *context) {
    const struct edition *edition = context;
    struct works *works = edition->works;
    scarce_pause();
    char *path = fixture_path(works->directory, "works.hw");
    if (edition->is_equal) {
        publish(works, build(works), path);
    } else {
        bookstore_build(path);
    }
    hw_builder *b = build(works);
    scarce_resume();
    publish(works, b, path);
    assert_int_equal(fixture_entries(works->directory), 1);
    fixture_remove(path);
}

static void publication_can_be_asked_for_again(void **state) {
    for (int is_equal = 0; is_equal < 2; is_equal++) {
        struct edition edition = {*state, is_equal};
        try_all(publish_edition, &edition, 0);
    }
}

#define ON(thing, test) cmocka_unit_test_setup_teardown(test, open_##thing, close_##thing)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(works, a_builder_builds_all_or_leaves_nothing),
        ON(works, publication_can_be_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
