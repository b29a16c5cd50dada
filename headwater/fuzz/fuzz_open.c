/*
 * Fuzzing open, verify and every accessor over a damaged store.
 *
 * The input is a list of edits of 6 bytes, {file, offset (3 bytes, little-endian), operation,
 * value}, applied to the bookstore of tests/c/support/fixtures.h: the operation sets a byte, adds
 * to it, or writes a 32-bit extreme. The whole is then resealed (checksums and build id right
 * again), since damage that a checksum finds exercises nothing else; an input whose first byte is
 * odd is not. With bit 1 of that byte the store is harbours (support/harbours.h), of which half of
 * the edits fall into metadata.json, the last file.
 *
 * With libFuzzer: see fuzz/run.sh. Without: see replay.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"
#include "support/damage.h"
#include "support/harbours.h"

#define MAX_EDITS 64u

static struct patient
    *patients[2]; /* one of each per process; libFuzzer has no place to end them */

static const struct patient *patient_of(int has_facts) {
    if (patients[has_facts] == NULL) {
        patients[has_facts] = patient_admit(has_facts ? harbours : bookstore);
    }
    return patients[has_facts];
}

static void apply_edit(const struct patient *patient, uint8_t *const images[], const uint8_t *edit,
                       int has_facts) {
    static const uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    uint32_t file = edit[0] % patient->file_count;
    if (has_facts && edit[4] >= 128) {
        file = patient->file_count - 1;
    }
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
    int has_facts = data[0] >> 1 & 1;
    const struct patient *patient = patient_of(has_facts);
    patient_copy(patient, images);
    size_t edit_count = (size - 1) / EDIT_BYTES;
    for (size_t i = 0; i < edit_count && i < MAX_EDITS; i++) {
        apply_edit(patient, images, data + 1 + i * EDIT_BYTES, has_facts);
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
    for (int i = 0; i < 2; i++) {
        if (patients[i] != NULL) {
            patient_discharge(patients[i]);
        }
    }
}
