/* Growing byte arrays in unlinked files; see spill.h. */
#define _DEFAULT_SOURCE 1

#include "base/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

#define SPILL_FIRST_BYTES 65536u
#define SPILL_DROP_BYTES (8u << 20) /* pages are handed back in steps of this */
#define SPILL_DOUBLE_BYTES (64u << 20) /* smaller spills double when they grow */

hw_status hwi_spill_open(struct hwi_spill *spill, const char *directory, hw_error *error) {
    *spill = (struct hwi_spill){0};
    size_t path_bytes = strlen(directory) + sizeof "/.spill-XXXXXX";
    char *path = malloc(path_bytes);
    if (path == NULL) {
        return hwi_no_memory(error, "a path", path_bytes);
    }
    snprintf(path, path_bytes, "%s/.spill-XXXXXX", directory);
    hw_status status = HW_OK;
    spill->fd = mkstemp(path);
    if (spill->fd < 0) {
        status = hwi_fail(error, HW_IO, "cannot create a temporary file in '%s': %s", directory,
                          strerror(errno));
    } else {
        spill->growing = 1;
        fcntl(spill->fd, F_SETFD, FD_CLOEXEC);
        unlink(path);
    }
    free(path);
    return status;
}

static hw_status grow(struct hwi_spill *spill, uint64_t needed, hw_error *error) {
    uint64_t capacity = spill->capacity != 0 ? spill->capacity : SPILL_FIRST_BYTES;
    while (capacity < needed) {
        capacity += capacity < SPILL_DOUBLE_BYTES ? capacity : capacity / 2;
    }
    capacity = hwi_align_up(capacity, SPILL_FIRST_BYTES);
    /* Room on the disk first: storing to a mapped page that cannot be had would be a SIGBUS. */
    int code = posix_fallocate(spill->fd, 0, (off_t)capacity);
    if (code != 0) {
        return hwi_fail(error, HW_IO, "cannot reserve %llu bytes of temporary disk space: %s",
                        (unsigned long long)capacity, strerror(code));
    }
    void *data = mmap(NULL, (size_t)capacity, PROT_READ | PROT_WRITE, MAP_SHARED, spill->fd, 0);
    if (data == MAP_FAILED) {
        return hwi_fail(error, HW_NO_MEMORY, "cannot map %llu bytes of a temporary file: %s",
                        (unsigned long long)capacity, strerror(errno));
    }
    if (spill->data != NULL) {
        munmap(spill->data, (size_t)spill->capacity);
    }
    spill->data = data;
    spill->capacity = capacity;
    return HW_OK;
}

static hw_status make_room(struct hwi_spill *spill, uint64_t bytes, hw_error *error) {
    assert(spill->growing);
    if (bytes > UINT64_MAX / 4 - spill->bytes) {
        return hwi_no_memory(error, "a temporary file", bytes);
    }
    if (spill->data == NULL || bytes > spill->capacity - spill->bytes) {
        return grow(spill, spill->bytes + bytes, error);
    }
    return HW_OK;
}

hw_status hwi_spill_extend(struct hwi_spill *spill, uint64_t bytes, uint8_t **at, hw_error *error) {
    HW_TRY(make_room(spill, bytes, error));
    hwi_spill_pass(spill, spill->bytes);
    *at = spill->data + spill->bytes;
    spill->bytes += bytes;
    return HW_OK;
}

hw_status hwi_spill_append(struct hwi_spill *spill, const void *data, uint64_t bytes,
                           hw_error *error) {
    uint8_t *at = NULL;
    HW_TRY(hwi_spill_extend(spill, bytes, &at, error));
    if (bytes > 0) {
        memcpy(at, data, (size_t)bytes);
    }
    return HW_OK;
}

hw_status hwi_spill_write(struct hwi_spill *spill, const void *data, uint64_t bytes,
                          hw_error *error) {
    const uint8_t *at = data;
    HW_TRY(make_room(spill, bytes, error));
    while (bytes > 0) {
        ssize_t written = pwrite(spill->fd, at, (size_t)bytes, (off_t)spill->bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return hwi_fail(error, HW_IO, "cannot write a temporary file: %s", strerror(errno));
        }
        at += written;
        spill->bytes += (uint64_t)written;
        bytes -= (uint64_t)written;
    }
    return HW_OK;
}

void hwi_spill_pass(struct hwi_spill *spill, uint64_t bytes) {
    if (bytes < spill->dropped) {
        spill->dropped = 0; /* another pass from the start */
    }
    if (bytes - spill->dropped >= SPILL_DROP_BYTES) {
        uint64_t step = (bytes - spill->dropped) / SPILL_DROP_BYTES * SPILL_DROP_BYTES;
        madvise(spill->data + spill->dropped, (size_t)step, MADV_DONTNEED);
        spill->dropped += step;
    }
}

void hwi_spill_seal(struct hwi_spill *spill) {
    if (spill->data != NULL) {
        /* Of a shared file mapping this drops the pages from this process, not their contents. */
        madvise(spill->data, (size_t)spill->capacity, MADV_DONTNEED);
    }
    spill->dropped = 0;
    if (spill->growing) {
        close(spill->fd);
    }
    spill->growing = 0;
}

void hwi_spill_close(struct hwi_spill *spill) {
    if (spill->data != NULL) {
        munmap(spill->data, (size_t)spill->capacity);
    }
    if (spill->growing) {
        close(spill->fd);
    }
    *spill = (struct hwi_spill){0};
}
