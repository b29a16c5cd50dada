/* The words of a store: harbours (support/harbours.h) by hand, and other documents
 * in the place of its metadata.json. */
#define _XOPEN_SOURCE 700

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/damage.h"
#include "support/harbours.h"
#include "support/unit_test.h"

static int open_harbours(void **state) {
    return fixture_setup(state, harbours);
}

static void tables_say_their_ranges_and_keys(void **state) {
    hw_table_info info = {.struct_bytes = sizeof info};
    MUST(hw_store_table_info(store_of(state), COUNTRIES, &info, &error));
    assert_string_equal(info.name, "countries");
    assert_int_equal(info.first_row, 0);
    assert_int_equal(info.row_count, 2);
    assert_int_equal(info.first_column, COUNTRIES_CODE);
    assert_int_equal(info.column_count, 3);
    assert_int_equal(info.key_count, 0);
    assert_int_equal(info.temporal_column, UINT32_MAX);
    assert_int_equal(info.is_keyed, 1);
    assert_int_equal(info.primary_key_count, 1);
    assert_int_equal(info.primary_key[0], COUNTRIES_CODE);
    MUST(hw_store_table_info(store_of(state), SHIPS, &info, &error));
    assert_string_equal(info.name, "ships");
    assert_int_equal(info.first_row, 2);
    assert_int_equal(info.row_count, 3);
    assert_int_equal(info.first_column, SHIPS_ID);
    assert_int_equal(info.column_count, 5);
    assert_int_equal(info.first_key, SHIPS_BY_FLAG);
    assert_int_equal(info.key_count, 3);
    assert_int_equal(info.temporal_column, SHIPS_BUILT);
    assert_int_equal(info.primary_key[0], SHIPS_ID);
}

static void columns_say_their_types_and_categories(void **state) {
    static const char *const names[HARBOURS_COLUMNS] = {"code", "number", "area", "id",
                                                        "flag", "line",   "tons", "built"};
    hw_column_info info = {.struct_bytes = sizeof info};
    for (uint32_t c = 0; c < HARBOURS_COLUMNS; c++) {
        MUST(hw_store_column_info(store_of(state), c, &info, &error));
        assert_string_equal(info.name, names[c]);
        assert_int_equal(info.table, c < SHIPS_ID ? COUNTRIES : SHIPS);
        assert_int_equal(info.task, UINT32_MAX);
        assert_int_equal(info.value_count, c < SHIPS_ID ? 2 : 3);
        assert_int_equal(info.known, HW_KNOWN_CREATION);
    }
    MUST(hw_store_column_info(store_of(state), SHIPS_FLAG, &info, &error));
    assert_int_equal(info.stype, HW_CATEGORICAL);
    assert_int_equal(info.first_category, 2);
    assert_int_equal(info.category_count, 2);
    MUST(hw_store_column_info(store_of(state), SHIPS_TONS, &info, &error));
    assert_int_equal(info.stype, HW_NUMERICAL);
    assert_true(info.mean == 20);
    assert_int_equal(info.category_count, 0);
}

static void keys_say_both_their_ends(void **state) {
    static const struct {
        const char *name;
        uint32_t count, columns[2], parents[2];
    } keys[] = {
        {"ships.flag", 1, {SHIPS_FLAG}, {COUNTRIES_CODE}},
        {"ships.line", 1, {SHIPS_LINE}, {COUNTRIES_NUMBER}},
        {"ships.flag+line", 2, {SHIPS_FLAG, SHIPS_LINE}, {COUNTRIES_CODE, COUNTRIES_NUMBER}},
    };
    for (uint32_t k = 0; k < 3; k++) {
        hw_key_info info = {.struct_bytes = sizeof info};
        MUST(hw_store_key_info(store_of(state), k, &info, &error));
        assert_string_equal(info.name, keys[k].name);
        assert_int_equal(info.child_table, SHIPS);
        assert_int_equal(info.parent_table, COUNTRIES);
        assert_int_equal(info.column_count, keys[k].count);
        assert_memory_equal(info.columns, keys[k].columns, 4 * keys[k].count);
        assert_memory_equal(info.parent_columns, keys[k].parents, 4 * keys[k].count);
        assert_int_equal(info.edge_count, 3);
        assert_int_equal(info.null_count + info.dangling_count, 0);
    }
}

