/*
 * The end of a build: the files that needed everything else, the fingerprint, and publication.
 *
 * The fingerprint is computed from the checksums of all files and so from their contents. It is
 * then stamped into every header, where the header's own checksum does not cover it: stamping last
 * changes no checksum. Files are synced before the manifest may name them.
 */
#define _DEFAULT_SOURCE 1

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "builder/builder.h"
#include "builder/publish.h"
#include "format/file_names.h"
#include "format/manifest.h"
#include "store/ownership.h"

static hw_status check_complete(const hw_builder *b, hw_error *error) {
    if (b->written_table_count < b->table_count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the rows of table '%s' were not written",
                        b->tables[b->written_table_count].name);
    }
    for (uint32_t i = 0; i < b->key_count; i++) {
        if (!b->keys[i].written) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "the parents of '%s.%s' were not written",
                            b->tables[b->keys[i].info.child_table].name,
                            b->columns[b->keys[i].columns[0]].name);
        }
    }
    for (uint32_t i = 0; i < b->task_count; i++) {
        if (!b->tasks[i].written) {
            return hwi_fail(error, HW_BAD_ARGUMENT, "the seeds of task '%s' were not written",
                            b->tasks[i].name);
        }
    }
    return HW_OK;
}

static hw_status write_texts(hw_builder *b, struct hwi_file_info *file, hw_error *error) {
    struct hwi_writer writer = {.fd = -1};
    hw_status status = hwi_writer_open(&writer, b->directory, HWI_FILE_TEXTS, 0, 2, error);
    if (status == HW_OK) {
        status = hwi_writer_spill(&writer, HWI_SECTION(HWI_SECTION_TEXT_OFFSETS, 0), 8,
                                  &b->texts.offsets, (uint64_t)b->texts.count + 1, error);
    }
    if (status == HW_OK) {
        status = hwi_writer_spill(&writer, HWI_SECTION(HWI_SECTION_TEXT_BYTES, 0), 1,
                                  &b->texts.bytes, b->texts.bytes.bytes, error);
    }
    return hwi_writer_close(&writer, status, file, error);
}

