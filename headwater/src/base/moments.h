/*
 * Mean and spread of numbers, and z-scores by them: one rule for columns and for targets. Welford's
 * running moments, in the order the numbers come: the same bits on any machine, and a spread of
 * exactly 0 where all numbers are equal, which a sum divided by its count does not give.
 */
#ifndef HWI_MOMENTS_H
#define HWI_MOMENTS_H

#include <stdint.h>

struct hwi_moments {
    uint64_t count;
    double mean, squares; /* squares: sum of squared distances from the mean */
};

/* Welford's step. Inline, and with a reciprocal that does not wait for the mean, because it is the
 * longest chain of a build's inner loop. */
static inline void hwi_moments_add(struct hwi_moments *moments, double value) {
    double distance = value - moments->mean;
    moments->count++;
    moments->mean += distance * (1.0 / (double)moments->count);
    moments->squares += distance * (value - moments->mean);
}
/* Chan's rule for two disjoint sets. */
void hwi_moments_merge(struct hwi_moments *moments, const struct hwi_moments *other);
/* Mean and population std; 0 where nothing was counted, always finite. */
void hwi_moments_result(const struct hwi_moments *moments, double *mean, double *std);

/* Finite whatever the numbers are; 0 where all values that count are equal. */
float hwi_z_score(double value, double mean, double std);

#endif
