/*
 * Reading a store once: every flipped byte is found, and what was read and sound is not read again
 * as long as its files are the same ones. Whether it was read shows in hw_verification, and in the
 * calls of a progress callback.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/format.h"
#include "store/store.h"
#include "support/damage.h"
#include "support/unit_test.h"

/* An open store with a folder for its marks, which is not there yet, and the mark that it will have
 * there. */
struct ward {
    struct patient *patient;
    char *scratch, *folder, *mark;
    hw_store *store;
};

static int admit(void **state) {
    struct ward *ward = calloc(1, sizeof *ward);
    char identity[33];
    assert_non_null(ward);
    ward->patient = patient_admit(bookstore);
    ward->scratch = fixture_directory();
    ward->folder = fixture_path(ward->scratch, "cache/headwater/verified");
    ward->store = fixture_open(ward->patient->directory, HW_LOAD_MMAP);
    hw_store_identity(ward->store, identity);
    assert_int_equal(strlen(identity), 32);
    ward->mark = fixture_path(ward->folder, identity);
    *state = ward;
    return 0;
}

static int discharge(void **state) {
    struct ward *ward = *state;
    hw_store_close(ward->store);
    patient_discharge(ward->patient);
    fixture_remove(ward->scratch);
    free(ward->folder);
    free(ward->mark);
    free(ward);
    return 0;
}

/* How a sound store was verified. */
static hw_verified verified(const hw_store *store, hw_verify verify, const char *folder) {
    hw_verification found = {.struct_bytes = sizeof found};
    MUST(hw_store_check_files(store, verify, folder, NULL, NULL, &found, &error));
    assert_int_equal(found.not_remembered[0] != 0, folder == NULL && verify != HW_VERIFY_HEADER);
    return found.how;
}

/* Checks the ward's store with its folder: what hw_store_check_files says. */
static hw_status check(const struct ward *ward, hw_verify verify, hw_verification *found) {
    return hw_store_check_files(ward->store, verify, ward->folder, NULL, NULL, found, NULL);
}

static long size_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (long)info.st_size : -1;
}

/* ---- what is found ----------------------------------------------------------------------- */

static void flip(const struct patient_file *file, size_t at) {
    file->bytes[at] ^= 1;
    damage_write_file(file->path, file->bytes, file->size);
    file->bytes[at] ^= 1;
}

static void restore(const struct patient_file *file, size_t at) {
    (void)at;
    damage_write_file(file->path, file->bytes, file->size);
}

static void demand_fault(const char *path, hw_load load, const char *file, size_t at) {
    hw_store *store = NULL;
    hw_verification found = {.struct_bytes = sizeof found};
    hw_error error = {.message = ""};
    hw_status status = hw_store_open(path, load, &store, &error);
    if (status == HW_OK) {
        status = hw_store_check_files(store, HW_VERIFY_FULL, NULL, NULL, NULL, &found, &error);
        hw_store_close(store);
    }
    if (status != HW_BAD_STORE || strstr(error.message, file) == NULL ||
        strstr(error.message, "byte ") == NULL) {
        fail_msg("flipped byte %zu of '%s': status %d, %s", at, file, (int)status, error.message);
    }
}

static void every_flipped_byte_is_found_and_its_file_named(void **state) {
    const struct ward *ward = *state;
    const struct patient *patient = ward->patient;
    for (uint32_t i = 0; i < patient->file_count; i++) {
        for (size_t at = 0; at < patient->files[i].size; at++) {
            flip(&patient->files[i], at);
            demand_fault(patient->directory, at % 2 ? HW_LOAD_MMAP : HW_LOAD_RAM,
                         patient->files[i].path, at);
        }
        patient_heal(patient);
    }
}

static void every_flipped_byte_of_the_manifest_is_found(void **state) {
    const struct ward *ward = *state;
    struct patient_file manifest = {.path =
                                        fixture_path(ward->patient->directory, "manifest.json")};
    manifest.bytes = damage_read_file(manifest.path, &manifest.size);
    manifest.bytes[manifest.size] = 0;
    const char *named = strstr((char *)manifest.bytes, "\"fingerprint\": \"");
    assert_non_null(named);
    size_t id = (size_t)(named - (char *)manifest.bytes) + strlen("\"fingerprint\": \"");
    for (size_t at = 0; at < manifest.size; at++) {
        flip(&manifest, at);
        /* Another fingerprint is that of a build that is not there. */
        int is_named = at >= id && at < id + 32;
        if (!is_named) {
            demand_fault(ward->patient->directory, HW_LOAD_MMAP, "manifest.json", at);
        }
    }
    free(manifest.bytes);
    free(manifest.path);
}

