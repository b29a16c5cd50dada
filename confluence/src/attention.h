/*
 * Attention among the cells of contexts, on a processor: forward and backward of the three patterns
 * of confluence/attention.py, over the pairs of cells that a pattern allows.
 *
 * Cells of one row, or of one column, are queries with the same keys, a group. structure.c finds
 * the groups of a sequence, kernel.c computes them, ffi.c is called by XLA and shares the contexts
 * of a batch among its threads, each as a batch of one sequence. Each is computed by one thread in
 * one order, so results are the same bits for any number of threads.
 *
 * Letters: B sequences, S cells, R rows, P parents of a row, D width, H heads, K = D / H.
 */
#ifndef CONFLUENCE_ATTENTION_H
#define CONFLUENCE_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum attention_pattern {
    ATTENTION_OUTBOUND, /* own row, and the rows its foreign keys point at */
    ATTENTION_INBOUND, /* the rows whose foreign keys point at the row, and the cell itself */
    ATTENTION_COLUMN, /* the cells of the same column */
    ATTENTION_PATTERN_COUNT
};

/* One call. Arrays are dense, in row-major order; those of the other direction are NULL. */
struct attention {
    int64_t batch, cells, rows, parents, width, heads;
    enum attention_pattern pattern;
    const float *query, *key, *value; /* [B,S,D] before their norms */
    const float *temperature; /* [H] */
    const int32_t *row_ids; /* [B,S] below R where visible */
    const int32_t *column_ids; /* [B,S] */
    const int32_t *parent_rows; /* [B,R,P]; none unless within 0 .. R-1 */
    const uint8_t *is_cell; /* [B,S] 0 at padding, which sees itself */
    float *out; /* [B,S,D] */
    const float *d_out; /* [B,S,D] */
    float *d_query, *d_key, *d_value; /* [B,S,D] */
    float *d_temperature; /* [B,H], a part of each sequence */
};

/* The groups of one sequence. Units are rows, or columns in the order of their first cells. */
struct attention_groups {
    int32_t unit_count;
    int32_t *starts; /* [units + 1] in `cells` */
    int32_t *cells; /* [S] visible cells by unit */
    int32_t *child_starts; /* [R + 1] in `child_rows`; inbound only */
    int32_t *child_rows; /* [R,P] */
    int32_t *unit_of; /* [S] */
    int32_t *slots; /* hash table of columns, [slot_count] units or -1 */
    int32_t slot_count; /* a power of two */
};

/* Arrays of a workspace begin at multiples of 64 bytes. */
static inline size_t attention_rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Bytes of the workspace that a thread needs, a multiple of 64. */
size_t attention_workspace_bytes(const struct attention *a);

/* One sequence. `workspace` is aligned to 64 bytes. False if a visible cell's row is not below
   R. */
typedef bool attention_sequence(const struct attention *a, int64_t sequence, void *workspace);

/* The same code for the processors of the last decade (AVX2, FMA) and for any.
 */
attention_sequence attention_forward_baseline, attention_backward_baseline;
#if defined(__x86_64__)
attention_sequence attention_forward_v3, attention_backward_v3;
#endif

/* structure.c */
size_t attention_groups_bytes(const struct attention *a);
void attention_groups_place(const struct attention *a, struct attention_groups *g, void *memory);
bool attention_groups_find(const struct attention *a, int64_t sequence, struct attention_groups *g);

/* Cells that the cells of a unit look at, each once, in `keys` (room for S); how many. */
int32_t attention_keys(const struct attention *a, int64_t sequence,
                       const struct attention_groups *g, int32_t unit, int32_t *keys);

/* Do the cells of this unit also look at themselves, beside its keys? */
bool attention_sees_itself(const struct attention *a, int64_t sequence, int32_t unit);

#endif
