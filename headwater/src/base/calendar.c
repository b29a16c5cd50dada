/*
 * Calendar arithmetic in the proleptic Gregorian calendar, with floor division, so that times
 * before 1970 work. The date follows from the day number by counting 400-year eras that begin on
 * 1 March: leap days then fall at the end of a year and need no case.
 */
#include "base/calendar.h"

#include <stdlib.h>
#include <string.h>

#include "base/calendar_tables.h"
#include "base/sized.h"

#define DAY_US INT64_C(86400000000)

enum {
    ERA_DAYS = 146097, /* of 400 years */
    DAYS_TO_1970 = 719468, /* from 1 March of year 0 */
    CENTURY_DAYS = 36524,
    FOUR_YEAR_DAYS = 1460,
    JANUARY_FROM_MARCH = 306, /* days from 1 March to 1 January */
    MARCH_FROM_JANUARY = 59, /* days from 1 January to 1 March of a common year */
    FIRST_DAY = -25567, /* 1900-01-01, from 1970-01-01 */
    DAY_COUNT = 73049, /* to the end of 2099 */
    FIRST_YEAR = 1900,
    END_YEAR = 2100,
    LONGEST_YEAR = 366,
    WEEKDAY_BITS = HW_TIME_YEAR_DAY_SHIFT - HW_TIME_WEEKDAY_SHIFT,
    SECOND_BITS = HW_TIME_WEEKDAY_SHIFT,
};

struct date {
    uint32_t day, month, year_day; /* all from 0 */
    uint32_t leap; /* 1: of a year with 366 days */
};

static uint32_t is_leap(uint32_t year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

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
    if (march_day >= JANUARY_FROM_MARCH) { /* of the next calendar year */
        date.leap = is_leap(year_of_era + 1);
        date.year_day = march_day - JANUARY_FROM_MARCH;
    } else {
        date.leap = is_leap(year_of_era);
        date.year_day = march_day + MARCH_FROM_JANUARY + date.leap;
    }
    return date;
}

static uint32_t day_code(int64_t day_number) {
    struct date date = date_of(day_number);
    int64_t weekday = (day_number + 3) % 7; /* 1970-01-01 was a Thursday */
    return (uint32_t)(weekday < 0 ? weekday + 7 : weekday) |
           (date.year_day + LONGEST_YEAR * date.leap) << WEEKDAY_BITS;
}

static void list_days(uint16_t *days) {
    uint32_t weekday = 0; /* 1900-01-01 was a Monday */
    for (uint32_t year = FIRST_YEAR; year < END_YEAR; year++) {
        uint32_t leap = is_leap(year) ? LONGEST_YEAR : 0, length = leap ? 366 : 365;
        for (uint32_t day = 0; day < length; day++) {
            *days++ = (uint16_t)(weekday | (leap + day) << WEEKDAY_BITS);
            weekday = weekday == 6 ? 0 : weekday + 1;
        }
    }
}

/* sin and cos of a day of the year: the signs turn at half and at a quarter of the circle. */
static void year_day(uint32_t day, float out[2]) {
    uint32_t half = day <= LONGEST_YEAR / 2 ? day : LONGEST_YEAR - day;
    uint32_t quarter = half <= LONGEST_YEAR / 4 ? half : LONGEST_YEAR / 2 - half;
    memcpy(out, YEAR_QUARTER[quarter], 8);
    out[0] = half == day ? out[0] : -out[0];
    out[1] = quarter == half ? out[1] : -out[1];
}

/* By day of the year from 0, + 366 in a leap year. */
static void list_dates(float dates[HW_DATE_COUNT][HWI_DATE_FLOATS]) {
    static const int64_t new_years[2] = {365, 730}; /* of 1971, and of 1972: a leap year */
    for (uint32_t leap = 0; leap < 2; leap++) {
        for (uint32_t day = 0; day < 365 + leap; day++) {
            struct date date = date_of(new_years[leap] + day);
            float *out = dates[LONGEST_YEAR * leap + day];
            memcpy(out, DAYS[date.day], 8);
            memcpy(out + 2, MONTHS[date.month], 8);
            year_day(date.year_day, out + 4);
        }
    }
}

hw_status hw_calendar_tables_fill(hw_calendar_tables *tables, hw_error *error) {
    hw_calendar_tables full = {0};
    memcpy(full.sixtieths, SIXTIETHS, sizeof full.sixtieths);
    memcpy(full.hours, HOURS, sizeof full.hours);
    memcpy(full.weekdays, WEEKDAYS, sizeof full.weekdays);
    list_dates(full.dates);
    return HWI_GIVE(hw_calendar_tables, tables, &full, error);
}

hw_status hwi_calendar_open(struct hwi_calendar *calendar, hw_error *error) {
    calendar->days = calloc(DAY_COUNT, sizeof *calendar->days);
    calendar->dates = calloc(HW_DATE_COUNT, sizeof *calendar->dates);
    if (calendar->days == NULL || calendar->dates == NULL) {
        hwi_calendar_release(calendar);
        return hwi_no_memory(error, "the calendar", DAY_COUNT * sizeof *calendar->days);
    }
    list_days(calendar->days);
    list_dates(calendar->dates);
    return HW_OK;
}

void hwi_calendar_release(struct hwi_calendar *calendar) {
    free(calendar->days);
    free(calendar->dates);
    *calendar = (struct hwi_calendar){0};
}

uint32_t hwi_calendar_code(const struct hwi_calendar *calendar, int64_t time_us) {
    int64_t days = time_us / DAY_US, rest_us = time_us % DAY_US;
    if (rest_us < 0) {
        days--;
        rest_us += DAY_US;
    }
    uint64_t place = (uint64_t)(days - FIRST_DAY);
    uint32_t code = place < DAY_COUNT ? calendar->days[place] : day_code(days);
    return (uint32_t)((uint64_t)rest_us / 1000000) | code << SECOND_BITS;
}

void hwi_calendar_encode(const struct hwi_calendar *calendar, int64_t time_us, double mean_us,
                         double std_us, float *out) {
    uint32_t code = hwi_calendar_code(calendar, time_us);
    uint32_t second = code & ((1u << SECOND_BITS) - 1), day = code >> SECOND_BITS;
    uint32_t minute = second / 60, hour = second / 3600;
    memcpy(out, SIXTIETHS[second - 60 * minute], 8);
    memcpy(out + 2, SIXTIETHS[minute - 60 * hour], 8);
    memcpy(out + 4, HOURS[hour], 8);
    memcpy(out + 6, WEEKDAYS[day & ((1u << WEEKDAY_BITS) - 1)], 8);
    memcpy(out + 8, calendar->dates[day >> WEEKDAY_BITS], 4 * HWI_DATE_FLOATS);
    out[14] = hwi_calendar_z(time_us, mean_us, std_us);
}
