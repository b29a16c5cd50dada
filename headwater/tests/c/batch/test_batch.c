/*
 * Batches worked out by hand: every array of small contexts of bookstore, deliveries
 * (support/fixtures.h) and league (support/league.h), and what a batch adds to its sequences. The
 * walks behind them are those of walk/test_walk.c.
 */
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <math.h>

#include "base/calendar.h"
#include "base/huge_pages.h"
#include "batch/texts.h"
#include "batch/worker.h"
#include "plan/open_plan.h"
#include "shape/shape.h"
#include "support/league.h"
#include "support/unit_test.h"
#include "walk/walk.h"

static hw_store *bookstore_of(void **state) {
    return ((struct databases *)*state)->bookstore;
}

static hw_store *league_of(void **state) {
    return ((struct databases *)*state)->league;
}

/* One sequence of 32 cells and 8 rows, with every array there is. */
static hw_sampler_options everything(void) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .batch_size = 1,
        .sequence_length = 32,
        .max_rows = 8,
        .text_budget = 33,
        .child_order = HW_CHILDREN_RECENT,
        .with_rows = 1,
    };
}

/* ---- one batch --------------------------------------------------------------------------- */

struct making {
    struct hwi_plan *plan;
    struct hwi_worker *worker;
    struct hwi_batch_scratch *scratch;
    uint8_t *slab;
};

static void start(struct making *making, hw_store *store, const hw_sampler_options *options) {
    *making = (struct making){0};
    MUST(hwi_plan_open(store, options, &making->plan, &error));
    MUST(hwi_plan_shape(making->plan, &error));
    MUST(hwi_worker_open(making->plan, &making->worker, &error));
    MUST(hwi_batch_scratch_open(making->plan, &making->scratch, &error));
    making->slab = hwi_pages_open(making->plan->slab_bytes);
    assert_non_null(making->slab);
}

static void end(struct making *making) {
    hwi_pages_close(making->slab, making->plan->slab_bytes);
    hwi_batch_scratch_close(making->scratch);
    hwi_worker_close(making->worker);
    hwi_plan_close(making->plan);
}

/* seed NULL: an empty sequence. */
static void make(struct making *making, uint32_t b, const struct hwi_seed *seed) {
    struct hwi_work finished,
        work = {.slab = making->slab, .scratch = making->scratch, .b = b, .is_real = seed != NULL};
    if (seed != NULL) {
        work.seed = *seed;
    }
    uint32_t room = hwi_worker_room(making->worker);
    hwi_worker_start(making->worker, &work);
    MUST(hwi_worker_advance(making->worker, &finished, &error));
    assert_int_equal(finished.b, b);
    assert_int_equal(hwi_worker_room(making->worker), room);
}

static void make_seed(struct making *making, uint32_t b, uint32_t task, uint32_t index) {
    struct hwi_seed seed = stored_seed(making->plan, task, index);
    make(making, b, &seed);
}

static void finish(struct making *making, uint32_t task, uint32_t sequence_count) {
    uint32_t part_count =
        hwi_batch_merge(making->plan, making->slab, making->scratch, task, sequence_count);
    for (uint32_t part = part_count; part-- > 0;) { /* in any order */
        hwi_batch_gather(making->plan, making->slab, making->scratch, part);
    }
    struct hwi_counters counters = {0};
    hwi_batch_finish(making->plan, making->slab, making->scratch, sequence_count, NULL, &counters);
}

/* A batch of one stored seed; options NULL: everything(). */
static struct making make_one(hw_store *store, const hw_sampler_options *options, uint32_t task,
                              uint32_t index) {
    struct making making;
    hw_sampler_options every = everything();
    start(&making, store, options == NULL ? &every : options);
    make_seed(&making, 0, task, index);
    finish(&making, task, 1);
    return making;
}

/* A batch of one seed that the caller gives. */
static struct making make_ad_hoc(hw_store *store, struct hwi_seed seed) {
    struct making making;
    hw_sampler_options every = everything();
    seed.split = HWI_SPLIT_AD_HOC;
    start(&making, store, &every);
    make(&making, 0, &seed);
    finish(&making, seed.task, 1);
    return making;
}

static const void *array(const struct making *making, enum hwi_field_id id) {
    assert_true(making->plan->offsets[id] != UINT64_MAX);
    return making->slab + making->plan->offsets[id];
}

