// headwater.h as C++: see header_alone.c.
#include "headwater.h"
#include "headwater.h"

int main() {
    hw_sampler_options options = {};
    options.struct_bytes = sizeof options;
    return hw_hash64("", 0, 0) == UINT64_C(0xEF46DB3751D8E999) ? 0 : 1;
}
