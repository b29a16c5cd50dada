/*
 * Walks worked out by hand on bookstore, deliveries (support/fixtures.h) and league
 * (support/league.h): which rows, in which order, how deep, with how many cells. child_order is
 * "recent" unless a test is about draws, since it needs no random words where all child tables have
 * times.
 */
#include "base/rng.h"
#include "plan/open_plan.h"
#include "shape/shape.h"
#include "support/league.h"
#include "support/unit_test.h"
#include "walk/walk.h"

static hw_sampler_options recent(void) {
    return (hw_sampler_options){
        .struct_bytes = sizeof(hw_sampler_options),
        .split_ratios = {1, 0, 0},
        .batch_size = 1,
        .sequence_length = 64,
        .max_rows = 16,
        .text_budget = 65,
        .child_order = HW_CHILDREN_RECENT,
    };
}

/* ---- one walk ---------------------------------------------------------------------------- */

struct walked {
    struct hwi_plan *plan;
    struct hwi_walk *walk;
    const struct hwi_context *context; /* of the walk */
};

static void start(struct walked *walked, hw_store *store, const hw_sampler_options *options) {
    *walked = (struct walked){0};
    MUST(hwi_plan_open(store, options, &walked->plan, &error));
    MUST(hwi_plan_shape(walked->plan, &error));
    MUST(hwi_walk_open(walked->plan, &walked->walk, &error));
    walked->context = hwi_walk_context(walked->walk);
}

static void end(struct walked *walked) {
    hwi_walk_close(walked->walk);
    hwi_plan_close(walked->plan);
}

/* Walks a stored seed of a task. */
static void walk_seed(struct walked *walked, uint32_t task, uint32_t index) {
    struct hwi_seed seed = stored_seed(walked->plan, task, index);
    MUST(hwi_walk_seed(walked->walk, &seed, &error));
}

static void walk_ad_hoc(struct walked *walked, uint32_t task, uint32_t anchor, int64_t obs_time) {
    struct hwi_seed seed = {
        .task = task, .split = HWI_SPLIT_AD_HOC, .anchor = anchor, .obs_time = obs_time};
    MUST(hwi_walk_seed(walked->walk, &seed, &error));
}

/* The walk of a stored seed; options NULL: recent(). */
static void start_seed(struct walked *walked, hw_store *store, const hw_sampler_options *options,
                       uint32_t task, uint32_t index) {
    hw_sampler_options plain = recent();
    start(walked, store, options == NULL ? &plain : options);
    walk_seed(walked, task, index);
}

static void start_ad_hoc(struct walked *walked, hw_store *store, const hw_sampler_options *options,
                         uint32_t task, uint32_t anchor, int64_t obs_time) {
    hw_sampler_options plain = recent();
    start(walked, store, options == NULL ? &plain : options);
    walk_ad_hoc(walked, task, anchor, obs_time);
}

struct expected {
    uint32_t row, depth, cells;
};
#define SEED_ROW HWI_NONE

static void assert_walk(const struct walked *walked, const struct expected *expected,
                        uint32_t count) {
    const struct hwi_context *context = walked->context;
    uint32_t cells = 0;
    for (uint32_t i = 0; i < count && i < context->row_count; i++) {
        const struct hwi_visit *visit = &context->visits[i];
        if (visit->row != expected[i].row || visit->depth != expected[i].depth ||
            visit->cell_count != expected[i].cells || visit->cell_start != cells) {
            fail_msg("local row %u: row %u, depth %u, %u cells from %u; expected row %u, depth %u, "
                     "%u cells from %u",
                     i, visit->row, visit->depth, visit->cell_count, visit->cell_start,
                     expected[i].row, expected[i].depth, expected[i].cells, cells);
        }
        cells += visit->cell_count;
    }
    assert_int_equal(context->row_count, count);
    assert_int_equal(context->cell_count, cells);
}
#define ASSERT_WALK(walked, ...)                                                                   \
    assert_walk(walked, (const struct expected[])__VA_ARGS__,                                      \
                sizeof((const struct expected[])__VA_ARGS__) / sizeof(struct expected))

/* Where all that is asked of the walk of a stored seed are its rows. */
#define ASSERT_SEED(store, options, task, index, ...)                                              \
    do {                                                                                           \
        struct walked walked_;                                                                     \
        start_seed(&walked_, store, options, task, index);                                         \
        ASSERT_WALK(&walked_, __VA_ARGS__);                                                        \
        end(&walked_);                                                                             \
    } while (0)

