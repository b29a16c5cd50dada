/*
 * Writer of one file of a store (format.h): sections one after the other, each hashed while it
 * passes, the header and the section table last. Nothing is held but a buffer; a section may be of
 * any size, and its count follows from what was appended.
 */
#ifndef HWI_WRITER_H
#define HWI_WRITER_H

#include "base/error.h"
#include "base/hash.h"
#include "base/spill.h"
#include "format/format.h"
#include "headwater.h"

struct hwi_writer {
    int fd;
    char *path;
    uint32_t kind, index;
    struct hwi_section_info *sections; /* [section_capacity] */
    uint32_t section_capacity, section_count;
    uint8_t in_section;
    uint64_t section_bytes;
    struct hwi_hash section_hash;
    uint8_t *buffer;
    uint64_t buffered_bytes, buffer_capacity;
    uint64_t unhashed_bytes; /* at the end of the buffer, that section_hash has not seen */
    uint64_t file_bytes; /* written and buffered */
};

/* XXH64 of the header without build_id and checksum, and of the section table. */
uint64_t hwi_header_checksum(const struct hwi_file_header *header,
                             const struct hwi_section_info *sections);

/* All-zero is an empty writer, which may be abandoned. */
HWI_CHECK hw_status hwi_writer_open(struct hwi_writer *writer, const char *directory, uint32_t kind,
                                    uint32_t index, uint32_t section_capacity, hw_error *error);
HWI_CHECK hw_status hwi_writer_begin(struct hwi_writer *writer, uint32_t section_id,
                                     uint32_t element_bytes, hw_error *error);
HWI_CHECK hw_status hwi_writer_append(struct hwi_writer *writer, const void *data, uint64_t bytes,
                                      hw_error *error);
HWI_CHECK hw_status hwi_writer_end(struct hwi_writer *writer, hw_error *error);
/* begin, append, end. */
HWI_CHECK hw_status hwi_writer_section(struct hwi_writer *writer, uint32_t section_id,
                                       uint32_t element_bytes, const void *data, uint64_t count,
                                       hw_error *error);
/* A section from a spill, whose pages are handed back on the way. */
HWI_CHECK hw_status hwi_writer_spill(struct hwi_writer *writer, uint32_t section_id,
                                     uint32_t element_bytes, struct hwi_spill *spill,
                                     uint64_t count, hw_error *error);
/* With status HW_OK, writes the header and closes; *info receives the file's entry in FILES. With
 * another one, of a failure before, abandons the file and returns it. */
HWI_CHECK hw_status hwi_writer_close(struct hwi_writer *writer, hw_status status,
                                     struct hwi_file_info *info, hw_error *error);
/* Closes without finishing; what was written stays for the caller to remove. */
void hwi_writer_abandon(struct hwi_writer *writer);

#endif
