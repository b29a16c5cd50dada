/* headwater.h compiles alone, twice, as C and (header_alone.cpp) as C++, and links. */
#include "headwater.h"
#include "headwater.h" /* NOLINT: twice is the test */

int main(void) {
    return hw_hash64("", 0, 0) == UINT64_C(0xEF46DB3751D8E999) ? 0 : 1; /* XXH64 of nothing */
}
