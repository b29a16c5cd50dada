#include "base/sized.h"

#include <string.h>

/* A struct grows by members, not by pages. So a larger number is memory that nobody set. */
#define MOST_GROWTH 4096u

hw_status hwi_check_struct(const char *type, const void *wanted, size_t known, hw_error *error) {
    size_t bytes = 0;
    if (wanted == NULL) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the pointer to an %s is NULL", type);
    }
    memcpy(&bytes, wanted, sizeof bytes);
    if (bytes <= sizeof bytes || bytes > known + MOST_GROWTH) { /* or of a pointer */
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "struct_bytes of an %s is %zu: set it to sizeof(%s) before the call", type,
                        bytes, type);
    }
    return HW_OK;
}

hw_status hwi_take_struct(const char *type, const void *given, void *copy, size_t known,
                          hw_error *error) {
    size_t bytes = 0;
    HW_TRY(hwi_check_struct(type, given, known, error));
    memcpy(&bytes, given, sizeof bytes);
    for (size_t i = known; i < bytes; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "byte %zu of an %s is set, which headwater " HW_VERSION
                            " does not know: it has %zu bytes there",
                            i, type, known);
        }
    }
    memset(copy, 0, known);
    memcpy(copy, given, bytes < known ? bytes : known);
    memcpy(copy, &known, sizeof known);
    return HW_OK;
}

hw_status hwi_check_reserved(const char *type, const uint8_t *reserved, size_t count,
                             hw_error *error) {
    for (size_t i = 0; i < count; i++) {
        if (reserved[i] != 0) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "reserved[%zu] of an %s is set, which headwater " HW_VERSION
                            " does not know",
                            i, type);
        }
    }
    return HW_OK;
}

hw_status hwi_give_struct(const char *type, void *wanted, const void *full, size_t known,
                          hw_error *error) {
    size_t bytes = 0;
    HW_TRY(hwi_check_struct(type, wanted, known, error));
    memcpy(&bytes, wanted, sizeof bytes);
    memset((char *)wanted + sizeof bytes, 0, bytes - sizeof bytes);
    memcpy((char *)wanted + sizeof bytes, (const char *)full + sizeof bytes,
           (bytes < known ? bytes : known) - sizeof bytes);
    return HW_OK;
}
