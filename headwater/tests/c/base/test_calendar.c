/* The 15 floats of a timestamp against the system's calendar and libm, from year 1 to 9999. */
#define _GNU_SOURCE /* timegm, for the test only */
#include <math.h>
#include <time.h>

#include "base/calendar.h"
#include "base/rng.h"
#include "headwater.h"
#include "support/unit_test.h"

#define SECOND_US INT64_C(1000000)
#define FIRST_SECOND INT64_C(-62135596800) /* 0001-01-01 */
#define LAST_SECOND INT64_C(253402300799) /* 9999-12-31 23:59:59 */

static void expect_turn(const float *pair, int part, int whole) {
    const double turn = 6.283185307179586476925286766559 * part / whole;
    assert_true(fabs((double)pair[0] - sin(turn)) < 1e-7);
    assert_true(fabs((double)pair[1] - cos(turn)) < 1e-7);
}

static struct hwi_calendar calendar;

static void expect_second(int64_t second, int64_t microsecond) {
    float out[HWI_TIME_FLOATS];
    struct tm parts;
    time_t when = (time_t)second;
    assert_non_null(gmtime_r(&when, &parts));
    hwi_calendar_encode(&calendar, second * SECOND_US + microsecond, 1e15, 2e15, out);
    expect_turn(out, parts.tm_sec, 60);
    expect_turn(out + 2, parts.tm_min, 60);
    expect_turn(out + 4, parts.tm_hour, 24);
    expect_turn(out + 6, (parts.tm_wday + 6) % 7, 7);
    expect_turn(out + 8, parts.tm_mday - 1, 31);
    expect_turn(out + 10, parts.tm_mon, 12);
    expect_turn(out + 12, parts.tm_yday, 366);
    uint32_t code = hwi_calendar_code(&calendar, second * SECOND_US + microsecond);
    int year = parts.tm_year + 1900, leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    assert_int_equal(code & 0x1ffff, (parts.tm_hour * 60 + parts.tm_min) * 60 + parts.tm_sec);
    assert_int_equal(code >> 17 & 7, (parts.tm_wday + 6) % 7);
    assert_int_equal(code >> 20, parts.tm_yday + (leap ? 366 : 0));
    double z = ((double)(second * SECOND_US + microsecond) - 1e15) / 2e15;
    assert_true(fabs((double)out[14] - z) < 1e-5);
}

static void every_part_matches_the_system_calendar(void **state) {
    struct hwi_rng rng = hwi_rng_make(3, 0, 0, 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t draw = (uint64_t)hwi_rng_next(&rng) << 32 | hwi_rng_next(&rng);
        int64_t span = LAST_SECOND - FIRST_SECOND + 1;
        expect_second(FIRST_SECOND + (int64_t)(draw % (uint64_t)span), (int64_t)(draw % 1000000));
    }
}

static void boundaries_match_the_system_calendar(void **state) {
    static const int64_t seconds[] = {
        FIRST_SECOND,
        LAST_SECOND,
        0,
        -1,
        -86400,
        -2208988800 /* 1900-01-01, the first day of the table */,
        -2208988801,
        4102444799 /* 2099-12-31, its last */,
        4102444800,
        951782400 /* 2000-02-29 */,
        951868800,
        4107542400 /* 2100-03-01 */,
        4107456000,
        -2203891200,
        1704067199,
        1704067200,
        1709164800,
        1735603200 /* 2024-12-31 */,
    };
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        expect_second(seconds[i], 0);
        expect_second(seconds[i], 999999);
    }
}

static void extreme_values_and_a_zero_deviation_are_harmless(void **state) {
    float out[HWI_TIME_FLOATS];
    static const int64_t times[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, 0};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        hwi_calendar_encode(&calendar, times[i], 0, 0, out);
        for (unsigned k = 0; k < HWI_TIME_FLOATS; k++) {
            assert_true(isfinite(out[k]));
        }
        assert_true(out[14] == 0);
    }
}

/* 1900 has no leap day, 2000 has one; the parts of a time come from the tables by their numbers. */
static void the_tables_give_the_parts_of_every_day(void **state) {
    hw_calendar_tables tables = {.struct_bytes = sizeof tables};
    assert_int_equal(hw_calendar_tables_fill(&tables, NULL), HW_OK);
    static const int64_t years[][2] = {{-25567, 365}, {10957, 366}}; /* first day, days */
    for (unsigned leap = 0; leap < 2; leap++) {
        for (int64_t day = 0; day < years[leap][1]; day++) {
            unsigned second = (unsigned)(day * 237 % 86400);
            float out[HWI_TIME_FLOATS];
            int64_t number = years[leap][0] + day;
            hwi_calendar_encode(&calendar, (number * 86400 + second) * SECOND_US, 0, 1, out);
            assert_memory_equal(out, tables.sixtieths[second % 60], 8);
            assert_memory_equal(out + 2, tables.sixtieths[second / 60 % 60], 8);
            assert_memory_equal(out + 4, tables.hours[second / 3600], 8);
            /* 1900-01-01 was a Monday, 2000-01-01 a Saturday. */
            assert_memory_equal(out + 6, tables.weekdays[(day + (leap ? 5 : 0)) % 7], 8);
            assert_memory_equal(out + 8, tables.dates[day + 366 * leap], 24);
        }
    }
    static const float nothing[6] = {0};
    assert_memory_equal(tables.dates[365], nothing, sizeof nothing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_matches_the_system_calendar),
        cmocka_unit_test(boundaries_match_the_system_calendar),
        cmocka_unit_test(extreme_values_and_a_zero_deviation_are_harmless),
        cmocka_unit_test(the_tables_give_the_parts_of_every_day),
    };
    hw_error error = {.message = ""};
    if (hwi_calendar_open(&calendar, &error) != HW_OK) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hwi_calendar_release(&calendar);
    return failed;
}
