/* What the library fills, by value, for tests that read it where it cannot fail. */
#ifndef HWT_READ_H
#define HWT_READ_H

#include <stdio.h>
#include <stdlib.h>

#include "headwater.h"

#define HWT_READER(type, name, function, handle)                                                   \
    static inline type name(handle from) {                                                         \
        hw_error error;                                                                            \
        type read = {.struct_bytes = sizeof read};                                                 \
        if (function(from, &read, &error) != HW_OK) {                                              \
            fprintf(stderr, #function ": %s\n", error.message);                                    \
            abort();                                                                               \
        }                                                                                          \
        return read;                                                                               \
    }

HWT_READER(hw_store_counts, counts_of, hw_store_get_counts, const hw_store *)
HWT_READER(hw_shape, shape_of, hw_sampler_shape, const hw_sampler *)
HWT_READER(hw_sampler_stats, stats_of, hw_sampler_get_stats, hw_sampler *)
HWT_READER(hw_batch_sizes, sizes_of, hw_batch_get_sizes, const hw_batch *)

static inline hw_tensor tensor_of(const hw_batch *batch, uint32_t index) {
    hw_error error;
    hw_tensor tensor = {.struct_bytes = sizeof tensor};
    if (hw_batch_tensor(batch, index, &tensor, &error) != HW_OK) {
        fprintf(stderr, "hw_batch_tensor: %s\n", error.message);
        abort();
    }
    return tensor;
}

#endif
