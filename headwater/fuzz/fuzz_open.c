/*
 * Fuzzing open, verify and every accessor over a damaged store.
 *
 * The input is a list of edits of 6 bytes, {file, offset (3 bytes, little-endian), operation,
 * value}, applied to the bookstore of tests/c/support/fixtures.h: the operation sets a byte, adds
 * to it, or writes a 32-bit extreme. The whole is then resealed (checksums and build id right
 * again), since damage that a checksum finds exercises nothing else; an input whose first byte is
 * odd is not.
 *
 * With libFuzzer: see fuzz/run.sh. Without: see replay.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"
#include "support/damage.h"

#define MAX_EDITS 64u

static struct patient *patient; /* one per process; libFuzzer has no place to end it */

static void apply_edit(uint8_t *const images[], const uint8_t *edit) {
    static const uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    uint32_t file = edit[0] % patient->file_count;
    size_t size = patient->files[file].size;
    size_t offset = (edit[1] | (size_t)edit[2] << 8 | (size_t)edit[3] << 16) % size;
    uint32_t extreme = extremes[edit[5] % (sizeof extremes / sizeof *extremes)];
    if (edit[4] % 3 == 0) {
        images[file][offset] = edit[5];
    } else if (edit[4] % 3 == 1) {
        images[file][offset] = (uint8_t)(images[file][offset] + edit[5]);
    } else {
        offset &= ~(size_t)3;
        memcpy(images[file] + offset, &extreme, size - offset < 4 ? size - offset : 4);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *images[PATIENT_MAX_FILES];
    if (size < 1 + EDIT_BYTES) {
        return 0;
    }
    if (patient == NULL) {
        patient = patient_admit(bookstore);
    }
    patient_copy(patient, images);
    size_t edit_count = (size - 1) / EDIT_BYTES;
    for (size_t i = 0; i < edit_count && i < MAX_EDITS; i++) {
        apply_edit(images, data + 1 + i * EDIT_BYTES);
    }
    if (data[0] & 1) {
        for (uint32_t i = 0; i < patient->file_count; i++) {
            damage_write_file(patient->files[i].path, images[i], patient->files[i].size);
        }
    } else {
        patient_write_resealed(patient, images);
    }
    (void)damage_seems_well(patient->build, HW_LOAD_RAM); /* exact bounds under ASan */
    patient_free(patient, images);
    return 0;
}

const uint32_t most_edits = 4;

void discharge_patients(void) {
    if (patient != NULL) {
        patient_discharge(patient);
    }
}
