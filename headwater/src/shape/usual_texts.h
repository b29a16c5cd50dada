/*
 * How many rows of texts a batch usually needs: few, as contexts of one batch share texts, and as
 * few contexts have as many as the largest. docs/reference/sampling.md, "Budgets".
 */
#ifndef HWI_USUAL_TEXTS_H
#define HWI_USUAL_TEXTS_H

#include "shape/context_sample.h"

/* With row 0, at most the plan's text_budget; by the plan's shape and text_quota. */
HWI_CHECK hw_status hwi_usual_texts(struct hwi_context_sample *sample, uint32_t *usual_texts,
                                    hw_error *error);

#endif
