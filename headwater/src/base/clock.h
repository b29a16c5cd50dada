/* The clock by which waits and work are measured. */
#ifndef HWI_CLOCK_H
#define HWI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t hwi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