/* Compares the start of an array element by element, and asks for 0 in the `rest` behind it. */
#define ASSERT_ARRAY(type, making, id, count, rest, ...)                                           \
    do {                                                                                           \
        const type *found_ = array(making, id), expected_[] = __VA_ARGS__;                         \
        assert_int_equal(sizeof expected_ / sizeof *expected_, count);                             \
        for (uint32_t i_ = 0; i_ < (count) + (rest); i_++) {                                       \
            type wanted_ = i_ < (count) ? expected_[i_] : 0;                                       \
            if (found_[i_] != wanted_) {                                                           \
                fail_msg(#id "[%u] is %g, expected %g", i_, (double)found_[i_], (double)wanted_);  \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void assert_near(float found, double expected) {
    if (!(fabs((double)found - expected) <= 1e-6)) {
        fail_msg("%.9g, expected %.9g", (double)found, expected);
    }
}

/* ---- a cell task ------------------------------------------------------------------------- */

/*
 * price, seed 2: book 6 on day 30, then books 4 (its original), author 0 and book 3, as local rows
 * 0..3 with 8, 8, 3 and 8 cells:
 *
 *   local  cells    id  author_id  sequel_of  title   genre   price   in_print  published
 *   0      0..7     .   .          .          (empty) travel  target  1         day 30
 *   1      8..15    .   .          .          Fog II  crime   20      0         day 20
 *   2      16..18   id . name Ann  rating 1
 *   3      19..26   .   .          NULL       Fog     crime   10      1         day 10
 *
 * Prices have mean 30 and std sqrt(200); ratings mean 2 and std sqrt(2/3).
 */
static void cells_of_a_cell_task_are_those_worked_out_by_hand(void **state) {
    struct making making = make_one(bookstore_of(state), NULL, TASK_PRICE, 2);
    ASSERT_ARRAY(int8_t, &making, HWI_SEMANTIC_TYPES, 27, 5,
                 {0, 0, 0, 5, 4, 1, 3, 2, 0, 0, 0, 5, 4, 1, 3, 2, 0, 5, 1, 0, 0, 0, 5, 4, 1, 3, 2});
    ASSERT_ARRAY(
        int32_t, &making, HWI_COLUMN_IDS, 27, 5,
        {3, 4, 5, 6, 7, 8, 9, 10, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    ASSERT_ARRAY(uint16_t, &making, HWI_SEQ_ROW_IDS, 27, 5,
                 {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3});
    ASSERT_ARRAY(uint8_t, &making, HWI_BOOL_VALUES, 27, 5,
                 {0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0});
    ASSERT_ARRAY(uint32_t, &making, HWI_CATEGORICAL_EMBED_IDS, 27, 5,
                 {0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    ASSERT_ARRAY(uint32_t, &making, HWI_TEXT_EMBED_IDS, 27, 5,
                 {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0});
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_NULL, 27, 5,
                 {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_TARGET, 6, 26, {0, 0, 0, 0, 0, 1});
    const float *numbers = array(&making, HWI_NUMERIC_VALUES);
    for (uint32_t cell = 0; cell < 32; cell++) {
        double number = cell == 13   ? -10 / sqrt(200)
                        : cell == 18 ? -1 / sqrt(2.0 / 3)
                        : cell == 24 ? -20 / sqrt(200)
                                     : 0; /* the target is 30, the mean */
        assert_near(numbers[cell], number);
    }
    const uint8_t *padding = array(&making, HWI_IS_PADDING);
    for (uint32_t cell = 0; cell < 32; cell++) {
        assert_int_equal(padding[cell], cell >= 27);
    }
    end(&making);
}

static void timestamps_stand_in_their_cells_and_nowhere_else(void **state) {
    struct making making = make_one(bookstore_of(state), NULL, TASK_PRICE, 2);
    const float *values = array(&making, HWI_TIMESTAMP_VALUES);
    const struct hwi_store_info *info = making.plan->store->info;
    for (uint32_t cell = 0; cell < 32; cell++) {
        float expected[HWI_TIME_FLOATS] = {0};
        int day = cell == 7 ? 30 : cell == 15 ? 20 : cell == 26 ? 10 : 0;
        if (day > 0) {
            hwi_calendar_encode(&making.plan->calendar, day * DAY_US, info->time_mean_us,
                                info->time_std_us, expected);
        }
        assert_memory_equal(values + HWI_TIME_FLOATS * cell, expected, sizeof expected);
    }
    /* published: days 10, 20, 20, 30, 40: mean 24, std sqrt(104) */
    assert_near(values[HWI_TIME_FLOATS * 7 + 14], 6 / sqrt(104));
    end(&making);
}

/* Edges: 0 -> 1 (sequel), 1 -> 2 (author), 1 -> 3 (sequel), 3 -> 2 (author); 0's author dangles. */
static void rows_and_edges_are_those_worked_out_by_hand(void **state) {
    hw_sampler_options options = everything();
    struct making making = make_one(bookstore_of(state), &options, TASK_PRICE, 2);
    ASSERT_ARRAY(uint8_t, &making, HWI_FK_ADJ, 32, 32,
                 {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0,
                  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    ASSERT_ARRAY(float, &making, HWI_ROW_AGES, 8, 0, {0, 10, -1, 20, -1, -1, -1, -1});
    ASSERT_ARRAY(uint16_t, &making, HWI_ROW_STARTS, 9, 0, {0, 8, 16, 19, 27, 27, 27, 27, 27});
    ASSERT_ARRAY(uint16_t, &making, HWI_ROW_TABLES, 4, 4, {1, 1, 0, 1});
    ASSERT_ARRAY(uint8_t, &making, HWI_ROW_DEPTHS, 4, 4, {0, 1, 2, 2});
    ASSERT_ARRAY(uint32_t, &making, HWI_INFO_ROW_IDS, 8, 0,
                 {6, 4, 0, 3, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX});
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_CELLS, 1, 0, {27});
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_ROWS, 1, 0, {4});
    ASSERT_ARRAY(int64_t, &making, HWI_INFO_OBS_TIME, 1, 0, {30 * DAY_US});
    ASSERT_ARRAY(uint32_t, &making, HWI_INFO_SEED_INDEX, 1, 0, {2});
    ASSERT_ARRAY(uint32_t, &making, HWI_INFO_ANCHOR_ROWS, 1, 0, {6});
    end(&making);
    options.layout = HW_LAYOUT_COMPACT;
    making = make_one(bookstore_of(state), &options, TASK_PRICE, 2);
    ASSERT_ARRAY(uint16_t, &making, HWI_PARENTS, 16, 0,
                 {65535, 1, 2, 3, 65535, 65535, 2, 65535, 65535, 65535, 65535, 65535, 65535, 65535,
                  65535, 65535});
    end(&making);
}

/*
 * By column: authors' 0..2 stand in 16..18; column 3 + c of the books in c, 8 + c and 19 + c.
 * By row: 0-1, 1-2, 1-3, 2-3. Row 0 has fewest neighbours, then 1, then 2 and 3 (two each): the
 * reverse is 3, 2, 1, 0.
 */
static void permutations_are_those_worked_out_by_hand(void **state) {
    struct making making = make_one(bookstore_of(state), NULL, TASK_PRICE, 2);
    ASSERT_ARRAY(uint16_t, &making, HWI_COL_PERM, 32, 0,
                 {16, 17, 18, 0,  8,  19, 1,  9,  20, 2,  10, 21, 3,  11, 22, 4,
                  12, 23, 5,  13, 24, 6,  14, 25, 7,  15, 26, 27, 28, 29, 30, 31});
    ASSERT_ARRAY(uint16_t, &making, HWI_OUT_PERM, 32, 0,
                 {19, 20, 21, 22, 23, 24, 25, 26, 16, 17, 18, 8,  9,  10, 11, 12,
                  13, 14, 15, 0,  1,  2,  3,  4,  5,  6,  7,  27, 28, 29, 30, 31});
    assert_ptr_equal(array(&making, HWI_IN_PERM), array(&making, HWI_OUT_PERM));
    end(&making);
}

static void texts_of_a_batch_come_by_first_appearance(void **state) {
    struct making making = make_one(bookstore_of(state), NULL, TASK_PRICE, 2);
    static const uint32_t texts[] = {5, 4, 0, 3}; /* (empty), Fog II, Ann, Fog */
    const uint8_t *found = array(&making, HWI_TEXT_BATCH_EMBEDDINGS);
    const uint8_t *vectors = making.plan->store->vectors[HW_EMBED_TEXTS];
    const uint8_t zero[2 * FIXTURE_TEXT_DIM] = {0};
    for (uint32_t text = 0; text < 33; text++) {
        const uint8_t *expected =
            text >= 1 && text <= 4 ? vectors + texts[text - 1] * sizeof zero : zero;
        assert_memory_equal(found + text * sizeof zero, expected, sizeof zero);
    }
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_TEXTS, 1, 0, {5});
    end(&making);
}

/* A budget of 3 is a quota of 2: (empty) and Fog II; the cells with Ann and Fog get text 0. Text 0
 * in two sequences: floor((5 - 1) / 2) = 2 each; they share the texts they have in common. */
static void texts_over_the_budget_become_text_0_and_are_counted(void **state) {
    struct making making;
    struct hwi_counters counters = {0};
    hw_sampler_options options = everything();
    options.text_budget = 3;
    making = make_one(bookstore_of(state), &options, TASK_PRICE, 2);
    ASSERT_ARRAY(uint32_t, &making, HWI_TEXT_EMBED_IDS, 12, 20,
                 {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2});
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_TEXTS, 1, 0, {3});
    hwi_worker_take_counters(making.worker, &counters);
    assert_int_equal(counters.texts_over_budget, 2);
    assert_int_equal(counters.cells, 27);
    assert_int_equal(counters.rows, 4);
    end(&making);
    options.batch_size = 2;
    options.text_budget = 6;
    start(&making, bookstore_of(state), &options);
    make_seed(&making, 1, TASK_PRICE, 2); /* (empty), Fog II */
    make_seed(&making, 0, TASK_PRICE, 1); /* book 4, author 0, book 3: Fog II, Ann */
    finish(&making, TASK_PRICE, 2);
    const uint32_t *texts = array(&making, HWI_TEXT_EMBED_IDS);
    assert_int_equal(texts[3], 1);
    assert_int_equal(texts[9], 2);
    assert_int_equal(texts[11 + 3], 0); /* Fog */
    assert_int_equal(texts[32 + 3], 3);
    assert_int_equal(texts[32 + 11], 1);
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_TEXTS, 1, 0, {4});
    end(&making);
}

/* ---- targets ----------------------------------------------------------------------------- */

/* price, seed 3: book 7, 40, z = 10 / sqrt(200). Separate: zeros in the cell, the truth beside. */
static void a_target_stands_in_its_cell_or_beside(void **state) {
    hw_sampler_options options = everything();
    struct making making = make_one(bookstore_of(state), &options, TASK_PRICE, 3);
    assert_near(((const float *)array(&making, HWI_NUMERIC_VALUES))[5], 10 / sqrt(200));
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_LABELLED, 1, 0, {1});
    ASSERT_ARRAY(uint8_t, &making, HWI_TARGET_STYPE, 1, 0, {HW_NUMERICAL});
    ASSERT_ARRAY(uint32_t, &making, HWI_TASK_IDX, 1, 0, {TASK_PRICE});
    ASSERT_ARRAY(uint32_t, &making, HWI_CAT_EMB_COUNT, 1, 0, {0});
    assert_true(making.plan->offsets[HWI_TARGET_VALUES] == UINT64_MAX);
    end(&making);
    options.targets = HW_TARGETS_SEPARATE;
    making = make_one(bookstore_of(state), &options, TASK_PRICE, 3);
    assert_near(((const float *)array(&making, HWI_NUMERIC_VALUES))[5], 0);
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_TARGET, 6, 26, {0, 0, 0, 0, 0, 1});
    const float *values = array(&making, HWI_TARGET_VALUES);
    assert_near(values[0], 10 / sqrt(200));
    for (uint32_t i = 1; i < HWI_TIME_FLOATS; i++) {
        assert_near(values[i], 0);
    }
    ASSERT_ARRAY(uint8_t, &making, HWI_TARGET_IS_NULL, 1, 0, {0});
    end(&making);
}

/* returns: seed 0 true, 2 NULL, 3 unlabelled; ad hoc has no label either. */
static void null_and_unlabelled_targets_are_told_apart(void **state) {
    const struct {
        uint32_t index;
        uint8_t is_labelled, is_null, value;
    } seeds[] = {{0, 1, 0, 1}, {1, 1, 0, 0}, {2, 1, 1, 0}, {3, 0, 1, 0}};
    for (int separate = 0; separate < 2; separate++) {
        hw_sampler_options options = everything();
        options.targets = separate ? HW_TARGETS_SEPARATE : HW_TARGETS_INLINE;
        for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
            struct making making =
                make_one(bookstore_of(state), &options, TASK_RETURNS, seeds[i].index);
            ASSERT_ARRAY(uint8_t, &making, HWI_IS_LABELLED, 1, 0, {seeds[i].is_labelled});
            ASSERT_ARRAY(uint8_t, &making, HWI_IS_TARGET, 2, 30, {0, 1});
            const uint8_t *nulls = array(&making, HWI_IS_NULL);
            const uint8_t *values = array(&making, HWI_BOOL_VALUES);
            assert_int_equal(nulls[1], separate ? 0 : seeds[i].is_null);
            assert_int_equal(values[1], separate ? 0 : seeds[i].value);
            if (separate) {
                ASSERT_ARRAY(uint8_t, &making, HWI_TARGET_IS_NULL, 1, 0, {seeds[i].is_null});
                ASSERT_ARRAY(float, &making, HWI_TARGET_VALUES, 1, 14, {seeds[i].value});
            }
            end(&making);
        }
    }
    struct making making =
        make_ad_hoc(bookstore_of(state),
                    (struct hwi_seed){.task = TASK_RETURNS, .index = 9, .obs_time = 25 * DAY_US});
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_LABELLED, 1, 0, {0});
    ASSERT_ARRAY(uint8_t, &making, HWI_IS_NULL, 2, 0, {0, 1});
    ASSERT_ARRAY(uint32_t, &making, HWI_INFO_SEED_INDEX, 1, 0, {9});
    end(&making);
}

