/*
 * Reading a store to its last byte; see checksums.h. A file is read in pieces that fit into a
 * core's cache, so that a section of any size is interruptible and costs no memory. About 4 GB/s on
 * one core from the page cache, else as fast as the disk.
 */
#define _DEFAULT_SOURCE 1

#include "store/checksums.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "format/file.h"
#include "format/file_names.h"
#include "format/manifest.h"

#define PIECE_BYTES ((uint64_t)256 << 10)
#define PROGRESS_NS ((int64_t)100000000)

struct reading {
    const struct hwi_listener *listener;
    uint64_t fault_count;
    uint64_t done_bytes, total_bytes;
    int64_t next_progress_ns;
    int is_interrupted;
    uint8_t *buffer; /* [PIECE_BYTES] NULL: only what is in memory is read */
    /* the file that is read now */
    const struct hwi_file *file;
    int fd; /* -1: it is read where it is in memory */
    int is_lost; /* it could not be read to its end, which was reported */
};

/* id: of a section, 0 if what is wrong is in none. */
static void report(struct reading *r, uint64_t byte, uint32_t id, const char *what) {
    char section[40] = "", message[500];
    if (id != 0) {
        snprintf(section, sizeof section, "section %u.%u, ", id >> 16, id & 0xffff);
    }
    snprintf(message, sizeof message, "%s (in '%s', %sbyte %llu)", what, r->file->path, section,
             (unsigned long long)byte);
    r->fault_count++;
    r->listener->fault(r->listener->fault_context, message);
}

static int is_over(const struct reading *r) {
    return r->is_interrupted || (r->listener->ends_at_fault && r->fault_count > 0);
}

/* The bytes of the file from `at` on; NULL if it cannot be read. */
static const uint8_t *piece(struct reading *r, uint64_t at, size_t bytes) {
    if (r->fd < 0) {
        return r->file->data + at;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t count = pread(r->fd, r->buffer + done, bytes - done, (off_t)(at + done));
        if (count > 0) {
            done += (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            char what[200];
            snprintf(what, sizeof what, "the file cannot be read: %s",
                     count == 0 ? "it became shorter" : strerror(errno));
            report(r, at + done, 0, what);
            r->is_lost = 1;
            return NULL;
        }
    }
    return r->buffer;
}

/* After the first piece, and then from time to time. */
static void tell_progress(struct reading *r) {
    int64_t now = r->listener->progress != NULL ? hwi_now_ns() : 0;
    if (now >= r->next_progress_ns && r->listener->progress != NULL) {
        r->next_progress_ns = now + PROGRESS_NS;
        r->is_interrupted =
            r->listener->progress(r->listener->progress_context, r->done_bytes, r->total_bytes);
    }
}

/* Reads [start, end) in pieces into the hash, or without one until a byte is not zero: its place,
 * else UINT64_MAX. */
static uint64_t read_range(struct reading *r, uint64_t start, uint64_t end, struct hwi_hash *hash) {
    for (uint64_t at = start; at < end && !r->is_interrupted && !r->is_lost;) {
        size_t bytes = (size_t)(end - at < PIECE_BYTES ? end - at : PIECE_BYTES);
        const uint8_t *data = piece(r, at, bytes);
        if (data != NULL && hash != NULL) {
            hwi_hash_update(hash, data, bytes);
        }
        for (size_t i = 0; data != NULL && hash == NULL && i < bytes; i++) {
            if (data[i] != 0) {
                return at + i;
            }
        }
        at += bytes;
        r->done_bytes += bytes;
        tell_progress(r);
    }
    return UINT64_MAX;
}

static void check_gap(struct reading *r, uint64_t start, uint64_t end, uint32_t id) {
    uint64_t byte = read_range(r, start, end, NULL);
    if (byte != UINT64_MAX) {
        report(r, byte, id, "a gap is not zero");
    }
}

static void check_range(struct reading *r, uint64_t start, uint64_t end, uint64_t checksum,
                        uint32_t id) {
    struct hwi_hash hash;
    hwi_hash_init(&hash, 0);
    (void)read_range(r, start, end, &hash);
    if (!r->is_interrupted && !r->is_lost && hwi_hash_digest(&hash) != checksum) {
        report(r, start, id,
               id != 0 ? "a section has a wrong checksum" : "the file has a wrong checksum");
    }
}

/* Sections and gaps; their bounds were proved at open. */
static void check_sections(struct reading *r) {
    const struct hwi_file *file = r->file;
    uint64_t end = sizeof(struct hwi_file_header) +
                   sizeof(struct hwi_section_info) * (uint64_t)file->section_count;
    for (uint32_t i = 0; i < file->section_count && !is_over(r) && !r->is_lost; i++) {
        const struct hwi_section_info *section = &file->sections[i];
        check_gap(r, end, section->offset, section->id);
        end = section->offset + section->count * section->element_bytes;
        check_range(r, section->offset, end, section->checksum, section->id);
    }
    if (!is_over(r) && !r->is_lost) {
        check_gap(r, end, file->bytes, 0);
    }
}

static void keep_first(void *context, const char *message) {
    hw_error *error = context;
    if (error->status == HW_OK) {
        (void)hwi_fail(error, HW_BAD_STORE, "%s", message);
    }
}

hw_status hwi_file_check_contents(const struct hwi_file *file, hw_error *error) {
    hw_error found = {.status = HW_OK};
    const struct hwi_listener listener = {
        .fault = keep_first, .fault_context = &found, .ends_at_fault = 1};
    struct reading r = {.listener = &listener, .file = file, .fd = -1};
    check_sections(&r);
    return found.status == HW_OK ? HW_OK : hwi_fail(error, found.status, "%s", found.message);
}

/* ---- all files --------------------------------------------------------------------------- */

/* A descriptor of a mapped file, if what has its name is the file still; else -1: what was removed
 * or replaced is whole as long as it is mapped. */
static int descriptor_of(struct reading *r, const hw_store *store) {
    char name[HWI_FILE_NAME_BYTES];
    struct stat info;
    if (r->file->load != HW_LOAD_MMAP) {
        return -1;
    }
    hwi_file_name(r->file->kind, r->file->index, name);
    int fd = hwi_open_to_read(store->directory_fd, name);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &info) != 0 || (uint64_t)info.st_dev != r->file->device ||
        (uint64_t)info.st_ino != r->file->inode) {
        close(fd);
        return -1;
    }
    return fd;
}

