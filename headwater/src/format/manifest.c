/* The manifest and the fingerprint; see manifest.h. */
#include "format/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "format/file_names.h"

#define MANIFEST_LINE_BYTES 160u

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

const char *hwi_manifest_value(const char *text, const char *key) {
    size_t bytes = strlen(key);
    for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
        if (at > text && at[-1] == '"' && at[bytes] == '"') {
            at += bytes + 1;
            at += strspn(at, " \t\r\n");
            at += *at == ':';
            return at + strspn(at, " \t\r\n");
        }
    }
    return NULL;
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
