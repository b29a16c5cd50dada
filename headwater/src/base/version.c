#include "headwater.h"

const char *hw_version(void) {
    return HW_VERSION;
}
