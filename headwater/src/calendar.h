/*
 * A timestamp as 15 floats: sin and cos of second, minute, hour, weekday, day, month and day of the
 * year, then the z-scored epoch. All from tables; libm would take 200 ns.
 */
#ifndef HWI_CALENDAR_H
#define HWI_CALENDAR_H

#include <stdint.h>

#define HWI_TIME_FLOATS 15u

/* Writes out[15] for an int64 microsecond UTC time; mean and std of the store's timestamps. */
void hwi_calendar_encode(int64_t time_us, double mean_us, double std_us, float *out);

#endif