/* The columns that a local row shows. */
static void assert_columns(const struct walked *walked, uint32_t local, const uint32_t *columns,
                           uint32_t count) {
    const struct hwi_visit *visit = &walked->context->visits[local];
    const struct hwi_table_plan *cells = &walked->plan->tables[visit->table];
    assert_int_equal(visit->cell_count, count);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t c = visit->list == HWI_NONE ? k : walked->context->cell_lists[visit->list + k];
        assert_int_equal(cells->columns[c], columns[k]);
    }
}
#define ASSERT_COLUMNS(walked, local, ...)                                                         \
    assert_columns(walked, local, (const uint32_t[])__VA_ARGS__,                                   \
                   sizeof((const uint32_t[])__VA_ARGS__) / sizeof(uint32_t))

static hw_store *bookstore_of(void **state) {
    return ((struct databases *)*state)->bookstore;
}

static hw_store *deliveries_of(void **state) {
    return ((struct databases *)*state)->deliveries;
}

static hw_store *league_of(void **state) {
    return ((struct databases *)*state)->league;
}

/* ---- order and time ---------------------------------------------------------------------- */

/*
 * returns, seed 0: author 0 on day 25, inclusive. The seed row's parent is the author; of his books
 * 3 (day 10), 4 (day 20) and 8 (no time) the first two are visible. Newest first: 4, whose parent 3
 * comes before the next child; 3 is then drawn again and dropped, and so is 4 as child of 3. 6, the
 * sequel of 4, is of day 30.
 */
static void a_derived_walk_goes_seed_row_anchor_newest_child_its_parent(void **state) {
    struct walked walked;
    start_seed(&walked, bookstore_of(state), NULL, TASK_RETURNS, 0);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2}, {0, 1, 3}, {4, 2, 8}, {3, 3, 8}});
    assert_int_equal(walked.context->target_cell, 1);
    assert_int_equal(walked.context->parents[0], 0); /* the seed row's key */
    end(&walked);
}

/*
 * price, seed 1: book 4 on day 20, exclusive. Its parents are author 0 and book 3 (day 10, chain).
 * Author 0's books before day 20: 3. Book 3's children before day 20: none, 4 itself is of day 20.
 */
static void an_exclusive_walk_never_meets_what_happened_at_its_moment(void **state) {
    struct walked walked;
    start_seed(&walked, bookstore_of(state), NULL, TASK_PRICE, 1);
    ASSERT_WALK(&walked, {{4, 0, 8}, {0, 1, 3}, {3, 1, 8}});
    assert_int_equal(walked.context->target_cell, BOOKS_PRICE - BOOKS_ID);
    end(&walked);
}

/*
 * price, ad hoc: book 8 (no time) on day 20, exclusive. Its parents in key order: author 0, and
 * book 5 of day 20, visible as a parent of a chain row; then author 1, 5's parent. Author 0 has 3
 * before day 20 (4 is of day 20); author 1 has nothing (5 is of day 20).
 */
static void chain_rows_of_the_same_moment_are_visible_and_children_are_not(void **state) {
    struct walked walked;
    start_ad_hoc(&walked, bookstore_of(state), NULL, TASK_PRICE, 8, 20 * DAY_US);
    ASSERT_WALK(&walked, {{8, 0, 8}, {0, 1, 3}, {5, 1, 8}, {1, 2, 3}, {3, 2, 8}});
    assert_int_equal(walked.context->visits[2].chain, 1);
    assert_int_equal(walked.context->visits[4].chain, 0);
    end(&walked);
}

/*
 * score, seed 4: match 6 on day 3, exclusive, replay_of hidden. On the anchor the hidden key is not
 * walked (4 stays out) and not shown: id, home, away, score, played. Teams 0 and 1. Before day 3:
 * team 0 home 2, 3 and away 3; team 1 away 2. Turns: home 3, away 3 (visited), home 2, away 2.
 * Match 3 is no chain row: its replay_of is shown, but 5 is of day 3 and no parent of a chain row.
 */