static void the_message_says_where_and_what_to_do(void **state) {
    const struct ward *ward = *state;
    const struct patient_file *texts = &ward->patient->files[ward->patient->file_count - 2];
    const struct hwi_section_info *sections =
        (const void *)(texts->bytes + sizeof(struct hwi_file_header));
    char expected[500];
    hw_verification found = {.struct_bytes = sizeof found};
    hw_error error = {.message = ""};
    assert_int_equal(texts->kind, HWI_FILE_TEXTS);
    flip(texts, sections[1].offset);
    hw_store *store = fixture_open(ward->patient->build, HW_LOAD_MMAP);
    assert_int_equal(hw_store_check_files(store, HW_VERIFY_ONCE, NULL, NULL, NULL, &found, &error),
                     HW_BAD_STORE);
    snprintf(expected, sizeof expected,
             "a section has a wrong checksum (in '%s', section 97.0, byte %llu); build the store "
             "again, `headwater verify` lists all faults",
             texts->path, (unsigned long long)sections[1].offset);
    assert_string_equal(error.message, expected);
    assert_int_equal(verified(store, HW_VERIFY_HEADER, ward->folder), HW_VERIFIED_HEADER);
    hw_store_close(store);
}

/* A mapped file that is cut short ends the process where it is read through the map. */
static void a_file_that_became_shorter_is_a_fault(void **state) {
    const struct ward *ward = *state;
    const struct patient_file *graph = &ward->patient->files[3];
    hw_verification found = {.struct_bytes = sizeof found};
    hw_error error = {.message = ""};
    assert_int_equal(graph->kind, HWI_FILE_GRAPH);
    damage_write_file(graph->path, graph->bytes, graph->size - 1);
    assert_int_equal(
        hw_store_check_files(ward->store, HW_VERIFY_FULL, NULL, NULL, NULL, &found, &error),
        HW_BAD_STORE);
    assert_non_null(strstr(error.message, "graph.bin"));
    assert_non_null(strstr(error.message, "it became shorter"));
}

static void what_was_replaced_is_read_where_it_is_mapped(void **state) {
    const struct ward *ward = *state;
    const struct patient_file *graph = &ward->patient->files[3];
    assert_int_equal(unlink(graph->path), 0);
    assert_int_equal(verified(ward->store, HW_VERIFY_FULL, NULL), HW_VERIFIED_NOW);
    damage_write_file(graph->path, "another", 7);
    assert_int_equal(verified(ward->store, HW_VERIFY_FULL, NULL), HW_VERIFIED_NOW);
}

/* ---- what is remembered ------------------------------------------------------------------ */

