/*
 * Edges of a foreign key from the keys themselves, which lie in files (hw_builder_match_edges): the
 * same store as from pairs of rows, and what is left to the caller.
 */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixtures.h"
#include "rng.h"

#define ROWS(array) (sizeof(array) / sizeof *(array))

struct desk {
    char *directory;
    hw_error error;
};

static int open_desk(void **state) {
    struct desk *desk = calloc(1, sizeof *desk);
    assert_non_null(desk);
    desk->directory = fixture_directory();
    *state = desk;
    return 0;
}

static int close_desk(void **state) {
    struct desk *desk = *state;
    assert_int_equal(rmdir(desk->directory), 0); /* nothing may have been left */
    free(desk->directory);
    free(desk);
    return 0;
}

/* ---- keys in files ----------------------------------------------------------------------- */

/* Two files of a foreign key. */
struct keys {
    hw_ordered *children, *parents;
    char *child_path, *parent_path;
};

static hw_ordered *write_keys(const char *path, const char *format, const void *values,
                              const uint8_t *valid, uint64_t count) {
    const int32_t *numbers = calloc(count + 1, sizeof *numbers);
    const struct fixture_column columns[] = {{"k", format, values, valid},
                                             {"n", "i", numbers, NULL}};
    struct ArrowArrayStream stream;
    hw_ordered *rows = NULL;
    hw_error error = {.message = ""};
    hw_ordering none = {.struct_bytes = sizeof none};
    uint64_t row_count = 0;
    fixture_stream(&stream, columns, 2, count, 3);
    fixture_check(hw_order_rows(path, &stream, 2, &none, &row_count, &error), &error, "order");
    stream.release(&stream);
    fixture_check(hw_ordered_open(path, &rows, &error), &error, "open");
    free((void *)(uintptr_t)numbers);
    return rows;
}

/* Keys of both sides of a foreign key; child rows have NULL where `valid` is 0. */
struct sides {
    const int64_t *children, *parents;
    const uint8_t *child_valid, *parent_valid;
    uint32_t child_count, parent_count;
};

static struct keys open_keys(const struct desk *desk, const struct sides *sides) {
    struct keys keys = {.child_path = fixture_path(desk->directory, "children"),
                        .parent_path = fixture_path(desk->directory, "parents")};
    keys.children =
        write_keys(keys.child_path, "l", sides->children, sides->child_valid, sides->child_count);
    keys.parents =
        write_keys(keys.parent_path, "l", sides->parents, sides->parent_valid, sides->parent_count);
    return keys;
}

static void close_keys(struct keys *keys) {
    hw_ordered_close(keys->children);
    hw_ordered_close(keys->parents);
    unlink(keys->child_path);
    unlink(keys->parent_path);
    free(keys->child_path);
    free(keys->parent_path);
}

/* parents (id, ref) and children (id, parent_id), whose key is their number; rows written. */
static hw_builder *open_family(const char *store_path, const struct sides *sides, hw_known known) {
    hw_builder *b = NULL;
    hw_error error = {.message = ""};
    hw_builder_options options = {sizeof options, "family", INT64_MAX, NULL};
    static const char *const names[2][2] = {{"id", "ref"}, {"id", "parent_id"}};
    uint32_t index = 0, key_column = 3;
    mkdir(store_path, 0777);
    char *directory = fixture_path(store_path, ".building-family");
    fixture_check(hw_builder_open(directory, &options, &b, &error), &error, "open");
    free(directory);
    for (uint32_t t = 0; t < 2; t++) {
        hw_table_spec table = {.struct_bytes = sizeof table,
                               .name = t == 0 ? "parents" : "children",
                               .key_part_count = 1};
        fixture_check(hw_builder_add_table(b, &table, &index, &error), &error, "table");
    }
    for (uint32_t c = 0; c < 4; c++) {
        hw_column_spec column = {.struct_bytes = sizeof column,
                                 .name = names[c / 2][c % 2],
                                 .stype = HW_IDENTIFIER,
                                 .known = c == key_column ? known : HW_KNOWN_CREATION};
        fixture_check(hw_builder_add_column(b, c / 2, &column, &index, &error), &error, "column");
    }
    hw_key_spec key = {sizeof key, 1, 0, &key_column, 1};
    fixture_check(hw_builder_add_key(b, &key, &index, &error), &error, "key");
    for (uint32_t t = 0; t < 2; t++) {
        uint32_t count = t == 0 ? sides->parent_count : sides->child_count;
        int64_t *ids = calloc(count + 1, sizeof *ids);
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = i;
        }
        const struct fixture_column columns[] = {
            {"key", "l", ids, NULL},
            {"id", "l", ids, NULL},
            {"ref", "l", t == 0 ? sides->parents : sides->children,
             t == 0 ? sides->parent_valid : sides->child_valid}};
        fixture_rows(b, t, columns, 3, count, 5);
        free(ids);
    }
    return b;
}