static void tasks_say_what_they_ask(void **state) {
    hw_task_info info = {.struct_bytes = sizeof info};
    MUST(hw_store_task_info(store_of(state), 0, &info, &error));
    assert_string_equal(info.name, "tons");
    assert_int_equal(info.anchor_table, SHIPS);
    assert_int_equal(info.target_column, SHIPS_TONS);
    assert_int_equal(info.target_stype, HW_NUMERICAL);
    assert_int_equal(info.obs_time_column, UINT32_MAX);
    assert_int_equal(info.seed_count, 3);
    assert_int_equal(info.hidden_count, 0);
    assert_int_equal(info.context_labels, HW_LABELS_DEFAULT);
    assert_int_equal(info.is_cell, 1);
    assert_int_equal(info.exclusive + info.given_split + info.label_times, 0);
}

static void the_columns_of_a_derived_task_are_its_own(void **state) {
    char *path = fixture_path(((struct shelf *)*state)->directory, "books.hw");
    hw_store *store = bookstore(path);
    hw_task_info task = {.struct_bytes = sizeof task};
    hw_column_info column = {.struct_bytes = sizeof column};
    MUST(hw_store_task_info(store, TASK_RETURNS, &task, &error));
    assert_int_equal(task.obs_time_column, RETURNS_OBS_TIME);
    assert_int_equal(task.target_column, RETURNS_TARGET);
    assert_int_equal(task.is_cell, 0);
    assert_int_equal(task.given_split, 1);
    MUST(hw_store_column_info(store, RETURNS_TARGET, &column, &error));
    assert_int_equal(column.table, UINT32_MAX);
    assert_int_equal(column.task, TASK_RETURNS);
    assert_string_equal(column.name, "returns");
    MUST(hw_store_task_info(store, TASK_PRICE, &task, &error));
    assert_int_equal(task.exclusive, 1);
    hw_store_close(store);
    free(path);
}

static void categories_are_texts(void **state) {
    static const char *const texts[] = {HARBOURS_PT, HARBOURS_SHIP, HARBOURS_PT, HARBOURS_SHIP};
    for (uint32_t i = 0; i < 4; i++) {
        const char *text = NULL;
        size_t bytes = 0;
        MUST(hw_store_category(store_of(state), i, &text, &bytes, &error));
        assert_int_equal(bytes, strlen(texts[i]));
        assert_string_equal(text, texts[i]);
    }
}

static void names_lead_to_numbers(void **state) {
    const hw_store *store = store_of(state);
    uint32_t number = UINT32_MAX;
    MUST(hw_store_find_table(store, "ships", &number, &error));
    assert_int_equal(number, SHIPS);
    MUST(hw_store_find_column(store, "ships", "id", &number, &error));
    assert_int_equal(number, SHIPS_ID);
    MUST(hw_store_find_column(store, "countries", "area", &number, &error));
    assert_int_equal(number, COUNTRIES_AREA);
    MUST(hw_store_find_key(store, "ships.flag+line", &number, &error));
    assert_int_equal(number, SHIPS_BY_BOTH);
    MUST(hw_store_find_task(store, "tons", &number, &error));
    assert_int_equal(number, 0);
}

