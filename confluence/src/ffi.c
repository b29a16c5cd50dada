/*
 * What XLA calls. All n contexts of a batch stand side by side, in N cells and R rows. Operands of
 * both directions are
 *
 *     query, key, value [N,D] f32, temperature [H] f32, row_ids [N] s32, column_ids [N] s32,
 *     parents [R,P] s32, kinds [R,P] s32, is_cell [N] pred, context_cells [n+1] s32,
 *     context_rows [n+1] s32, kind_key [T,D] f32, kind_value [T,D] f32
 *
 * with the attribute `pattern` (s32). Rows and parents are counted within their context. The first
 * cells and rows of contexts begin with 0 and never fall; what comes behind the last context is
 * padding, which sees itself. Forward gives out [N,D]; backward takes d_out [N,D] more and gives
 * d_query, d_key, d_value [N,D], d_temperature [n,H], d_kind_key and d_kind_value [n,T,D].
 *
 * The kernel is handed one context at a time, so that its workspace has the size of the widest. The
 * contexts, and the padding as one more, are taken one by one, from a counter, by the calling
 * thread and by as many of XLA's pool as are free. The caller waits only for contexts that a thread
 * has taken, so a pool that is busy, or is the caller itself, cannot make it wait for ever.
 */
#include "attention.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sched.h>

#include "xla/ffi/api/c_api.h"

#define EXPORTED __attribute__((visibility("default")))

enum {
    QUERY,
    KEY,
    VALUE,
    TEMPERATURE,
    ROW_IDS,
    COLUMN_IDS,
    PARENTS,
    KINDS,
    IS_CELL,
    CONTEXT_CELLS,
    CONTEXT_ROWS,
    KIND_KEY,
    KIND_VALUE,
    D_OUT
};
enum { D_QUERY, D_KEY, D_VALUE, D_TEMPERATURE, D_KIND_KEY, D_KIND_VALUE, RESULT_COUNT };

/* XLA's interface as JAX 0.10 has it, the oldest that pyproject.toml allows. A JAX refuses handlers
   of a newer interface than its own, and the header may be newer than the JAX that calls. */
enum { INTERFACE_MAJOR = 0, INTERFACE_MINOR = 3 };
_Static_assert(XLA_FFI_API_MAJOR == INTERFACE_MAJOR && XLA_FFI_API_MINOR >= INTERFACE_MINOR,
               "another interface of XLA than this file is written for");

