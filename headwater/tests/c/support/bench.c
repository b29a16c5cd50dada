/* The bench; see bench.h. */
#include "support/bench.h"

#include "support/unit_test.h"

static int open_bench_with(void **state, int64_t stats_until_us, uint8_t null_time_visible) {
    struct bench *bench = calloc(1, sizeof *bench);
    static const char *const colors[] = {"red", "blue"};
    bench->directory = fixture_directory();
    bench->b = fixture_builder("bench", bench->directory, stats_until_us);
    fixture_table(bench->b, (hw_table_spec){.name = "events",
                                            .key_part_count = 1,
                                            .temporal = 1,
                                            .null_time_visible = null_time_visible});
    const hw_column_spec columns[] = {
        {.name = "at", .stype = HW_TIMESTAMP, .temporal = 1},
        {.name = "number", .stype = HW_NUMERICAL},
        {.name = "color", .stype = HW_CATEGORICAL},
        {.name = "flag", .stype = HW_BOOLEAN},
    };
    for (uint32_t i = 0; i < 4; i++) {
        fixture_add_column(bench->b, 0, columns[i]);
    }
    MUST(hw_builder_set_categories(bench->b, 2, colors, 2, &error));
    fixture_key(bench->b, 0, 0, 1);
    *state = bench;
    return 0;
}

int open_bench(void **state) {
    return open_bench_with(state, INT64_MAX, 0);
}

int open_bench_until_20(void **state) {
    return open_bench_with(state, 20, 0);
}

int open_bench_null_visible(void **state) {
    return open_bench_with(state, 20, 1);
}

int close_bench(void **state) {
    struct bench *bench = *state;
    hw_builder_close(bench->b);
    fixture_remove(bench->directory);
    free(bench);
    return 0;
}

static const uint8_t flags[6] = {1, 0, 1, 0, 1, 0};
static const int64_t times[6] = {10, 20, 20, 30, 40, 50};
static const double numbers[6] = {1, 3, 5, 100, 200, 300};
static const char *const keys[6] = {"a", "b", "c", "d", "e", "f"};
static const char *const color_cells[6] = {"red", "blue", NULL, "red", "red", "blue"};

void good_columns(struct fixture_column columns[EVENT_FIELDS]) {
    columns[TIME] = (struct fixture_column){"time", "l", times, NULL};
    columns[KEY] = (struct fixture_column){"key", "u", keys, NULL};
    columns[AT] = (struct fixture_column){"at", "l", times, NULL};
    columns[NUMBER] = (struct fixture_column){"number", "g", numbers, NULL};
    columns[COLOR] = (struct fixture_column){"color", "U", color_cells, NULL};
    columns[FLAG] = (struct fixture_column){"flag", "b", flags, NULL};
}

hw_status write_rows(struct bench *bench, const struct fixture_column *columns,
                     uint32_t column_count, uint64_t row_count) {
    struct ArrowArrayStream stream;
    fixture_stream(&stream, columns, column_count, row_count, 4);
    hw_status status = hw_builder_write_rows(bench->b, 0, &stream, &bench->error);
    stream.release(&stream);
    return status;
}
