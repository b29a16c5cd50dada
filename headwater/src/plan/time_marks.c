/* Time marks; see time_marks.h. */
#include "plan/time_marks.h"

#include <stdlib.h>

enum { MARKS = 1024 };

hw_status hwi_time_marks_open(struct hwi_time_marks *marks, const struct hwi_table *table,
                              hw_error *error) {
    *marks = (struct hwi_time_marks){0};
    uint32_t rows = table->info->row_count;
    if (table->times == NULL || rows < MARKS * HWI_LEAST_STRETCH) {
        return HW_OK;
    }
    marks->stretch = rows / MARKS;
    marks->count = (rows - 1) / marks->stretch; /* the last mark has rows behind it */
    marks->times = calloc(marks->count, sizeof *marks->times);
    if (marks->times == NULL) {
        return hwi_no_memory(error, "the time marks of a table", MARKS * sizeof *marks->times);
    }
    for (uint32_t i = 0; i < marks->count; i++) {
        marks->times[i] = table->times[(size_t)(i + 1) * marks->stretch];
    }
    return HW_OK;
}

void hwi_time_marks_release(struct hwi_time_marks *marks) {
    free(marks->times);
    *marks = (struct hwi_time_marks){0};
}
