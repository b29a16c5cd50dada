/* One file of an open store; see file.h. */
#define _DEFAULT_SOURCE 1

#include "format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "format/file_names.h"
#include "format/writer.h"

static hw_status bad_file(const struct hwi_file *file, uint64_t byte, hw_error *error,
                          const char *what) {
    return hwi_fail(error, HW_BAD_STORE, "%s (in '%s', byte %llu)", what, file->path,
                    (unsigned long long)byte);
}

static int is_in_memory(const struct hwi_file *file) {
    return file->load != HW_LOAD_MMAP;
}

static hw_status read_all(struct hwi_file *file, hw_error *error) {
    uint8_t *data = hwi_pages_open(file->bytes);
    if (data == NULL) {
        return hwi_no_memory(error, "a store file in RAM (load = mmap needs none)", file->bytes);
    }
    file->data = data;
    for (uint64_t done = 0; done < file->bytes;) {
        ssize_t count = pread(file->fd, data + done, (size_t)(file->bytes - done), (off_t)done);
        if (count > 0) {
            done += (uint64_t)count;
        } else if (count == 0) {
            return bad_file(file, done, error, "the file became shorter while it was read");
        } else if (errno != EINTR) {
            return hwi_fail(error, HW_IO, "cannot read '%s': %s", file->path, strerror(errno));
        }
    }
    return HW_OK;
}

static hw_status map_file(struct hwi_file *file, hw_error *error) {
    if (is_in_memory(file)) {
        return read_all(file, error);
    }
    void *data = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (data == MAP_FAILED) {
        return hwi_fail(error, errno == ENOMEM ? HW_NO_MEMORY : HW_IO, "cannot map '%s': %s",
                        file->path, strerror(errno));
    }
    file->data = data;
    hwi_pages_advise_map(data, file->bytes);
    return HW_OK;
}

static hw_status check_header(struct hwi_file *file, hw_error *error) {
    static const uint8_t magic[] = HWI_MAGIC;
    const struct hwi_file_header *header = (const void *)file->data;
    file->header = header;
    if (memcmp(header->magic, magic, sizeof header->magic) != 0) {
        return bad_file(file, 0, error, "this is not a headwater store file: wrong magic");
    }
    if (header->byte_order != HWI_BYTE_ORDER) {
        return bad_file(file, offsetof(struct hwi_file_header, byte_order), error,
                        "the file has another byte order");
    }
    if (header->version != HWI_FORMAT_VERSION) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the file has format version %u, this headwater reads version %u; "
                        "build the store again (in '%s', byte %u)",
                        header->version, HWI_FORMAT_VERSION, file->path,
                        (unsigned)offsetof(struct hwi_file_header, version));
    }
    if (header->file_bytes != file->bytes) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the file has %llu bytes, its header has %llu (in '%s', byte %u)",
                        (unsigned long long)file->bytes, (unsigned long long)header->file_bytes,
                        file->path, (unsigned)offsetof(struct hwi_file_header, file_bytes));
    }
    if (header->kind != file->kind || header->index != file->index) {
        return bad_file(file, offsetof(struct hwi_file_header, kind), error,
                        "this is another file of a store under a wrong name");
    }
    if (header->section_count > (file->bytes - sizeof *header) / sizeof(struct hwi_section_info)) {
        return bad_file(file, offsetof(struct hwi_file_header, section_count), error,
                        "the section table is longer than the file");
    }
    file->sections = (const void *)(file->data + sizeof *header);
    file->section_count = header->section_count;
    if (hwi_header_checksum(header, file->sections) != header->header_checksum) {
        return bad_file(file, offsetof(struct hwi_file_header, header_checksum), error,
                        "the header or section table is damaged: wrong checksum");
    }
    return HW_OK;
}

/* Sections are aligned, inside the file, ascending and apart. */
static hw_status check_sections(const struct hwi_file *file, hw_error *error) {
    uint64_t end = sizeof(struct hwi_file_header) +
                   sizeof(struct hwi_section_info) * (uint64_t)file->section_count;
    for (uint32_t i = 0; i < file->section_count; i++) {
        const struct hwi_section_info *section = &file->sections[i];
        uint64_t byte = sizeof(struct hwi_file_header) + sizeof *section * (uint64_t)i;
        uint64_t bytes = 0;
        if (section->element_bytes == 0 ||
            hwi_mul_overflows(section->count, section->element_bytes, &bytes)) {
            return bad_file(file, byte, error, "a section has an impossible size");
        }
        if (section->offset % HWI_SECTION_ALIGN != 0 || section->offset < end ||
            section->offset > file->bytes || bytes > file->bytes - section->offset) {
            return bad_file(file, byte, error, "a section lies outside of its place in the file");
        }
        end = section->offset + bytes;
    }
    return HW_OK;
}