/* Edges as pairs, found by looking at all parents of every child. */
static uint64_t write_pairs(hw_builder *b, const struct sides *sides) {
    int32_t *pairs = calloc(2 * (size_t)sides->child_count + 2, sizeof *pairs);
    int32_t *to = pairs + sides->child_count + 1;
    uint64_t count = 0, null_count = 0, edge_count = 0;
    struct ArrowArrayStream stream;
    hw_error error = {.message = ""};
    for (uint32_t i = 0; i < sides->child_count; i++) {
        if (sides->child_valid != NULL && !sides->child_valid[i]) {
            null_count++;
            continue;
        }
        for (uint32_t p = 0; p < sides->parent_count; p++) {
            int is_there = sides->parent_valid == NULL || sides->parent_valid[p];
            if (is_there && sides->parents[p] == sides->children[i]) {
                pairs[count] = (int32_t)i;
                to[count++] = (int32_t)p;
                break;
            }
        }
    }
    const struct fixture_column columns[] = {{"child", "i", pairs, NULL},
                                             {"parent", "i", to, NULL}};
    fixture_stream(&stream, columns, 2, count, 4);
    fixture_check(hw_builder_write_edges(b, 0, &stream, null_count, &edge_count, &error), &error,
                  "edges");
    stream.release(&stream);
    free(pairs);
    assert_int_equal(edge_count, count);
    return edge_count;
}

static hw_store *finish_family(hw_builder *b, const char *store_path) {
    hw_store *store = NULL;
    hw_error error = {.message = ""};
    fixture_finish(b, 4, 0, store_path);
    hw_builder_close(b);
    fixture_check(hw_store_open(store_path, HW_LOAD_MMAP, &store, &error), &error, "open");
    uint64_t fault_count = 1;
    assert_int_equal(hw_store_verify(store, NULL, NULL, &fault_count, NULL), HW_OK);
    assert_int_equal(fault_count, 0);
    return store;
}

/* Edges from the keys; the number of them, or -1 if they cannot be matched. */
static int64_t match(hw_builder *b, const struct keys *keys) {
    hw_edge_files files = {sizeof files, keys->children, keys->parents, 0, 0};
    uint64_t edge_count = 99, known_count = 0;
    int is_matched = 2;
    hw_error error = {.message = ""};
    fixture_check(hw_builder_match_edges(b, 0, &files, &is_matched, &edge_count, &error), &error,
                  "match");
    assert_true(is_matched == 0 || is_matched == 1);
    assert_int_equal(hw_builder_has_edges(b, 0, &known_count), is_matched);
    assert_true(!is_matched || known_count == edge_count);
    assert_true(is_matched || edge_count == 0);
    return is_matched ? (int64_t)edge_count : -1;
}

