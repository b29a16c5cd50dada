/* The league database; see league.h. */
#define _XOPEN_SOURCE 700

#include "support/league.h"

#include <stdlib.h>

enum { TEAMS, MATCHES };

/* The place of the column that confirms home_id. */
enum { MATCHES_CONFIRMED = MATCHES_PLAYED + 1 };

static void add_column(hw_builder *b, uint32_t table, const char *name, hw_semantic_type stype,
                       uint8_t temporal) {
    fixture_add_column(b, table,
                       (hw_column_spec){.name = name, .stype = stype, .temporal = temporal});
}

static void add_task(hw_builder *b, hw_task_spec spec) {
    spec.given_split = 1;
    fixture_task(b, spec);
}

enum variant { PLAIN, CONFIRMED, SCORED };

static void declare(hw_builder *b, enum variant variant) {
    fixture_table(b, (hw_table_spec){.name = "teams", .key_part_count = 1});
    fixture_table(b, (hw_table_spec){.name = "matches", .key_part_count = 1, .temporal = 1});
    add_column(b, TEAMS, "id", HW_IDENTIFIER, 0);
    add_column(b, MATCHES, "id", HW_IDENTIFIER, 0);
    fixture_add_column(
        b, MATCHES,
        (hw_column_spec){.name = "home_id",
                         .stype = HW_IDENTIFIER,
                         .known = variant == CONFIRMED ? HW_KNOWN_COLUMN : HW_KNOWN_CREATION,
                         .known_column = MATCHES_CONFIRMED});
    add_column(b, MATCHES, "away_id", HW_IDENTIFIER, 0);
    add_column(b, MATCHES, "replay_of", HW_IDENTIFIER, 0);
    add_column(b, MATCHES, "score", HW_NUMERICAL, 0);
    add_column(b, MATCHES, "played", HW_TIMESTAMP, 1);
    if (variant == CONFIRMED) {
        fixture_add_column(b, MATCHES,
                           (hw_column_spec){.name = "confirmed", .stype = HW_IGNORED, .stored = 1});
    }
    fixture_key(b, MATCHES, TEAMS, MATCHES_HOME);
    fixture_key(b, MATCHES, TEAMS, MATCHES_AWAY);
    fixture_key(b, MATCHES, MATCHES, MATCHES_REPLAY_OF);
    if (variant == SCORED) {
        fixture_key(b, MATCHES, TEAMS, MATCHES_SCORE);
    }
    add_task(b, (hw_task_spec){.name = "score",
                               .anchor_table = MATCHES,
                               .target_column = MATCHES_SCORE,
                               .hidden = (uint32_t[]){MATCHES_REPLAY_OF},
                               .hidden_count = 1,
                               .exclusive = 1});
    add_task(b, (hw_task_spec){.name = "form",
                               .anchor_table = TEAMS,
                               .target_column = UINT32_MAX,
                               .target_name = "form",
                               .target_stype = HW_CATEGORICAL,
                               .categories = (const char *const[]){"few", "many"},
                               .category_count = 2,
                               .hidden = (uint32_t[]){MATCHES_SCORE},
                               .hidden_count = 1,
                               .label_times = 1});
    add_task(b, (hw_task_spec){.name = "next",
                               .anchor_table = TEAMS,
                               .target_column = UINT32_MAX,
                               .target_name = "next",
                               .target_stype = HW_TIMESTAMP});
}

static void write_rows(hw_builder *b, const int64_t *played, enum variant variant) {
    const int64_t confirmed[6] = {8 * DAY_US, 2 * DAY_US, 3 * DAY_US,
                                  9 * DAY_US, 3 * DAY_US, 5 * DAY_US};
    const uint8_t yes[6] = {1, 1, 1, 1, 1, 1};
    const struct fixture_column teams[] = {
        {"key", "u", (const char *[]){"t0", "t1"}, NULL},
        {"id", "b", yes, NULL},
    };
    const struct fixture_column matches[] = {
        {"time", "l", played, NULL},
        {"key", "u", (const char *[]){"m0", "m1", "m2", "m3", "m4", "m5"}, NULL},
        {"id", "b", yes, NULL},
        {"home_id", "b", yes, NULL},
        {"away_id", "b", yes, (uint8_t[]){1, 1, 1, 1, 1, 0}},
        {"replay_of", "b", yes, (uint8_t[]){0, 1, 0, 0, 1, 1}},
        {"score", "g", (double[]){1, 2, 3, 4, 5, 6}, NULL},
        {"played", "l", played, NULL},
        {"confirmed", "l", confirmed, NULL},
    };
    fixture_rows(b, TEAMS, teams, 2, 2, 0);
    fixture_rows(b, MATCHES, matches, variant == CONFIRMED ? 9 : 8, 6, 4);
    fixture_parents(b, 0, (int64_t[]){0, 0, 1, 1, 0, 0}, 6, 0);
    fixture_parents(b, 1, (int64_t[]){1, 0, 0, 1, 1, -1}, 6, 0);
    fixture_parents(b, 2, (int64_t[]){-1, 3, -1, -1, 2, 3}, 6, 0);
    if (variant == SCORED) {
        fixture_parents(b, 3, (int64_t[]){1, 1, 1, -1, -1, -1}, 6, 0);
    }
}

