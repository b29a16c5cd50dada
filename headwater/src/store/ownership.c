/* What is a store's own; see ownership.h. */
#define _DEFAULT_SOURCE 1

#include "store/ownership.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/file_names.h"
#include "format/manifest.h"

#define MANIFEST_HEAD_BYTES 4096u /* what C reads of a manifest stands within these */
#define INDEX_DIGITS 5u /* in the name of a file of a table or task */

/* ---- files by name ----------------------------------------------------------------------- */

/* The kind and index of a file of a build; 0 if no file has this name. folder: HWI_FILE_TABLE or
 * HWI_FILE_TASK in those folders, else 0. */
static int find_file(uint32_t folder, const char *name, uint32_t *kind, uint32_t *index) {
    char expected[HWI_FILE_NAME_BYTES];
    *index = 0;
    if (folder != 0) {
        *kind = folder;
        if (strspn(name, "0123456789") != INDEX_DIGITS) {
            return 0;
        }
        *index = (uint32_t)strtoul(name, NULL, 10);
        hwi_file_name(folder, *index, expected);
        return strcmp(strchr(expected, '/') + 1, name) == 0;
    }
    for (*kind = HWI_FILE_SCHEMA; *kind <= HWI_FILE_METADATA; ++*kind) {
        if (*kind != HWI_FILE_TABLE && *kind != HWI_FILE_TASK) {
            hwi_file_name(*kind, 0, expected);
            if (strcmp(expected, name) == 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* HWI_FILE_TABLE or HWI_FILE_TASK if the files of that kind are in a folder called `name`. */
static uint32_t find_folder(const char *name) {
    return strcmp(name, "tables") == 0  ? HWI_FILE_TABLE
           : strcmp(name, "tasks") == 0 ? HWI_FILE_TASK
                                        : 0;
}

static int is_entry(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static DIR *open_folder(int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL && fd >= 0) {
        close(fd);
    }
    return folder;
}

/* ---- recognising a build ----------------------------------------------------------------- */

/* 1 if a file has the magic, is of this kind and index, and was stamped with the build id. */
static int has_header(int parent, const char *name, uint32_t kind, uint32_t index,
                      const char *fingerprint) {
    static const uint8_t magic[] = HWI_MAGIC;
    struct hwi_file_header header;
    char stamped[33];
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t bytes = read(fd, &header, sizeof header);
    close(fd);
    if (bytes != (ssize_t)sizeof header || memcmp(header.magic, magic, sizeof header.magic) != 0 ||
        header.kind != kind || header.index != index) {
        return 0;
    }
    hwi_fingerprint_text(header.build_id, stamped);
    return strcmp(stamped, fingerprint) == 0;
}

struct findings {
    const char *fingerprint;
    uint64_t stamped_count; /* files with the magic and the build id */
    uint64_t strange_count; /* what no build writes */
    uint64_t entry_count;
};

/* Looks at the files of one folder; only its `tables` and `tasks` are left to the caller. */
static void look(DIR *folder, uint32_t in, struct findings *found) {
    const struct dirent *entry;
    int fd = dirfd(folder);
    while ((entry = readdir(folder)) != NULL) {
        struct stat info;
        uint32_t kind = 0, index = 0;
        if (!is_entry(entry)) {
            continue;
        }
        found->entry_count++;
        int is_known = fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_known && in == 0 && S_ISDIR(info.st_mode) && find_folder(entry->d_name) != 0) {
            continue;
        }
        if (!is_known || !S_ISREG(info.st_mode) || !find_file(in, entry->d_name, &kind, &index)) {
            found->strange_count++;
        } else if (kind != HWI_FILE_METADATA) {
            found->stamped_count +=
                (uint64_t)has_header(fd, entry->d_name, kind, index, found->fingerprint);
        }
    }
}

/* 0 if there is no such folder. */
static int look_into(int parent, const char *name, struct findings *found) {
    static const char *const inner[] = {"tables", "tasks"};
    DIR *folder = open_folder(parent, name);
    *found = (struct findings){.fingerprint = name};
    if (folder == NULL) {
        return 0;
    }
    look(folder, 0, found);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        DIR *within = open_folder(dirfd(folder), inner[i]);
        if (within != NULL) {
            look(within, find_folder(inner[i]), found);
            closedir(within);
        } else if (errno != ENOENT) {
            found->strange_count++;
        }
    }
    closedir(folder);
    return 1;
}

int hwi_is_own_build(int parent, const char *name) {
    struct findings found;
    return look_into(parent, name, &found) && found.stamped_count > 0 && found.strange_count == 0;
}

/* 1 unless a manifest that names this folder cannot be a store's: what is not there or empty may
 * have been removed, and a file that someone put into a build makes it no less a build. */
static int may_be_named(int folder, const char *fingerprint) {
    struct findings found;
    struct stat info;
    if (fstatat(folder, fingerprint, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    return look_into(folder, fingerprint, &found) &&
           (found.stamped_count > 0 || found.entry_count == 0);
}

/* ---- removing one ------------------------------------------------------------------------ */

/* schema.bin goes last: as long as it is there, a removal that was killed can be taken up. */
static void remove_files(DIR *folder, uint32_t in) {
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        uint32_t kind = 0, index = 0;
        if (find_file(in, entry->d_name, &kind, &index) && kind != HWI_FILE_SCHEMA) {
            unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    if (in == 0) {
        unlinkat(dirfd(folder), "schema.bin", 0);
    }
}

void hwi_remove_own_files(int parent, const char *name) {
    static const char *const inner[] = {"tables", "tasks"};
    DIR *folder = open_folder(parent, name);
    if (folder == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        DIR *within = open_folder(dirfd(folder), inner[i]);
        if (within != NULL) {
            remove_files(within, find_folder(inner[i]));
            closedir(within);
            unlinkat(dirfd(folder), inner[i], AT_REMOVEDIR);
        }
    }
    remove_files(folder, 0);
    closedir(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* ---- the manifest ------------------------------------------------------------------------ */

/* Reads the beginning of manifest.json; *is_there is 0 without one, 2 if it is no regular file. */
static hw_status read_head(int folder, const char *store_path, char head[MANIFEST_HEAD_BYTES + 1],
                           int *is_there, hw_error *error) {
    struct stat info;
    *is_there = 0;
    if (fstatat(folder, "manifest.json", &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? HW_OK
                               : hwi_fail(error, HW_IO, "cannot stat '%s/manifest.json': %s",
                                          store_path, strerror(errno));
    }
    *is_there = 2;
    if (!S_ISREG(info.st_mode)) {
        return HW_OK;
    }
    int fd = openat(folder, "manifest.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, head, MANIFEST_HEAD_BYTES) : -1;
    if (count < 0) {
        hw_status status = hwi_fail(error, HW_IO, "cannot read '%s/manifest.json': %s", store_path,
                                    strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    close(fd);
    head[count] = 0;
    *is_there = 1;
    return HW_OK;
}

static hw_status check_head(int folder, const char *store_path, const char *head, hw_error *error) {
    static const char little[] = "\"little\"";
    const char *version_text = hwi_manifest_value(head, "format_version");
    const char *order = hwi_manifest_value(head, "byte_order");
    const char *named = hwi_manifest_value(head, "fingerprint");
    const char *files = hwi_manifest_value(head, "files");
    unsigned long version = version_text == NULL ? 0 : strtoul(version_text, NULL, 10);
    char fingerprint[33];
    if (version == 0 || order == NULL || strncmp(order, little, strlen(little)) != 0 ||
        named == NULL || *named != '"' || !hwi_is_fingerprint(named + 1) || named[33] != '"' ||
        files == NULL || *files != '[') {
        return hwi_fail(error, HW_BAD_STORE,
                        "'%s' is not a store: its manifest.json is not that of a store; choose "
                        "another folder",
                        store_path);
    }
    if (version > HWI_FORMAT_VERSION) {
        return hwi_fail(error, HW_BAD_STORE,
                        "'%s' is a store of format version %lu, this headwater writes version %u; "
                        "choose another folder",
                        store_path, version, HWI_FORMAT_VERSION);
    }
    memcpy(fingerprint, named + 1, 32);
    fingerprint[32] = 0;
    if (!may_be_named(folder, fingerprint)) {
        return hwi_fail(error, HW_BAD_STORE,
                        "'%s' is not a store: '%s', which its manifest.json names, is not a build; "
                        "choose another folder",
                        store_path, fingerprint);
    }
    return HW_OK;
}

hw_status hwi_check_replaceable(const char *store_path, hw_error *error) {
    int is_there = 0;
    int folder = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        return errno == ENOENT
                   ? HW_OK
                   : hwi_fail(error, HW_IO, "cannot open '%s': %s", store_path, strerror(errno));
    }
    char *head = malloc(MANIFEST_HEAD_BYTES + 1);
    hw_status status = head != NULL ? read_head(folder, store_path, head, &is_there, error)
                                    : hwi_no_memory(error, "the manifest", MANIFEST_HEAD_BYTES);
    if (status == HW_OK && is_there == 2) {
        status = hwi_fail(error, HW_BAD_STORE,
                          "'%s' is not a store: its manifest.json is not a regular file; choose "
                          "another folder",
                          store_path);
    }
    if (status == HW_OK && is_there == 1) {
        status = check_head(folder, store_path, head, error);
    }
    free(head);
    close(folder);
    return status;
}
