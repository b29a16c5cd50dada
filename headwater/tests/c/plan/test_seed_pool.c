/* Pools of seeds over the league: parts, labels, positions, refusals. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "support/league.h"
#include "support/unit_test.h"

enum { MOST = 16, MATCHES_TABLE = 1 };

struct drawn {
    uint32_t seeds[MOST], epochs[MOST], rows[MOST];
    int64_t obs_times[MOST];
    double labels[MOST];
};

static hw_sampler_options options_of(const uint32_t *task) {
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.tasks = task;
    options.task_count = 1;
    return options;
}

static hw_seed_pool *open_pool(void **state, uint32_t task, uint8_t require_label) {
    hw_sampler_options options = options_of(&task);
    hw_seed_pool *pool = NULL;
    MUST(
        hw_seed_pool_open(store_of(state), &options, HW_TRAIN, require_label, NULL, &pool, &error));
    return pool;
}

static hw_drawn_seeds into_of(struct drawn *drawn) {
    return (hw_drawn_seeds){.struct_bytes = sizeof(hw_drawn_seeds),
                            .seeds = drawn->seeds,
                            .epochs = drawn->epochs,
                            .rows = drawn->rows,
                            .obs_times = drawn->obs_times,
                            .labels = drawn->labels};
}

static hw_status draw(hw_seed_pool *pool, uint32_t count, struct drawn *drawn, uint32_t *taken) {
    uint32_t task = 0;
    hw_drawn_seeds into = into_of(drawn);
    return hw_seed_pool_next(pool, count, &into, &task, taken, NULL);
}

/* Matches 2, 3, 5 and 6 are of train: seeds 0, 1, 3 and 4. */
static void parts_have_every_seed_once_in_each_epoch(void **state) {
    static const uint32_t list[] = {0, 1, 3, 4};
    hw_seed_pool *pool = open_pool(state, TASK_SCORE, 0);
    assert_int_equal(hw_seed_pool_count(pool), 4);
    for (uint32_t world = 1; world <= 5; world++) {
        uint32_t counts[3][8] = {{0}};
        for (uint32_t rank = 0; rank < world; rank++) {
            struct drawn drawn;
            uint32_t taken = 0;
            MUST(hw_seed_pool_keep(pool, rank, world, UINT32_MAX, &error));
            uint32_t own = (uint32_t)hw_seed_pool_count(pool);
            assert_int_equal(own, rank < 4 ? (3 - rank) / world + 1 : 0);
            for (uint32_t epoch = 0; epoch < 3; epoch++) {
                assert_int_equal(hw_seed_pool_remaining(pool), own);
                assert_int_equal(draw(pool, own, &drawn, &taken), HW_OK);
                assert_int_equal(taken, own);
                for (uint32_t i = 0; i < own; i++) {
                    counts[epoch][drawn.seeds[i]]++;
                    assert_int_equal(drawn.epochs[i], epoch);
                    assert_int_equal(drawn.rows[i], 2 + drawn.seeds[i]);
                    assert_true(drawn.labels[i] == 1 + drawn.seeds[i]);
                }
            }
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(counts[0][list[i]] == 1 && counts[1][list[i]] == 1);
            assert_int_equal(counts[2][list[i]], 1);
        }
    }
    hw_seed_pool_close(pool);
}

static void a_label_that_is_null_is_left_out_on_request(void **state) {
    struct drawn drawn;
    uint32_t taken = 0;
    hw_seed_pool *pool = open_pool(state, TASK_NEXT, 0);
    assert_int_equal(hw_seed_pool_count(pool), 2);
    hw_seed_pool_close(pool);
    pool = open_pool(state, TASK_NEXT, 1);
    assert_int_equal(hw_seed_pool_count(pool), 1);
    assert_int_equal(draw(pool, 3, &drawn, &taken), HW_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(drawn.seeds[i] == 0 && drawn.epochs[i] == i);
        assert_true(drawn.obs_times[i] == 4 * DAY_US && drawn.labels[i] == 5.0 * DAY_US);
    }
    hw_seed_pool_close(pool);
}

static void rows_of_a_table_have_the_labels_of_a_column(void **state) {
    static const uint32_t table = MATCHES_TABLE, column = MATCHES_SCORE, other = TEAMS_ID;
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.seed_tables = &table;
    options.seed_table_count = 1;
    options.split_ratios[0] = 1;
    options.split_ratios[1] = options.split_ratios[2] = 0;
    struct drawn drawn;
    uint32_t taken = 0;
    hw_error error = {0};
    hw_seed_pool *pool = NULL;
    MUST(hw_seed_pool_open(store_of(state), &options, HW_TRAIN, 1, &column, &pool, &error));
    assert_int_equal(draw(pool, 6, &drawn, &taken), HW_OK);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 6; i++) {
        seen |= 1u << drawn.seeds[i];
        assert_true(fabs(drawn.labels[i] - (1 + drawn.seeds[i])) < 1e-5);
    }
    assert_int_equal(seen, 63);
    hw_seed_pool_close(pool);
    assert_int_equal(
        hw_seed_pool_open(store_of(state), &options, HW_TRAIN, 1, &other, &pool, &error),
        HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "label_columns[0] is 0, expected a column of seed table 1");
}

