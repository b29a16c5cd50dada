/*
 * Structs of the caller, whose header may be older or newer than this library: each begins with
 * struct_bytes, its size there, and nothing is read or written past that.
 */
#ifndef HWI_SIZED_H
#define HWI_SIZED_H

#include <stddef.h>

#include "base/error.h"

/*
 * Copies a struct that the caller fills into *copy of `known` bytes; members that the caller's
 * header lacks are 0. HW_BAD_ARGUMENT, naming `type`, if it is NULL, if its struct_bytes was not
 * set, or if a byte of it is set that this library does not know.
 */
HWI_CHECK hw_status hwi_take_struct(const char *type, const void *given, void *copy, size_t known,
                                    hw_error *error);
/* That a struct which the caller wants filled can be: HW_BAD_ARGUMENT as above. */
HWI_CHECK hw_status hwi_check_struct(const char *type, const void *wanted, size_t known,
                                     hw_error *error);
/* HW_BAD_ARGUMENT if a byte of the reserved member of a struct of that type is set. */
HWI_CHECK hw_status hwi_check_reserved(const char *type, const uint8_t *reserved, size_t count,
                                       hw_error *error);
/* Fills it from *full of `known` bytes, whose struct_bytes does not matter; what the caller's
 * header has beyond them is 0. */
HWI_CHECK hw_status hwi_give_struct(const char *type, void *wanted, const void *full, size_t known,
                                    hw_error *error);

/* The same by type. */
#define HWI_TAKE(type, given, copy, error)                                                         \
    hwi_take_struct(#type, 1 ? (given) : (const type *)NULL, 1 ? (copy) : (type *)NULL,            \
                    sizeof(type), error)
#define HWI_GIVE(type, wanted, full, error)                                                        \
    hwi_give_struct(#type, 1 ? (wanted) : (type *)NULL, 1 ? (full) : (const type *)NULL,           \
                    sizeof(type), error)

#endif
