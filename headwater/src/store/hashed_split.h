/* The split of a seed that its task gave none. */
#ifndef HWI_HASHED_SPLIT_H
#define HWI_HASHED_SPLIT_H

#include "headwater.h"

/* By hash of the anchor's key, docs/reference/sampling.md, "Splits": the same for each seed of an
 * anchor.
 */
uint8_t hwi_hashed_split(const hw_sampler_options *options, uint64_t key_hash, uint64_t name_hash);

#endif