static void a_name_that_is_not_there_says_which_are(void **state) {
    const hw_store *store = store_of(state);
    hw_error error = {.message = ""};
    uint32_t number = 7;
    assert_int_equal(hw_store_find_table(store, "shps", &number, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "the store has no table 'shps', did you mean 'ships'?; it "
                                       "has 'countries', 'ships'");
    assert_int_equal(hw_store_find_column(store, "ships", "area", &number, &error),
                     HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "table 'ships' has no column 'area'; it has 'id', 'flag', "
                                       "'line', 'tons', 'built'");
    assert_int_equal(hw_store_find_column(store, "ship", "area", &number, &error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error.message, "no table 'ship'"));
    assert_int_equal(hw_store_find_key(store, "ships.flags", &number, &error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error.message, "foreign key 'ships.flags', did you mean 'ships.flag'?"));
    assert_int_equal(hw_store_find_task(store, "", &number, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "the store has no task ''; it has 'tons'");
    assert_int_equal(hw_store_find_task(store, NULL, &number, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "the name of the task is NULL");
    assert_int_equal(number, 7);
}

static void numbers_and_structs_are_checked(void **state) {
    const hw_store *store = store_of(state);
    hw_table_info table = {.struct_bytes = sizeof table};
    hw_column_info column = {.struct_bytes = sizeof column};
    hw_key_info key = {.struct_bytes = sizeof key};
    hw_task_info task = {.struct_bytes = sizeof task};
    const char *text = NULL;
    size_t bytes = 0;
    hw_error error = {.message = ""};
    assert_int_equal(hw_store_table_info(store, 2, &table, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "table 2, expected less than the 2 of the store");
    assert_int_equal(hw_store_column_info(store, 8, &column, &error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_key_info(store, 3, &key, &error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_task_info(store, 1, &task, &error), HW_BAD_ARGUMENT);
    assert_int_equal(hw_store_category(store, 4, &text, &bytes, &error), HW_BAD_ARGUMENT);
    table.struct_bytes = 0;
    assert_int_equal(hw_store_table_info(store, 0, &table, &error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error.message, "struct_bytes of an hw_table_info"));
}

static void metadata_is_the_file_that_was_built(void **state) {
    const hw_store *store = store_of(state);
    const char *text = NULL, *again = NULL;
    size_t bytes = 0, size = 0;
    char *path = fixture_path(hw_store_directory(store), "metadata.json");
    uint8_t *expected = damage_read_file(path, &size);
    MUST(hw_store_metadata(store, &text, &bytes, &error));
    assert_int_equal(bytes, size);
    assert_memory_equal(text, expected, size);
    assert_int_equal(text[size], 0);
    remove(path); /* as by a newer build: what is open stays whole */
    MUST(hw_store_metadata(store, &again, &bytes, &error));
    assert_ptr_equal(again, text);
    damage_write_file(path, expected, size);
    free(expected);
    free(path);
}

/* ---- other documents --------------------------------------------------------------------- */

static void what_it_does_not_say_is_not_known(void **state) {
    static const char *const silent[] = {
        "{}",
        "{\"tables\": [], \"columns\": []}",
        "{\"tables\": [{}, {\"foreign_keys\": [{\"references\": {\"columns\": []}}]}], "
        "\"columns\": [{}]}",
        /* The key of a table need not be a column. */
        "{\"tables\": [{\"primary_key\": [\"tons\"]}, {\"primary_key\": [\"key\"], "
        "\"foreign_keys\": [{}, {}, {\"references\": {\"columns\": [\"number\", \"place\"]}}]}]}",
    };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        char *directory = fixture_directory();
        hw_store *store = harbours_described(directory, silent[i]);
        hw_table_info table = {.struct_bytes = sizeof table};
        hw_key_info key = {.struct_bytes = sizeof key};
        const char *text = NULL;
        size_t bytes = 0;
        hw_error error = {.message = ""};
        MUST(hw_store_table_info(store, SHIPS, &table, &error));
        assert_string_equal(table.name, "ships");
        assert_null(table.primary_key);
        assert_int_equal(table.primary_key_count, 0);
        MUST(hw_store_key_info(store, SHIPS_BY_BOTH, &key, &error));
        assert_string_equal(key.name, "ships.flag+line");
        assert_null(key.parent_columns);
        assert_int_equal(hw_store_category(store, 0, &text, &bytes, &error), HW_BAD_STORE);
        assert_non_null(strstr(error.message, "has no text of category 0"));
        hw_store_close(store);
        fixture_remove(directory);
    }
}

static void what_contradicts_the_build_is_refused(void **state) {
    static const struct {
        const char *metadata, *expected;
    } cases[] = {
        {"[]", "an object"},
        {" ", "an object"},
        {"{\"tables\": [{}, {}, {}]}", "as many tables as the store has"},
        {"{\"tables\": {}}", "an array"},
        {"{\"tables\": [{\"primary_key\": [7]}]}", "a string"},
        {"{\"tables\": [{\"foreign_keys\": [{}]}]}", "as many foreign keys as the table has"},
        {"{\"tables\": [{}, {\"foreign_keys\": [{\"references\": {\"columns\": "
         "[\"code\", \"number\"]}}]}]}",
         "as many columns as the key has"},
        {"{\"tables\": [{}, {\"foreign_keys\": [{}, {}, {\"references\": {\"columns\": "
         "[\"code\"]}}]}]}",
         "as many columns as the key has"},
        {"{\"columns\": [{}, {}, {}, {}, {}, {}, {}, {}, {}]}", "as many columns as the store has"},
        {"{\"columns\": [{\"stats\": {\"categories\": [\"a\"]}}]}",
         "as many categories as the column has"},
        {"{\"columns\": [{\"stats\": {\"categories\": [\"a\", \"b\", \"c\"]}}]}",
         "as many categories as the column has"},
        {"{\"columns\": [{}, {\"stats\": {\"categories\": [\"a\"]}}]}",
         "as many categories as the column has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *directory = fixture_directory();
        hw_store *store = harbours_described(directory, cases[i].metadata);
        hw_table_info table = {.struct_bytes = sizeof table};
        hw_error error = {.message = ""};
        char expected[100];
        snprintf(expected, sizeof expected, "expected %s (in '", cases[i].expected);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(hw_store_table_info(store, 0, &table, &error), HW_BAD_STORE);
            if (strncmp(error.message, expected, strlen(expected)) != 0) {
                fail_msg("%s: %s", cases[i].metadata, error.message);
            }
        }
        hw_store_close(store);
        fixture_remove(directory);
    }
}

static void a_document_of_another_build_is_refused(void **state) {
    struct patient *patient = patient_admit(harbours);
    hw_store *store = fixture_open(patient->build, HW_LOAD_MMAP);
    const char *text = NULL;
    size_t bytes = 0;
    hw_error error = {.message = ""};
    patient_flip(patient, patient->file_count - 1, 3, 1, 0);
    assert_int_equal(hw_store_metadata(store, &text, &bytes, &error), HW_BAD_STORE);
    assert_non_null(strstr(error.message, "the file has a wrong checksum (in '"));
    patient_heal(patient);
    MUST(hw_store_metadata(store, &text, &bytes, &error));
    hw_store_close(store);
    patient_discharge(patient);
}

/* ---- threads ----------------------------------------------------------------------------- */

static void *ask(void *context) {
    hw_key_info info = {.struct_bytes = sizeof info};
    MUST(hw_store_key_info(context, SHIPS_BY_BOTH, &info, &error));
    return (void *)(uintptr_t)info.parent_columns;
}

static void threads_may_ask_first_at_once(void **state) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    void *found[THREADS];
    char *directory = fixture_directory();
    hw_store *store = harbours(directory);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, store), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &found[i]), 0);
        assert_ptr_equal(found[i], found[0]);
    }
    hw_store_close(store);
    fixture_remove(directory);
}

