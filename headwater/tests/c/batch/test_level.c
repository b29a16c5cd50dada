/* Levelling: which contexts of a block make which batch, and what is cut. What a batch makes of the
 * limits is test_flat_cuts.py's. */
#include "batch/level.h"
#include "support/fixtures.h"
#include "support/unit_test.h"

enum { MOST = 4096, TRIALS = 400 };

static struct hwi_level_shape boundless(uint32_t batches, uint32_t ranks, uint32_t each) {
    return (struct hwi_level_shape){.steps = batches,
                                    .parts = 1,
                                    .ranks = ranks,
                                    .each = each,
                                    .step_cells = UINT32_MAX,
                                    .step_rows = UINT32_MAX,
                                    .cells = UINT32_MAX,
                                    .rows = UINT32_MAX};
}

static void level(const struct hwi_length *lengths, const struct hwi_level_shape *shape,
                  struct hwi_levelled *levelled) {
    MUST(hwi_level(lengths, shape, levelled, &error));
}

static void assert_places(const struct hwi_levelled *levelled, const uint32_t *places,
                          uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(levelled[i].place, places[i]);
    }
}

/* ---- by hand ----------------------------------------------------------------------------- */

/* 10, 9 and 8 begin a batch each; the first 2 joins 8, the other one 9, and 1 joins 10. */
static void longest_first_each_goes_to_the_emptiest_batch_with_a_place(void **state) {
    static const struct hwi_length lengths[] = {{2, 1, 0}, {10, 1, 0}, {2, 1, 0},
                                                {1, 1, 0}, {8, 1, 0},  {9, 1, 0}};
    static const uint32_t places[] = {1, 3, 2, 5, 0, 4};
    struct hwi_level_shape shape = boundless(3, 1, 2);
    struct hwi_levelled levelled[6];
    level(lengths, &shape, levelled);
    assert_places(levelled, places, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(levelled[i].limit.cells, lengths[levelled[i].place].cells);
        assert_int_equal(levelled[i].limit.rows, 1);
    }
}

/* Places 0 to 3 are the batch of 12, 4, 3 and 1: 12 and then 1 for rank 0, 4 and 3 for rank 1. */
static void a_batch_is_levelled_again_over_its_ranks(void **state) {
    static const struct hwi_length lengths[] = {{3, 1, 0}, {12, 1, 0}, {1, 1, 0}, {4, 1, 0}};
    static const uint32_t places[] = {1, 2, 0, 3};
    struct hwi_level_shape shape = boundless(1, 2, 2);
    struct hwi_levelled levelled[4];
    level(lengths, &shape, levelled);
    assert_places(levelled, places, 4);
}

static void a_block_of_one_batch_keeps_its_order(void **state) {
    static const struct hwi_length lengths[] = {{3, 1, 0}, {12, 1, 0}, {1, 1, 0}, {4, 1, 0}};
    static const uint32_t places[] = {0, 1, 2, 3};
    struct hwi_level_shape shape = boundless(1, 1, 4);
    struct hwi_levelled levelled[4];
    level(lengths, &shape, levelled);
    assert_places(levelled, places, 4);
}

/* Of 34 cells 10 are too many: the longest context loses them, half of what it has. Of 9 rows 2 are
 * too many: the last of the two longest loses half of its own. */
static void what_a_batch_has_no_room_for_is_cut_from_its_longest_contexts(void **state) {
    static const struct hwi_length lengths[] = {{20, 4, 0}, {10, 4, 0}, {4, 1, 0}};
    struct hwi_level_shape shape = boundless(1, 1, 3);
    struct hwi_levelled levelled[3];
    shape.step_cells = shape.cells = 24;
    shape.step_rows = shape.rows = 7;
    level(lengths, &shape, levelled);
    assert_int_equal(levelled[0].limit.cells, 10);
    assert_int_equal(levelled[1].limit.cells, 10);
    assert_int_equal(levelled[2].limit.cells, 4);
    assert_int_equal(levelled[0].limit.rows, 4);
    assert_int_equal(levelled[1].limit.rows, 2);
    assert_int_equal(levelled[2].limit.rows, 1);
}

