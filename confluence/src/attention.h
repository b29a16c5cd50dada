/*
 * Attention among the cells of contexts, on a processor: forward and backward of the three patterns
 * of confluence/attention.py, over the pairs of cells that a pattern allows.
 *
 * Cells of one row, or of one column, are queries with the same keys, a group. structure.c finds
 * the groups of a sequence, kernel.c computes them, ffi.c is called by XLA and shares the contexts
 * of a batch among its threads, each as a batch of one sequence. Each is computed by one thread in
 * one order, so results are the same bits for any number of threads.
 *
 * A foreign key adds its vectors to the keys and values of the rows that it joins; if several join
 * a pair of rows, it is their mean. A row that points at itself is joined to itself.
 *
 * Letters: B sequences, S cells, R rows, P parents of a row, D width, H heads, K = D / H, T kinds
 * of edges.
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
    int64_t batch, cells, rows, parents, width, heads, kinds;
    enum attention_pattern pattern;
    const float *query, *key, *value; /* [B,S,D] before their norms */
    const float *temperature; /* [H] */
    const int32_t *row_ids; /* [B,S] below R where visible */
    const int32_t *column_ids; /* [B,S] */
    const int32_t *parent_rows; /* [B,R,P]; none unless within 0 .. R-1 */
    const int32_t *parent_kinds; /* [B,R,P] of the key; 0, which adds nothing, unless below T */
    const float *kind_key, *kind_value; /* [T,D] added to unit keys, within heads, and to values */
    const uint8_t *is_cell; /* [B,S] 0 at padding, which sees itself */
    float *out; /* [B,S,D] */
    const float *d_out; /* [B,S,D] */
    float *d_query, *d_key, *d_value; /* [B,S,D] */
    float *d_temperature; /* [B,H], a part of each sequence */
    float *d_kind_key, *d_kind_value; /* [B,T,D], of kind 0 all zero */
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

/* Cells of one unit that the cells of another look at, and the edge between them. */
struct attention_run {
    int32_t unit; /* whose cells are keys */
    int32_t child, parent; /* rows that keys of the child join; -1: none does */
    bool has_edge; /* of kernel.c: those keys add something */
};

/* The runs that the cells of a unit look at, each unit once, in `runs` (room for R + 1); how
   many. */
int32_t attention_runs(const struct attention *a, int64_t sequence,
                       const struct attention_groups *g, int32_t unit, struct attention_run *runs);

/* The kinds of the keys that join a child to a parent, in `kinds` (room for P); how many. */
int32_t attention_kinds(const struct attention *a, int64_t sequence, int32_t child, int32_t parent,
                        int32_t *kinds);

/* Do the cells of this unit also look at themselves, beside its keys? */
bool attention_sees_itself(const struct attention *a, int64_t sequence, int32_t unit);

#endif
