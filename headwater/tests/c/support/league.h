/*
 * league: two keys from one table to another, a key of a table to itself that points forward in
 * time, events of one instant, and three tasks with what they hide. Rows, seeds and children:
 *
 *   teams (no time)            rows 0..1
 *   matches (by played)        rows 2..7
 *   row  home  away  replay_of  score  played       children by replay_of
 *   2    0     1     -          1      day 1
 *   3    0     0     5          2      day 2
 *   4    1     0     -          3      day 3        6
 *   5    1     1     -          4      day 3        3, 7
 *   6    0     1     4          5      day 3
 *   7    0     -     5          6      day 5
 *
 *   team 0: home 2, 3, 6, 7; away 3, 4.    team 1: home 4, 5; away 2, 5, 6.
 *
 *   task 0 `score`  cell of matches.score, exclusive, hides replay_of: seed i is match 2 + i at its
 *                   own time; splits train, train, val, train, train, test
 *   task 1 `form`   derived categorical (few, many) on teams, inclusive, hides score:
 *                   (0, day 3, many, train), (0, no time, few, val), (1, day 3, few, train); the
 *                   labels are known on day 4, never, and on day 3
 *   task 2 `next`   derived timestamp on teams: (0, day 4, day 5, train), (1, day 4, NULL, train)
 */
#ifndef LEAGUE_H
#define LEAGUE_H

#include "plan/order.h"
#include "support/fixtures.h"

enum league_column {
    TEAMS_ID,
    MATCHES_ID,
    MATCHES_HOME,
    MATCHES_AWAY,
    MATCHES_REPLAY_OF,
    MATCHES_SCORE,
    MATCHES_PLAYED,
    FORM_OBS_TIME,
    FORM_TARGET,
    NEXT_OBS_TIME,
    NEXT_TARGET,
    LEAGUE_COLUMNS
};
enum league_task { TASK_SCORE, TASK_FORM, TASK_NEXT };

/* Builds it, publishes it in store_path (created if missing) and opens it. */
hw_store *league(const char *store_path);

/* The same with home_id known only when confirmed, a column behind `played` (ignored but stored;
 * the tasks' own columns come one later): on days 8, 2, 3, 9, 3 and 5. Children by home in the
 * order of edge times: team 0: 3, 6, 7, 2; team 1: 4, 5. */
hw_store *league_confirmed(const char *store_path);

/* The same with a fourth key, from score, which a task asks for, to teams: matches 2, 3 and 4 point
 * at team 1, the others nowhere. */
hw_store *league_scored(const char *store_path);

/* As open_bookstore of fixtures.h. */
int open_league(void **state);

/* Setup and teardown of a group of tests over all databases. */
struct databases {
    char *directory;
    hw_store *bookstore, *deliveries, *league, *league_confirmed, *league_scored;
};
int open_databases(void **state);
int close_databases(void **state);

/* A stored seed of a task as samplers walk it. */
struct hwi_seed stored_seed(const struct hwi_plan *plan, uint32_t task, uint32_t index);

#endif
