/* A builder of one table with one column of each kind, for tests of what it refuses and publishes.
 */
#ifndef BENCH_H
#define BENCH_H

#include "support/fixtures.h"

/* A builder over: events(key, time) with number, category (red, blue), flag, and a foreign key to
 * itself. Tests write what they like. */
struct bench {
    char *directory;
    hw_builder *b;
    hw_error error;
};

/* Setups and their teardown: everything counts; only rows until 20; the same, and rows without time
 * are visible. */
int open_bench(void **state);
int open_bench_until_20(void **state);
int open_bench_null_visible(void **state);
int close_bench(void **state);
#define ON(bench, test) cmocka_unit_test_setup_teardown(test, bench, close_bench)

/* Columns of a good stream of `events`, six rows; tests damage a copy. */
enum { TIME, KEY, AT, NUMBER, COLOR, FLAG, EVENT_FIELDS };
void good_columns(struct fixture_column columns[EVENT_FIELDS]);
hw_status write_rows(struct bench *bench, const struct fixture_column *columns,
                     uint32_t column_count, uint64_t row_count);

#endif