/* Both ways give one store, whether the keys can be matched (is_matched) or not. */
static void assert_same_edges(struct desk *desk, const struct sides *sides, hw_known known,
                              int is_matched, uint64_t expected_count) {
    char *one = fixture_path(desk->directory, "pairs.hw");
    char *two = fixture_path(desk->directory, "match.hw");
    struct keys keys = open_keys(desk, sides);
    hw_builder *pairs = open_family(one, sides, known);
    hw_builder *matched = open_family(two, sides, known);
    assert_int_equal(write_pairs(pairs, sides), expected_count);
    int64_t count = match(matched, &keys);
    assert_int_equal(count, is_matched ? (int64_t)expected_count : -1);
    if (count < 0) {
        write_pairs(matched, sides);
    }
    hw_store *stores[] = {finish_family(pairs, one), finish_family(matched, two)};
    assert_string_equal(hw_store_fingerprint(stores[0]), hw_store_fingerprint(stores[1]));
    uint64_t edge_count = 99;
    uint32_t parent_count = 0;
    assert_int_equal(hw_store_edge_counts(stores[1], 0, &parent_count, &edge_count, NULL), HW_OK);
    assert_int_equal(edge_count, known == HW_KNOWN_NEVER ? 0 : expected_count);
    hw_store_close(stores[0]);
    hw_store_close(stores[1]);
    close_keys(&keys);
    fixture_remove(one);
    fixture_remove(two);
}

static void matched_edges_are_those_of_the_pairs(void **state) {
    const int64_t parents[] = {40, -7, 12, 0, 1000};
    const int64_t children[] = {12, 12, 41, 0, -7, 40, -8, INT64_MIN, INT64_MAX, 1000, 1001};
    const uint8_t child_valid[] = {1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1};
    const uint8_t parent_valid[] = {1, 1, 1, 0, 1};
    struct sides sides = {children, parents, child_valid, parent_valid, 11, 5};
    assert_same_edges(*state, &sides, HW_KNOWN_CREATION, 1, 5);
    assert_same_edges(*state, &sides, HW_KNOWN_NEVER, 1, 5);
    sides.child_valid = sides.parent_valid = NULL;
    assert_same_edges(*state, &sides, HW_KNOWN_CREATION, 1, 6);
}

static void tables_without_rows_or_keys_have_no_edges(void **state) {
    const int64_t some[] = {3, 1, INT64_MAX};
    static const uint8_t none[3];
    assert_same_edges(*state, &(struct sides){some, some, NULL, NULL, 3, 0}, HW_KNOWN_CREATION, 1,
                      0);
    assert_same_edges(*state, &(struct sides){some, some, NULL, NULL, 0, 3}, HW_KNOWN_CREATION, 0,
                      0);
    assert_same_edges(*state, &(struct sides){some, some, NULL, NULL, 0, 2}, HW_KNOWN_CREATION, 1,
                      0);
    assert_same_edges(*state, &(struct sides){some, some, none, NULL, 3, 2}, HW_KNOWN_CREATION, 1,
                      0);
    assert_same_edges(*state, &(struct sides){some, some, NULL, none, 3, 3}, HW_KNOWN_CREATION, 1,
                      0);
}

static void keys_that_no_table_holds_are_left_to_the_caller(void **state) {
    const int64_t far[] = {0, 65536 + 4 * 2}, near[] = {0, 65536 + 4 * 2 - 1};
    const int64_t ends[] = {INT64_MIN, INT64_MAX}, twice[] = {3, 5, 3};
    const uint8_t gap[] = {1, 1, 0};
    assert_same_edges(*state, &(struct sides){far, far, NULL, NULL, 2, 2}, HW_KNOWN_CREATION, 0, 2);
    assert_same_edges(*state, &(struct sides){near, near, NULL, NULL, 2, 2}, HW_KNOWN_CREATION, 1,
                      2);
    assert_same_edges(*state, &(struct sides){ends, ends, NULL, NULL, 2, 2}, HW_KNOWN_CREATION, 0,
                      2);
    assert_same_edges(*state, &(struct sides){twice, twice, NULL, NULL, 2, 3}, HW_KNOWN_CREATION, 0,
                      2);
    assert_same_edges(*state, &(struct sides){twice, twice, NULL, gap, 2, 3}, HW_KNOWN_CREATION, 1,
                      2);
}

