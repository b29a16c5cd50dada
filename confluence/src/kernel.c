/*
 * The arithmetic. Compiled once for each set of instructions; KERNEL(name) names the result.
 *
 * A query's logit for a key is c·(cos(q, k) + cos(q, e)), c = τ·log(1 + keys), e being the
 * vector of the foreign key between the two rows, if there is one; both c and the logit are cut to
 * ±40, so exp needs no maximum, and total is at least exp(-40). Backward makes the scores again
 * instead of keeping them.
 *
 * Heads are padded to whole vectors in the workspace. Keys and values of a group are also laid out
 * with the keys innermost ("across"), padded to two vectors, so that scores of 16 keys are made at
 * once; sums over keys go through rows of K numbers instead, which are copies where an edge adds to
 * them. Per pair and head that is K products and sums, forward twice and backward five times.
 */
#include "attention.h"

#include <math.h>
#include <string.h>

#ifndef KERNEL
#define KERNEL(name) name##_baseline
#endif

#define LANES 8
#define KEYS_AT_ONCE (2 * LANES)
#define LOGIT_LIMIT 40.0f
#define NORM_FLOOR 1e-6f

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), may_alias));
typedef int32_t integers __attribute__((vector_size(LANES * sizeof(int32_t)), may_alias));

struct workspace {
    struct attention_groups groups;
    struct attention_run *runs; /* [R + 1] of a group */
    int32_t *kinds; /* [P] of one edge */
    int64_t head; /* K, padded to vectors */
    int64_t row; /* H heads of this width */
    int64_t across; /* room for keys of a group, padded */
    float *query, *key, *value; /* [S,row]: unit, unit, as given */
    float *query_size, *key_size; /* [S,H] 1 / max(norm, floor) */
    float *kind_key, *kind_value, *d_kind_key, *d_kind_value; /* [T,row] */
    float *edge_key, *edge_value; /* [row] of one edge, or their gradients */
    float *edge_keys, *edge_values, *d_edge_keys, *d_edge_values; /* [across,row] copies */
    const float **key_at, **value_at; /* [S + 1] of a group: a cell's, or a copy */
    float **d_key_at, **d_value_at; /* [S + 1] */
    float *keys_across, *values_across; /* [row,across] of a group */
    float *is_key; /* [across] 1 or 0 */
    float *logits, *scores, *d_logits; /* [across] */
    float *d_key, *d_value; /* [S,row] */
    float *d_out_head, *d_query_head; /* [head] of one query */
};

static int64_t padded(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

/* Lays the workspace out from `memory`, or only counts its bytes if that is NULL. */
static size_t place(const struct attention *a, struct workspace *w, char *memory) {
    w->head = padded(a->width / a->heads, LANES);
    w->row = w->head * a->heads;
    w->across = padded(a->cells + 1, KEYS_AT_ONCE);
    size_t cells = (size_t)a->cells, heads = (size_t)a->heads;
    size_t matrix = cells * (size_t)w->row, group = (size_t)w->row * (size_t)w->across;
    size_t across = (size_t)w->across, at = attention_groups_bytes(a);
    size_t row = (size_t)w->row, kinds = (size_t)a->kinds * row;
    struct {
        float **array;
        size_t count;
    } parts[] = {
        {&w->query, matrix},
        {&w->key, matrix},
        {&w->value, matrix},
        {&w->query_size, cells * heads},
        {&w->key_size, cells * heads},
        {&w->kind_key, kinds},
        {&w->kind_value, kinds},
        {&w->d_kind_key, kinds},
        {&w->d_kind_value, kinds},
        {&w->edge_key, row},
        {&w->edge_value, row},
        {&w->edge_keys, group},
        {&w->edge_values, group},
        {&w->d_edge_keys, group},
        {&w->d_edge_values, group},
        {&w->keys_across, group},
        {&w->values_across, group},
        {&w->is_key, across},
        {&w->logits, across},
        {&w->scores, across},
        {&w->d_logits, across},
        {&w->d_key, matrix},
        {&w->d_value, matrix},
        {&w->d_out_head, (size_t)w->head},
        {&w->d_query_head, (size_t)w->head},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].array = memory == NULL ? NULL : (float *)(void *)(memory + at);
        at += attention_rounded(parts[i].count * sizeof(float));
    }
    if (memory != NULL) {
        attention_groups_place(a, &w->groups, memory);
        w->runs = (struct attention_run *)(void *)(memory + at);
    }
    at += attention_rounded(((size_t)a->rows + 1) * sizeof *w->runs);
    float ***pointers[] = {(float ***)(void *)&w->key_at, (float ***)(void *)&w->value_at,
                           &w->d_key_at, &w->d_value_at};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        *pointers[i] = memory == NULL ? NULL : (float **)(void *)(memory + at);
        at += attention_rounded((cells + 1) * sizeof(float *));
    }
    if (memory != NULL) {
        w->kinds = (int32_t *)(void *)(memory + at);
    }
    return at + attention_rounded((size_t)a->parents * sizeof *w->kinds);
}