/* Opens a store and asks it, over and over, until it is told to stop. */
struct asker {
    const char *directory;
    atomic_int is_over;
};

static void *keep_asking(void *context) {
    struct asker *asker = context;
    while (!atomic_load(&asker->is_over)) {
        hw_store *store = fixture_open(asker->directory, HW_LOAD_MMAP);
        (void)ask(store);
        hw_store_close(store);
    }
    return NULL;
}

/* While other threads of the parent are asking, also the very store that the child asks. */
static void a_forked_child_may_ask(void **state) {
#ifdef __SANITIZE_THREAD__ /* which does not take a fork beside threads */
    skip();
#endif
    char *directory = fixture_directory();
    hw_store_close(harbours(directory));
    struct asker asker = {.directory = directory};
    pthread_t other, first;
    assert_int_equal(pthread_create(&other, NULL, keep_asking, &asker), 0);
    for (int i = 0; i < 100; i++) {
        hw_store *store = fixture_open(directory, HW_LOAD_MMAP);
        assert_int_equal(pthread_create(&first, NULL, ask, store), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20); /* ends the child if it waits for ever */
            hw_table_info info = {.struct_bytes = sizeof info};
            hw_status status = hw_store_table_info(store, COUNTRIES, &info, NULL);
            _exit(status == HW_OK && strcmp(info.name, "countries") == 0 ? 7 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 7 << 8);
        assert_int_equal(pthread_join(first, NULL), 0);
        hw_store_close(store);
    }
    atomic_store(&asker.is_over, 1);
    assert_int_equal(pthread_join(other, NULL), 0);
    fixture_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_say_their_ranges_and_keys),
        cmocka_unit_test(columns_say_their_types_and_categories),
        cmocka_unit_test(keys_say_both_their_ends),
        cmocka_unit_test(tasks_say_what_they_ask),
        cmocka_unit_test(the_columns_of_a_derived_task_are_its_own),
        cmocka_unit_test(categories_are_texts),
        cmocka_unit_test(names_lead_to_numbers),
        cmocka_unit_test(a_name_that_is_not_there_says_which_are),
        cmocka_unit_test(numbers_and_structs_are_checked),
        cmocka_unit_test(metadata_is_the_file_that_was_built),
        cmocka_unit_test(what_it_does_not_say_is_not_known),
        cmocka_unit_test(what_contradicts_the_build_is_refused),
        cmocka_unit_test(a_document_of_another_build_is_refused),
        cmocka_unit_test(threads_may_ask_first_at_once),
        cmocka_unit_test(a_forked_child_may_ask),
    };
    return cmocka_run_group_tests(tests, open_harbours, close_shelf);
}
