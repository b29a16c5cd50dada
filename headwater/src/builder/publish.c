/* Build directories; see publish.h. */
#define _DEFAULT_SOURCE 1

#include "builder/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/file_names.h"
#include "format/manifest.h"
#include "store/ownership.h"

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
