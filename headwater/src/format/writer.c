/* Writer of one file of a store; see writer.h. */
#define _DEFAULT_SOURCE 1

#include "format/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "format/file_names.h"

#define WRITER_BUFFER_BYTES (256u << 10)
#define SPILL_STEP_BYTES (1u << 20)

uint64_t hwi_header_checksum(const struct hwi_file_header *header,
                             const struct hwi_section_info *sections) {
    struct hwi_file_header copy = *header;
    struct hwi_hash hash;
    memset(copy.build_id, 0, sizeof copy.build_id);
    copy.header_checksum = 0;
    hwi_hash_init(&hash, 0);
    hwi_hash_update(&hash, &copy, sizeof copy);
    hwi_hash_update(&hash, sections, sizeof *sections * header->section_count);
    return hwi_hash_digest(&hash);
}

static hw_status write_all(struct hwi_writer *writer, const void *data, uint64_t bytes,
                           uint64_t offset, hw_error *error) {
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t written = pwrite(writer->fd, at, (size_t)bytes, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return hwi_fail(error, HW_IO, "cannot write '%s' at byte %llu: %s", writer->path,
                            (unsigned long long)offset, strerror(errno));
        }
        at += written;
        offset += (uint64_t)written;
        bytes -= (uint64_t)written;
    }
    return HW_OK;
}

/* Hashes what was appended since the last time: records and row numbers are short, and a hash of
 * many at once costs less. */
static void hash_buffered(struct hwi_writer *writer) {
    const uint8_t *end = writer->buffer + writer->buffered_bytes;
    hwi_hash_update(&writer->section_hash, end - writer->unhashed_bytes,
                    (size_t)writer->unhashed_bytes);
    writer->unhashed_bytes = 0;
}

static hw_status flush_buffer(struct hwi_writer *writer, hw_error *error) {
    hash_buffered(writer);
    uint64_t offset = writer->file_bytes - writer->buffered_bytes;
    HW_TRY(write_all(writer, writer->buffer, writer->buffered_bytes, offset, error));
    writer->buffered_bytes = 0;
    return HW_OK;
}

/* Bytes of the file outside the hash: the body of append, and gaps. */
static hw_status put(struct hwi_writer *writer, const void *data, uint64_t bytes, hw_error *error) {
    if (bytes > writer->buffer_capacity - writer->buffered_bytes) {
        HW_TRY(flush_buffer(writer, error));
    }
    if (bytes >= writer->buffer_capacity) {
        HW_TRY(write_all(writer, data, bytes, writer->file_bytes, error));
    } else if (bytes > 0) {
        memcpy(writer->buffer + writer->buffered_bytes, data, (size_t)bytes);
        writer->buffered_bytes += bytes;
    }
    writer->file_bytes += bytes;
    return HW_OK;
}

static hw_status pad(struct hwi_writer *writer, hw_error *error) {
    static const uint8_t zeros[HWI_SECTION_ALIGN] = {0};
    uint64_t aligned = hwi_align_up(writer->file_bytes, HWI_SECTION_ALIGN);
    return put(writer, zeros, aligned - writer->file_bytes, error);
}