XLA_FFI_Error *confluence_attention_forward(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *confluence_attention_backward(XLA_FFI_CallFrame *frame);

/* ---- sharing a batch ----------------------------------------------------------------------- */

/* A call, kept until the last thread that was asked for help has looked at it. */
struct call {
    struct attention attention; /* the whole batch as one sequence: batch is 1 */
    int64_t contexts; /* n */
    const int32_t *context_cells, *context_rows; /* [n+1], checked */
    attention_sequence *run;
    size_t workspace_bytes;
    atomic_llong next; /* part that nobody has taken: a context, or n, the padding */
    atomic_llong finished; /* parts */
    atomic_llong failed; /* a context that names a row it does not have, or -1 */
    atomic_int holders;
};

static void let_go(struct call *call) {
    if (atomic_fetch_sub(&call->holders, 1) == 1) {
        free(call);
    }
}

static int64_t part_count(const struct call *call) {
    return call->contexts + 1;
}

/* Cells behind the last context hand their values on. */
static void run_padding(const struct call *call) {
    const struct attention *a = &call->attention;
    int64_t first = call->context_cells[call->contexts] * a->width;
    size_t bytes = (size_t)(a->cells * a->width - first) * sizeof(float);
    if (a->out != NULL) {
        memcpy(a->out + first, a->value + first, bytes);
        return;
    }
    memset(a->d_query + first, 0, bytes);
    memset(a->d_key + first, 0, bytes);
    memcpy(a->d_value + first, a->d_out + first, bytes);
}

/* One context as a batch of one sequence. */
static struct attention context_of(const struct call *call, int64_t context) {
    struct attention one = call->attention;
    int64_t cell = call->context_cells[context], row = call->context_rows[context];
    int64_t at = cell * one.width;
    one.cells = call->context_cells[context + 1] - cell;
    one.rows = call->context_rows[context + 1] - row;
    one.query += at, one.key += at, one.value += at;
    one.row_ids += cell, one.column_ids += cell, one.is_cell += cell;
    one.parent_rows += row * one.parents, one.parent_kinds += row * one.parents;
    if (one.out != NULL) {
        one.out += at;
    } else {
        one.d_out += at, one.d_query += at, one.d_key += at, one.d_value += at;
        one.d_temperature += context * one.heads;
        one.d_kind_key += context * one.kinds * one.width;
        one.d_kind_value += context * one.kinds * one.width;
    }
    return one;
}

static void run_part(struct call *call, int64_t part, void *memory) {
    if (part == call->contexts) {
        run_padding(call);
        return;
    }
    struct attention one = context_of(call, part);
    if (!call->run(&one, 0, memory)) {
        atomic_store(&call->failed, part);
    }
}

/* Parts until none is left. Without memory nothing is taken. */
static void work(struct call *call) {
    void *memory = aligned_alloc(64, call->workspace_bytes);
    if (memory == NULL) {
        return;
    }
    for (;;) {
        long long part = atomic_fetch_add(&call->next, 1);
        if (part >= part_count(call)) {
            break;
        }
        run_part(call, part, memory);
        atomic_fetch_add(&call->finished, 1);
    }
    free(memory);
}

static void help(void *data) {
    struct call *call = data;
    if (atomic_load(&call->next) < part_count(call)) {
        work(call);
    }
    let_go(call);
}

static void ask_for_help(const XLA_FFI_CallFrame *frame, struct call *call) {
    int64_t threads = 1;
    XLA_FFI_ThreadPool_NumThreads_Args count = {
        .struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
        .ctx = frame->ctx,
        .num_threads = &threads,
    };
    XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count);
    for (int64_t i = 1; error == NULL && i < threads && i < part_count(call); i++) {
        XLA_FFI_ThreadPool_Schedule_Args schedule = {
            .struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
            .ctx = frame->ctx,
            .task = help,
            .data = call,
        };
        atomic_fetch_add(&call->holders, 1);
        error = frame->api->XLA_FFI_ThreadPool_Schedule(&schedule);
        if (error != NULL) {
            atomic_fetch_sub(&call->holders, 1); /* not the last, the caller has one */
        }
    }
    if (error != NULL) { /* then the caller does it alone */
        XLA_FFI_Error_Destroy_Args destroy = {
            .struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE,
            .error = error,
        };
        frame->api->XLA_FFI_Error_Destroy(&destroy);
    }
}

/* ---- a call ---------------------------------------------------------------------------------- */

static XLA_FFI_Error *failure(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code,
                              const char *message) {
    XLA_FFI_Error_Create_Args args = {
        .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
        .message = message,
        .errc = code,
    };
    return frame->api->XLA_FFI_Error_Create(&args);
}

static const XLA_FFI_Buffer *argument(const XLA_FFI_CallFrame *frame, int64_t i) {
    return frame->args.args[i];
}

static bool has_shape(const XLA_FFI_Buffer *buffer, XLA_FFI_DataType dtype, int64_t rank,
                      const int64_t *dims) {
    if (buffer->dtype != dtype || buffer->rank != rank) {
        return false;
    }
    for (int64_t i = 0; i < rank; i++) {
        if (buffer->dims[i] != dims[i]) {
            return false;
        }
    }
    return true;
}

