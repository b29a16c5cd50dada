/* Which arrays the batches of a plan have, and where they lie in their memory. */
#ifndef HWI_BATCH_LAYOUT_H
#define HWI_BATCH_LAYOUT_H

#include "plan/plan.h"

/* Decides it, once the shape is known. */
HWI_CHECK hw_status hwi_fields_plan(struct hwi_plan *plan, hw_error *error);

#endif