static void parents_of_other_rows_follow_the_exclusive_cutoff(void **state) {
    struct walked walked;
    start_seed(&walked, league_of(state), NULL, TASK_SCORE, 4);
    ASSERT_WALK(&walked, {{6, 0, 5}, {0, 1, 1}, {1, 1, 1}, {3, 2, 6}, {2, 2, 6}});
    ASSERT_COLUMNS(&walked, 0,
                   {MATCHES_ID, MATCHES_HOME, MATCHES_AWAY, MATCHES_SCORE, MATCHES_PLAYED});
    assert_int_equal(walked.context->target_cell, 3);
    const uint32_t *parents = walked.context->parents;
    assert_int_equal(parents[0], 0);
    assert_int_equal(parents[1], 1);
    assert_int_equal(parents[2], HWI_NONE);
    assert_int_equal(parents[3 * 3 + 2], 5); /* known, though 5 is not in the context */
    end(&walked);
}

/*
 * form, seed 0: team 0 on day 3, inclusive, score hidden everywhere (the anchor has no time, so no
 * row is before it): 5 cells a match. Team 0 home 2, 3, 6; away 3, 4. Home 6 brings team 1 and 4;
 * away 4 is visited; home 3 brings 5 (day 3); away 3; home 2. The rest was visited.
 */
static void an_inclusive_walk_takes_its_moment_and_hides_a_column_everywhere(void **state) {
    struct walked walked;
    start_seed(&walked, league_of(state), NULL, TASK_FORM, 0);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2},
                          {0, 1, 1},
                          {6, 2, 5},
                          {1, 3, 1},
                          {4, 3, 5},
                          {3, 2, 5},
                          {5, 3, 5},
                          {2, 2, 5}});
    ASSERT_COLUMNS(&walked, 2,
                   {MATCHES_ID, MATCHES_HOME, MATCHES_AWAY, MATCHES_REPLAY_OF, MATCHES_PLAYED});
    end(&walked);
}

/* form, seed 1: no time, so match 7 (day 5) is visible, too: home 7 first, with 5; then away 4 with
 * team 1, home 6, away 3, home 3, home 2. visible_until ends it at day 2 again. */
static void no_time_shows_everything_up_to_visible_until(void **state) {
    hw_sampler_options options = recent();
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 1,
                {{SEED_ROW, 0, 2},
                 {0, 1, 1},
                 {7, 2, 5},
                 {5, 3, 5},
                 {1, 4, 1},
                 {4, 2, 5},
                 {6, 2, 5},
                 {3, 2, 5},
                 {2, 2, 5}});
    options.visible_until = (const int64_t[]){INT64_MAX, 2 * DAY_US, INT64_MAX};
    /* val; team 0 home 2, 3; away 3 */
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 1,
                {{SEED_ROW, 0, 2}, {0, 1, 1}, {3, 2, 5}, {2, 2, 5}, {1, 3, 1}});
}

/* ---- known later ------------------------------------------------------------------------- */

/* heavy, seed 0: parcel 4 on day 3. courier_id is not assigned, lost_by never known, so no edge;
 * weight would be known on day 5, but the target is always shown. */
static void an_edge_that_is_not_known_yet_is_not_walked(void **state) {
    struct walked walked;
    start_seed(&walked, deliveries_of(state), NULL, 0, 0);
    ASSERT_WALK(&walked, {{4, 0, 3}});
    ASSERT_COLUMNS(&walked, 0, {PARCELS_ID, PARCELS_WEIGHT, PARCELS_SENT});
    assert_int_equal(walked.context->target_cell, 1);
    assert_int_equal(walked.context->parents[0], HWI_NONE);
    end(&walked);
}

/*
 * Ad hoc, inclusive. Parcel 6 on day 5: its courier 0 was assigned on day 3. His edges up to day 5,
 * newest first: 6 (visited), 5 (day 4), 3 (day 3); 2 was sent on day 1, but assigned on day 9.
 * 5's weight is known on day 6, 3's on day 4. Parcel 5 on day 4 (assigned that day): 3 alone.
 */
static void children_come_by_edge_time_and_cells_when_they_are_known(void **state) {
    struct walked walked;
    start_ad_hoc(&walked, deliveries_of(state), NULL, 0, 6, 5 * DAY_US);
    ASSERT_WALK(&walked, {{6, 0, 4}, {0, 1, 1}, {5, 2, 3}, {3, 2, 4}});
    ASSERT_COLUMNS(&walked, 2, {PARCELS_ID, PARCELS_COURIER_ID, PARCELS_SENT});
    ASSERT_COLUMNS(&walked, 3, {PARCELS_ID, PARCELS_COURIER_ID, PARCELS_WEIGHT, PARCELS_SENT});
    walk_ad_hoc(&walked, 0, 5, 4 * DAY_US);
    ASSERT_WALK(&walked, {{5, 0, 4}, {0, 1, 1}, {3, 2, 4}});
    walk_ad_hoc(&walked, 0, 5, 4 * DAY_US - 1); /* not assigned yet */
    ASSERT_WALK(&walked, {{5, 0, 3}});
    end(&walked);
}

