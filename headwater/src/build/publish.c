/* Build directories, the manifest, the fingerprint; see publish.h. */
#define _DEFAULT_SOURCE 1

#include "build/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "format/writer.h"
#include "store/ownership.h"

#define MANIFEST_LINE_BYTES 160u

hw_status hwi_path_join(const char *directory, const char *name, char **path, hw_error *error) {
    size_t bytes = strlen(directory) + strlen(name) + 2;
    *path = malloc(bytes);
    if (*path == NULL) {
        return hwi_no_memory(error, "a path", bytes);
    }
    snprintf(*path, bytes, "%s/%s", directory, name);
    return HW_OK;
}

hw_status hwi_sync_path(const char *path, hw_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return hwi_fail(error, HW_IO, "cannot open '%s': %s", path, strerror(errno));
    }
    hw_status status = HW_OK;
    if (fsync(fd) != 0) {
        status = hwi_fail(error, HW_IO, "cannot sync '%s': %s", path, strerror(errno));
    }
    close(fd);
    return status;
}

static hw_status make_folder(const char *directory, const char *name, hw_error *error) {
    char *path = NULL;
    HW_TRY(hwi_path_join(directory, name, &path, error));
    hw_status status = HW_OK;
    if (mkdir(path, 0777) != 0) {
        status = hwi_fail(error, HW_IO, "cannot create '%s': %s", path, strerror(errno));
    }
    free(path);
    return status;
}

hw_status hwi_build_directory_create(const char *directory, char **copy, hw_error *error) {
    char *path = strdup(directory);
    if (path == NULL) {
        return hwi_no_memory(error, "a path", strlen(directory));
    }
    if (mkdir(directory, 0777) != 0) {
        hw_status status =
            hwi_fail(error, HW_IO, "cannot create '%s': %s", directory, strerror(errno));
        free(path);
        return status;
    }
    *copy = path; /* from here on the builder removes it */
    HW_TRY(make_folder(directory, "tables", error));
    return make_folder(directory, "tasks", error);
}

void hwi_build_directory_remove(const char *directory) {
    hwi_remove_own_files(AT_FDCWD, directory);
}

hw_status hwi_store_directory_create(const char *directory, hw_error *error) {
    struct stat info;
    if (mkdir(directory, 0777) != 0 &&
        (errno != EEXIST || stat(directory, &info) != 0 || !S_ISDIR(info.st_mode))) {
        return hwi_fail(error, HW_IO, "cannot create '%s': %s", directory, strerror(errno));
    }
    return HW_OK;
}

/* A build goes by one rename, so that one that is killed here leaves nothing half-removed. */
static void remove_build(int store, const char *name, const char *vacant) {
    if (renameat(store, name, AT_FDCWD, vacant) == 0) {
        hwi_remove_own_files(AT_FDCWD, vacant);
    } else {
        hwi_remove_own_files(store, name);
    }
}

void hwi_remove_other_builds(const char *store_path, const char *fingerprint, const char *vacant) {
    DIR *folder = opendir(store_path);
    if (folder == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (hwi_is_fingerprint(entry->d_name) && entry->d_name[32] == 0 &&
            strcmp(entry->d_name, fingerprint) != 0 &&
            hwi_is_own_build(dirfd(folder), entry->d_name)) {
            remove_build(dirfd(folder), entry->d_name, vacant);
        }
    }
    closedir(folder);
}

static size_t manifest_line(char *at, size_t capacity, const struct hwi_file_info *file,
                            const char *comma) {
    char name[HWI_FILE_NAME_BYTES];
    hwi_file_name(file->kind, file->index, name);
    return (size_t)snprintf(
        at, capacity, "    {\"path\": \"%s\", \"bytes\": %llu, \"checksum\": \"%016llx\"}%s\n",
        name, (unsigned long long)file->file_bytes, (unsigned long long)file->checksum, comma);
}

