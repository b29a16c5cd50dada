#include "headwater.h"

const char *hw_version(void) {
    return HW_VERSION;
}

uint32_t hw_abi(void) {
    return HW_ABI;
}