/* Parcel 5 (day 4) without a time: all edges by edge time, 2 (day 9) first. The target's column is
 * withheld on rows that are not before the anchor: on 6 (day 5), not on 2 and 3. lost_by stays out.
 */
static void what_is_never_known_stays_out_even_without_a_time(void **state) {
    struct walked walked;
    start_ad_hoc(&walked, deliveries_of(state), NULL, 0, 5, INT64_MAX);
    ASSERT_WALK(&walked, {{5, 0, 4}, {0, 1, 1}, {2, 2, 4}, {6, 2, 3}, {3, 2, 4}});
    ASSERT_COLUMNS(&walked, 3, {PARCELS_ID, PARCELS_COURIER_ID, PARCELS_SENT});
    end(&walked);
}

/*
 * score, ad hoc: match 2 (teams 0 and 1) without a time, two hops, width 2. Home has the groups
 * 2, 3, 6, 7 and 4, 5; away 3, 4 and 2, 5, 6. Turns: home 7, away 6, home 6, away 5, home 5, away
 * 4, home 4, away 3. Scores of 4 (val) and 7 (test) are labels. replay_of is hidden: no match is
 * older than match 2, so none shows it: 6 withheld cells, and 2 labels.
 *
 * Where home is confirmed later, by edge time: 3, 6, 7 (day 5), 2 (day 8) and 4 (day 3), 5 (day 9):
 * home 5, away 6, home 2, away 5, home 7, away 4, home 4, away 3.
 */
static void the_newest_child_of_all_groups_of_a_key_comes_first(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.max_hops = 3;
    options.child_width = 2;
    start_ad_hoc(&walked, league_of(state), &options, TASK_SCORE, 2, INT64_MAX);
    ASSERT_WALK(
        &walked,
        {{2, 0, 5}, {0, 1, 1}, {1, 1, 1}, {7, 2, 4}, {6, 2, 5}, {5, 2, 5}, {4, 2, 4}, {3, 2, 5}});
    assert_int_equal(walked.context->withheld_count, 8);
    end(&walked);
    start_ad_hoc(&walked, ((struct databases *)*state)->league_confirmed, &options, TASK_SCORE, 2,
                 INT64_MAX);
    ASSERT_WALK(
        &walked,
        {{2, 0, 5}, {0, 1, 1}, {1, 1, 1}, {5, 2, 5}, {6, 2, 5}, {7, 2, 4}, {4, 2, 4}, {3, 2, 5}});
    end(&walked);
}

/* score, seed 5 (test), where score is a key: as if it were not there. The walk is the one of the
 * same question about a plain column (below) with labels of no seeds. */
static void a_key_that_is_asked_for_is_walked_on_no_row(void **state) {
    struct walked walked;
    hw_store *scored = ((struct databases *)*state)->league_scored;
    hw_sampler_options options = recent();
    options.child_width = 1;
    start_seed(&walked, scored, &options, TASK_SCORE, 5);
    ASSERT_WALK(&walked,
                {{7, 0, 5}, {0, 1, 1}, {6, 2, 5}, {1, 3, 1}, {4, 3, 5}, {5, 4, 5}, {3, 5, 5}});
    const uint32_t matches[] = {0, 2, 4, 5, 6}; /* local rows */
    for (size_t i = 0; i < sizeof matches / sizeof *matches; i++) {
        assert_int_equal(walked.context->parents[matches[i] * 4 + 3], HWI_NONE);
    }
    end(&walked);
    for (int rule = HW_LABELS_TRAIN; rule <= HW_LABELS_ALL; rule++) {
        struct hwi_plan *plan = NULL;
        hw_error error = {.message = ""};
        options.context_labels = (hw_context_labels)rule;
        hw_status status = hwi_plan_open(scored, &options, &plan, &error);
        assert_int_equal(status, rule == HW_LABELS_NONE ? HW_OK : HW_BAD_TASK);
        assert_int_equal(strstr(error.message, "'score' predicts a foreign key") != NULL,
                         rule != HW_LABELS_NONE);
        hwi_plan_close(plan);
    }
}