/* 201 cells into 30: of 200 it keeps 100, then 50, then 29. */
static void one_long_context_is_cut_again_and_again(void **state) {
    static const struct hwi_length lengths[] = {{200, 9, 0}, {1, 1, 0}};
    struct hwi_level_shape shape = boundless(1, 1, 2);
    struct hwi_levelled levelled[2];
    shape.cells = 30;
    level(lengths, &shape, levelled);
    assert_int_equal(levelled[0].limit.cells, 29);
    assert_int_equal(levelled[0].limit.rows, 9);
    assert_int_equal(levelled[1].limit.cells, 1);
}

/* ---- any lengths ------------------------------------------------------------------------- */

struct dice {
    uint64_t state;
};

static uint32_t roll(struct dice *dice, uint32_t below) {
    dice->state = dice->state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((dice->state >> 33) % below);
}

/* Lengths of one kind: all alike, long tails, a single giant, few that matter, any. */
static void roll_lengths(struct dice *dice, struct hwi_length *lengths, uint32_t count) {
    uint32_t kind = roll(dice, 5);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t cells = kind == 0   ? 40
                         : kind == 1 ? 2 + 65000 / (1 + roll(dice, 5000))
                         : kind == 2 ? (i == count / 2 ? 65535 : 2)
                         : kind == 3 ? (roll(dice, 8) == 0 ? 900 : 0)
                                     : roll(dice, 65536);
        lengths[i] = (struct hwi_length){cells, cells == 0 ? 0 : 1 + roll(dice, cells), 0};
    }
}

static struct hwi_level_shape roll_shape(struct dice *dice) {
    struct hwi_level_shape shape =
        boundless(1 + roll(dice, 9), 1 + roll(dice, 4), 1 + roll(dice, 9));
    shape.step_cells = roll(dice, 2) ? 1 + roll(dice, 300000) : UINT32_MAX;
    shape.step_rows = roll(dice, 2) ? 1 + roll(dice, 100000) : UINT32_MAX;
    shape.cells = roll(dice, 2) ? 1 + roll(dice, 100000) : UINT32_MAX;
    shape.rows = roll(dice, 2) ? 1 + roll(dice, 30000) : UINT32_MAX;
    return shape;
}

static uint32_t size_of(const struct hwi_length *length, int of_rows) {
    return of_rows ? length->rows : length->cells;
}

static uint32_t limit_of(const struct hwi_levelled *levelled, int of_rows) {
    return of_rows ? levelled->limit.rows : levelled->limit.cells;
}

static uint64_t kept(const struct hwi_levelled *levelled, uint32_t count, int of_rows) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += limit_of(&levelled[i], of_rows);
    }
    return sum;
}

static void check_each_place_once(const struct hwi_levelled *levelled, uint32_t count) {
    uint8_t seen[MOST] = {0};
    for (uint32_t i = 0; i < count; i++) {
        assert_true(levelled[i].place < count);
        assert_int_equal(seen[levelled[i].place]++, 0);
    }
}

/* One batch: nothing is cut where it had room, and then the longest alone are. */
static void check_cuts(const struct hwi_length *lengths, const struct hwi_levelled *batch,
                       const struct hwi_level_shape *shape, int of_rows) {
    uint32_t step = shape->ranks * shape->each, shortest_cut = UINT32_MAX, longest_whole = 0;
    uint32_t most = of_rows ? shape->rows : shape->cells;
    uint32_t most_step = of_rows ? shape->step_rows : shape->step_cells;
    uint64_t whole = 0;
    int rank_is_full = 0;
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        uint64_t part = 0;
        for (uint32_t i = rank * shape->each; i < (rank + 1) * shape->each; i++) {
            uint32_t length = size_of(&lengths[batch[i].place], of_rows);
            part += length;
            assert_true(limit_of(&batch[i], of_rows) <= length);
            if (limit_of(&batch[i], of_rows) < length) {
                shortest_cut = length < shortest_cut ? length : shortest_cut;
            } else {
                longest_whole = length > longest_whole ? length : longest_whole;
            }
        }
        rank_is_full |= part > most;
        whole += part;
        assert_true(kept(batch + rank * shape->each, shape->each, of_rows) <= most);
    }
    assert_true(kept(batch, step, of_rows) <= most_step);
    if (whole <= most_step && !rank_is_full) {
        assert_int_equal(kept(batch, step, of_rows), whole);
    }
    if (shape->ranks == 1) {
        uint64_t room = most < most_step ? most : most_step;
        assert_int_equal(kept(batch, step, of_rows), whole < room ? whole : room);
        assert_true(shortest_cut >= longest_whole);
    }
}