static hw_status write_metadata(hw_builder *b, const void *metadata, size_t bytes,
                                struct hwi_file_info *file, hw_error *error) {
    char *path = NULL;
    HW_TRY(hwi_path_join(b->directory, "metadata.json", &path, error));
    hw_status status = HW_OK;
    FILE *stream = fopen(path, "wbe");
    if (stream == NULL || fwrite(metadata, 1, bytes, stream) != bytes || fflush(stream) != 0) {
        status = hwi_fail(error, HW_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    if (stream != NULL && fclose(stream) != 0 && status == HW_OK) {
        status = hwi_fail(error, HW_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    free(path);
    *file = (struct hwi_file_info){
        .kind = HWI_FILE_METADATA, .file_bytes = bytes, .checksum = hw_hash64(metadata, bytes, 0)};
    return status;
}

/* Every file but schema.bin, in the order of FILES. */
static hw_status write_files(hw_builder *b, const void *metadata, size_t metadata_bytes,
                             hw_error *error) {
    uint32_t t = b->table_count, k = b->task_count;
    b->file_count = t + k + 7;
    b->files = calloc(b->file_count, sizeof *b->files);
    if (b->files == NULL) {
        return hwi_no_memory(error, "the list of files", b->file_count * sizeof *b->files);
    }
    struct hwi_file_info *files = b->files;
    HW_TRY(hwi_build_graph(b, &files[t], error));
    for (uint32_t i = 0; i < t; i++) {
        HW_TRY(hwi_build_records(b, i, &files[i], error));
    }
    for (uint32_t i = 0; i < k; i++) {
        files[t + 1 + i] = b->tasks[i].file;
    }
    HW_TRY(hwi_build_vectors(b, &files[t + 1 + k], error));
    HW_TRY(hwi_build_keys_file(b, &files[t + 1 + k + 3], error));
    HW_TRY(write_texts(b, &files[t + 1 + k + 4], error));
    return write_metadata(b, metadata, metadata_bytes, &files[t + 1 + k + 5], error);
}

/* Writes the build id into one file's header and syncs the file. */
static hw_status stamp_file(const hw_builder *b, uint32_t kind, uint32_t index, hw_error *error) {
    char name[HWI_FILE_NAME_BYTES];
    char *path = NULL;
    hwi_file_name(kind, index, name);
    HW_TRY(hwi_path_join(b->directory, name, &path, error));
    hw_status status = HW_OK;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        status = hwi_fail(error, HW_IO, "cannot open '%s': %s", path, strerror(errno));
    }
    if (status == HW_OK && kind != HWI_FILE_METADATA &&
        pwrite(fd, b->build_id, sizeof b->build_id, offsetof(struct hwi_file_header, build_id)) !=
            (ssize_t)sizeof b->build_id) {
        status = hwi_fail(error, HW_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    if (status == HW_OK && fsync(fd) != 0) {
        status = hwi_fail(error, HW_IO, "cannot sync '%s': %s", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return status;
}

static hw_status sync_directory(const hw_builder *b, const char *name, hw_error *error) {
    char *path = NULL;
    HW_TRY(hwi_path_join(b->directory, name, &path, error));
    hw_status status = hwi_sync_path(path, error);
    free(path);
    return status;
}

static hw_status stamp_files(const hw_builder *b, hw_error *error) {
    for (uint32_t i = 0; i < b->file_count; i++) {
        HW_TRY(stamp_file(b, b->files[i].kind, b->files[i].index, error));
    }
    HW_TRY(stamp_file(b, HWI_FILE_SCHEMA, 0, error));
    HW_TRY(sync_directory(b, "tables", error));
    HW_TRY(sync_directory(b, "tasks", error));
    return hwi_sync_path(b->directory, error);
}

hw_status hw_builder_finish(hw_builder *b, const void *metadata, size_t metadata_bytes,
                            char fingerprint[33], hw_error *error) {
    char *own = NULL; /* the metadata.json of a caller who has none */
    HW_TRY(hwi_builder_start_write(b, error));
    HW_TRY(check_complete(b, error));
    if (metadata != NULL && !hwi_is_utf8(metadata, metadata_bytes)) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the metadata are not UTF-8");
    }
    if (metadata == NULL ? metadata_bytes != 0 : metadata_bytes == 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "the metadata are %s and have %llu bytes; NULL and 0: the library's own",
                        metadata == NULL ? "NULL" : "given", (unsigned long long)metadata_bytes);
    }
    hw_status status = hwi_build_missing_vectors(b, error);
    if (status == HW_OK && metadata == NULL) {
        status = hwi_build_metadata(b, &own, &metadata_bytes, error);
        metadata = own;
    }
    if (status == HW_OK) {
        assert(metadata != NULL);
        status = write_files(b, metadata, metadata_bytes, error);
    }
    free(own);
    if (status == HW_OK) {
        status = hwi_build_schema(b, error);
    }
    if (status == HW_OK) {
        hwi_fingerprint(b->files, b->file_count, b->schema_checksum, b->build_id);
        hwi_fingerprint_text(b->build_id, b->fingerprint);
        status = stamp_files(b, error);
    }
    if (status == HW_OK) {
        memcpy(fingerprint, b->fingerprint, sizeof b->fingerprint);
        b->is_finished = 1;
    }
    return hwi_builder_latch(b, status);
}

/* ---- publication ------------------------------------------------------------------------- */

static void count_fault(void *context, const char *message) {
    (void)context;
    (void)message;
}

/* Sets *is_there to 1 if an equal build is already there, whole and undamaged. */
static hw_status find_published(const char *path, const char *fingerprint, int *is_there,
                                hw_error *error) {
    hw_store *store = NULL;
    hw_error reason;
    uint64_t fault_count = 0;
    hw_status status = hw_store_open(path, HW_LOAD_MMAP, &store, &reason);
    if (status == HW_OK) {
        status = hw_store_verify(store, count_fault, NULL, &fault_count, &reason);
    }
    *is_there = status == HW_OK && fault_count == 0 &&
                strcmp(hw_store_fingerprint(store), fingerprint) == 0;
    hw_store_close(store);
    return status == HW_NO_MEMORY ? hwi_fail(error, status, "%s", reason.message) : HW_OK;
}

static hw_status move_build(hw_builder *b, const char *store_path, const char *target,
                            hw_error *error) {
    int is_there = 0;
    HW_TRY(find_published(target, b->fingerprint, &is_there, error));
    if (is_there) {
        hwi_build_directory_remove(b->directory);
        return HW_OK;
    }
    int store = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store < 0) {
        return hwi_fail(error, HW_IO, "cannot open '%s': %s", store_path, strerror(errno));
    }
    /* Same name but damaged: it cannot be what anyone wants to keep. */
    if (hwi_is_own_build(store, b->fingerprint)) {
        hwi_remove_own_files(store, b->fingerprint);
    }
    close(store);
    if (rename(b->directory, target) == 0) {
        return HW_OK;
    }
    if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) {
        return hwi_fail(error, HW_BAD_STORE,
                        "'%s' is not a build, or holds other files too, and is in the way of one: "
                        "move it",
                        target);
    }
    return hwi_fail(error, HW_IO, "cannot rename '%s' to '%s': %s", b->directory, target,
                    strerror(errno));
}

static hw_status write_manifest(const hw_builder *b, const char *store_path, hw_error *error) {
    const struct hwi_file_info schema = {
        .kind = HWI_FILE_SCHEMA, .file_bytes = b->schema_bytes, .checksum = b->schema_checksum};
    char *text = NULL;
    size_t bytes = 0;
    HW_TRY(
        hwi_manifest_text(b->fingerprint, b->files, b->file_count, &schema, &text, &bytes, error));
    hw_status status = hwi_manifest_replace(store_path, b->directory, text, bytes, error);
    free(text);
    return status;
}

hw_status hw_builder_publish(hw_builder *b, const char *store_path, hw_error *error) {
    char *target = NULL;
    if (!b->is_finished || b->is_published) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "a build is published once, after it is finished");
    }
    HW_TRY(hwi_check_replaceable(store_path, error));
    HW_TRY(hwi_store_directory_create(store_path, error));
    HW_TRY(hwi_path_join(store_path, b->fingerprint, &target, error));
    hw_status status =
        move_build(b, store_path, target, error); /* asked again, it finds what it moved */
    if (status == HW_OK) {
        status = hwi_sync_path(store_path, error);
    }
    if (status == HW_OK) {
        status = write_manifest(b, store_path, error);
    }
    if (status == HW_OK) {
        b->is_published = 1;
        hwi_remove_other_builds(store_path, b->fingerprint, b->directory);
    }
    free(target);
    return status;
}