/* Reads shapes of the operands; false if they do not go together. */
static bool read_shapes(const XLA_FFI_CallFrame *frame, bool is_backward, struct call *call) {
    if (frame->args.size != (is_backward ? D_OUT + 1 : D_OUT) ||
        frame->rets.size != (is_backward ? RESULT_COUNT : 1) || argument(frame, QUERY)->rank != 2 ||
        argument(frame, TEMPERATURE)->rank != 1 || argument(frame, PARENTS)->rank != 2 ||
        argument(frame, CONTEXT_CELLS)->rank != 1 || argument(frame, KIND_KEY)->rank != 2) {
        return false;
    }
    struct attention *a = &call->attention;
    const int64_t *query = argument(frame, QUERY)->dims, *parents = argument(frame, PARENTS)->dims;
    int64_t starts = argument(frame, CONTEXT_CELLS)->dims[0];
    a->batch = 1, a->cells = query[0], a->width = query[1];
    a->heads = argument(frame, TEMPERATURE)->dims[0];
    a->rows = parents[0], a->parents = parents[1];
    a->kinds = argument(frame, KIND_KEY)->dims[0];
    call->contexts = starts - 1;
    int64_t matrix[] = {a->cells, a->width}, edges[] = {a->rows, a->parents};
    int64_t kinds[] = {a->kinds, a->width};
    const struct {
        XLA_FFI_DataType dtype;
        int64_t rank;
        const int64_t *dims;
    } expected[] = {
        [QUERY] = {XLA_FFI_DataType_F32, 2, matrix},
        [KEY] = {XLA_FFI_DataType_F32, 2, matrix},
        [VALUE] = {XLA_FFI_DataType_F32, 2, matrix},
        [TEMPERATURE] = {XLA_FFI_DataType_F32, 1, &a->heads},
        [ROW_IDS] = {XLA_FFI_DataType_S32, 1, matrix},
        [COLUMN_IDS] = {XLA_FFI_DataType_S32, 1, matrix},
        [PARENTS] = {XLA_FFI_DataType_S32, 2, edges},
        [KINDS] = {XLA_FFI_DataType_S32, 2, edges},
        [IS_CELL] = {XLA_FFI_DataType_PRED, 1, matrix},
        [CONTEXT_CELLS] = {XLA_FFI_DataType_S32, 1, &starts},
        [CONTEXT_ROWS] = {XLA_FFI_DataType_S32, 1, &starts},
        [KIND_KEY] = {XLA_FFI_DataType_F32, 2, kinds},
        [KIND_VALUE] = {XLA_FFI_DataType_F32, 2, kinds},
        [D_OUT] = {XLA_FFI_DataType_F32, 2, matrix},
    };
    for (int64_t i = 0; i < frame->args.size; i++) {
        if (!has_shape(argument(frame, i), expected[i].dtype, expected[i].rank, expected[i].dims)) {
            return false;
        }
    }
    return call->contexts >= 0 && a->heads > 0 && a->width % a->heads == 0 &&
           a->cells < INT32_MAX / 8 && a->rows < INT32_MAX / 8 && a->kinds < INT32_MAX / 8;
}

static bool read_pattern(const XLA_FFI_CallFrame *frame, struct attention *a) {
    if (frame->attrs.size != 1 || frame->attrs.types[0] != XLA_FFI_AttrType_SCALAR) {
        return false;
    }
    const XLA_FFI_Scalar *pattern = frame->attrs.attrs[0];
    if (pattern->dtype != XLA_FFI_DataType_S32) {
        return false;
    }
    int32_t value = *(const int32_t *)pattern->value;
    a->pattern = (enum attention_pattern)value;
    return value >= 0 && value < ATTENTION_PATTERN_COUNT;
}

static void read_arrays(const XLA_FFI_CallFrame *frame, bool is_backward, struct call *call) {
    struct attention *a = &call->attention;
    a->query = argument(frame, QUERY)->data;
    a->key = argument(frame, KEY)->data;
    a->value = argument(frame, VALUE)->data;
    a->temperature = argument(frame, TEMPERATURE)->data;
    a->row_ids = argument(frame, ROW_IDS)->data;
    a->column_ids = argument(frame, COLUMN_IDS)->data;
    a->parent_rows = argument(frame, PARENTS)->data;
    a->parent_kinds = argument(frame, KINDS)->data;
    a->is_cell = argument(frame, IS_CELL)->data;
    a->kind_key = argument(frame, KIND_KEY)->data;
    a->kind_value = argument(frame, KIND_VALUE)->data;
    call->context_cells = argument(frame, CONTEXT_CELLS)->data;
    call->context_rows = argument(frame, CONTEXT_ROWS)->data;
    void **results = frame->rets.rets;
    if (is_backward) {
        a->d_out = argument(frame, D_OUT)->data;
        a->d_query = ((const XLA_FFI_Buffer *)results[D_QUERY])->data;
        a->d_key = ((const XLA_FFI_Buffer *)results[D_KEY])->data;
        a->d_value = ((const XLA_FFI_Buffer *)results[D_VALUE])->data;
        a->d_temperature = ((const XLA_FFI_Buffer *)results[D_TEMPERATURE])->data;
        a->d_kind_key = ((const XLA_FFI_Buffer *)results[D_KIND_KEY])->data;
        a->d_kind_value = ((const XLA_FFI_Buffer *)results[D_KIND_VALUE])->data;
    } else {
        a->out = ((const XLA_FFI_Buffer *)results[0])->data;
    }
}