static void write_seeds(hw_builder *b, const int64_t *played) {
    const uint8_t yes[6] = {1, 1, 1, 1, 1, 1};
    const int64_t positions[6] = {0, 1, 2, 3, 4, 5};
    const struct fixture_column score[6] = {
        {"anchor", "l", positions, NULL},
        {"obs_time", "l", played, NULL},
        {"target", "g", (double[]){1, 2, 3, 4, 5, 6}, NULL},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 0, 1, 0, 0, 2}, NULL},
        {"position", "l", positions, NULL},
    };
    const struct fixture_column form[7] = {
        {"anchor", "l", (int64_t[]){0, 0, 1}, NULL},
        {"obs_time", "l", (int64_t[]){3 * DAY_US, 0, 3 * DAY_US}, (uint8_t[]){1, 0, 1}},
        {"target", "u", (const char *[]){"many", "few", "few"}, NULL},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 1, 0}, NULL},
        {"position", "l", positions, NULL},
        {"known_at", "l", (int64_t[]){4 * DAY_US, 0, 3 * DAY_US}, (uint8_t[]){1, 0, 1}},
    };
    const struct fixture_column next[6] = {
        {"anchor", "l", (int64_t[]){0, 1}, NULL},
        {"obs_time", "l", (int64_t[]){4 * DAY_US, 4 * DAY_US}, NULL},
        {"target", "l", (int64_t[]){5 * DAY_US, 0}, (uint8_t[]){1, 0}},
        {"labelled", "b", yes, NULL},
        {"split", "i", (int32_t[]){0, 0}, NULL},
        {"position", "l", positions, NULL},
    };
    fixture_seeds(b, TASK_SCORE, score, 6, 6);
    fixture_seeds(b, TASK_FORM, form, 7, 3);
    fixture_seeds(b, TASK_NEXT, next, 6, 2);
}

static hw_store *build(const char *store_path, enum variant variant) {
    const int64_t played[6] = {1 * DAY_US, 2 * DAY_US, 3 * DAY_US,
                               3 * DAY_US, 3 * DAY_US, 5 * DAY_US};
    hw_builder *b = fixture_builder("league", store_path, INT64_MAX);
    declare(b, variant);
    write_rows(b, played, variant);
    write_seeds(b, played);
    fixture_finish(b, variant == CONFIRMED ? LEAGUE_COLUMNS + 1 : LEAGUE_COLUMNS, 2, store_path);
    hw_builder_close(b);
    return fixture_open(store_path, HW_LOAD_MMAP);
}

hw_store *league(const char *store_path) {
    return build(store_path, PLAIN);
}

hw_store *league_confirmed(const char *store_path) {
    return build(store_path, CONFIRMED);
}

hw_store *league_scored(const char *store_path) {
    return build(store_path, SCORED);
}

int open_league(void **state) {
    return fixture_setup(state, league);
}

/* ---- all databases ----------------------------------------------------------------------- */

int open_databases(void **state) {
    struct databases *all = calloc(1, sizeof *all);
    all->directory = fixture_directory();
    all->bookstore = fixture_store(all->directory, "bookstore.hw", bookstore);
    all->deliveries = fixture_store(all->directory, "deliveries.hw", deliveries);
    all->league = fixture_store(all->directory, "league.hw", league);
    all->league_confirmed = fixture_store(all->directory, "confirmed.hw", league_confirmed);
    all->league_scored = fixture_store(all->directory, "scored.hw", league_scored);
    *state = all;
    return 0;
}

int close_databases(void **state) {
    struct databases *all = *state;
    hw_store_close(all->bookstore);
    hw_store_close(all->deliveries);
    hw_store_close(all->league);
    hw_store_close(all->league_confirmed);
    hw_store_close(all->league_scored);
    fixture_remove(all->directory);
    free(all);
    return 0;
}

struct hwi_seed stored_seed(const struct hwi_plan *plan, uint32_t task, uint32_t index) {
    const hw_seeds *seeds = &plan->store->seeds[task];
    return (struct hwi_seed){
        .task = task,
        .split = plan->tasks[task].splits[index],
        .index = index,
        .anchor = seeds->anchors[index],
        .obs_time = seeds->obs_times[index],
    };
}
