/* Names of files; see file_names.h. */
#include "format/file_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"

void hwi_file_name(uint32_t kind, uint32_t index, char name[HWI_FILE_NAME_BYTES]) {
    static const char *const names[] = {
        [HWI_FILE_SCHEMA] = "schema.bin",
        [HWI_FILE_TABLE] = "tables",
        [HWI_FILE_GRAPH] = "graph.bin",
        [HWI_FILE_TASK] = "tasks",
        [HWI_FILE_TEXT_EMBEDDINGS] = "text_embeddings.bin",
        [HWI_FILE_COLUMN_EMBEDDINGS] = "column_embeddings.bin",
        [HWI_FILE_CATEGORY_EMBEDDINGS] = "categorical_embeddings.bin",
        [HWI_FILE_KEYS] = "keys.bin",
        [HWI_FILE_TEXTS] = "texts.bin",
        [HWI_FILE_METADATA] = "metadata.json",
    };
    assert(kind >= HWI_FILE_SCHEMA && kind <= HWI_FILE_METADATA);
    if (kind == HWI_FILE_TABLE || kind == HWI_FILE_TASK) {
        snprintf(name, HWI_FILE_NAME_BYTES, "%s/%05u.bin", names[kind], index);
    } else {
        snprintf(name, HWI_FILE_NAME_BYTES, "%s", names[kind]);
    }
}

int hwi_file_at(uint32_t table_count, uint32_t task_count, uint32_t position, uint32_t *kind,
                uint32_t *index) {
    *index = 0;
    if (position < table_count) {
        *kind = HWI_FILE_TABLE;
        *index = position;
        return 1;
    }
    position -= table_count;
    if (position == 0) {
        *kind = HWI_FILE_GRAPH;
        return 1;
    }
    position -= 1;
    if (position < task_count) {
        *kind = HWI_FILE_TASK;
        *index = position;
        return 1;
    }
    *kind = HWI_FILE_TEXT_EMBEDDINGS + (position - task_count);
    return *kind <= HWI_FILE_METADATA;
}

hw_status hwi_path_join(const char *directory, const char *name, char **path, hw_error *error) {
    size_t bytes = strlen(directory) + strlen(name) + 2;
    *path = malloc(bytes);
    if (*path == NULL) {
        return hwi_no_memory(error, "a path", bytes);
    }
    snprintf(*path, bytes, "%s/%s", directory, name);
    return HW_OK;
}