/* Train has seeds 0, 1, 3 and 4 of score, 0 and 2 of form, 0 and 1 of next: a list of eight, of
 * which position p holds the entry that the keyed permutation of the document puts there. */
static void tasks_that_are_drawn_together_are_one_list(void **state) {
    static const uint32_t list[8][2] = {{TASK_SCORE, 0}, {TASK_SCORE, 1}, {TASK_SCORE, 3},
                                        {TASK_SCORE, 4}, {TASK_FORM, 0},  {TASK_FORM, 2},
                                        {TASK_NEXT, 0},  {TASK_NEXT, 1}};
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.seed = 7;
    hw_seed_pool *pool = NULL;
    MUST(hw_seed_pool_open(store_of(state), &options, HW_TRAIN, 0, NULL, &pool, &error));
    MUST(hw_seed_pool_together(pool, &error));
    struct drawn drawn;
    uint32_t task = 0, taken = 0, tasks[MOST];
    assert_int_equal(draw(pool, 1, &drawn, &taken), HW_BAD_ARGUMENT); /* without tasks */
    hw_drawn_seeds into = into_of(&drawn);
    into.tasks = tasks;
    for (uint32_t world = 1; world <= 9; world += 2) {
        for (uint32_t rank = 0; rank < world; rank++) {
            MUST(hw_seed_pool_keep(pool, rank, world, UINT32_MAX, &error));
            uint32_t own = rank < 8 ? (7 - rank) / world + 1 : 0;
            assert_int_equal(hw_seed_pool_count(pool), own);
            for (uint32_t epoch = 0; epoch < 2; epoch++) {
                assert_int_equal(hw_seed_pool_remaining(pool), own);
                MUST(hw_seed_pool_next(pool, own, &into, &task, &taken, &error));
                assert_true(task == UINT32_MAX && taken == own);
                uint64_t key = hwi_key(7, HWI_KEY_EPOCH, UINT32_MAX, (uint64_t)rank << 32 | epoch);
                for (uint32_t i = 0; i < own; i++) {
                    const uint32_t *expected = list[rank + world * hwi_permute(key, own, i)];
                    assert_int_equal(tasks[i], expected[0]);
                    assert_int_equal(drawn.seeds[i], expected[1]);
                    assert_int_equal(drawn.epochs[i], epoch);
                }
            }
        }
    }
    hw_seed_pool_close(pool);
}

static void turns_and_together_do_not_go_together(void **state) {
    static const double weights[] = {1, 2, 1};
    hw_error error = {0};
    for (int i = 0; i < 2; i++) {
        hw_sampler_options options;
        hw_sampler_options_init(&options, sizeof options);
        options.task_weights = i == 0 ? weights : NULL;
        options.task_order = i == 0 ? HW_TASKS_WEIGHTED : HW_TASKS_ROUND_ROBIN;
        hw_seed_pool *pool = NULL;
        MUST(hw_seed_pool_open(store_of(state), &options, HW_TRAIN, 0, NULL, &pool, &error));
        assert_int_equal(hw_seed_pool_together(pool, &error), HW_BAD_ARGUMENT);
        assert_non_null(strstr(error.message, "leave out task_weights and task_order"));
        hw_seed_pool_close(pool);
    }
}

static void what_cannot_be_is_refused(void **state) {
    static const uint32_t next = TASK_NEXT;
    hw_sampler_options options = options_of(&next);
    hw_seed_pool *pool = NULL;
    hw_error error = {0};
    hw_store *store = store_of(state);
    assert_int_equal(hw_seed_pool_open(store, &options, HW_VAL, 0, NULL, &pool, &error),
                     HW_BAD_TASK);
    assert_int_equal(hw_seed_pool_open(store, &options, (hw_split)3, 0, NULL, &pool, &error),
                     HW_BAD_ARGUMENT);
    pool = open_pool(state, TASK_SCORE, 0);
    assert_int_equal(hw_seed_pool_keep(pool, 0, 0, UINT32_MAX, &error), HW_BAD_ARGUMENT);
    struct drawn drawn;
    uint32_t taken = 0;
    uint64_t positions[3] = {((uint64_t)UINT32_MAX + 1) * 4 - 2, 0, 0};
    hw_seed_pool_set_position(pool, positions, 0);
    assert_int_equal(draw(pool, 1, &drawn, &taken), HW_OK); /* the last but one */
    assert_int_equal(drawn.epochs[0], UINT32_MAX);
    assert_int_equal(draw(pool, 2, &drawn, &taken), HW_BAD_ARGUMENT);
    assert_int_equal(draw(pool, 1, &drawn, &taken), HW_OK); /* the last */
    assert_int_equal(drawn.epochs[0], UINT32_MAX);
    positions[0] = UINT64_MAX;
    hw_seed_pool_set_position(pool, positions, 0);
    assert_int_equal(draw(pool, 1, &drawn, &taken), HW_BAD_ARGUMENT);
    hw_seed_pool_close(pool);
    hw_seed_pool_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_every_seed_once_in_each_epoch),
        cmocka_unit_test(a_label_that_is_null_is_left_out_on_request),
        cmocka_unit_test(rows_of_a_table_have_the_labels_of_a_column),
        cmocka_unit_test(tasks_that_are_drawn_together_are_one_list),
        cmocka_unit_test(turns_and_together_do_not_go_together),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, open_league, close_shelf);
}
