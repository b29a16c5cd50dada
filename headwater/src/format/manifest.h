/*
 * manifest.json, the list of a build's files, and the fingerprint, which follows from them and is a
 * build's name.
 */
#ifndef HWI_MANIFEST_H
#define HWI_MANIFEST_H

#include "base/error.h"
#include "format/format.h"

/* The text of manifest.json, one line per file, schema.bin last; *text is malloc'ed.
 * files: FILES, [file_count] */
HWI_CHECK hw_status hwi_manifest_text(const char *fingerprint, const struct hwi_file_info *files,
                                      uint32_t file_count, const struct hwi_file_info *schema,
                                      char **text, size_t *bytes, hw_error *error);
/* The value of a key in the text of a manifest, up to its first character; NULL without the key. */
const char *hwi_manifest_value(const char *text, const char *key);

/* The build id: XXH64 with seeds 0 and 1 over path, zero and checksum of every file in the order of
 * FILES, and schema.bin last. */
void hwi_fingerprint(const struct hwi_file_info *files, uint32_t file_count,
                     uint64_t schema_checksum, uint8_t build_id[16]);
/* 32 lower-case hex digits and a zero. */
void hwi_fingerprint_text(const uint8_t build_id[16], char text[33]);
/* 1 if 32 lower-case hex digits stand at `text`. */
int hwi_is_fingerprint(const char *text);

#endif
