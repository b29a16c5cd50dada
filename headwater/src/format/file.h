/*
 * One file of an open store: mapped (or read into memory), its header and section table proved.
 * Sections are taken in the order in which the writer put them, each with the id, element size and
 * count that the schema demands, so a file that passes has exactly the expected structure.
 */
#ifndef HWI_FILE_H
#define HWI_FILE_H

#include "base/error.h"
#include "format/format.h"
#include "headwater.h"

struct hwi_file {
    char *path;
    int fd; /* of metadata.json, which is not mapped; -1: not open */
    hw_load load;
    uint32_t kind, index;
    const uint8_t *data; /* NULL for metadata.json */
    /* What tells this file, as it was opened, from one of the same name and from a later state. */
    uint64_t bytes, device, inode;
    int64_t written_ns, changed_ns; /* mtime, which anyone can set, and ctime, which nobody can */
    const struct hwi_file_header *header;
    const struct hwi_section_info *sections;
    uint32_t section_count;
    uint32_t next_section; /* the one that hwi_file_section takes next */
};

#define HWI_ANY_COUNT UINT64_MAX

/* Opens <directory>/<name of kind and index>. The caller closes the file whatever the status, after
 * setting fd to -1 and the rest to zero. */
HWI_CHECK hw_status hwi_file_open(struct hwi_file *file, const char *directory, uint32_t kind,
                                  uint32_t index, hw_load load, hw_error *error);
void hwi_file_close(struct hwi_file *file);
/* A descriptor for reading, or -1 with errno. It waits for nobody: a named pipe in the place of a
 * file would keep a caller until a writer comes, and hwi_file_identify then refuses it. */
int hwi_open_to_read(int directory, const char *path);
/* Sets the fields that tell a file from others. */
struct stat;
void hwi_file_tell_apart(struct hwi_file *file, const struct stat *info);
/* The same of an open file, which must be regular. */
HWI_CHECK hw_status hwi_file_identify(struct hwi_file *file, int fd, hw_error *error);
/* The next section, which must have this id, element size and count. */
HWI_CHECK hw_status hwi_file_section(struct hwi_file *file, uint32_t id, uint32_t element_bytes,
                                     uint64_t count, const void **data, uint64_t *actual_count,
                                     hw_error *error);
/* After the last section: there must be no more. */
HWI_CHECK hw_status hwi_file_no_more(const struct hwi_file *file, hw_error *error);
/* HW_BAD_STORE if a mapped file, under its name in the build's directory, has not the size it had.
 * A file that was removed or replaced is whole as long as it is mapped. */
HWI_CHECK hw_status hwi_file_check_size(const struct hwi_file *file, int directory_fd,
                                        hw_error *error);

#endif