/* ---- labels ------------------------------------------------------------------------------ */

/*
 * score, seed 5 (test): match 7 on day 5, one child for each key. Team 0: home 6, with team 1 and
 * 4; away 4 (visited). Hop 4, team 1: home 5, away 6 (visited); 4's replay 6 (visited). Hop 5: 5's
 * replay 3. Of the rows, 4 is the anchor of a val seed, the others of train seeds.
 */
static void labels_of_other_seeds_follow_context_labels(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.child_width = 1;
    start_seed(&walked, league_of(state), &options, TASK_SCORE, 5);
    ASSERT_WALK(&walked,
                {{7, 0, 5}, {0, 1, 1}, {6, 2, 6}, {1, 3, 1}, {4, 3, 5}, {5, 4, 6}, {3, 5, 6}});
    ASSERT_COLUMNS(&walked, 4,
                   {MATCHES_ID, MATCHES_HOME, MATCHES_AWAY, MATCHES_REPLAY_OF, MATCHES_PLAYED});
    end(&walked);
    options.context_labels = HW_LABELS_NONE;
    ASSERT_SEED(league_of(state), &options, TASK_SCORE, 5,
                {{7, 0, 5}, {0, 1, 1}, {6, 2, 5}, {1, 3, 1}, {4, 3, 5}, {5, 4, 5}, {3, 5, 5}});
    options.context_labels = HW_LABELS_ALL;
    ASSERT_SEED(league_of(state), &options, TASK_SCORE, 5,
                {{7, 0, 5}, {0, 1, 1}, {6, 2, 6}, {1, 3, 1}, {4, 3, 6}, {5, 4, 6}, {3, 5, 6}});
}

/* price, seed 2: book 6, its original 4, that one's author 0 and original 3. With every seed in the
 * test split the prices of 3 and 4 are labels that train contexts may not show. */
static void hashed_splits_decide_which_labels_show(void **state) {
    hw_sampler_options options = recent();
    ASSERT_SEED(bookstore_of(state), &options, TASK_PRICE, 2,
                {{6, 0, 8}, {4, 1, 8}, {0, 2, 3}, {3, 2, 8}});
    memcpy(options.split_ratios, (double[]){0, 0, 1}, sizeof options.split_ratios);
    ASSERT_SEED(bookstore_of(state), &options, TASK_PRICE, 2,
                {{6, 0, 8}, {4, 1, 7}, {0, 2, 3}, {3, 2, 7}});
}

/* ---- widths and limits ------------------------------------------------------------------- */

/* form, seed 0, one hop: team 0 has 3 children by home (6 newest) and 2 by away (4 newest). Per
 * key and width 1: one of each. Per row and width 3: dealt home, away, home. */
static void widths_are_per_key_or_dealt_to_the_keys_of_a_row(void **state) {
    hw_sampler_options options = recent();
    options.max_hops = 2;
    options.child_width = 1;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 0,
                {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {4, 2, 5}});
    options.child_width = 3;
    options.width_scope = HW_WIDTH_PER_ROW;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 0,
                {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {4, 2, 5}, {3, 2, 5}});
}

/*
 * form, seed 0 and score, seed 4 (above): 0, 1 and 2 hops from the anchor. Of form, 1 has the
 * newest of team 0's home 6, 3, 2 and away 4, 3 in turn; 2 also has what 6 and 3 point at, which is
 * all.
 */
static void hops_are_counted_from_the_anchor_for_both_kinds_of_tasks(void **state) {
    hw_sampler_options options = recent();
    options.max_hops = 1;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 0, {{SEED_ROW, 0, 2}, {0, 1, 1}});
    ASSERT_SEED(league_of(state), &options, TASK_SCORE, 4, {{6, 0, 5}});
    options.max_hops = 2;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 0,
                {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {4, 2, 5}, {3, 2, 5}, {2, 2, 5}});
    ASSERT_SEED(league_of(state), &options, TASK_SCORE, 4, {{6, 0, 5}, {0, 1, 1}, {1, 1, 1}});
    options.max_hops = 3;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 0,
                {{SEED_ROW, 0, 2},
                 {0, 1, 1},
                 {6, 2, 5},
                 {1, 3, 1},
                 {4, 3, 5},
                 {3, 2, 5},
                 {5, 3, 5},
                 {2, 2, 5}});
    ASSERT_SEED(league_of(state), &options, TASK_SCORE, 4,
                {{6, 0, 5}, {0, 1, 1}, {1, 1, 1}, {3, 2, 6}, {2, 2, 6}});
}

