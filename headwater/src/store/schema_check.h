/* Proof that a schema is consistent with itself; everything else at open rests on it. */
#ifndef HWI_SCHEMA_CHECK_H
#define HWI_SCHEMA_CHECK_H

#include "base/error.h"
#include "format/format.h"

/* Sections of schema.bin, their counts proved equal to those of info. */
struct hwi_schema {
    const char *path;
    const struct hwi_store_info *info;
    const struct hwi_table_info *tables;
    const struct hwi_column_info *columns;
    const struct hwi_key_info *keys;
    const uint32_t *key_columns;
    uint64_t key_column_count;
    const struct hwi_task_info *tasks;
    const uint32_t *hidden;
    uint64_t hidden_count;
    const struct hwi_file_info *files;
    uint64_t file_count;
    const char *names;
    uint64_t names_bytes;
};

HWI_CHECK hw_status hwi_schema_check(const struct hwi_schema *schema, hw_error *error);

#endif