/* form, seed 0: many is category 1, the second of the store's only block. next, seed 0: day 5. */
static void categories_and_times_can_be_targets(void **state) {
    hw_sampler_options options = everything();
    struct making making = make_one(league_of(state), &options, TASK_FORM, 0);
    ASSERT_ARRAY(uint32_t, &making, HWI_CATEGORICAL_EMBED_IDS, 2, 30, {0, 1});
    ASSERT_ARRAY(uint32_t, &making, HWI_CAT_EMB_START, 1, 0, {0});
    ASSERT_ARRAY(uint32_t, &making, HWI_CAT_EMB_COUNT, 1, 0, {2});
    ASSERT_ARRAY(uint8_t, &making, HWI_TARGET_STYPE, 1, 0, {HW_CATEGORICAL});
    end(&making);
    making = make_one(league_of(state), &options, TASK_NEXT, 0);
    const struct hwi_store_info *info = making.plan->store->info;
    float expected[HWI_TIME_FLOATS];
    hwi_calendar_encode(&making.plan->calendar, 5 * DAY_US, info->time_mean_us, info->time_std_us,
                        expected);
    assert_memory_equal((const float *)array(&making, HWI_TIMESTAMP_VALUES) + HWI_TIME_FLOATS,
                        expected, sizeof expected);
    end(&making);
    options.targets = HW_TARGETS_SEPARATE;
    making = make_one(league_of(state), &options, TASK_NEXT, 0);
    assert_memory_equal(array(&making, HWI_TARGET_VALUES), expected, sizeof expected);
    end(&making);
    making = make_one(league_of(state), &options, TASK_FORM, 0);
    ASSERT_ARRAY(float, &making, HWI_TARGET_VALUES, 1, 14, {1});
    ASSERT_ARRAY(uint32_t, &making, HWI_CATEGORICAL_EMBED_IDS, 2, 30, {0, 0});
    end(&making);
}

