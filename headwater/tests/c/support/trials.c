#define _DEFAULT_SOURCE 1

#include <fcntl.h>

#include "support/scarce.h"
#include "support/trials.h"
#include "support/unit_test.h"

enum { MOST_DESCRIPTORS = 256 };

uint32_t refused_count;

int is_refused(hw_status status, const hw_error *error) {
    if (status == HW_OK) {
        return 0;
    }
    int is_memory = scarce_failed() == SCARCE_MEMORY;
    if (scarce_failed() == SCARCE_NONE || status != (is_memory ? HW_NO_MEMORY : HW_IO)) {
        fail_msg("status %d: %s", (int)status, error->message);
    }
    assert_int_equal(error->status, status);
    assert_true(strstr(error->message, "cannot ") != NULL ||
                (is_memory && strstr(error->message, "out of memory: ") != NULL));
    refused_count++;
    return 1;
}

static uint32_t count_descriptors(void) {
    uint32_t count = 0;
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* One run, in which the n-th call for memory fails; 1 if there were so many. */
static int try_once(void (*trial)(void *), void *context, uint64_t n) {
    int64_t blocks = scarce_blocks(), mapped_bytes = scarce_mapped_bytes();
    uint32_t descriptors = count_descriptors();
    refused_count = 0;
    scarce_begin(n);
    trial(context);
    int has_failed = scarce_end() != SCARCE_NONE;
    if (scarce_blocks() != blocks || scarce_mapped_bytes() != mapped_bytes ||
        count_descriptors() != descriptors) {
        fail_msg("call %llu left %lld blocks, %lld mapped bytes, %d descriptors",
                 (unsigned long long)n, (long long)(scarce_blocks() - blocks),
                 (long long)(scarce_mapped_bytes() - mapped_bytes),
                 (int)count_descriptors() - (int)descriptors);
    }
    return has_failed;
}

void try_all(void (*trial)(void *), void *context, int may_cope) {
    uint64_t n = 1;
    while (try_once(trial, context, n)) {
        if (refused_count != 1 && !(may_cope && refused_count == 0)) {
            fail_msg("call %llu failed and %u calls said so", (unsigned long long)n, refused_count);
        }
        n++;
    }
    assert_int_equal(refused_count, 0);
    assert_true(n > 1);
}