hw_status hwi_writer_open(struct hwi_writer *writer, const char *directory, uint32_t kind,
                          uint32_t index, uint32_t section_capacity, hw_error *error) {
    char name[HWI_FILE_NAME_BYTES];
    hwi_file_name(kind, index, name);
    size_t path_bytes = strlen(directory) + strlen(name) + 2;
    size_t table_bytes = sizeof *writer->sections * ((size_t)section_capacity + 1);
    *writer = (struct hwi_writer){.fd = -1, .kind = kind, .index = index};
    writer->section_capacity = section_capacity;
    writer->path = malloc(path_bytes);
    writer->sections = calloc(1, table_bytes);
    writer->buffer = malloc(WRITER_BUFFER_BYTES);
    if (writer->path == NULL || writer->sections == NULL || writer->buffer == NULL) {
        hwi_writer_abandon(writer);
        return hwi_no_memory(error, "the writer of a store file", table_bytes + path_bytes);
    }
    writer->buffer_capacity = WRITER_BUFFER_BYTES;
    snprintf(writer->path, path_bytes, "%s/%s", directory, name);
    writer->fd = open(writer->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (writer->fd < 0) {
        hw_status status =
            hwi_fail(error, HW_IO, "cannot create '%s': %s", writer->path, strerror(errno));
        hwi_writer_abandon(writer);
        return status;
    }
    /* The header's place; a hole until close writes it. */
    writer->file_bytes =
        hwi_align_up(sizeof(struct hwi_file_header) +
                         sizeof(struct hwi_section_info) * (uint64_t)section_capacity,
                     HWI_SECTION_ALIGN);
    return HW_OK;
}

hw_status hwi_writer_begin(struct hwi_writer *writer, uint32_t section_id, uint32_t element_bytes,
                           hw_error *error) {
    assert(!writer->in_section && element_bytes > 0);
    assert(writer->section_count < writer->section_capacity);
    HW_TRY(pad(writer, error));
    struct hwi_section_info *section = &writer->sections[writer->section_count++];
    section->id = section_id;
    section->element_bytes = element_bytes;
    section->offset = writer->file_bytes;
    writer->section_bytes = 0;
    writer->in_section = 1;
    hwi_hash_init(&writer->section_hash, 0);
    return HW_OK;
}

hw_status hwi_writer_append(struct hwi_writer *writer, const void *data, uint64_t bytes,
                            hw_error *error) {
    assert(writer->in_section);
    writer->section_bytes += bytes;
    if (bytes >= writer->buffer_capacity) {
        hash_buffered(writer);
        hwi_hash_update(&writer->section_hash, data, (size_t)bytes);
        return put(writer, data, bytes, error);
    }
    HW_TRY(put(writer, data, bytes, error));
    writer->unhashed_bytes += bytes;
    return HW_OK;
}

hw_status hwi_writer_end(struct hwi_writer *writer, hw_error *error) {
    struct hwi_section_info *section = &writer->sections[writer->section_count - 1];
    assert(writer->in_section && writer->section_bytes % section->element_bytes == 0);
    hash_buffered(writer);
    section->count = writer->section_bytes / section->element_bytes;
    section->checksum = hwi_hash_digest(&writer->section_hash);
    writer->in_section = 0;
    return pad(writer, error);
}

hw_status hwi_writer_section(struct hwi_writer *writer, uint32_t section_id, uint32_t element_bytes,
                             const void *data, uint64_t count, hw_error *error) {
    HW_TRY(hwi_writer_begin(writer, section_id, element_bytes, error));
    HW_TRY(hwi_writer_append(writer, data, element_bytes * count, error));
    return hwi_writer_end(writer, error);
}

hw_status hwi_writer_spill(struct hwi_writer *writer, uint32_t section_id, uint32_t element_bytes,
                           struct hwi_spill *spill, uint64_t count, hw_error *error) {
    uint64_t bytes = element_bytes * count;
    HW_TRY(hwi_writer_begin(writer, section_id, element_bytes, error));
    for (uint64_t done = 0; done < bytes;) {
        uint64_t step = bytes - done < SPILL_STEP_BYTES ? bytes - done : SPILL_STEP_BYTES;
        HW_TRY(hwi_writer_append(writer, spill->data + done, step, error));
        done += step;
        hwi_spill_pass(spill, done);
    }
    return hwi_writer_end(writer, error);
}

hw_status hwi_writer_close(struct hwi_writer *writer, hw_status status, struct hwi_file_info *info,
                           hw_error *error) {
    if (status != HW_OK) {
        hwi_writer_abandon(writer);
        return status;
    }
    struct hwi_file_header header = {
        .magic = HWI_MAGIC,
        .version = HWI_FORMAT_VERSION,
        .byte_order = HWI_BYTE_ORDER,
        .kind = writer->kind,
        .index = writer->index,
        .file_bytes = writer->file_bytes,
        .section_count = writer->section_count,
    };
    assert(!writer->in_section && writer->section_count == writer->section_capacity);
    header.header_checksum = hwi_header_checksum(&header, writer->sections);
    status = flush_buffer(writer, error);
    if (status == HW_OK) {
        status = write_all(writer, writer->sections,
                           sizeof *writer->sections * writer->section_count, sizeof header, error);
    }
    if (status == HW_OK) {
        status = write_all(writer, &header, sizeof header, 0, error);
    }
    /* A file without sections, or with an odd number, ends in the header's padding. */
    if (status == HW_OK && ftruncate(writer->fd, (off_t)writer->file_bytes) != 0) {
        status = hwi_fail(error, HW_IO, "cannot set the size of '%s': %s", writer->path,
                          strerror(errno));
    }
    if (status == HW_OK) {
        int fd = writer->fd;
        writer->fd = -1;
        if (close(fd) != 0) {
            status = hwi_fail(error, HW_IO, "cannot close '%s': %s", writer->path, strerror(errno));
        }
    }
    if (status == HW_OK) {
        *info = (struct hwi_file_info){.kind = header.kind,
                                       .index = header.index,
                                       .file_bytes = header.file_bytes,
                                       .checksum = header.header_checksum};
    }
    hwi_writer_abandon(writer);
    return status;
}

void hwi_writer_abandon(struct hwi_writer *writer) {
    if (writer->path != NULL && writer->fd >= 0) {
        close(writer->fd);
    }
    free(writer->path);
    free(writer->sections);
    free(writer->buffer);
    *writer = (struct hwi_writer){.fd = -1};
}