/* form, seed 0 (above): 2 + 1 + 5 + 1 + 5 ... cells. */
static void a_walk_ends_at_its_rows_or_cuts_the_row_that_reaches_its_cells(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.max_rows = 4;
    start_seed(&walked, league_of(state), &options, TASK_FORM, 0);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {1, 3, 1}});
    assert_int_equal(walked.context->stopped_by_rows, 1);
    end(&walked);
    options = recent();
    options.sequence_length = 10;
    start_seed(&walked, league_of(state), &options, TASK_FORM, 0);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {1, 3, 1}, {4, 3, 1}});
    assert_int_equal(walked.context->stopped_by_rows, 0);
    end(&walked);
    options.sequence_length = 9;
    options.max_rows = 4;
    start_seed(&walked, league_of(state), &options, TASK_FORM, 0);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {1, 3, 1}});
    assert_int_equal(walked.context->stopped_by_rows, 0); /* the cells ended it */
    end(&walked);
}

/* form, seed 1 (above), which knows the label of team 0 of day 3 since day 4, and that of team 1
 * since day 3. Team 1 is reached from its label, and 5 no longer leads to it. */
static void labels_come_before_children_and_bring_their_anchors(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.peer_labels = 2;
    options.max_hops = 2;
    start_seed(&walked, league_of(state), &options, TASK_FORM, 1);
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2},
                          {0, 1, 1},
                          {SEED_ROW, 2, 2},
                          {1, 3, 1},
                          {7, 2, 5},
                          {4, 2, 5},
                          {6, 2, 5},
                          {3, 2, 5},
                          {2, 2, 5}});
    assert_int_equal(walked.context->visits[2].list, 2);
    walk_seed(&walked, TASK_FORM, 0); /* day 3: the label of team 1 is of a seed as late */
    ASSERT_WALK(&walked, {{SEED_ROW, 0, 2}, {0, 1, 1}, {6, 2, 5}, {4, 2, 5}, {3, 2, 5}, {2, 2, 5}});
    end(&walked);
    options.label_rows = 1;
    options.max_rows = 5;
    start_seed(&walked, league_of(state), &options, TASK_FORM, 1);
    ASSERT_WALK(&walked,
                {{SEED_ROW, 0, 2}, {0, 1, 1}, {SEED_ROW, 2, 2}, {SEED_ROW, 2, 2}, {1, 3, 1}});
    assert_int_equal(walked.context->visits[2].list, 0);
    assert_int_equal(walked.context->stopped_by_rows, 1);
    end(&walked);
    options.max_hops = 1;
    ASSERT_SEED(league_of(state), &options, TASK_FORM, 1, {{SEED_ROW, 0, 2}, {0, 1, 1}});
}

