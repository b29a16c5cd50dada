/*
 * What XLA calls. Operands of both directions are
 *
 *     query, key, value [B,S,D] f32, temperature [H] f32, row_ids [B,S] s32, column_ids [B,S] s32,
 *     parents [B,R,P] s32, is_cell [B,S] pred
 *
 * with the attribute `pattern` (s32). Forward gives out [B,S,D]; backward takes d_out [B,S,D] more
 * and gives d_query, d_key, d_value [B,S,D] and d_temperature [B,H].
 *
 * The sequences of a batch are taken one by one, from a counter, by the calling thread and by as
 * many of XLA's pool as are free. The caller waits only for sequences that a thread has taken, so a
 * pool that is busy, or is the caller itself, cannot make it wait for ever.
 */
#include "attention.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <sched.h>

#include "xla/ffi/api/c_api.h"

#define EXPORTED __attribute__((visibility("default")))

enum { QUERY, KEY, VALUE, TEMPERATURE, ROW_IDS, COLUMN_IDS, PARENTS, IS_CELL, D_OUT };
enum { D_QUERY, D_KEY, D_VALUE, D_TEMPERATURE };

XLA_FFI_Error *confluence_attention_forward(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *confluence_attention_backward(XLA_FFI_CallFrame *frame);

/* ---- sharing a batch ----------------------------------------------------------------------- */

/* A call, kept until the last thread that was asked for help has looked at it.
 */
struct call {
    struct attention attention;
    attention_sequence *run;
    size_t workspace_bytes;
    atomic_llong next; /* sequence that nobody has taken */
    atomic_llong finished; /* sequences */
    atomic_llong failed; /* a sequence that names a row it does not have, or -1 */
    atomic_int holders;
};

static void let_go(struct call *call) {
    if (atomic_fetch_sub(&call->holders, 1) == 1) {
        free(call);
    }
}

/* Sequences until none is left. Without memory nothing is taken. */
static void work(struct call *call) {
    void *memory = aligned_alloc(64, call->workspace_bytes);
    if (memory == NULL) {
        return;
    }
    for (;;) {
        long long sequence = atomic_fetch_add(&call->next, 1);
        if (sequence >= call->attention.batch) {
            break;
        }
        if (!call->run(&call->attention, sequence, memory)) {
            atomic_store(&call->failed, sequence);
        }
        atomic_fetch_add(&call->finished, 1);
    }
    free(memory);
}

static void help(void *data) {
    struct call *call = data;
    if (atomic_load(&call->next) < call->attention.batch) {
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
    for (int64_t i = 1; error == NULL && i < threads && i < call->attention.batch; i++) {
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

/* Reads shapes and arrays of the operands; false if they do not go together. */
static bool read_operands(const XLA_FFI_CallFrame *frame, bool is_backward, struct attention *a) {
    if (frame->args.size != (is_backward ? D_OUT + 1 : IS_CELL + 1) ||
        frame->rets.size != (is_backward ? D_TEMPERATURE + 1 : 1) || frame->attrs.size != 1 ||
        frame->attrs.types[0] != XLA_FFI_AttrType_SCALAR || argument(frame, QUERY)->rank != 3 ||
        argument(frame, TEMPERATURE)->rank != 1 || argument(frame, PARENTS)->rank != 3) {
        return false;
    }
    const XLA_FFI_Scalar *pattern = frame->attrs.attrs[0];
    const int64_t *query = argument(frame, QUERY)->dims, *parents = argument(frame, PARENTS)->dims;
    a->batch = query[0], a->cells = query[1], a->width = query[2];
    a->heads = argument(frame, TEMPERATURE)->dims[0];
    a->rows = parents[1], a->parents = parents[2];
    int64_t matrix[] = {a->batch, a->cells, a->width}, edges[] = {a->batch, a->rows, a->parents};
    const struct {
        XLA_FFI_DataType dtype;
        int64_t rank;
        const int64_t *dims;
    } expected[] = {
        [QUERY] = {XLA_FFI_DataType_F32, 3, matrix},
        [KEY] = {XLA_FFI_DataType_F32, 3, matrix},
        [VALUE] = {XLA_FFI_DataType_F32, 3, matrix},
        [TEMPERATURE] = {XLA_FFI_DataType_F32, 1, &a->heads},
        [ROW_IDS] = {XLA_FFI_DataType_S32, 2, matrix},
        [COLUMN_IDS] = {XLA_FFI_DataType_S32, 2, matrix},
        [PARENTS] = {XLA_FFI_DataType_S32, 3, edges},
        [IS_CELL] = {XLA_FFI_DataType_PRED, 2, matrix},
        [D_OUT] = {XLA_FFI_DataType_F32, 3, matrix},
    };
    for (int64_t i = 0; i < frame->args.size; i++) {
        if (!has_shape(argument(frame, i), expected[i].dtype, expected[i].rank, expected[i].dims)) {
            return false;
        }
    }
    if (pattern->dtype != XLA_FFI_DataType_S32) {
        return false;
    }
    int32_t value = *(const int32_t *)pattern->value;
    a->pattern = (enum attention_pattern)value;
    return a->heads > 0 && a->width % a->heads == 0 && a->cells < INT32_MAX / 8 &&
           a->rows < INT32_MAX / 8 && value >= 0 && value < ATTENTION_PATTERN_COUNT;
}

static void read_arrays(const XLA_FFI_CallFrame *frame, bool is_backward, struct attention *a) {
    a->query = argument(frame, QUERY)->data;
    a->key = argument(frame, KEY)->data;
    a->value = argument(frame, VALUE)->data;
    a->temperature = argument(frame, TEMPERATURE)->data;
    a->row_ids = argument(frame, ROW_IDS)->data;
    a->column_ids = argument(frame, COLUMN_IDS)->data;
    a->parent_rows = argument(frame, PARENTS)->data;
    a->is_cell = argument(frame, IS_CELL)->data;
    void **results = frame->rets.rets;
    if (is_backward) {
        a->d_out = argument(frame, D_OUT)->data;
        a->d_query = ((const XLA_FFI_Buffer *)results[D_QUERY])->data;
        a->d_key = ((const XLA_FFI_Buffer *)results[D_KEY])->data;
        a->d_value = ((const XLA_FFI_Buffer *)results[D_VALUE])->data;
        a->d_temperature = ((const XLA_FFI_Buffer *)results[D_TEMPERATURE])->data;
    } else {
        a->out = ((const XLA_FFI_Buffer *)results[0])->data;
    }
}

static attention_sequence *best(bool is_backward) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return is_backward ? attention_backward_v3 : attention_forward_v3;
    }
#endif
    return is_backward ? attention_backward_baseline : attention_forward_baseline;
}

static XLA_FFI_Error *run(XLA_FFI_CallFrame *frame, bool is_backward) {
    if (frame->extension_start != NULL &&
        frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *metadata =
            ((XLA_FFI_Metadata_Extension *)(void *)frame->extension_start)->metadata;
        metadata->api_version.major_version = XLA_FFI_API_MAJOR;
        metadata->api_version.minor_version = XLA_FFI_API_MINOR;
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
    if (!read_operands(frame, is_backward, &call->attention)) {
        error = failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                        "attention: types or shapes of the operands do not go together");
        goto done;
    }
    read_arrays(frame, is_backward, &call->attention);
    call->run = best(is_backward);
    call->workspace_bytes = attention_workspace_bytes(&call->attention);
    ask_for_help(frame, call);
    work(call);
    /* Taken sequences end soon. Were the caller without memory, a helper may still take all. */
    long long batch = call->attention.batch, taken = atomic_exchange(&call->next, batch);
    taken = taken < batch ? taken : batch;
    while (atomic_load(&call->finished) < taken) {
        sched_yield();
    }
    long long failed = atomic_load(&call->failed);
    if (taken < batch) {
        error = failure(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "attention: out of memory");
    } else if (failed >= 0) {
        char message[100];
        snprintf(message, sizeof message,
                 "attention: sequence %lld has a cell of row %lld or later", failed,
                 (long long)call->attention.rows);
        error = failure(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, message);
    }
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
