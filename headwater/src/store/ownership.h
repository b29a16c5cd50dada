/*
 * Which files and folders are a store's own, so that nothing else is ever removed or replaced.
 *
 * A build folder is a store's own if some file in it stands under a name of the format, begins with
 * its magic and has a header of that kind with the folder's name as build id; and if it holds
 * nothing but files under names of the format, and `tables` and `tasks`. So damage and a removal
 * that was killed half-way leave it recognisable, and a single foreign file keeps all of it.
 */
#ifndef HWI_OWNERSHIP_H
#define HWI_OWNERSHIP_H

#include "base/error.h"

/* 1 if the folder `name` (32 hex digits) in the open folder `parent` is a build. Follows no link.
 */
int hwi_is_own_build(int parent, const char *name);
/* Removes the files of a build folder that stand under names of the format, then the folder.
 * Whatever else it holds stays, and so does the folder then. Follows no link. */
void hwi_remove_own_files(int parent, const char *name);
/* HW_BAD_STORE unless a build may be published in `store_path`: its manifest.json, if there is one,
 * is a store's, of a version that may be replaced, and names a build of its own or one that is not
 * there. */
HWI_CHECK hw_status hwi_check_replaceable(const char *store_path, hw_error *error);

#endif