/* ---- a derived task ---------------------------------------------------------------------- */

/*
 * form, seed 0: seed row, team 0, matches 6, (team 1, match 4), 3, 5, 2, as local rows 0..7 with 2,
 * 1, 5, 1, 5, 5, 5, 5 cells. Parents (home, away, replay_of): 6: 0, 1, 4; 4: 1, 0; 3: 0, 0, 5: the
 * second 0 is not listed again; 5: 1, 1; 2: 0, 1. In local rows team 0 is 1, team 1 is 3, match 4
 * is 4 and match 5 is 6.
 */
static void a_seed_row_has_two_cells_one_parent_and_the_table_65535(void **state) {
    hw_sampler_options options = everything();
    struct making making = make_one(league_of(state), &options, TASK_FORM, 0);
    ASSERT_ARRAY(uint16_t, &making, HWI_ROW_STARTS, 9, 0, {0, 2, 3, 8, 9, 14, 19, 24, 29});
    ASSERT_ARRAY(uint16_t, &making, HWI_ROW_TABLES, 8, 0, {65535, 0, 1, 0, 1, 1, 1, 1});
    ASSERT_ARRAY(uint32_t, &making, HWI_INFO_ROW_IDS, 8, 0, {UINT32_MAX, 0, 6, 1, 4, 3, 5, 2});
    ASSERT_ARRAY(uint8_t, &making, HWI_ROW_DEPTHS, 8, 0, {0, 1, 2, 3, 3, 2, 3, 2});
    ASSERT_ARRAY(float, &making, HWI_ROW_AGES, 8, 0, {0, -1, 0, -1, 0, 1, 0, 2});
    ASSERT_ARRAY(uint8_t, &making, HWI_FK_ADJ, 64, 0,
                 {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0,
                  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0,
                  0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0});
    const int32_t *columns = array(&making, HWI_COLUMN_IDS);
    assert_int_equal(columns[0], FORM_OBS_TIME);
    assert_int_equal(columns[1], FORM_TARGET);
    ASSERT_ARRAY(int8_t, &making, HWI_SEMANTIC_TYPES, 3, 0, {HW_TIMESTAMP, HW_CATEGORICAL, 0});
    /* By column, the task's own come last; by row, as the edges say:
     * 0-1, 2-1, 2-3, 2-4, 4-3, 4-1, 5-1, 5-6, 6-3, 7-1, 7-3. Neighbours: 0: 1; 1: 5; 2: 3; 3: 4;
     * 4: 3; 5: 2; 6: 2; 7: 2. From 0: 1; of 1, by (number, row): 5, 7 (two), 2, 4 (three); of 5: 6;
     * of 7: 3. Reversed: 3, 6, 4, 2, 7, 5, 1, 0. */
    ASSERT_ARRAY(uint16_t, &making, HWI_OUT_PERM, 32, 0,
                 {8,  19, 20, 21, 22, 23, 9,  10, 11, 12, 13, 3, 4, 5,  6,  7,
                  24, 25, 26, 27, 28, 14, 15, 16, 17, 18, 2,  0, 1, 29, 30, 31});
    ASSERT_ARRAY(uint16_t, &making, HWI_COL_PERM, 32, 0,
                 {2,  8, 3,  9,  14, 19, 24, 4,  10, 15, 20, 25, 5, 11, 16, 21,
                  26, 6, 12, 17, 22, 27, 7,  13, 18, 23, 28, 0,  1, 29, 30, 31});
    end(&making);
    enum { NO = 65535 };
    options.layout = HW_LAYOUT_COMPACT;
    making = make_one(league_of(state), &options, TASK_FORM, 0);
    ASSERT_ARRAY(
        uint16_t, &making, HWI_PARENTS, 24, 0,
        {1, NO, NO, NO, NO, NO, 1, 3, 4, NO, NO, NO, 3, 1, NO, 1, 1, 6, 3, 3, NO, 1, 3, NO});
    end(&making);
}

