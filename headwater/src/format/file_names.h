/* The names of the files of a build, and paths to them. */
#ifndef HWI_FILE_NAMES_H
#define HWI_FILE_NAMES_H

#include "base/error.h"

#define HWI_FILE_NAME_BYTES 40u

/* Path of a file inside a build directory, e.g. "tables/00003.bin". */
void hwi_file_name(uint32_t kind, uint32_t index, char name[HWI_FILE_NAME_BYTES]);
/* The files of a build in the order of FILES, metadata.json the last; 0 past the end. */
int hwi_file_at(uint32_t table_count, uint32_t task_count, uint32_t position, uint32_t *kind,
                uint32_t *index);
/* "<directory>/<name>", malloc'ed. */
HWI_CHECK hw_status hwi_path_join(const char *directory, const char *name, char **path,
                                  hw_error *error);

#endif
