/* What every sampler must survive, whatever its layout. */
#ifndef ENDINGS_H
#define ENDINGS_H

#include "headwater.h"

/* A child of fork() is refused by name and may let go of what it has; the sampler then goes on. */
void ending_fork(hw_sampler *sampler);
/* Shuts the sampler down after so many microseconds, while three threads take batches of train:
 * each ends with HW_SHUT_DOWN. */
void ending_shutdown(hw_sampler *sampler, uint32_t microseconds);

#endif