/* form, seed 1 has no time: obs_time is NULL, all ages are -1. */
static void a_seed_without_time_has_a_null_obs_time_and_no_ages(void **state) {
    struct making making = make_one(league_of(state), NULL, TASK_FORM, 1);
    const uint8_t *nulls = array(&making, HWI_IS_NULL);
    const float *times = array(&making, HWI_TIMESTAMP_VALUES);
    assert_int_equal(nulls[0], 1);
    for (uint32_t i = 0; i < 2 * HWI_TIME_FLOATS; i++) {
        assert_near(times[i], 0);
    }
    ASSERT_ARRAY(float, &making, HWI_ROW_AGES, 8, 0, {-1, -1, -1, -1, -1, -1, -1, -1});
    ASSERT_ARRAY(int64_t, &making, HWI_INFO_OBS_TIME, 1, 0, {INT64_MAX});
    end(&making);
}

/* Book 7 (day 40), ad hoc on day 35: its own age is negative. */
static void only_an_anchor_from_the_future_has_a_negative_age(void **state) {
    struct making making =
        make_ad_hoc(bookstore_of(state),
                    (struct hwi_seed){.task = TASK_PRICE, .anchor = 7, .obs_time = 35 * DAY_US});
    ASSERT_ARRAY(float, &making, HWI_ROW_AGES, 8, 0, {-5, -1, 15, -1, -1, -1, -1, -1});
    end(&making);
}