static void any_block_is_dealt_whole_and_cut_only_where_it_has_no_room(void **state) {
    struct dice dice = {7};
    static struct hwi_length lengths[MOST];
    static struct hwi_levelled levelled[MOST], again[MOST];
    for (int trial = 0; trial < TRIALS; trial++) {
        struct hwi_level_shape shape = roll_shape(&dice);
        uint32_t step = shape.ranks * shape.each, count = shape.steps * step;
        roll_lengths(&dice, lengths, count);
        memset(levelled, trial, sizeof levelled);
        memset(again, ~trial, sizeof again);
        level(lengths, &shape, levelled);
        level(lengths, &shape, again);
        assert_memory_equal(levelled, again, count * sizeof *levelled);
        check_each_place_once(levelled, count);
        for (uint32_t batch = 0; batch < shape.steps; batch++) {
            check_cuts(lengths, levelled + batch * step, &shape, 0);
            check_cuts(lengths, levelled + batch * step, &shape, 1);
        }
    }
}

/* The rule of docs/reference/batch.md, word for word: the longest of those that are left, of equals
 * the first; to the batch with the fewest cells of those that have a place, of equals the first. */
static void deal_by_the_rule(const struct hwi_length *lengths, uint32_t count, uint32_t batches,
                             uint32_t each, uint32_t *batch_of) {
    uint64_t cells[MOST] = {0};
    uint32_t contexts[MOST] = {0};
    uint8_t is_dealt[MOST] = {0};
    for (uint32_t turn = 0; turn < count; turn++) {
        uint32_t longest = count, emptiest = batches;
        for (uint32_t i = 0; i < count; i++) {
            if (!is_dealt[i] && (longest == count || lengths[i].cells > lengths[longest].cells)) {
                longest = i;
            }
        }
        for (uint32_t b = 0; b < batches; b++) {
            if (contexts[b] < each && (emptiest == batches || cells[b] < cells[emptiest])) {
                emptiest = b;
            }
        }
        is_dealt[longest] = 1;
        cells[emptiest] += lengths[longest].cells;
        contexts[emptiest]++;
        batch_of[longest] = emptiest;
    }
}

static void any_block_is_dealt_by_the_rule(void **state) {
    struct dice dice = {13};
    static struct hwi_length lengths[MOST];
    static struct hwi_levelled levelled[MOST];
    static uint32_t expected[MOST];
    for (int trial = 0; trial < TRIALS; trial++) {
        uint32_t batches = 1 + roll(&dice, 12), each = 1 + roll(&dice, 12);
        struct hwi_level_shape shape = boundless(batches, 1, each);
        roll_lengths(&dice, lengths, batches * each);
        level(lengths, &shape, levelled);
        deal_by_the_rule(lengths, batches * each, batches, each, expected);
        for (uint32_t i = 0; i < batches * each; i++) {
            assert_int_equal(expected[levelled[i].place], i / each);
            assert_true(i % each == 0 || levelled[i].place > levelled[i - 1].place);
        }
    }
}

/* A search of the emptiest rank for each context took minutes. */
static void many_ranks_are_levelled_too(void **state) {
    enum { RANKS = 1 << 20 };
    struct hwi_length *lengths = calloc(RANKS, sizeof *lengths);
    struct hwi_levelled *levelled = calloc(RANKS, sizeof *levelled);
    struct hwi_level_shape shape = boundless(1, RANKS, 1);
    for (uint32_t i = 0; i < RANKS; i++) {
        lengths[i] = (struct hwi_length){1 + i / 1100, 1, 0};
    }
    level(lengths, &shape, levelled);
    for (uint32_t i = 1; i < RANKS; i++) { /* the longest to the first rank */
        const struct hwi_levelled *before = &levelled[i - 1], *after = &levelled[i];
        assert_true(before->limit.cells > after->limit.cells ||
                    (before->limit.cells == after->limit.cells && before->place < after->place));
    }
    free(lengths);
    free(levelled);
}

