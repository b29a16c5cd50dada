/*
 * Masked cells: cells of a context whose values are taken out of the inputs, for a model to predict
 * (docs/reference/sampling.md, "Masked cells"; docs/reference/batch.md, "Masked cells"). They are
 * chosen when the walk is over, from words of the seed's stream that no walk takes, so that a
 * context holds the same cells with and without. O(cells) with a word for each that may be chosen.
 */
#ifndef HWI_MASKED_CELLS_H
#define HWI_MASKED_CELLS_H

#include "batch/canvas.h"
#include "walk/context.h"

/* Chooses cells of a complete context for context->chosen: each candidate with the probability of
 * the plan, one of them in any case, and of each type the first M. None without mask_words. */
void hwi_masked_choose(struct hwi_context *context);
/* How many cells of the type that has most were chosen; 0 where none are. */
uint32_t hwi_masked_measure(const struct hwi_context *context);
/* Hides the chosen cells of sequence b, which has just been emitted, and writes the lists; texts
 * stay in their cells until they have numbers. */
void hwi_masked_emit(const struct hwi_plan *plan, const struct hwi_context *context,
                     struct hwi_canvas *canvas, uint8_t *slab, uint32_t b);
/* The numbers of texts from the masked cells of sequence b into their list, if there is one. */
void hwi_masked_take_texts(const struct hwi_plan *plan, uint8_t *slab, uint32_t b);
/* Empty lists. */
void hwi_masked_clear(const struct hwi_plan *plan, uint8_t *slab, uint32_t b);

#endif