/* ---- the memory of a batch --------------------------------------------------------------- */

static void an_empty_sequence_is_all_padding(void **state) {
    struct making making;
    hw_sampler_options options = everything();
    options.targets = HW_TARGETS_SEPARATE;
    options.batch_size = 2;
    options.text_budget = 65;
    start(&making, bookstore_of(state), &options);
    make(&making, 0, NULL);
    make_seed(&making, 1, TASK_PRICE, 2);
    finish(&making, TASK_PRICE, 1);
    static const enum hwi_field_id zero[] = {
        HWI_SEMANTIC_TYPES,  HWI_COLUMN_IDS,       HWI_SEQ_ROW_IDS,
        HWI_NUMERIC_VALUES,  HWI_TIMESTAMP_VALUES, HWI_BOOL_VALUES,
        HWI_IS_NULL,         HWI_IS_TARGET,        HWI_CATEGORICAL_EMBED_IDS,
        HWI_TEXT_EMBED_IDS,  HWI_FK_ADJ,           HWI_ROW_STARTS,
        HWI_ROW_TABLES,      HWI_ROW_DEPTHS,       HWI_NUM_CELLS,
        HWI_NUM_ROWS,        HWI_IS_LABELLED,      HWI_TARGET_VALUES,
        HWI_INFO_SEED_INDEX, HWI_INFO_ANCHOR_ROWS,
    };
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        const uint8_t *bytes = array(&making, zero[i]);
        uint64_t length = 0;
        for (uint32_t f = 0; f < making.plan->field_count; f++) {
            if (making.plan->fields[f].offset == making.plan->offsets[zero[i]]) {
                length = making.plan->fields[f].bytes / 2;
            }
        }
        assert_true(length > 0);
        for (uint64_t at = 0; at < length; at++) {
            assert_int_equal(bytes[at], 0);
        }
    }
    const uint8_t *padding = array(&making, HWI_IS_PADDING);
    const uint16_t *columns = array(&making, HWI_COL_PERM), *rows = array(&making, HWI_OUT_PERM);
    for (uint32_t cell = 0; cell < 32; cell++) {
        assert_true(padding[cell] == 1 && columns[cell] == cell && rows[cell] == cell);
    }
    ASSERT_ARRAY(float, &making, HWI_ROW_AGES, 8, 0, {-1, -1, -1, -1, -1, -1, -1, -1});
    ASSERT_ARRAY(uint8_t, &making, HWI_TARGET_IS_NULL, 2, 0, {1, 0});
    ASSERT_ARRAY(int64_t, &making, HWI_INFO_OBS_TIME, 2, 0, {INT64_MAX, 30 * DAY_US});
    ASSERT_ARRAY(uint32_t, &making, HWI_NUM_SEQUENCES, 1, 0, {1});
    end(&making);
}