static void a_store_is_read_once(void **state) {
    const struct ward *ward = *state;
    struct stat info;
    assert_int_equal(verified(ward->store, HW_VERIFY_HEADER, ward->folder), HW_VERIFIED_HEADER);
    assert_int_equal(size_of(ward->folder), -1);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_BEFORE);
    assert_int_equal(verified(ward->store, HW_VERIFY_FULL, ward->folder), HW_VERIFIED_NOW);
    assert_int_equal(size_of(ward->mark), 33); /* the fingerprint and a line feed */
    assert_int_equal(stat(ward->mark, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(stat(ward->folder, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    hw_store *store = fixture_open(ward->patient->directory, HW_LOAD_RAM);
    assert_int_equal(verified(store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_BEFORE);
    assert_int_equal(verified(store, HW_VERIFY_ONCE, NULL), HW_VERIFIED_NOW);
    hw_store_close(store);
}

static void another_time_inode_or_size_of_any_file_is_another_store(void **state) {
    const struct ward *ward = *state;
    const struct patient *patient = ward->patient;
    char before[33], after[33];
    for (uint32_t i = 0; i < patient->file_count; i++) {
        const struct patient_file *file = &patient->files[i];
        struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
        assert_int_equal(utimensat(AT_FDCWD, file->path, times, 0), 0);
        hw_store *store = fixture_open(patient->build, HW_LOAD_MMAP);
        hw_store_identity(store, before);
        assert_int_equal(verified(store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
        hw_store_close(store);
        times[1].tv_nsec = 1;
        assert_int_equal(utimensat(AT_FDCWD, file->path, times, 0), 0);
        store = fixture_open(patient->build, HW_LOAD_MMAP);
        hw_store_identity(store, after);
        assert_string_not_equal(before, after);
        hw_store_close(store);
        /* The same bytes and times in another file, while the one before is there still. */
        char *aside = fixture_path(ward->scratch, "aside");
        assert_int_equal(rename(file->path, aside), 0);
        damage_write_file(file->path, file->bytes, file->size);
        assert_int_equal(utimensat(AT_FDCWD, file->path, times, 0), 0);
        store = fixture_open(patient->build, HW_LOAD_MMAP);
        hw_store_identity(store, before);
        assert_string_not_equal(before, after);
        assert_int_equal(verified(store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
        hw_store_close(store);
        assert_int_equal(unlink(aside), 0);
        free(aside);
    }
}

/* As `cp -a` and `rsync -a` put a file back: in the same inode, with its size and mtime. */
static void a_file_that_is_put_back_with_its_times_is_read_again(void **state) {
    struct ward *ward = *state;
    for (uint32_t i = 0; i < ward->patient->file_count; i++) {
        const struct patient_file *file = &ward->patient->files[i];
        struct stat info;
        assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder),
                         i == 0 ? HW_VERIFIED_NOW : HW_VERIFIED_BEFORE);
        assert_int_equal(stat(file->path, &info), 0);
        const struct timespec times[2] = {info.st_atim, info.st_mtim};
        for (int is_damaged = 1; is_damaged >= 0; is_damaged--) {
            hw_verification found = {.struct_bytes = sizeof found};
            hw_error found_error = {.message = ""};
            (is_damaged ? flip : restore)(file, file->size / 2);
            assert_int_equal(utimensat(AT_FDCWD, file->path, times, 0), 0);
            hw_store_close(ward->store); /* opened again, as by another process */
            ward->store = NULL;
            hw_status status =
                hw_store_open(ward->patient->directory, HW_LOAD_MMAP, &ward->store, &found_error);
            if (status == HW_OK) {
                status = check(ward, HW_VERIFY_ONCE, &found);
            }
            assert_int_equal(status, is_damaged ? HW_BAD_STORE : HW_OK);
        }
    }
}

/* Rot on the disk leaves all times: HW_VERIFY_ONCE believes what it remembers of such a store, and
 * HW_VERIFY_FULL sees and forgets. */
static void a_full_reading_that_finds_damage_forgets(void **state) {
    struct ward *ward = *state;
    const struct patient_file *books = &ward->patient->files[2];
    hw_verification found = {.struct_bytes = sizeof found};
    char identity[33];
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
    flip(books, books->size / 2);
    hw_store_close(ward->store);
    ward->store = fixture_open(ward->patient->directory, HW_LOAD_MMAP);
    hw_store_identity(ward->store, identity);
    free(ward->mark);
    ward->mark = fixture_path(ward->folder, identity);
    damage_write_file(ward->mark, "sound before it rotted\n", 23);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_BEFORE);
    assert_int_equal(check(ward, HW_VERIFY_FULL, &found), HW_BAD_STORE);
    assert_int_equal(size_of(ward->mark), -1);
    assert_int_equal(check(ward, HW_VERIFY_ONCE, &found), HW_BAD_STORE);
    assert_int_equal(size_of(ward->mark), -1);
}

static void only_a_regular_file_is_a_mark(void **state) {
    const struct ward *ward = *state;
    hw_verification found = {.struct_bytes = sizeof found};
    char *target = fixture_path(ward->scratch, "target");
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
    for (int is_there = 0; is_there < 2; is_there++) {
        assert_int_equal(unlink(ward->mark), 0);
        if (is_there) {
            damage_write_file(target, "believe me\n", 11);
        }
        assert_int_equal(symlink(target, ward->mark), 0);
        assert_int_equal(check(ward, HW_VERIFY_ONCE, &found), HW_OK);
        assert_int_equal(found.how, HW_VERIFIED_NOW);
        assert_string_equal(found.not_remembered, strerror(ELOOP));
        assert_int_equal(size_of(target), is_there ? 11 : -1);
    }
    assert_int_equal(unlink(ward->mark), 0);
    assert_int_equal(mkfifo(ward->mark, 0600), 0);
    assert_int_equal(check(ward, HW_VERIFY_ONCE, &found), HW_OK);
    assert_string_equal(found.not_remembered, "its mark is not a regular file");
    free(target);
}

static void a_folder_that_cannot_be_made_is_said(void **state) {
    const struct ward *ward = *state;
    hw_verification found = {.struct_bytes = sizeof found};
    char *file = fixture_path(ward->scratch, "cache");
    damage_write_file(file, "", 0);
    assert_int_equal(check(ward, HW_VERIFY_ONCE, &found), HW_OK);
    assert_int_equal(found.how, HW_VERIFIED_NOW);
    assert_string_equal(found.not_remembered, strerror(ENOTDIR));
    free(file);
}

/* As on a full disk: a file can be made, and not written. */
static void a_mark_that_cannot_be_written_is_said(void **state) {
    const struct ward *ward = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {.rlim_max = RLIM_INFINITY};
        hw_verification found = {.struct_bytes = sizeof found};
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &none);
        hw_status status = check(ward, HW_VERIFY_ONCE, &found);
        _exit(status == HW_OK && found.how == HW_VERIFIED_NOW &&
                      strcmp(found.not_remembered, strerror(EFBIG)) == 0
                  ? 7
                  : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_int_equal(size_of(ward->mark), 0);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_BEFORE);
}

/* ---- interrupts, and others that read ---------------------------------------------------- */

struct watch {
    uint64_t calls, done_bytes, total_bytes;
    int answer;
    char *mark; /* that the callback writes and lets go of */
    int lock;
};

static int watch(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    struct watch *seen = context;
    seen->calls++;
    seen->done_bytes = done_bytes;
    seen->total_bytes = total_bytes;
    if (seen->lock >= 0) {
        damage_write_file(seen->mark, "sound\n", 6);
        close(seen->lock);
        seen->lock = -1;
    }
    return seen->answer;
}

static void a_reading_that_is_interrupted_remembers_nothing(void **state) {
    const struct ward *ward = *state;
    struct watch seen = {.answer = 1, .lock = -1};
    hw_verification found = {.struct_bytes = sizeof found};
    hw_error error = {.message = ""};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ward->store->file_count; i++) {
        bytes += ward->store->files[i].bytes;
    }
    assert_int_equal(hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, watch, &seen,
                                          &found, &error),
                     HW_INTERRUPTED);
    assert_int_equal(seen.calls, 1);
    assert_true(seen.done_bytes > 0 && seen.done_bytes < bytes);
    assert_int_equal(seen.total_bytes, bytes);
    assert_int_equal(size_of(ward->mark), 0);
    seen.answer = 0;
    assert_int_equal(hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, watch, &seen,
                                          &found, &error),
                     HW_OK);
    assert_int_equal(found.how, HW_VERIFIED_NOW);
}

static void whoever_waits_for_a_reading_does_not_read(void **state) {
    const struct ward *ward = *state;
    hw_verification found = {.struct_bytes = sizeof found};
    hw_error error = {.message = ""};
    struct watch seen = {.answer = 1, .mark = ward->mark, .lock = -1};
    assert_int_equal(hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, watch, &seen,
                                          &found, &error),
                     HW_INTERRUPTED);
    /* Somebody reads: holds the lock on the empty mark. */
    seen = (struct watch){.answer = 1, .mark = seen.mark, .lock = -1};
    int lock = open(seen.mark, O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, watch, &seen,
                                          &found, &error),
                     HW_INTERRUPTED);
    assert_int_equal(seen.done_bytes, 0);
    /* And ends well, at the first call. */
    seen = (struct watch){.mark = seen.mark, .lock = lock};
    assert_int_equal(hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, watch, &seen,
                                          &found, &error),
                     HW_OK);
    assert_int_equal(found.how, HW_VERIFIED_BEFORE);
    assert_int_equal(seen.done_bytes, 0);
}