#ifdef KERNEL_OWNS_SIZES
size_t attention_workspace_bytes(const struct attention *a) {
    struct workspace w;
    return place(a, &w, NULL);
}
#endif

/* ---- vectors --------------------------------------------------------------------------------- */

static inline vector all(float x) {
    return (vector){x, x, x, x, x, x, x, x};
}

static inline vector load(const float *x) {
    return *(const vector *)(const void *)x;
}

static inline void store(float *x, vector v) {
    *(vector *)(void *)x = v;
}

static inline float sum(vector v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline vector choose(integers mask, vector yes, vector no) {
    union {
        integers bits;
        vector value;
    } a = {.value = yes}, b = {.value = no};
    a.bits = (a.bits & mask) | (b.bits & ~mask);
    return a.value;
}

/* Within ±40; NaN stays NaN. */
static inline vector cut(vector x) {
    x = choose(x > all(LOGIT_LIMIT), all(LOGIT_LIMIT), x);
    return choose(x < all(-LOGIT_LIMIT), all(-LOGIT_LIMIT), x);
}

/* e^x for |x| <= 87, to about 2 units of the last place: 2^n times a polynomial on ±ln(2)/2. */
static inline vector exponential(vector x) {
    const vector shift = all(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vector n = (x * all(1.44269504f) + shift) - shift;
    vector r = x - n * all(0.693359375f);
    r = r - n * all(-2.12194440e-4f);
    vector p = all(1.0f / 5040);
    p = p * r + all(1.0f / 720);
    p = p * r + all(1.0f / 120);
    p = p * r + all(1.0f / 24);
    p = p * r + all(1.0f / 6);
    p = p * r + all(0.5f);
    p = p * r + all(1.0f);
    p = p * r + all(1.0f);
    integers power = (__builtin_convertvector(n, integers) + 127) << 23;
    union {
        integers bits;
        vector value;
    } scale = {.bits = power};
    return p * scale.value;
}

/* products[j] = x · rows_across[., j] for all keys. */
static inline void products(const float *x, const float *rows_across, int64_t across, int64_t head,
                            int64_t keys, float *result) {
    for (int64_t j = 0; j < keys; j += KEYS_AT_ONCE) {
        vector low = all(0), high = all(0);
        for (int64_t k = 0; k < head; k++) {
            const float *row = rows_across + k * across + j;
            low += all(x[k]) * load(row);
            high += all(x[k]) * load(row + LANES);
        }
        store(result + j, low);
        store(result + j + LANES, high);
    }
}

/* ---- one sequence -------------------------------------------------------------------------- */

/* Vectors of one array into padded heads, as unit vectors if `size` is given. */
static void load_vectors(const struct attention *a, const struct workspace *w, int64_t count,
                         const float *from, float *to, float *size) {
    int64_t head = a->width / a->heads;
    for (int64_t i = 0; i < count * a->heads; i++, from += head, to += w->head) {
        float factor = 1.0f;
        if (size != NULL) {
            float square = 0.0f;
            for (int64_t k = 0; k < head; k++) {
                square += from[k] * from[k];
            }
            float norm = sqrtf(square);
            factor = size[i] = 1.0f / (norm < NORM_FLOOR ? NORM_FLOOR : norm);
        }
        for (int64_t k = 0; k < head; k++) {
            to[k] = from[k] * factor;
        }
        for (int64_t k = head; k < w->head; k++) {
            to[k] = 0.0f;
        }
    }
}

static bool begin(const struct attention *a, int64_t sequence, struct workspace *w, void *memory) {
    int64_t at = sequence * a->cells * a->width;
    place(a, w, memory);
    load_vectors(a, w, a->cells, a->query + at, w->query, w->query_size);
    load_vectors(a, w, a->cells, a->key + at, w->key, w->key_size);
    load_vectors(a, w, a->cells, a->value + at, w->value, NULL);
    load_vectors(a, w, a->kinds, a->kind_key, w->kind_key, NULL);
    load_vectors(a, w, a->kinds, a->kind_value, w->kind_value, NULL);
    return attention_groups_find(a, sequence, &w->groups);
}

static inline void add_scaled(const struct workspace *w, float *to, const float *from, float by) {
    for (int64_t d = 0; d < w->row; d += LANES) {
        store(to + d, load(to + d) + all(by) * load(from + d));
    }
}

/* The vectors that an edge adds, in w->edge_key and w->edge_value; false if that is nothing. */
static bool read_edge(const struct attention *a, int64_t sequence, const struct workspace *w,
                      const struct attention_run *run) {
    int32_t count = 0, most = 0;
    if (run->child >= 0) {
        count = attention_kinds(a, sequence, run->child, run->parent, w->kinds);
    }
    for (int32_t i = 0; i < count; i++) {
        most = w->kinds[i] > most ? w->kinds[i] : most;
    }
    if (most == 0) {
        return false;
    }
    memset(w->edge_key, 0, (size_t)w->row * sizeof(float));
    memset(w->edge_value, 0, (size_t)w->row * sizeof(float));
    for (int32_t i = 0; i < count; i++) {
        add_scaled(w, w->edge_key, w->kind_key + w->kinds[i] * w->row, 1.0f / (float)count);
        add_scaled(w, w->edge_value, w->kind_value + w->kinds[i] * w->row, 1.0f / (float)count);
    }
    return true;
}

static void add_edge(const struct workspace *w, const float *from, const float *edge, float *to) {
    for (int64_t d = 0; d < w->row; d += LANES) {
        store(to + d, load(from + d) + load(edge + d));
    }
}

static void put_across(const struct workspace *w, const float *from, int64_t j, float *across) {
    for (int64_t d = 0; d < w->row; d++) {
        across[d * w->across + j] = from[d];
    }
}

/* Key j of a group: a cell, with what w->edge_key and w->edge_value add if has_edge. */
static void put_key(const struct workspace *w, int64_t j, int32_t cell, bool has_edge,
                    bool is_backward) {
    int64_t from = cell * w->row, to = j * w->row;
    w->key_at[j] = w->key + from, w->value_at[j] = w->value + from;
    if (is_backward) {
        w->d_key_at[j] = w->d_key + from, w->d_value_at[j] = w->d_value + from;
    }
    if (has_edge) {
        add_edge(w, w->key_at[j], w->edge_key, w->edge_keys + to);
        add_edge(w, w->value_at[j], w->edge_value, w->edge_values + to);
        w->key_at[j] = w->edge_keys + to, w->value_at[j] = w->edge_values + to;
    }
    if (has_edge && is_backward) {
        w->d_key_at[j] = w->d_edge_keys + to, w->d_value_at[j] = w->d_edge_values + to;
        memset(w->d_key_at[j], 0, (size_t)w->row * sizeof(float));
        memset(w->d_value_at[j], 0, (size_t)w->row * sizeof(float));
    }
    put_across(w, w->key_at[j], j, w->keys_across);
    if (is_backward) {
        put_across(w, w->value_at[j], j, w->values_across);
    }
}

/* What all queries of a group share. */
struct group {
    int32_t runs; /* in w->runs */
    int32_t shared; /* keys of all */
    int32_t count; /* with the query itself */
    bool sees_itself;
    float log_count; /* log(1 + keys) */
};

/* False if every cell of the unit sees itself alone, along no edge. */
static bool begin_group(const struct attention *a, int64_t sequence, const struct workspace *w,
                        int32_t unit, bool is_backward, struct group *group) {
    const int32_t *starts = w->groups.starts;
    group->runs = attention_runs(a, sequence, &w->groups, unit, w->runs);
    group->shared = 0;
    for (int32_t r = 0; r < group->runs; r++) {
        group->shared += starts[w->runs[r].unit + 1] - starts[w->runs[r].unit];
    }
    group->sees_itself = attention_sees_itself(a, sequence, unit);
    group->count = group->shared + (group->sees_itself ? 1 : 0);
    if (group->count == 1 && (group->sees_itself || w->runs[0].child < 0)) {
        return false;
    }
    group->log_count = log1pf((float)group->count);
    int64_t across = padded(group->count, KEYS_AT_ONCE);
    for (int64_t j = 0; j < across; j++) {
        w->is_key[j] = j < group->count ? 1.0f : 0.0f;
    }
    int64_t j = 0;
    for (int32_t r = 0; r < group->runs; r++) {
        struct attention_run *run = &w->runs[r];
        run->has_edge = read_edge(a, sequence, w, run);
        for (int32_t i = starts[run->unit]; i < starts[run->unit + 1]; i++) {
            put_key(w, j++, w->groups.cells[i], run->has_edge, is_backward);
        }
    }
    for (int64_t d = 0; d < w->row; d++) {
        for (int64_t k = group->shared; k < across; k++) {
            w->keys_across[d * w->across + k] = 0.0f;
            if (is_backward) {
                w->values_across[d * w->across + k] = 0.0f;
            }
        }
    }
    return true;
}

static void add_itself(const struct workspace *w, const struct group *group, int32_t cell,
                       bool is_backward) {
    if (group->sees_itself) {
        put_key(w, group->shared, cell, false, is_backward);
    }
}

static float logit_scale(const struct attention *a, const struct group *group, int64_t h) {
    float scale = a->temperature[h] * group->log_count; /* NaN stays NaN */
    return scale > LOGIT_LIMIT ? LOGIT_LIMIT : scale < -LOGIT_LIMIT ? -LOGIT_LIMIT : scale;
}

/* The logits of one query and head in w->logits, and their exp, once cut, in w->scores; the total.
 */
static inline float score(const struct workspace *w, const struct group *group, const float *query,
                          float scale, int64_t h) {
    vector total = all(0);
    products(query, w->keys_across + h * w->head * w->across, w->across, w->head, group->count,
             w->logits);
    for (int64_t j = 0; j < group->count; j += LANES) {
        vector logit = load(w->logits + j) * all(scale);
        store(w->logits + j, logit);
        vector e = exponential(cut(logit)) * load(w->is_key + j);
        store(w->scores + j, e);
        total += e;
    }
    return sum(total);
}

/* ---- forward --------------------------------------------------------------------------------- */

static inline void mix(const struct workspace *w, const struct group *group, float total, int64_t h,
                       int64_t head, float *out) {
    float mixed[LANES] __attribute__((aligned(LANES * sizeof(float))));
    for (int64_t part = 0; part < w->head; part += LANES) {
        int64_t column = h * w->head + part;
        vector result = all(0);
        for (int32_t j = 0; j < group->count; j++) {
            result += all(w->scores[j]) * load(w->value_at[j] + column);
        }
        store(mixed, result / all(total));
        for (int64_t k = part; k < head && k < part + LANES; k++) {
            out[h * head + k] = mixed[k - part];
        }
    }
}

bool KERNEL(attention_forward)(const struct attention *a, int64_t sequence, void *memory) {
    struct workspace w;
    if (!begin(a, sequence, &w, memory)) {
        return false;
    }
    int64_t head = a->width / a->heads, at = sequence * a->cells * a->width;
    float *out = a->out + at;
    memcpy(out, a->value + at, (size_t)(a->cells * a->width) * sizeof *out);
    for (int32_t unit = 0; unit < w.groups.unit_count; unit++) {
        struct group group;
        int32_t first = w.groups.starts[unit], last = w.groups.starts[unit + 1];
        if (first == last || !begin_group(a, sequence, &w, unit, false, &group)) {
            continue;
        }
        for (int32_t i = first; i < last; i++) {
            int32_t cell = w.groups.cells[i];
            add_itself(&w, &group, cell, false);
            for (int64_t h = 0; h < a->heads; h++) {
                const float *query = w.query + cell * w.row + h * w.head;
                float total = score(&w, &group, query, logit_scale(a, &group, h), h);
                mix(&w, &group, total, h, head, out + cell * a->width);
            }
        }
    }
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradient of a vector from that of its unit vector. */
static inline void through_norm(const float *unit, const float *d_unit, float size, int64_t head,
                                float *d) {
    float along = 0.0f;
    if (size < 1.0f / NORM_FLOOR) {
        for (int64_t k = 0; k < head; k++) {
            along += unit[k] * d_unit[k];
        }
    }
    for (int64_t k = 0; k < head; k++) {
        d[k] = size * (d_unit[k] - unit[k] * along);
    }
}

/* One query and head: gradients of the group's keys and values are added, of its unit query given.
   `d_out` is padded. Returns the gradient of the scale of its logits. */
static inline float query_backward(const struct workspace *w, const struct group *group,
                                   const float *query, const float *d_out, float scale, int64_t h,
                                   float *d_query) {
    float total = score(w, group, query, scale, h), inverse = 1.0f / total;
    vector along = all(0);
    products(d_out, w->values_across + h * w->head * w->across, w->across, w->head, group->count,
             w->d_logits);
    for (int64_t j = 0; j < group->count; j += LANES) {
        vector p = load(w->scores + j) * all(inverse);
        store(w->scores + j, p);
        along += p * load(w->d_logits + j);
    }
    vector mean = all(sum(along));
    for (int64_t j = 0; j < group->count; j += LANES) {
        vector d = load(w->scores + j) * (load(w->d_logits + j) - mean),
               logit = load(w->logits + j);
        integers is_cut = (logit > all(LOGIT_LIMIT)) | (logit < all(-LOGIT_LIMIT));
        store(w->d_logits + j, choose(is_cut, all(0), d));
    }
    float d_scale = 0.0f;
    for (int64_t part = 0; part < w->head; part += LANES) {
        int64_t column = h * w->head + part;
        vector scaled = load(query + part) * all(scale), d = load(d_out + part), result = all(0);
        for (int32_t j = 0; j < group->count; j++) {
            vector d_logit = all(w->d_logits[j]);
            float *d_key = w->d_key_at[j] + column, *d_value = w->d_value_at[j] + column;
            result += d_logit * load(w->key_at[j] + column);
            store(d_key, load(d_key) + d_logit * scaled);
            store(d_value, load(d_value) + all(w->scores[j]) * d);
        }
        d_scale += sum(result * load(query + part));
        store(d_query + part, result * all(scale));
    }
    return d_scale;
}

/* The gradients of the copies of a run, from j on, go to its cells and to the kinds of its edge. */
static void hand_on(const struct attention *a, int64_t sequence, const struct workspace *w,
                    const struct attention_run *run, int64_t j) {
    memset(w->edge_key, 0, (size_t)w->row * sizeof(float));
    memset(w->edge_value, 0, (size_t)w->row * sizeof(float));
    for (int32_t i = w->groups.starts[run->unit]; i < w->groups.starts[run->unit + 1]; i++, j++) {
        int64_t at = w->groups.cells[i] * w->row;
        add_scaled(w, w->d_key + at, w->d_key_at[j], 1.0f);
        add_scaled(w, w->d_value + at, w->d_value_at[j], 1.0f);
        add_scaled(w, w->edge_key, w->d_key_at[j], 1.0f);
        add_scaled(w, w->edge_value, w->d_value_at[j], 1.0f);
    }
    int32_t count = attention_kinds(a, sequence, run->child, run->parent, w->kinds);
    for (int32_t i = 0; i < count; i++) {
        int64_t at = w->kinds[i] * w->row;
        if (at > 0) {
            add_scaled(w, w->d_kind_key + at, w->edge_key, 1.0f / (float)count);
            add_scaled(w, w->d_kind_value + at, w->edge_value, 1.0f / (float)count);
        }
    }
}

static void end_group(const struct attention *a, int64_t sequence, const struct workspace *w,
                      const struct group *group) {
    int64_t j = 0;
    for (int32_t r = 0; r < group->runs; r++) {
        const struct attention_run *run = &w->runs[r];
        if (run->has_edge) {
            hand_on(a, sequence, w, run, j);
        }
        j += w->groups.starts[run->unit + 1] - w->groups.starts[run->unit];
    }
}

/* All heads of one query. */
static void cell_backward(const struct attention *a, int64_t sequence, const struct workspace *w,
                          const struct group *group, int32_t cell) {
    int64_t head = a->width / a->heads, at = (sequence * a->cells + cell) * a->width;
    float *d_out = w->d_out_head, *d_query = w->d_query_head;
    add_itself(w, group, cell, true);
    for (int64_t h = 0; h < a->heads; h++) {
        float scale = logit_scale(a, group, h);
        memset(d_out, 0, (size_t)w->head * sizeof *d_out);
        memcpy(d_out, a->d_out + at + h * head, (size_t)head * sizeof *d_out);
        const float *query = w->query + cell * w->row + h * w->head;
        float d_scale = query_backward(w, group, query, d_out, scale, h, d_query);
        if (fabsf(scale) < LOGIT_LIMIT) {
            a->d_temperature[sequence * a->heads + h] += d_scale * group->log_count;
        }
        through_norm(query, d_query, w->query_size[cell * a->heads + h], head,
                     a->d_query + at + h * head);
    }
}

/* Gradients of keys, values and kinds leave their padded heads. */
static void finish_backward(const struct attention *a, int64_t sequence,
                            const struct workspace *w) {
    int64_t head = a->width / a->heads;
    for (int64_t i = 0; i < a->cells * a->heads; i++) {
        int64_t at = sequence * a->cells * a->width + i * head, from = i * w->head;
        through_norm(w->key + from, w->d_key + from, w->key_size[i], head, a->d_key + at);
        for (int64_t k = 0; k < head; k++) {
            a->d_value[at + k] = w->d_value[from + k];
        }
    }
    for (int64_t i = 0; i < a->kinds * a->heads; i++) {
        int64_t at = sequence * a->kinds * a->width + i * head;
        memcpy(a->d_kind_key + at, w->d_kind_key + i * w->head, (size_t)head * sizeof(float));
        memcpy(a->d_kind_value + at, w->d_kind_value + i * w->head, (size_t)head * sizeof(float));
    }
}

/* A cell that sees itself alone hands its value on. */
static void alone_backward(const struct attention *a, int64_t sequence, const struct workspace *w,
                           int32_t cell) {
    int64_t head = a->width / a->heads, at = (sequence * a->cells + cell) * a->width;
    for (int64_t h = 0; h < a->heads; h++) {
        for (int64_t k = 0; k < head; k++) {
            w->d_value[cell * w->row + h * w->head + k] += a->d_out[at + h * head + k];
        }
    }
}

bool KERNEL(attention_backward)(const struct attention *a, int64_t sequence, void *memory) {
    struct workspace w;
    if (!begin(a, sequence, &w, memory)) {
        return false;
    }
    size_t matrix = (size_t)(a->cells * w.row) * sizeof(float);
    memset(w.d_key, 0, matrix);
    memset(w.d_value, 0, matrix);
    memset(w.d_kind_key, 0, (size_t)(a->kinds * w.row) * sizeof(float));
    memset(w.d_kind_value, 0, (size_t)(a->kinds * w.row) * sizeof(float));
    memset(a->d_query + sequence * a->cells * a->width, 0,
           (size_t)(a->cells * a->width) * sizeof(float));
    memset(a->d_temperature + sequence * a->heads, 0, (size_t)a->heads * sizeof(float));
    for (int32_t unit = 0; unit < w.groups.unit_count; unit++) {
        struct group group;
        int32_t first = w.groups.starts[unit], last = w.groups.starts[unit + 1];
        if (first == last) {
            continue;
        }
        bool is_group = begin_group(a, sequence, &w, unit, true, &group);
        for (int32_t i = first; i < last; i++) {
            if (is_group) {
                cell_backward(a, sequence, &w, &group, w.groups.cells[i]);
            } else {
                alone_backward(a, sequence, &w, w.groups.cells[i]);
            }
        }
        if (is_group) {
            end_group(a, sequence, &w, &group);
        }
    }
    const uint8_t *is_cell = a->is_cell + sequence * a->cells;
    for (int32_t cell = 0; cell < a->cells; cell++) {
        if (!is_cell[cell]) {
            alone_backward(a, sequence, &w, cell);
        }
    }
    finish_backward(a, sequence, &w);
    return true;
}