/* Makes a batch of three (the last one empty); over what another batch left if asked. */
static void make_three(struct making *making, hw_store *store, const hw_sampler_options *options,
                       uint32_t task, int over_another) {
    start(making, store, options);
    if (over_another) {
        for (uint32_t b = 0; b < 3; b++) {
            make_seed(making, b, 1 - task, b);
        }
        finish(making, 1 - task, 3);
    }
    make_seed(making, 0, task, 1);
    make_seed(making, 1, task, 0);
    make(making, 2, NULL);
    finish(making, task, 2);
}

static void a_batch_over_the_remains_of_another_is_the_same_as_over_zeros(void **state) {
    hw_store *stores[] = {bookstore_of(state), league_of(state)};
    for (uint32_t variant = 0; variant < 128; variant++) {
        hw_sampler_options options = everything();
        hw_store *store = stores[variant & 1];
        uint32_t task = variant >> 1 & 1;
        options.batch_size = 3;
        options.text_budget = variant & 4 ? 4 : 100;
        options.targets = variant & 8 ? HW_TARGETS_SEPARATE : HW_TARGETS_INLINE;
        options.layout = variant & 16 ? HW_LAYOUT_COMPACT : HW_LAYOUT_DENSE;
        options.text_mode = variant & 64 ? HW_TEXTS_NUMBERS : HW_TEXTS_BATCH;
        options.with_rows = variant >> 5 & 1;
        options.max_rows = variant & 32 ? 3 : 8;
        struct making one, other;
        make_three(&one, store, &options, task, 0);
        make_three(&other, store, &options, task, 1);
        for (uint32_t f = 0; f < one.plan->field_count; f++) {
            const struct hwi_field *field = &one.plan->fields[f];
            assert_int_equal(field->offset % 64, 0);
            if (memcmp(one.slab + field->offset, other.slab + field->offset,
                       (size_t)field->bytes) != 0) {
                fail_msg("'%s' depends on what was there before (variant %u)", field->format->name,
                         variant);
            }
        }
        end(&one);
        end(&other);
    }
}

/* The eight places of a batch, every fourth empty, four at a time and in whatever order the worker
 * finishes them; two that were given up before their first step leave nothing behind. */
