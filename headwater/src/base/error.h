/*
 * One way to report: `return hwi_fail(error, status, "format", ...)` fills an optional hw_error and
 * returns the status, so that the cause and the exit stand on one line.
 */
#ifndef HWI_ERROR_H
#define HWI_ERROR_H

#include "headwater.h"

/* Of a function of the library's own: its status must be read. HW_CHECK is that, and exported. */
#if defined(__GNUC__)
#define HWI_CHECK __attribute__((warn_unused_result))
#else
#define HWI_CHECK
#endif

hw_status hwi_fail(hw_error *error, hw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* HW_NO_MEMORY, naming what the memory was for. */
hw_status hwi_no_memory(hw_error *error, const char *what, uint64_t bytes);

/* Early return for functions that hold nothing. */
#define HW_TRY(expression)                                                                         \
    do {                                                                                           \
        hw_status hwi_status_ = (expression);                                                      \
        if (hwi_status_ != HW_OK) {                                                                \
            return hwi_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* 1 and *product undefined if a * b does not fit. */
static inline int hwi_mul_overflows(uint64_t a, uint64_t b, uint64_t *product) {
    return __builtin_mul_overflow(a, b, product);
}

#endif
