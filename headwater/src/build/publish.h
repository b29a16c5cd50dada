/*
 * Build directories and the manifest that names the current one: creating, removing, replacing; and
 * the fingerprint, which is a build's name.
 */
#ifndef HWI_PUBLISH_H
#define HWI_PUBLISH_H

#include "base/error.h"
#include "format/format.h"
#include "headwater.h"

/* "<directory>/<name>", malloc'ed. */
HWI_CHECK hw_status hwi_path_join(const char *directory, const char *name, char **path,
                                  hw_error *error);
/* fsync of a file or directory. */
HWI_CHECK hw_status hwi_sync_path(const char *path, hw_error *error);

/* Creates the directory with tables/ and tasks/; *copy receives its path. */
HWI_CHECK hw_status hwi_build_directory_create(const char *directory, char **copy, hw_error *error);
/* Removes the directory of a builder with its files and two folders. What it cannot remove stays: a
 * leftover that is in the way of nothing is better than an error after success. */
void hwi_build_directory_remove(const char *directory);
/* Creates the directory of a store unless it is there. */
HWI_CHECK hw_status hwi_store_directory_create(const char *directory, hw_error *error);
/* Removes the builds of a store that the manifest does not name, if they are its own
 * (store/ownership.h). vacant: a path on the same file system where nothing is. */
void hwi_remove_other_builds(const char *store_path, const char *fingerprint, const char *vacant);

/* The text of manifest.json, one line per file, schema.bin last; *text is malloc'ed.
 * files: FILES, [file_count] */
HWI_CHECK hw_status hwi_manifest_text(const char *fingerprint, const struct hwi_file_info *files,
                                      uint32_t file_count, const struct hwi_file_info *schema,
                                      char **text, size_t *bytes, hw_error *error);
/* Writes manifest.json as a new file `vacant` HWI_MANIFEST_ENDING, syncs it and renames it over the
 * old one. */
#define HWI_MANIFEST_ENDING ".manifest.json"
HWI_CHECK hw_status hwi_manifest_replace(const char *store_path, const char *vacant,
                                         const char *text, size_t bytes, hw_error *error);

/* The build id: XXH64 with seeds 0 and 1 over path, zero and checksum of every file in the order of
 * FILES, and schema.bin last. */
void hwi_fingerprint(const struct hwi_file_info *files, uint32_t file_count,
                     uint64_t schema_checksum, uint8_t build_id[16]);
/* 32 lower-case hex digits and a zero. */
void hwi_fingerprint_text(const uint8_t build_id[16], char text[33]);
/* 1 if 32 lower-case hex digits stand at `text`. */
int hwi_is_fingerprint(const char *text);

#endif
