/*
 * Cell dropout: cells that a train context is made without (docs/reference/sampling.md, "Cell
 * dropout"). The walk is over and its masked cells are chosen: rows, edges and masked cells are
 * those of the whole context. Then the lists of its cells are cut to those that are kept, and the
 * rows move up. O(cells), with two multiplications for the draw of each.
 */
#ifndef HWI_CELL_DROPOUT_H
#define HWI_CELL_DROPOUT_H

#include "walk/context.h"

/* Drops cells of a complete context, once; needs plan->drop_words. Every row of a table lists its
 * cells then, and its counts of children. */
void hwi_drop_cells(struct hwi_context *context);

#endif