/* Do they begin with 0, never fall, and end within the count? Where they do not, nothing is read or
   written: the bounds of every context come from here. */
static bool are_starts(const int32_t *starts, int64_t contexts, int64_t count) {
    if (starts[0] != 0) {
        return false;
    }
    for (int64_t i = 0; i < contexts; i++) {
        if (starts[i + 1] < starts[i]) {
            return false;
        }
    }
    return starts[contexts] <= count;
}

static int64_t widest(const int32_t *starts, int64_t contexts) {
    int32_t most = 0;
    for (int64_t i = 0; i < contexts; i++) {
        int32_t width = starts[i + 1] - starts[i];
        most = width > most ? width : most;
    }
    return most;
}

/* What a thread needs for any of the contexts. */
static size_t workspace_bytes(const struct call *call) {
    struct attention largest = call->attention;
    largest.cells = widest(call->context_cells, call->contexts);
    largest.rows = widest(call->context_rows, call->contexts);
    return attention_workspace_bytes(&largest);
}

static attention_sequence *best(bool is_backward) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return is_backward ? attention_backward_v3 : attention_forward_v3;
    }
#endif
    return is_backward ? attention_backward_baseline : attention_forward_baseline;
}

/* Reads the operands; NULL, or what is wrong with them. */
static const char *read_operands(const XLA_FFI_CallFrame *frame, bool is_backward,
                                 struct call *call) {
    if (!read_shapes(frame, is_backward, call) || !read_pattern(frame, &call->attention)) {
        return "attention: types or shapes of the operands do not go together";
    }
    read_arrays(frame, is_backward, call);
    if (!are_starts(call->context_cells, call->contexts, call->attention.cells)) {
        return "attention: context_cells do not begin with 0, fall, or pass the number of cells";
    }
    if (!are_starts(call->context_rows, call->contexts, call->attention.rows)) {
        return "attention: context_rows do not begin with 0, fall, or pass the number of rows";
    }
    return NULL;
}

/* Takes part in the work until all of it is done. */
static XLA_FFI_Error *run_all(const XLA_FFI_CallFrame *frame, struct call *call) {
    ask_for_help(frame, call);
    work(call);
    /* Taken parts end soon. Were the caller without memory, a helper may still take all. */
    long long parts = part_count(call), taken = atomic_exchange(&call->next, parts);
    taken = taken < parts ? taken : parts;
    while (atomic_load(&call->finished) < taken) {
        sched_yield();
    }
    if (taken < parts) {
        return failure(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "attention: out of memory");
    }
    long long failed = atomic_load(&call->failed);
    if (failed < 0) {
        return NULL;
    }
    char message[100];
    snprintf(message, sizeof message, "attention: context %lld has a cell of row %lld or later",
             failed, (long long)context_of(call, failed).rows);
    return failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame, bool is_backward) {
    if (frame->extension_start != NULL &&
        frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *metadata =
            ((XLA_FFI_Metadata_Extension *)(void *)frame->extension_start)->metadata;
        metadata->api_version.major_version = INTERFACE_MAJOR;
        metadata->api_version.minor_version = INTERFACE_MINOR;
        metadata->traits = 0;
        return NULL;
    }
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return failure(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "attention: out of memory");
    }
    atomic_store(&call->holders, 1);
    atomic_store(&call->failed, -1);
    XLA_FFI_Error *error = NULL;
    const char *wrong = read_operands(frame, is_backward, call);
    if (wrong != NULL) {
        error = failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, wrong);
        goto done;
    }
    call->run = best(is_backward);
    call->workspace_bytes = workspace_bytes(call);
    error = run_all(frame, call);
done:
    let_go(call);
    return error;
}

EXPORTED XLA_FFI_Error *confluence_attention_forward(XLA_FFI_CallFrame *frame) {
    return run(frame, false);
}

EXPORTED XLA_FFI_Error *confluence_attention_backward(XLA_FFI_CallFrame *frame) {
    return run(frame, true);
}