static void works_in_a_worker_at_once_are_the_same_as_one_by_one(void **state) {
    hw_sampler_options options = everything();
    options.batch_size = 8;
    options.text_budget = 100;
    struct making one, many;
    start(&one, bookstore_of(state), &options);
    start(&many, bookstore_of(state), &options);
    struct hwi_work works[8], finished;
    for (uint32_t b = 0; b < 8; b++) {
        struct hwi_seed seed = stored_seed(many.plan, TASK_PRICE, b % 4);
        works[b] = (struct hwi_work){.seed = seed,
                                     .is_real = b % 4 != 3,
                                     .slab = many.slab,
                                     .scratch = many.scratch,
                                     .b = b,
                                     .owner = &works[b]};
        make(&one, b, b % 4 != 3 ? &seed : NULL);
    }
    uint32_t room = hwi_worker_room(many.worker);
    assert_true(room >= 4);
    hwi_worker_start(many.worker, &works[0]);
    hwi_worker_start(many.worker, &works[1]);
    assert_int_equal(hwi_worker_room(many.worker), room - 2);
    hwi_worker_abandon(many.worker);
    assert_int_equal(hwi_worker_room(many.worker), room);
    uint32_t started = 0, done = 0;
    for (uint32_t count = 0; count < 8; count++) {
        while (started < 8 && room - hwi_worker_room(many.worker) < 4) {
            hwi_worker_start(many.worker, &works[started++]);
        }
        MUST(hwi_worker_advance(many.worker, &finished, &error));
        assert_ptr_equal(finished.owner, &works[finished.b]);
        done |= 1u << finished.b;
    }
    assert_int_equal(done, 0xff);
    assert_int_equal(hwi_worker_room(many.worker), room);
    finish(&one, TASK_PRICE, 8);
    finish(&many, TASK_PRICE, 8);
    for (uint32_t f = 0; f < one.plan->field_count; f++) {
        const struct hwi_field *field = &one.plan->fields[f];
        assert_memory_equal(many.slab + field->offset, one.slab + field->offset,
                            (size_t)field->bytes);
    }
    end(&one);
    end(&many);
}

/* The bookstore's authors have one key to them, its books another: 65,535 rows that may draw 512
 * children each take some 300 MB for each walk. */
static void a_worker_has_fewer_walks_where_their_scratch_would_be_too_much(void **state) {
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0); /* or all of it is filled, as meson asks of tests */
#endif
    hw_sampler_options options = everything();
    options.layout = HW_LAYOUT_COMPACT;
    struct making making;
    start(&making, bookstore_of(state), &options);
    assert_int_equal(hwi_worker_room(making.worker), 8);
    end(&making);
    options.max_rows = 65535;
    options.child_width = 512;
    start(&making, bookstore_of(state), &options);
    struct hwi_walk *walk;
    MUST(hwi_walk_open(making.plan, &walk, &error));
    uint32_t room = hwi_worker_room(making.worker);
    uint64_t walk_bytes = hwi_walk_bytes(walk);
    assert_true(walk_bytes > HWI_MAX_SCRATCH_BYTES / 8);
    assert_true(room >= 1 && room <= 7);
    assert_true(room * walk_bytes <= HWI_MAX_SCRATCH_BYTES);
    assert_true((room + 1) * walk_bytes > HWI_MAX_SCRATCH_BYTES);
    hwi_walk_close(walk);
    end(&making);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_of_a_cell_task_are_those_worked_out_by_hand),
        cmocka_unit_test(timestamps_stand_in_their_cells_and_nowhere_else),
        cmocka_unit_test(rows_and_edges_are_those_worked_out_by_hand),
        cmocka_unit_test(permutations_are_those_worked_out_by_hand),
        cmocka_unit_test(texts_of_a_batch_come_by_first_appearance),
        cmocka_unit_test(texts_over_the_budget_become_text_0_and_are_counted),
        cmocka_unit_test(a_target_stands_in_its_cell_or_beside),
        cmocka_unit_test(null_and_unlabelled_targets_are_told_apart),
        cmocka_unit_test(categories_and_times_can_be_targets),
        cmocka_unit_test(a_seed_row_has_two_cells_one_parent_and_the_table_65535),
        cmocka_unit_test(a_seed_without_time_has_a_null_obs_time_and_no_ages),
        cmocka_unit_test(only_an_anchor_from_the_future_has_a_negative_age),
        cmocka_unit_test(an_empty_sequence_is_all_padding),
        cmocka_unit_test(a_batch_over_the_remains_of_another_is_the_same_as_over_zeros),
        cmocka_unit_test(works_in_a_worker_at_once_are_the_same_as_one_by_one),
        cmocka_unit_test(a_worker_has_fewer_walks_where_their_scratch_would_be_too_much),
    };
    return cmocka_run_group_tests(tests, open_databases, close_databases);
}
