/* Few times of a large table, so that a search for a cutoff touches few lines; walk/cutoff.c. */
#ifndef HWI_TIME_MARKS_H
#define HWI_TIME_MARKS_H

#include "base/error.h"
#include "store/store.h"

#define HWI_LEAST_STRETCH 64u /* rows; fewer are not worth a mark */

/* Every `stretch`-th time of a table; none of a small one. */
struct hwi_time_marks {
    int64_t *times; /* [count]: of row (i + 1) * stretch */
    uint32_t count, stretch;
};
HWI_CHECK hw_status hwi_time_marks_open(struct hwi_time_marks *marks, const struct hwi_table *table,
                                        hw_error *error);
void hwi_time_marks_release(struct hwi_time_marks *marks);

#endif
