/*
 * Fuzzing the sampler over a damaged store that opens.
 *
 * The input is a byte that chooses the database and the options, then edits of 6 bytes: {file,
 * where (3 bytes, little-endian), operation, value}. Edits fall behind the headers of the files
 * that hold ids: tables, graph, tasks and, for one edit in eight, the schema, which mostly does not
 * open then. An operation sets a byte, flips a bit, writes a 32-bit extreme, or copies a word of
 * another place of the file, so that ids become other ids. The whole is resealed (support/damage.h)
 * and surveyed (support/survey.h).
 *
 * With libFuzzer: see fuzz/run.sh. Without: see replay.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "replay.h"
#include "support/damage.h"
#include "support/league.h"
#include "support/survey.h"

#define MAX_EDITS 16u
#define DATABASES 3u

/* One of each database per process; libFuzzer has no place to end them. */
static struct patient *patients[DATABASES];

static struct patient *patient_of(uint32_t database) {
    static hw_store *(*const makers[DATABASES])(const char *store_path) = {bookstore, deliveries,
                                                                           league};
    if (patients[database] == NULL) {
        patients[database] = patient_admit(makers[database]);
    }
    return patients[database];
}

/* A file by number: mostly one that a sampler reads ids from. */
static uint32_t choose_file(const struct patient *patient, uint8_t number) {
    if (number % 8 == 7) {
        return 0;
    }
    uint32_t count = 1;
    while (count < patient->file_count && patient->files[count].kind != HWI_FILE_TEXT_EMBEDDINGS) {
        count++;
    }
    return 1 + number / 8 % (count - 1);
}

static void apply_edit(const struct patient *patient, uint8_t *const images[],
                       const uint8_t *edit) {
    static const uint32_t extremes[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    uint32_t file = choose_file(patient, edit[0]);
    struct hwi_file_header header;
    memcpy(&header, patient->files[file].bytes, sizeof header);
    size_t start = sizeof header + header.section_count * sizeof(struct hwi_section_info);
    size_t room = patient->files[file].size - start;
    if (room < 8) {
        return;
    }
    uint8_t *contents = images[file] + start;
    size_t at = (edit[1] | (size_t)edit[2] << 8 | (size_t)edit[3] << 16) % room;
    size_t word = at % (room / 4) * 4;
    switch (edit[4] % 4) {
    case 0:
        contents[at] = edit[5];
        break;
    case 1:
        contents[at] ^= (uint8_t)(1u << edit[5] % 8);
        break;
    case 2:
        memcpy(contents + word, &extremes[edit[5] % (sizeof extremes / sizeof *extremes)], 4);
        break;
    default:
        memcpy(contents + word, patient->files[file].bytes + start + edit[5] % (room / 4) * 4, 4);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *images[PATIENT_MAX_FILES];
    struct survey survey = {0};
    if (size < 1 + EDIT_BYTES) {
        return 0;
    }
    const struct patient *patient = patient_of(data[0] / SURVEY_VARIANTS % DATABASES);
    patient_copy(patient, images);
    size_t edit_count = (size - 1) / EDIT_BYTES;
    for (size_t i = 0; i < edit_count && i < MAX_EDITS; i++) {
        apply_edit(patient, images, data + 1 + i * EDIT_BYTES);
    }
    patient_write_resealed(patient, images);
    survey_store(patient->build, data[0] % SURVEY_VARIANTS, &survey);
    patient_free(patient, images);
    return 0;
}

const uint32_t most_edits = 6;

void discharge_patients(void) {
    for (uint32_t database = 0; database < DATABASES; database++) {
        if (patients[database] != NULL) {
            patient_discharge(patients[database]);
        }
    }
}