hw_status hwi_manifest_text(const char *fingerprint, const struct hwi_file_info *files,
                            uint32_t file_count, const struct hwi_file_info *schema, char **text,
                            size_t *bytes, hw_error *error) {
    size_t capacity = MANIFEST_LINE_BYTES * ((size_t)file_count + 3);
    char *at = malloc(capacity);
    if (at == NULL) {
        return hwi_no_memory(error, "the manifest", capacity);
    }
    size_t used = (size_t)snprintf(at, capacity,
                                   "{\n  \"format_version\": %u,\n  \"byte_order\": \"little\",\n"
                                   "  \"fingerprint\": \"%s\",\n  \"files\": [\n",
                                   HWI_FORMAT_VERSION, fingerprint);
    for (uint32_t i = 0; i < file_count; i++) {
        used += manifest_line(at + used, capacity - used, &files[i], ",");
    }
    used += manifest_line(at + used, capacity - used, schema, "");
    used += (size_t)snprintf(at + used, capacity - used, "  ]\n}\n");
    *text = at;
    *bytes = used;
    return HW_OK;
}

/* Writes a new file, which must not exist: what stands there is not ours, nor is what a link there
 * leads to. */
static hw_status write_synced(const char *path, const char *text, size_t bytes, hw_error *error) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    hw_status status = HW_OK;
    if (fd < 0) {
        return hwi_fail(error, HW_IO, "cannot create '%s': %s", path, strerror(errno));
    }
    while (bytes > 0 && status == HW_OK) {
        ssize_t written = write(fd, text, bytes);
        if (written > 0) {
            text += written;
            bytes -= (size_t)written;
        } else if (errno != EINTR) {
            status = hwi_fail(error, HW_IO, "cannot write '%s': %s", path, strerror(errno));
        }
    }
    if (status == HW_OK && fsync(fd) != 0) {
        status = hwi_fail(error, HW_IO, "cannot sync '%s': %s", path, strerror(errno));
    }
    close(fd);
    if (status != HW_OK) {
        unlink(path);
    }
    return status;
}

hw_status hwi_manifest_replace(const char *store_path, const char *vacant, const char *text,
                               size_t bytes, hw_error *error) {
    char *path = NULL;
    size_t beside_bytes = strlen(vacant) + sizeof HWI_MANIFEST_ENDING;
    char *beside = malloc(beside_bytes);
    if (beside == NULL) {
        return hwi_no_memory(error, "a path", beside_bytes);
    }
    snprintf(beside, beside_bytes, "%s%s", vacant, HWI_MANIFEST_ENDING);
    hw_status status = hwi_path_join(store_path, "manifest.json", &path, error);
    if (status == HW_OK) {
        status = write_synced(beside, text, bytes, error);
    }
    if (status == HW_OK && rename(beside, path) != 0) {
        status = hwi_fail(error, HW_IO, "cannot replace '%s': %s", path, strerror(errno));
        unlink(beside);
    }
    if (status == HW_OK) {
        status = hwi_sync_path(store_path, error);
    }
    free(path);
    free(beside);
    return status;
}

void hwi_fingerprint(const struct hwi_file_info *files, uint32_t file_count,
                     uint64_t schema_checksum, uint8_t build_id[16]) {
    char name[HWI_FILE_NAME_BYTES];
    for (uint32_t half = 0; half < 2; half++) {
        struct hwi_hash hash;
        hwi_hash_init(&hash, half);
        for (uint32_t i = 0; i < file_count; i++) {
            hwi_file_name(files[i].kind, files[i].index, name);
            hwi_hash_update(&hash, name, strlen(name) + 1);
            hwi_hash_update(&hash, &files[i].checksum, sizeof files[i].checksum);
        }
        hwi_file_name(HWI_FILE_SCHEMA, 0, name);
        hwi_hash_update(&hash, name, strlen(name) + 1);
        hwi_hash_update(&hash, &schema_checksum, sizeof schema_checksum);
        uint64_t digest = hwi_hash_digest(&hash);
        for (uint32_t byte = 0; byte < 8; byte++) { /* as the number is written in hex */
            build_id[8 * half + byte] = (uint8_t)(digest >> (56 - 8 * byte));
        }
    }
}

void hwi_fingerprint_text(const uint8_t build_id[16], char text[33]) {
    for (int i = 0; i < 16; i++) {
        snprintf(text + 2 * i, 3, "%02x", build_id[i]);
    }
}

int hwi_is_fingerprint(const char *text) {
    for (int i = 0; i < 32; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) {
            return 0; /* also at a terminating zero */
        }
    }
    return 1;
}