static int end_process(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    assert_true(done_bytes > 0);
    (void)raise(SIGKILL);
    return 0;
}

static void a_process_that_is_killed_leaves_nothing_believed(void **state) {
    const struct ward *ward = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hw_verification found = {.struct_bytes = sizeof found};
        (void)!hw_store_check_files(ward->store, HW_VERIFY_ONCE, ward->folder, end_process, NULL,
                                    &found, NULL);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(size_of(ward->mark), 0);
    assert_int_equal(verified(ward->store, HW_VERIFY_ONCE, ward->folder), HW_VERIFIED_NOW);
}

static void nonsense_is_refused(void **state) {
    const struct ward *ward = *state;
    hw_verification found = {.struct_bytes = sizeof found};
    assert_int_equal(
        hw_store_check_files(ward->store, HW_VERIFY_FULL + 1, NULL, NULL, NULL, &found, NULL),
        HW_BAD_ARGUMENT);
    assert_int_equal(
        hw_store_check_files(ward->store, HW_VERIFY_FULL, NULL, NULL, NULL, NULL, NULL),
        HW_BAD_ARGUMENT);
}

int main(void) {
#define FRESH(test) cmocka_unit_test_setup_teardown(test, admit, discharge)
    const struct CMUnitTest tests[] = {
        FRESH(every_flipped_byte_is_found_and_its_file_named),
        FRESH(every_flipped_byte_of_the_manifest_is_found),
        FRESH(the_message_says_where_and_what_to_do),
        FRESH(a_file_that_became_shorter_is_a_fault),
        FRESH(what_was_replaced_is_read_where_it_is_mapped),
        FRESH(a_store_is_read_once),
        FRESH(another_time_inode_or_size_of_any_file_is_another_store),
        FRESH(a_file_that_is_put_back_with_its_times_is_read_again),
        FRESH(a_full_reading_that_finds_damage_forgets),
        FRESH(only_a_regular_file_is_a_mark),
        FRESH(a_folder_that_cannot_be_made_is_said),
        FRESH(a_mark_that_cannot_be_written_is_said),
        FRESH(a_reading_that_is_interrupted_remembers_nothing),
        FRESH(whoever_waits_for_a_reading_does_not_read),
        FRESH(a_process_that_is_killed_leaves_nothing_believed),
        FRESH(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
