/*
 * Memory of the builder that the kernel may move to disk: a growing byte array mapped from an
 * unlinked file in the build directory. A build's peak of private memory so stays independent of
 * the number of rows; a full disk is an HW_IO from fallocate, never a signal.
 */
#ifndef HWI_SPILL_H
#define HWI_SPILL_H

#include "base/error.h"
#include "headwater.h"

struct hwi_spill {
    uint8_t *data; /* [bytes] */
    int fd;
    uint8_t growing; /* 1: fd is open. All zero is the empty spill, which may be closed */
    uint64_t bytes;
    uint64_t capacity;
    uint64_t dropped; /* bytes handed back to the kernel while appending or passing */
};

HWI_CHECK hw_status hwi_spill_open(struct hwi_spill *spill, const char *directory, hw_error *error);
/* Appends `bytes` of room and leaves *at pointing at it (zero-filled). Moves the data. */
HWI_CHECK hw_status hwi_spill_extend(struct hwi_spill *spill, uint64_t bytes, uint8_t **at,
                                     hw_error *error);
HWI_CHECK hw_status hwi_spill_append(struct hwi_spill *spill, const void *data, uint64_t bytes,
                                     hw_error *error);
/* The same through the file and not through the map, whose pages would be faulted in one by one:
 * for what is not read again soon. */
HWI_CHECK hw_status hwi_spill_write(struct hwi_spill *spill, const void *data, uint64_t bytes,
                                    hw_error *error);
/* A pass from start to end is done with the first `bytes`: their pages may go. The data stays. */
void hwi_spill_pass(struct hwi_spill *spill, uint64_t bytes);
/* No more growth: gives up the file descriptor and lets the pages go; the data stays. */
void hwi_spill_seal(struct hwi_spill *spill);
void hwi_spill_close(struct hwi_spill *spill);

#endif