static void random_keys_match_as_pairs_do(void **state) {
    enum { PARENTS = 3000, CHILDREN = 5000 };
    int64_t parents[PARENTS], children[CHILDREN];
    uint8_t valid[CHILDREN];
    uint64_t edge_count = 0;
    struct hwi_rng rng = hwi_rng_make(13, 0, 0, 0);
    for (int64_t i = 0; i < PARENTS; i++) {
        parents[i] = (i * 1499 % PARENTS) * 20 - 7000; /* all of i, in another order */
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        int64_t key = (int64_t)(hwi_rng_next(&rng) % 4000) - 500;
        valid[i] = hwi_rng_next(&rng) % 5 > 0;
        children[i] = key * 20 - 7000;
        edge_count += valid[i] && key >= 0 && key < PARENTS;
    }
    assert_same_edges(*state, &(struct sides){children, parents, valid, NULL, CHILDREN, PARENTS},
                      HW_KNOWN_CREATION, 1, edge_count);
}

/* Nothing is spoiled by a call that is refused. */
static void other_columns_and_rows_are_refused(void **state) {
    struct desk *desk = *state;
    const int64_t ids[] = {1, 2, 3};
    const struct sides sides = {ids, ids, NULL, NULL, 3, 2};
    char *path = fixture_path(desk->directory, "family.hw");
    struct keys keys = open_keys(desk, &sides);
    hw_builder *b = open_family(path, &sides, HW_KNOWN_CREATION);
    const struct {
        uint32_t key;
        hw_edge_files files;
        const char *message;
    } wrong[] = {
        {0,
         {sizeof(hw_edge_files), keys.children, keys.children, 0, 0},
         "expected int64 of 3 and 2"},
        {0, {sizeof(hw_edge_files), keys.parents, keys.parents, 0, 0}, "expected int64 of 3 and 2"},
        {0, {sizeof(hw_edge_files), keys.children, keys.parents, 1, 0}, "children (format i)"},
        {0, {sizeof(hw_edge_files), keys.children, keys.parents, 0, 1}, "parents (i)"},
        {0, {sizeof(hw_edge_files), keys.children, keys.parents, 3, 0}, "column 3 of rows"},
        {0, {sizeof(hw_edge_files), keys.children, keys.parents, 0, 7}, "column 7 of rows"},
        {1, {sizeof(hw_edge_files), keys.children, keys.parents, 0, 0}, "foreign key 1 of 1"},
    };
    for (size_t i = 0; i < ROWS(wrong); i++) {
        int is_matched = 1;
        uint64_t edge_count = 1;
        assert_int_equal(hw_builder_match_edges(b, wrong[i].key, &wrong[i].files, &is_matched,
                                                &edge_count, &desk->error),
                         HW_BAD_ARGUMENT);
        if (strstr(desk->error.message, wrong[i].message) == NULL) {
            fail_msg("'%s', expected '%s'", desk->error.message, wrong[i].message);
        }
        assert_int_equal(is_matched, 0);
    }
    assert_int_equal(match(b, &keys), 2);
    hw_store *store = finish_family(b, path);
    hw_store_close(store);
    close_keys(&keys);
    fixture_remove(path);
}

static void edges_are_matched_once(void **state) {
    struct desk *desk = *state;
    const int64_t ids[] = {1, 2, 3};
    const struct sides sides = {ids, ids, NULL, NULL, 3, 2};
    char *path = fixture_path(desk->directory, "family.hw");
    struct keys keys = open_keys(desk, &sides);
    hw_edge_files files = {sizeof files, keys.children, keys.parents, 0, 0};
    hw_builder *b = open_family(path, &sides, HW_KNOWN_CREATION);
    int is_matched = 1;
    uint64_t edge_count = 0;
    assert_int_equal(match(b, &keys), 2);
    assert_int_equal(hw_builder_match_edges(b, 0, &files, &is_matched, &edge_count, &desk->error),
                     HW_BAD_ARGUMENT);
    hw_builder_close(b);
    close_keys(&keys);
    fixture_remove(path);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, open_desk, close_desk)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(matched_edges_are_those_of_the_pairs),
        ON(tables_without_rows_or_keys_have_no_edges),
        ON(keys_that_no_table_holds_are_left_to_the_caller),
        ON(random_keys_match_as_pairs_do),
        ON(other_columns_and_rows_are_refused),
        ON(edges_are_matched_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