/* form, team 1 on day 9 or with no time, frozen, before anything is known. */
static void peers_of_seeds_given_by_the_caller(void **state) {
    static const struct {
        int64_t obs_time, until;
        uint32_t labels;
    } cases[] = {
        {9 * DAY_US, INT64_MAX, 1},     {INT64_MAX, INT64_MAX, 1},  {INT64_MAX, 4 * DAY_US, 1},
        {INT64_MAX, 4 * DAY_US - 1, 0}, {4 * DAY_US, INT64_MAX, 1}, {4 * DAY_US - 1, INT64_MAX, 0},
        {INT64_MIN, INT64_MAX, 0},      {INT64_MAX, INT64_MIN, 0},  {INT64_MAX - 1, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct walked walked;
        hw_sampler_options options = recent();
        options.peer_labels = 1024;
        options.visible_until = (const int64_t[]){INT64_MAX, INT64_MAX, cases[i].until};
        start_ad_hoc(&walked, league_of(state), &options, TASK_FORM, 1, cases[i].obs_time);
        uint32_t found = 0;
        for (uint32_t row = 1; row < walked.context->row_count; row++) {
            found += walked.context->visits[row].row == SEED_ROW;
        }
        assert_int_equal(found, cases[i].labels);
        end(&walked);
    }
}

/* price, seed 2: price is the anchor's sixth cell; of four, it takes the last. */
static void a_target_that_would_be_cut_takes_the_last_position(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.sequence_length = 4;
    options.max_rows = 4;
    start_seed(&walked, bookstore_of(state), &options, TASK_PRICE, 2);
    ASSERT_WALK(&walked, {{6, 0, 4}});
    ASSERT_COLUMNS(&walked, 0, {BOOKS_ID, BOOKS_AUTHOR_ID, BOOKS_SEQUEL_OF, BOOKS_PRICE});
    assert_int_equal(walked.context->target_cell, 3);
    end(&walked);
}

/* ---- identifiers ------------------------------------------------------------------------- */

/* Parcel 5 on day 4 as above. Couriers have nothing but an identifier, which stays. */
static void a_row_that_would_be_empty_shows_its_first_identifier(void **state) {
    struct walked walked;
    hw_sampler_options options = recent();
    options.identifier_cells = HW_IDENTIFIERS_NONE;
    start_ad_hoc(&walked, deliveries_of(state), &options, 0, 5, 4 * DAY_US);
    ASSERT_WALK(&walked, {{5, 0, 2}, {0, 1, 1}, {3, 2, 2}});
    ASSERT_COLUMNS(&walked, 0, {PARCELS_WEIGHT, PARCELS_SENT});
    ASSERT_COLUMNS(&walked, 1, {COURIERS_ID});
    end(&walked);
    options.identifier_cells = HW_IDENTIFIERS_KEYS;
    start_ad_hoc(&walked, deliveries_of(state), &options, 0, 5, 4 * DAY_US);
    ASSERT_WALK(&walked, {{5, 0, 3}, {0, 1, 1}, {3, 2, 3}});
    ASSERT_COLUMNS(&walked, 0, {PARCELS_COURIER_ID, PARCELS_WEIGHT, PARCELS_SENT});
    ASSERT_COLUMNS(&walked, 1, {COURIERS_ID});
    end(&walked);
}

/* ---- draws ------------------------------------------------------------------------------- */

/* Adds a row that is not in the list. */
static void add_row(uint32_t *rows, uint32_t *row_count, uint32_t row) {
    for (uint32_t i = 0; i < *row_count; i++) {
        if (rows[i] == row) {
            return;
        }
    }
    rows[(*row_count)++] = row;
}

/* form, seed 0: the children of team 0 in the order in which they are drawn. */
static void assert_drawn(hw_store *store, const hw_sampler_options *options, const uint32_t *rows,
                         uint32_t row_count) {
    struct walked walked;
    start_seed(&walked, store, options, TASK_FORM, 0);
    assert_int_equal(walked.context->row_count, 2 + row_count);
    for (uint32_t i = 0; i < row_count; i++) {
        assert_int_equal(walked.context->visits[2 + i].row, rows[i]);
    }
    end(&walked);
}

/*
 * form, seed 0, one hop, uniform, width 2 of home's 3 (2, 3, 6) and away's 2 (3, 4). The array is
 * [home, home, away, away]; the draws are those of the documentation, spelled out.
 */
static void uniform_draws_are_those_of_the_documentation(void **state) {
    static const uint32_t lists[2][3] = {{2, 3, 6}, {3, 4, 0}};
    hw_sampler_options options = recent();
    options.child_order = HW_CHILDREN_UNIFORM;
    options.max_hops = 2;
    options.child_width = 2;
    for (options.seed = 0; options.seed < 50; options.seed++) {
        struct hwi_rng rng = hwi_rng_make(options.seed, 0, 0, TASK_FORM * 4 + HW_TRAIN);
        uint32_t rows[6] = {0}, row_count = 0, array[4] = {0, 0, 1, 1}, kept[2] = {0, 1};
        uint32_t home_before = UINT32_MAX, drawn[2] = {0, 0};
        for (uint32_t left = 4; left > 0; left--) {
            uint32_t j = hwi_rng_below(&rng, left), group = array[j], position;
            array[j] = array[left - 1];
            if (group == 1) { /* v = w = 2: entries k and j of a kept list change places */
                uint32_t k = drawn[1], other = k + hwi_rng_below(&rng, 2 - k);
                position = kept[other];
                kept[other] = kept[k];
            } else { /* v = 3 > w: again until it is new */
                do {
                    position = hwi_rng_below(&rng, 3);
                } while (position == home_before);
                home_before = position;
            }
            drawn[group]++;
            add_row(rows, &row_count, lists[group][position]);
        }
        assert_drawn(league_of(state), &options, rows, row_count);
    }
}

/* The pooled width of a row: 3 of the 5 places 2, 3, 6, 3, 4. */
static void a_pooled_width_draws_over_the_lists_of_all_keys(void **state) {
    static const uint32_t pool[5] = {2, 3, 6, 3, 4};
    hw_sampler_options options = recent();
    options.child_order = HW_CHILDREN_UNIFORM;
    options.width_scope = HW_WIDTH_PER_ROW;
    options.max_hops = 2;
    options.child_width = 3;
    for (options.seed = 0; options.seed < 50; options.seed++) {
        struct hwi_rng rng = hwi_rng_make(options.seed, 0, 0, TASK_FORM * 4 + HW_TRAIN);
        uint32_t rows[3] = {0}, row_count = 0, taken = 0;
        for (uint32_t left = 3; left > 0; left--) {
            uint32_t position;
            (void)hwi_rng_below(&rng, left); /* all entries are the one group */
            do {
                position = hwi_rng_below(&rng, 5);
            } while (taken >> position & 1);
            taken |= 1u << position;
            add_row(rows, &row_count, pool[position]);
        }
        assert_drawn(league_of(state), &options, rows, row_count);
    }
}

/* Where every child fits, the order changes what is first, not what is there. */
static void every_order_visits_the_same_rows_where_all_fit(void **state) {
    for (int variant = 0; variant < 4; variant++) {
        struct walked walked;
        hw_sampler_options options = recent();
        options.child_order = variant & 1 ? HW_CHILDREN_UNIFORM : HW_CHILDREN_RECENT;
        options.width_scope = variant & 2 ? HW_WIDTH_PER_ROW : HW_WIDTH_PER_KEY;
        start_seed(&walked, league_of(state), &options, TASK_FORM, 0);
        assert_int_equal(walked.context->row_count, 8);
        for (uint32_t row = 0; row < 7; row++) {
            assert_int_not_equal(hwi_walk_local(walked.walk, row), HWI_NONE);
        }
        assert_int_equal(hwi_walk_local(walked.walk, 7), HWI_NONE);
        end(&walked);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_derived_walk_goes_seed_row_anchor_newest_child_its_parent),
        cmocka_unit_test(an_exclusive_walk_never_meets_what_happened_at_its_moment),
        cmocka_unit_test(chain_rows_of_the_same_moment_are_visible_and_children_are_not),
        cmocka_unit_test(parents_of_other_rows_follow_the_exclusive_cutoff),
        cmocka_unit_test(an_inclusive_walk_takes_its_moment_and_hides_a_column_everywhere),
        cmocka_unit_test(no_time_shows_everything_up_to_visible_until),
        cmocka_unit_test(an_edge_that_is_not_known_yet_is_not_walked),
        cmocka_unit_test(children_come_by_edge_time_and_cells_when_they_are_known),
        cmocka_unit_test(what_is_never_known_stays_out_even_without_a_time),
        cmocka_unit_test(the_newest_child_of_all_groups_of_a_key_comes_first),
        cmocka_unit_test(a_key_that_is_asked_for_is_walked_on_no_row),
        cmocka_unit_test(labels_of_other_seeds_follow_context_labels),
        cmocka_unit_test(hashed_splits_decide_which_labels_show),
        cmocka_unit_test(widths_are_per_key_or_dealt_to_the_keys_of_a_row),
        cmocka_unit_test(hops_are_counted_from_the_anchor_for_both_kinds_of_tasks),
        cmocka_unit_test(a_walk_ends_at_its_rows_or_cuts_the_row_that_reaches_its_cells),
        cmocka_unit_test(labels_come_before_children_and_bring_their_anchors),
        cmocka_unit_test(peers_of_seeds_given_by_the_caller),
        cmocka_unit_test(a_target_that_would_be_cut_takes_the_last_position),
        cmocka_unit_test(a_row_that_would_be_empty_shows_its_first_identifier),
        cmocka_unit_test(uniform_draws_are_those_of_the_documentation),
        cmocka_unit_test(a_pooled_width_draws_over_the_lists_of_all_keys),
        cmocka_unit_test(every_order_visits_the_same_rows_where_all_fit),
    };
    return cmocka_run_group_tests(tests, open_databases, close_databases);
}
