/*
 * Which stores were read to their last byte on this machine, so that the next open does not read
 * them again. A mark is a file of a cache folder, named by the identity of a store:
 *
 *     not there, or empty     nothing is known, or somebody reads the store now and holds the lock
 *     not empty               it was read, and was sound
 *
 * Whoever reads holds flock() on the mark, and writes its line before letting go: a process that is
 * killed leaves an empty file, and the next one that waited takes its place. A mark that is written
 * is believed without a lock, so a remembered store costs three system calls.
 */
#define _DEFAULT_SOURCE 1

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/sized.h"
#include "format/file_names.h"
#include "store/checksums.h"

#define MARK_VERSION 2u
#define FIRST_WAIT_NS 1000000
#define LONGEST_WAIT_NS 100000000

struct mark {
    char *path; /* NULL: there is no folder */
    int fd; /* -1: not open */
    hw_verification *verification;
};

static void add_file(struct hwi_hash *hash, const struct hwi_file *file) {
    const uint64_t facts[] = {
        file->kind,
        file->index,
        file->device,
        file->inode,
        file->bytes,
        (uint64_t)file->written_ns,
        (uint64_t)file->changed_ns,
    };
    hwi_hash_update(hash, facts, sizeof facts);
}

void hw_store_identity(const hw_store *store, char identity[33]) {
    for (uint64_t half = 0; half < 2; half++) {
        const uint64_t version = MARK_VERSION;
        struct hwi_hash hash;
        hwi_hash_init(&hash, half);
        hwi_hash_update(&hash, &version, sizeof version);
        hwi_hash_update(&hash, store->fingerprint, sizeof store->fingerprint);
        add_file(&hash, &store->manifest); /* all zero without one */
        for (uint32_t i = 0; i < store->file_count; i++) {
            add_file(&hash, &store->files[i]);
        }
        snprintf(identity + 16 * half, 17, "%016llx", (unsigned long long)hwi_hash_digest(&hash));
    }
}

/* ---- marks ------------------------------------------------------------------------------- */

/* Nothing is remembered, for the reason in errno or the one given. */
static void give_up(struct mark *mark, const char *reason) {
    snprintf(mark->verification->not_remembered, sizeof mark->verification->not_remembered, "%s",
             reason != NULL ? reason : strerror(errno));
    if (mark->fd >= 0) {
        close(mark->fd);
        mark->fd = -1;
    }
}

/* Whether an open mark is written; only a regular file is one. */
static int is_written(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

/* A mark that is written may be read where none can be made: in a home that is read-only. */
static int is_remembered(const struct mark *mark) {
    int fd =
        mark->path != NULL ? open(mark->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    int found = fd >= 0 && is_written(fd);
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

/* Makes the folders of a path; whether all are there shows when it is opened. */
static void make_folders(char *path) {
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
}

/* Opens the mark to be written, or gives up. */
static void open_mark(struct mark *mark) {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat info;
    if (mark->path == NULL) {
        give_up(mark, "there is no folder for it");
        return;
    }
    mark->fd = open(mark->path, flags, 0600);
    if (mark->fd < 0 && errno == ENOENT) {
        make_folders(mark->path);
        mark->fd = open(mark->path, flags, 0600);
    }
    if (mark->fd < 0) {
        give_up(mark, NULL);
    } else if (fstat(mark->fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        give_up(mark, "its mark is not a regular file");
    }
}

/* Waits for whoever reads the store; gives up where files cannot be locked. */
static hw_status lock_mark(struct mark *mark, const struct hwi_listener *listener,
                           uint64_t total_bytes, hw_error *error) {
    struct timespec wait = {.tv_nsec = FIRST_WAIT_NS};
    while (mark->fd >= 0 && flock(mark->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            give_up(mark, NULL);
        } else if (listener->progress != NULL &&
                   listener->progress(listener->progress_context, 0, total_bytes)) {
            return hwi_fail(error, HW_INTERRUPTED, "the wait for a store was interrupted");
        } else {
            (void)nanosleep(&wait, NULL);
            wait.tv_nsec = wait.tv_nsec < LONGEST_WAIT_NS / 2 ? 2 * wait.tv_nsec : LONGEST_WAIT_NS;
        }
    }
    return HW_OK;
}

static void write_mark(struct mark *mark, const hw_store *store) {
    char line[40];
    int bytes = snprintf(line, sizeof line, "%s\n", store->fingerprint);
    if (mark->fd >= 0 && !is_written(mark->fd) && write(mark->fd, line, (size_t)bytes) < 0) {
        give_up(mark, NULL);
    }
}

/* ---- reading ----------------------------------------------------------------------------- */

static void keep_fault(void *context, const char *message) {
    (void)hwi_fail(context, HW_BAD_STORE,
                   "%.380s; build the store again, `headwater verify` lists all faults", message);
}

static hw_status check_and_mark(const hw_store *store, hw_verify verify, struct mark *mark,
                                struct hwi_listener *listener, hw_error *error) {
    hw_error found = {.status = HW_OK};
    uint64_t total_bytes = 0;
    if (verify == HW_VERIFY_ONCE && is_remembered(mark)) {
        mark->verification->how = HW_VERIFIED_BEFORE;
        return HW_OK;
    }
    open_mark(mark);
    for (uint32_t i = 0; i < store->file_count; i++) {
        total_bytes += store->files[i].bytes;
    }
    if (verify == HW_VERIFY_ONCE) {
        HW_TRY(lock_mark(mark, listener, total_bytes, error));
    }
    if (verify == HW_VERIFY_ONCE && mark->fd >= 0 && is_written(mark->fd)) {
        mark->verification->how = HW_VERIFIED_BEFORE; /* by the one that was waited for */
        return HW_OK;
    }
    listener->fault = keep_fault;
    listener->fault_context = &found;
    HW_TRY(hwi_store_check_contents(store, listener, error));
    if (found.status != HW_OK) {
        if (mark->path != NULL) {
            (void)unlink(mark->path);
        }
        return hwi_fail(error, found.status, "%s", found.message);
    }
    write_mark(mark, store);
    mark->verification->how = HW_VERIFIED_NOW;
    return HW_OK;
}

hw_status hw_store_check_files(const hw_store *store, hw_verify verify, const char *folder,
                               hw_progress_callback progress, void *context,
                               hw_verification *verification, hw_error *error) {
    struct hwi_listener listener = {
        .ends_at_fault = 1, .progress = progress, .progress_context = context};
    hw_verification full = {.how = HW_VERIFIED_HEADER};
    struct mark mark = {.fd = -1, .verification = &full};
    char identity[33];
    if ((unsigned)verify > HW_VERIFY_FULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "hw_store_check_files: verify is %u",
                        (unsigned)verify);
    }
    HW_TRY(hwi_check_struct("hw_verification", verification, sizeof full, error));
    if (verify == HW_VERIFY_HEADER) {
        return HWI_GIVE(hw_verification, verification, &full, error);
    }
    hw_store_identity(store, identity);
    if (folder != NULL) {
        HW_TRY(hwi_path_join(folder, identity, &mark.path, error));
    }
    hw_status status = check_and_mark(store, verify, &mark, &listener, error);
    if (mark.fd >= 0) {
        (void)flock(mark.fd, LOCK_UN); /* which a process forked meanwhile would keep */
        close(mark.fd);
    }
    free(mark.path);
    return status == HW_OK ? HWI_GIVE(hw_verification, verification, &full, error) : status;
}