static int64_t in_ns(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void hwi_file_tell_apart(struct hwi_file *file, const struct stat *info) {
    file->bytes = (uint64_t)info->st_size;
    file->device = (uint64_t)info->st_dev;
    file->inode = (uint64_t)info->st_ino;
    file->written_ns = in_ns(info->st_mtim);
    file->changed_ns = in_ns(info->st_ctim);
}

int hwi_open_to_read(int directory, const char *path) {
    return openat(directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static const char *kind_of(mode_t mode) {
    return S_ISFIFO(mode)                   ? "named pipe"
           : S_ISDIR(mode)                  ? "folder"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "device"
                                            : "socket";
}

hw_status hwi_file_identify(struct hwi_file *file, int fd, hw_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return hwi_fail(error, HW_IO, "cannot stat '%s': %s", file->path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return hwi_fail(error, HW_BAD_STORE, "this is a %s, not a file (in '%s', byte 0)",
                        kind_of(info.st_mode), file->path);
    }
    hwi_file_tell_apart(file, &info);
    return HW_OK;
}

hw_status hwi_file_open(struct hwi_file *file, const char *directory, uint32_t kind, uint32_t index,
                        hw_load load, hw_error *error) {
    char name[HWI_FILE_NAME_BYTES];
    *file = (struct hwi_file){.fd = -1, .load = load, .kind = kind, .index = index};
    hwi_file_name(kind, index, name);
    HW_TRY(hwi_path_join(directory, name, &file->path, error));
    file->fd = hwi_open_to_read(AT_FDCWD, file->path);
    if (file->fd < 0) {
        return hwi_fail(error, errno == ENOENT || errno == ENOTDIR ? HW_BAD_STORE : HW_IO,
                        "cannot open '%s': %s", file->path, strerror(errno));
    }
    HW_TRY(hwi_file_identify(file, file->fd, error));
    if (kind == HWI_FILE_METADATA) {
        return HW_OK;
    }
    if (file->bytes < sizeof(struct hwi_file_header)) {
        return bad_file(file, file->bytes, error, "the file is truncated: it ends in its header");
    }
    HW_TRY(map_file(file, error));
    /* The map keeps the file; a descriptor for each would meet the limit at a thousand tables. */
    close(file->fd);
    file->fd = -1;
    HW_TRY(check_header(file, error));
    return check_sections(file, error);
}

void hwi_file_close(struct hwi_file *file) {
    if (file->data != NULL && is_in_memory(file)) {
        hwi_pages_close((void *)(uintptr_t)file->data, file->bytes);
    } else if (file->data != NULL) {
        munmap((void *)(uintptr_t)file->data, (size_t)file->bytes);
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    free(file->path);
    *file = (struct hwi_file){.fd = -1};
}

hw_status hwi_file_section(struct hwi_file *file, uint32_t id, uint32_t element_bytes,
                           uint64_t count, const void **data, uint64_t *actual_count,
                           hw_error *error) {
    if (file->next_section >= file->section_count) {
        return hwi_fail(error, HW_BAD_STORE, "section %u.%u is missing (in '%s')", id >> 16,
                        id & 0xffff, file->path);
    }
    const struct hwi_section_info *section = &file->sections[file->next_section];
    uint64_t byte = sizeof(struct hwi_file_header) + sizeof *section * (uint64_t)file->next_section;
    if (section->id != id || section->element_bytes != element_bytes ||
        (count != HWI_ANY_COUNT && section->count != count)) {
        return hwi_fail(error, HW_BAD_STORE,
                        "found section %u.%u with %llu elements of %u bytes, expected %u.%u with "
                        "%llu of %u (in '%s', byte %llu)",
                        section->id >> 16, section->id & 0xffff, (unsigned long long)section->count,
                        section->element_bytes, id >> 16, id & 0xffff,
                        (unsigned long long)(count == HWI_ANY_COUNT ? section->count : count),
                        element_bytes, file->path, (unsigned long long)byte);
    }
    file->next_section++;
    *data = file->data + section->offset;
    if (actual_count != NULL) {
        *actual_count = section->count;
    }
    return HW_OK;
}

hw_status hwi_file_no_more(const struct hwi_file *file, hw_error *error) {
    if (file->next_section != file->section_count) {
        return hwi_fail(error, HW_BAD_STORE, "%u sections too many (in '%s')",
                        file->section_count - file->next_section, file->path);
    }
    return HW_OK;
}

hw_status hwi_file_check_size(const struct hwi_file *file, int directory_fd, hw_error *error) {
    char name[HWI_FILE_NAME_BYTES];
    struct stat info;
    if (is_in_memory(file)) {
        return HW_OK; /* what happens to the file now is of no concern */
    }
    hwi_file_name(file->kind, file->index, name);
    if (fstatat(directory_fd, name, &info, 0) != 0) {
        /* Removed, as by a newer build: the map keeps the file, whole. */
        return errno == ENOENT || errno == ENOTDIR
                   ? HW_OK
                   : hwi_fail(error, HW_IO, "cannot stat '%s': %s", file->path, strerror(errno));
    }
    if ((uint64_t)info.st_dev != file->device || (uint64_t)info.st_ino != file->inode) {
        return HW_OK; /* replaced by another file: the one that is mapped has no name any more */
    }
    if ((uint64_t)info.st_size != file->bytes) {
        return hwi_fail(error, HW_BAD_STORE,
                        "the file has %llu bytes, it had %llu when the store was opened (in '%s')",
                        (unsigned long long)info.st_size, (unsigned long long)file->bytes,
                        file->path);
    }
    return HW_OK;
}
