/*
 * A timestamp as 15 floats: sin and cos of second, minute, hour, weekday, day, month and day of the
 * year, then the z-scored epoch. All from tables; libm would take 200 ns.
 */
#ifndef HWI_CALENDAR_H
#define HWI_CALENDAR_H

#include <stdint.h>

#include "base/error.h"
#include "headwater.h"

#define HWI_TIME_FLOATS 15u
#define HWI_DATE_FLOATS 6u /* of day, month and day of the year */

/* Constant after open; any thread. */
struct hwi_calendar {
    uint16_t *days; /* the days of 1900 to 2099: weekday from Monday | date << 3, where a date is
                       the day of the year from 0, + 366 in a leap year */
    float (*dates)[HWI_DATE_FLOATS]; /* [HW_DATE_COUNT] as in hw_calendar_tables */
};
HWI_CHECK hw_status hwi_calendar_open(struct hwi_calendar *calendar, hw_error *error);
void hwi_calendar_release(struct hwi_calendar *calendar);

/* Writes out[15] for an int64 microsecond UTC time; mean and std of the store's timestamps. */
void hwi_calendar_encode(const struct hwi_calendar *calendar, int64_t time_us, double mean_us,
                         double std_us, float *out);
/* What the first 14 floats follow from, in one word: see HW_TIME_WEEKDAY_SHIFT in headwater.h. */
uint32_t hwi_calendar_code(const struct hwi_calendar *calendar, int64_t time_us);
/* The last float: the z-scored epoch. */
static inline float hwi_calendar_z(int64_t time_us, double mean_us, double std_us) {
    return std_us > 0 ? (float)(((double)time_us - mean_us) / std_us) : 0;
}

#endif
