/*
 * Calendar arithmetic in the proleptic Gregorian calendar, with floor division, so that times
 * before 1970 work. The date follows from the day number by counting 400-year eras that begin on
 * 1 March: leap days then fall at the end of a year and need no case.
 */
#include "calendar.h"

#include <string.h>

#include "calendar_tables.h"

#define DAY_US INT64_C(86400000000)

enum {
    ERA_DAYS = 146097, /* of 400 years */
    DAYS_TO_1970 = 719468, /* from 1 March of year 0 */
    CENTURY_DAYS = 36524,
    FOUR_YEAR_DAYS = 1460,
    JANUARY_FROM_MARCH = 306, /* days from 1 March to 1 January */
    MARCH_FROM_JANUARY = 59, /* days from 1 January to 1 March of a common year */
};

struct date {
    uint32_t day, month, year_day;
}; /* all from 0 */

static struct date date_of(int64_t day_number) {
    int64_t shifted = day_number + DAYS_TO_1970;
    int64_t era = (shifted >= 0 ? shifted : shifted - (ERA_DAYS - 1)) / ERA_DAYS;
    uint32_t day_of_era = (uint32_t)(shifted - era * ERA_DAYS);
    uint32_t year_of_era = (day_of_era - day_of_era / FOUR_YEAR_DAYS + day_of_era / CENTURY_DAYS -
                            day_of_era / (ERA_DAYS - 1)) /
                           365;
    uint32_t march_day = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    uint32_t march_month = (5 * march_day + 2) / 153;
    struct date date = {.day = march_day - (153 * march_month + 2) / 5,
                        .month = march_month < 10 ? march_month + 2 : march_month - 10};
    if (march_day >= JANUARY_FROM_MARCH) {
        date.year_day = march_day - JANUARY_FROM_MARCH;
    } else {
        int leap = year_of_era % 4 == 0 && (year_of_era % 100 != 0 || year_of_era == 0);
        date.year_day = march_day + MARCH_FROM_JANUARY + (leap ? 1 : 0);
    }
    return date;
}

void hwi_calendar_encode(int64_t time_us, double mean_us, double std_us, float *out) {
    int64_t days = time_us / DAY_US, rest_us = time_us % DAY_US;
    if (rest_us < 0) {
        days--;
        rest_us += DAY_US;
    }
    uint32_t second_of_day = (uint32_t)(rest_us / 1000000);
    struct date date = date_of(days);
    int64_t weekday = (days + 3) % 7; /* 1970-01-01 was a Thursday */
    memcpy(out, SIXTIETHS[second_of_day % 60], 8);
    memcpy(out + 2, SIXTIETHS[second_of_day / 60 % 60], 8);
    memcpy(out + 4, HOURS[second_of_day / 3600], 8);
    memcpy(out + 6, WEEKDAYS[weekday < 0 ? weekday + 7 : weekday], 8);
    memcpy(out + 8, DAYS[date.day], 8);
    memcpy(out + 10, MONTHS[date.month], 8);
    memcpy(out + 12, YEAR_DAYS[date.year_day], 8);
    out[14] = std_us > 0 ? (float)(((double)time_us - mean_us) / std_us) : 0;
}
