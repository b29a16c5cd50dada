/* Places in ascending arrays, by halving. */
#ifndef HWI_SEARCH_H
#define HWI_SEARCH_H

#include <stdint.h>

/* The first place of a number that is not less than `least`; `count` if there is none. */
static inline uint32_t hwi_first_u32(const uint32_t *ascending, uint32_t count, uint32_t least) {
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (ascending[middle] < least) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

static inline uint32_t hwi_first_i64(const int64_t *ascending, uint32_t count, int64_t least) {
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (ascending[middle] < least) {
            low = middle + 1;
        } else {
            count = middle;
        }
    }
    return low;
}

#endif
