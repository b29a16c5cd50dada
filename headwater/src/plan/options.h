/* The options of a sampler as data, and their checks. */
#ifndef HWI_OPTIONS_H
#define HWI_OPTIONS_H

#include "base/error.h"

#define HWI_MAX_SEQUENCE 65535u
#define HWI_MAX_BATCH 65536u
#define HWI_LEVEL_BLOCK 32u /* of the flat layout, by default */
#define HWI_MAX_LEVEL_BLOCK 128u
#define HWI_MAX_LEVEL_PARTS 4096u
#define HWI_MAX_THREADS 256u
#define HWI_MAX_PREFETCH 1024
#define HWI_MAX_CHILD_WIDTH 4096u
#define HWI_MAX_PEER_LABELS 1024u
#define HWI_MAX_STALE_DAYS 49710u /* in seconds it has 32 bits */

/* The caller's options, with the defaults for those that its header does not know. HW_BAD_ARGUMENT
 * as hwi_take_struct, and if a list is NULL that has a number of entries. */
HWI_CHECK hw_status hwi_options_copy(const hw_sampler_options *options, hw_sampler_options *copy,
                                     hw_error *error);
/* Sets options that are 0, where 0 is no value of theirs, to their defaults; HW_BAD_ARGUMENT for a
 * value out of its range, or that does not go with another. */
HW_CHECK hw_status hwi_options_settle(hw_sampler_options *options, hw_error *error);

#endif
