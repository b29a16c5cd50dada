/* See replay.h. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "support/damage.h"

enum { MOST_BYTES = 1 + 64 * EDIT_BYTES };

static void replay_random(unsigned long count) {
    uint64_t state = 1;
    for (unsigned long n = 0; n < count; n++) {
        uint8_t input[MOST_BYTES];
        for (size_t i = 0; i < 1 + most_edits * EDIT_BYTES; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            input[i] = (uint8_t)(state >> 56);
        }
        (void)LLVMFuzzerTestOneInput(input, 1 + EDIT_BYTES * (1 + n % most_edits));
    }
}

int main(int argument_count, char **arguments) {
    for (int i = 1; i < argument_count; i++) {
        size_t size = 0;
        if (strcmp(arguments[i], "-n") == 0 && i + 1 < argument_count) {
            replay_random(strtoul(arguments[++i], NULL, 10));
            continue;
        }
        uint8_t *bytes = damage_read_file(arguments[i], &size);
        (void)LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    discharge_patients();
    return 0;
}