static void check_file(struct reading *r, const hw_store *store, uint32_t i) {
    r->file = &store->files[i];
    r->is_lost = 0;
    if (r->file->data == NULL) { /* metadata.json, which stays open and is listed last */
        r->fd = r->file->fd;
        check_range(r, 0, r->file->bytes, store->listed[i - 1].checksum, 0);
        return;
    }
    r->fd = descriptor_of(r, store);
    check_sections(r);
    if (r->fd >= 0) {
        close(r->fd);
    }
}

/* ---- manifest.json ----------------------------------------------------------------------- */

static int is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Where `text` first differs from what is expected, but for spaces outside of strings; SIZE_MAX if
 * nowhere. Neither has an escaped quote unless it differs there. */
static size_t first_difference(const char *text, size_t bytes, const char *expected) {
    int is_string = 0;
    for (size_t at = 0; at < bytes; at++) {
        if (!is_string && is_space(text[at])) {
            continue;
        }
        while (!is_string && is_space(*expected)) {
            expected++;
        }
        if (text[at] != *expected) {
            return at;
        }
        is_string ^= text[at] == '"';
        expected++;
    }
    return expected[strspn(expected, " \t\r\n")] == 0 ? SIZE_MAX : bytes;
}

static void compare_manifest(struct reading *r, const hw_store *store, const char *text,
                             size_t bytes, const char *expected) {
    const char *named = hwi_manifest_value(text, "fingerprint");
    if (named != NULL && *named == '"' && hwi_is_fingerprint(named + 1) && named[33] == '"' &&
        strncmp(named + 1, store->fingerprint, 32) != 0) {
        return; /* of a build that came later */
    }
    size_t byte = first_difference(text, bytes, expected);
    if (byte != SIZE_MAX) {
        report(r, byte, 0, "manifest.json does not list the files of its build");
    }
}

/* The text of the manifest that the store was opened by; *text stays NULL if it is gone. */
static hw_status read_manifest(struct reading *r, char **text, size_t *bytes, hw_error *error) {
    struct hwi_file now = {.path = r->file->path, .fd = -1};
    r->fd = hwi_open_to_read(AT_FDCWD, now.path);
    if (r->fd < 0) {
        return HW_OK;
    }
    hw_status status = hwi_file_identify(&now, r->fd, error);
    *text = status == HW_OK ? malloc((size_t)now.bytes + 1) : NULL;
    if (status == HW_OK && *text == NULL) {
        status = hwi_no_memory(error, "the manifest", now.bytes);
    }
    *bytes = (size_t)now.bytes;
    for (size_t at = 0; status == HW_OK && at < *bytes && !r->is_lost;) {
        size_t part = *bytes - at < PIECE_BYTES ? *bytes - at : (size_t)PIECE_BYTES;
        const uint8_t *data = piece(r, at, part);
        if (data != NULL) {
            memcpy(*text + at, data, part);
        }
        at += part;
    }
    close(r->fd);
    if (*text != NULL) {
        (*text)[*bytes] = 0;
    }
    return status;
}

static hw_status check_manifest(struct reading *r, const hw_store *store, hw_error *error) {
    const struct hwi_file *schema = &store->files[0];
    const struct hwi_file_info listed = {.kind = HWI_FILE_SCHEMA,
                                         .file_bytes = schema->bytes,
                                         .checksum = schema->header->header_checksum};
    char *text = NULL, *expected = NULL;
    size_t bytes = 0, expected_bytes = 0;
    r->file = &store->manifest;
    r->is_lost = 0;
    hw_status status = read_manifest(r, &text, &bytes, error);
    if (status == HW_OK && text != NULL && !r->is_lost) {
        status = hwi_manifest_text(store->fingerprint, store->listed, store->file_count - 1,
                                   &listed, &expected, &expected_bytes, error);
    }
    if (expected != NULL) {
        compare_manifest(r, store, text, bytes, expected);
    }
    free(text);
    free(expected);
    return status;
}

hw_status hwi_store_check_contents(const hw_store *store, const struct hwi_listener *listener,
                                   hw_error *error) {
    struct reading r = {.listener = listener, .buffer = malloc(PIECE_BYTES)};
    hw_status status = HW_OK;
    if (r.buffer == NULL) {
        return hwi_no_memory(error, "reading a store", PIECE_BYTES);
    }
    for (uint32_t i = 0; i < store->file_count; i++) {
        r.total_bytes += store->files[i].bytes;
    }
    if (store->manifest.path != NULL) {
        status = check_manifest(&r, store, error);
    }
    for (uint32_t i = 0; status == HW_OK && i < store->file_count && !is_over(&r); i++) {
        check_file(&r, store, i);
    }
    free(r.buffer);
    return status == HW_OK && r.is_interrupted
               ? hwi_fail(error, HW_INTERRUPTED, "the reading of a store was interrupted")
               : status;
}
