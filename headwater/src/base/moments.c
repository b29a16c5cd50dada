/* Moments and z-scores; see moments.h. */
#include "base/moments.h"

#include <float.h>
#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* the same bits on any machine; gcc does not contract in ISO mode */
#endif

void hwi_moments_merge(struct hwi_moments *moments, const struct hwi_moments *other) {
    if (other->count == 0) {
        return;
    }
    double count = (double)moments->count, other_count = (double)other->count;
    double distance = other->mean - moments->mean;
    moments->count += other->count;
    moments->mean += distance * (other_count / (count + other_count));
    moments->squares +=
        other->squares + distance * distance * (count * other_count / (count + other_count));
}

void hwi_moments_result(const struct hwi_moments *moments, double *mean, double *std) {
    *mean = 0;
    *std = 0;
    if (moments->count == 0) {
        return;
    }
    double variance = moments->squares / (double)moments->count;
    if (!isfinite(moments->mean) || !isfinite(variance)) {
        /* Numbers so large that their squares overflow: keep their sign and order. */
        *std = DBL_MAX;
        return;
    }
    *mean = moments->mean;
    *std = sqrt(variance);
}

float hwi_z_score(double value, double mean, double std) {
    if (!(std > 0)) {
        return 0;
    }
    double z = (value - mean) / std;
    if (z > (double)FLT_MAX) {
        return FLT_MAX;
    }
    if (z < -(double)FLT_MAX) {
        return -FLT_MAX;
    }
    return (float)z;
}