/* The batch that has each place. */
static void batches_of_places(const struct hwi_levelled *levelled, uint32_t count, uint32_t step,
                              uint32_t *batch_of) {
    for (uint32_t i = 0; i < count; i++) {
        batch_of[levelled[i].place] = i / step;
    }
}

static void batches_are_the_same_for_any_count_of_ranks(void **state) {
    enum { BATCHES = 7, STEP = 12, COUNT = BATCHES * STEP };
    static const uint32_t ranks[] = {1, 2, 3, 4, 6, 12};
    struct dice dice = {11};
    struct hwi_length lengths[COUNT];
    struct hwi_levelled levelled[COUNT];
    uint32_t expected[COUNT], found[COUNT];
    for (int trial = 0; trial < 50; trial++) {
        roll_lengths(&dice, lengths, COUNT);
        uint32_t room = 1 + roll(&dice, 200000);
        uint64_t total = 0;
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            struct hwi_level_shape shape = boundless(BATCHES, ranks[i], STEP / ranks[i]);
            shape.step_cells = room;
            level(lengths, &shape, levelled);
            batches_of_places(levelled, COUNT, STEP, found);
            if (i == 0) {
                memcpy(expected, found, sizeof expected);
                total = kept(levelled, COUNT, 0);
            }
            assert_memory_equal(found, expected, sizeof expected);
            assert_int_equal(kept(levelled, COUNT, 0), total);
        }
    }
}

/* 32 batches of 32 contexts with a long tail, as they are met: the fullest has half more than the
 * emptiest. Levelled they differ by less than 1 %. */
static void levelled_batches_are_nearly_equal(void **state) {
    enum { BATCHES = 32, EACH = 32, COUNT = BATCHES * EACH };
    struct dice dice = {3};
    struct hwi_length lengths[COUNT];
    struct hwi_levelled levelled[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t cells = 20 + roll(&dice, 100) * (roll(&dice, 10) == 0 ? 6 : 1);
        lengths[i] = (struct hwi_length){cells, cells / 5, 0};
    }
    uint64_t sums[2][2] = {{UINT64_MAX, 0}, {UINT64_MAX, 0}}; /* as met, levelled: least, most */
    struct hwi_level_shape shape = boundless(BATCHES, 1, EACH);
    level(lengths, &shape, levelled);
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        uint64_t sum[2] = {0, kept(levelled + batch * EACH, EACH, 0)};
        for (uint32_t i = 0; i < EACH; i++) {
            sum[0] += lengths[batch * EACH + i].cells;
        }
        for (int way = 0; way < 2; way++) {
            sums[way][0] = sum[way] < sums[way][0] ? sum[way] : sums[way][0];
            sums[way][1] = sum[way] > sums[way][1] ? sum[way] : sums[way][1];
        }
    }
    assert_true(sums[0][1] * 2 > sums[0][0] * 3);
    assert_true(sums[1][1] * 100 < sums[1][0] * 101);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(longest_first_each_goes_to_the_emptiest_batch_with_a_place),
        cmocka_unit_test(a_batch_is_levelled_again_over_its_ranks),
        cmocka_unit_test(a_block_of_one_batch_keeps_its_order),
        cmocka_unit_test(what_a_batch_has_no_room_for_is_cut_from_its_longest_contexts),
        cmocka_unit_test(one_long_context_is_cut_again_and_again),
        cmocka_unit_test(any_block_is_dealt_whole_and_cut_only_where_it_has_no_room),
        cmocka_unit_test(any_block_is_dealt_by_the_rule),
        cmocka_unit_test(many_ranks_are_levelled_too),
        cmocka_unit_test(batches_are_the_same_for_any_count_of_ranks),
        cmocka_unit_test(levelled_batches_are_nearly_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
