/* One context as a graph, of harbours (support/harbours.h). Against the reference in random worlds:
 * test_subgraph.py. */
#include <pthread.h>

#include "support/harbours.h"
#include "support/unit_test.h"

enum { OTHERS = 4 };

static int open_harbours(void **state) {
    return fixture_setup(state, harbours);
}

static hw_sampler *sampler_of(void **state) {
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.num_threads = 1;
    options.max_rows = 8;
    return fixture_sampler(store_of(state), &options);
}

/* Ship 4 asks on day 3; its three keys lead to country 0, whose other ship is 2. */
static void expect_the_last_ship(const hw_sampler *sampler, uint8_t both) {
    static const uint32_t rows[] = {4, 0, 2};
    static const int32_t tables[] = {SHIPS, COUNTRIES, SHIPS};
    static const uint8_t depths[] = {0, 1, 2};
    static const uint16_t edges[] = {0, 1, 2, 1, 1, 0, 1, 2};
    hw_subgraph *subgraph = NULL;
    hw_subgraph_arrays arrays = {.struct_bytes = sizeof arrays};
    MUST(hw_sampler_subgraph(sampler, 0, 2, 0, both, &subgraph, &error));
    MUST(hw_subgraph_get(subgraph, &arrays, &error));
    assert_int_equal(arrays.row_count, 3);
    assert_memory_equal(arrays.rows, rows, sizeof rows);
    assert_memory_equal(arrays.row_tables, tables, sizeof tables);
    assert_memory_equal(arrays.row_depths, depths, sizeof depths);
    assert_int_equal(arrays.edge_count, both ? 4 : 2);
    assert_memory_equal(arrays.local_edges, edges, both ? 16 : 8);
    hw_subgraph_close(subgraph);
}

static void a_pair_of_rows_is_one_edge_by_however_many_keys(void **state) {
    hw_sampler *sampler = sampler_of(state);
    expect_the_last_ship(sampler, 0);
    expect_the_last_ship(sampler, 1);
    hw_sampler_close(sampler);
}

static void a_subgraph_outlives_its_sampler(void **state) {
    hw_sampler *sampler = sampler_of(state);
    hw_subgraph *subgraph = NULL;
    hw_subgraph_arrays arrays = {.struct_bytes = sizeof arrays};
    MUST(hw_sampler_subgraph(sampler, 0, 0, 0, 0, &subgraph, &error));
    hw_sampler_close(sampler);
    MUST(hw_subgraph_get(subgraph, &arrays, &error));
    assert_int_equal(arrays.row_count, 2); /* the first ship and its country */
    assert_int_equal(arrays.rows[0], 2);
    hw_subgraph_close(subgraph);
    hw_subgraph_close(NULL);
}

static void *ask(void *sampler) {
    for (int i = 0; i < 50; i++) {
        expect_the_last_ship(sampler, (uint8_t)(i % 2));
    }
    return NULL;
}

static void threads_ask_beside_those_that_make_batches(void **state) {
    pthread_t threads[OTHERS];
    hw_sampler *sampler = sampler_of(state);
    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, sampler), 0);
    }
    for (int i = 0; i < 20; i++) {
        hw_batch_release(fixture_next(sampler, HW_TRAIN));
    }
    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    hw_sampler_close(sampler);
}

static void what_cannot_be_is_refused(void **state) {
    hw_sampler *sampler = sampler_of(state);
    hw_subgraph *subgraph = NULL;
    hw_subgraph_arrays arrays = {0};
    hw_error error = {.message = ""};
    assert_int_equal(hw_sampler_subgraph(sampler, 0, 3, 0, 0, &subgraph, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "seeds[0] is 3, expected less than 3, the seeds of 'tons'");
    assert_int_equal(hw_sampler_subgraph(sampler, 1, 0, 0, 0, &subgraph, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "task 1 is not among the 1 tasks of this sampler");
    assert_null(subgraph);
    MUST(hw_sampler_subgraph(sampler, 0, 2, 0, 0, &subgraph, &error));
    assert_int_equal(hw_subgraph_get(subgraph, &arrays, &error), HW_BAD_ARGUMENT);
    assert_non_null(strstr(error.message, "struct_bytes of an hw_subgraph_arrays is 0"));
    hw_sampler_shutdown(sampler);
    hw_subgraph_close(subgraph);
    assert_int_equal(hw_sampler_subgraph(sampler, 0, 2, 0, 0, &subgraph, &error), HW_SHUT_DOWN);
    hw_sampler_close(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_of_rows_is_one_edge_by_however_many_keys),
        cmocka_unit_test(a_subgraph_outlives_its_sampler),
        cmocka_unit_test(threads_ask_beside_those_that_make_batches),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, open_harbours, close_shelf);
}
