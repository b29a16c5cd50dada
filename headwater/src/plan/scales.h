/* By which mean and deviation numbers are shown. */
#ifndef HWI_SCALES_H
#define HWI_SCALES_H

#include "base/moments.h"
#include "plan/plan.h"

/* The scales of what is shown, before the tasks are planned. */
HWI_CHECK hw_status hwi_plan_scales(struct hwi_plan *plan, hw_error *error);
/* The mean and the deviation by which a numerical column of a table is shown. */
void hwi_column_scale(const struct hwi_plan *plan, uint32_t column, double *mean, double *std);
/* What is shown of a number of the store that is not NULL. */
static inline float hwi_shown_number(const struct hwi_plan *plan, uint32_t column, float z) {
    const struct hwi_scale *scale = plan->scales == NULL ? NULL : &plan->scales[column];
    return scale == NULL ? z : hwi_z_score((double)z, scale->z_mean, scale->z_std);
}

#endif
