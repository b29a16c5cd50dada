#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

hw_status hwi_fail(hw_error *error, hw_status status, const char *format, ...) {
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        error->status = status;
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

hw_status hwi_no_memory(hw_error *error, const char *what, uint64_t bytes) {
    return hwi_fail(error, HW_NO_MEMORY, "out of memory: %llu bytes for %s",
                    (unsigned long long)bytes, what);
}
