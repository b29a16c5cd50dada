/*
 * Build directories and the manifest that names the current one: creating, removing, replacing.
 */
#ifndef HWI_PUBLISH_H
#define HWI_PUBLISH_H

#include "base/error.h"

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

/* Writes manifest.json as a new file `vacant` HWI_MANIFEST_ENDING, syncs it and renames it over the
 * old one. */
#define HWI_MANIFEST_ENDING ".manifest.json"
HWI_CHECK hw_status hwi_manifest_replace(const char *store_path, const char *vacant,
                                         const char *text, size_t bytes, hw_error *error);

#endif
