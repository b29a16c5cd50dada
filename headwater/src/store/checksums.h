/*
 * Proof by checksums that the files of a store hold what its build wrote. Every byte is covered:
 * headers and section tables are proved at open, sections have a checksum each, gaps are zero,
 * schema.bin lists the checksum of metadata.json, and manifest.json follows from schema.bin.
 */
#ifndef HWI_CHECKSUMS_H
#define HWI_CHECKSUMS_H

#include "store/store.h"

/* HW_BAD_STORE with the first fault in the sections and gaps of a file that is in memory. */
HWI_CHECK hw_status hwi_file_check_contents(const struct hwi_file *file, hw_error *error);

/* Who is told of a reading. */
struct hwi_listener {
    hw_fault_callback fault;
    void *fault_context;
    int ends_at_fault; /* the first one is enough */
    hw_progress_callback progress; /* NULL: nobody watches */
    void *progress_context;
};

/*
 * Reads all files. Those that are mapped are read through a descriptor as long as they have their
 * name, so that a disk that cannot read and a file that becomes shorter are faults, not a SIGBUS.
 * HW_INTERRUPTED if the progress callback asked for it, HW_NO_MEMORY.
 */
HWI_CHECK hw_status hwi_store_check_contents(const hw_store *store,
                                             const struct hwi_listener *listener, hw_error *error);

#endif
