/* Arrow streams that stay failed; see hw_steady_stream. */
#define _DEFAULT_SOURCE 1 /* strdup */

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct steady {
    struct ArrowArrayStream source;
    int failure; /* of get_next, 0 before one */
    char *message; /* of the failure; NULL without one */
};

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
    struct steady *steady = stream->private_data;
    return steady->source.get_schema(&steady->source, schema);
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
    struct steady *steady = stream->private_data;
    if (steady->failure == 0) {
        steady->failure = steady->source.get_next(&steady->source, array);
        if (steady->failure != 0) {
            const char *message = steady->source.get_last_error(&steady->source);
            steady->message = message != NULL ? strdup(message) : NULL;
        }
    }
    return steady->failure;
}

static const char *get_last_error(struct ArrowArrayStream *stream) {
    struct steady *steady = stream->private_data;
    return steady->failure != 0 ? steady->message : steady->source.get_last_error(&steady->source);
}

static void release(struct ArrowArrayStream *stream) {
    struct steady *steady = stream->private_data;
    steady->source.release(&steady->source);
    free(steady->message);
    free(steady);
    stream->release = NULL;
}

hw_status hw_steady_stream(struct ArrowArrayStream *stream, hw_error *error) {
    struct steady *steady = calloc(1, sizeof *steady);
    if (steady == NULL) {
        return hwi_no_memory(error, "a stream", sizeof *steady);
    }
    steady->source = *stream;
    *stream = (struct ArrowArrayStream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release,
        .private_data = steady,
    };
    return HW_OK;
}
