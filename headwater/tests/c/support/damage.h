/*
 * A store on disk whose files can be damaged and healed, for tests and fuzzing. "Resealed" damage
 * has all checksums, the list of files and the build id made right again, so that it gets past them
 * to the checks behind.
 */
#ifndef DAMAGE_H
#define DAMAGE_H

#include "support/fixtures.h"

#define PATIENT_MAX_FILES 32u

struct patient_file {
    char *path;
    uint32_t kind, index; /* of format/format.h */
    uint8_t *bytes; /* [size] as they were */
    size_t size;
};

/* files[0] is schema.bin, then the files in the order of FILES. */
struct patient {
    char *directory; /* of the store; owned */
    char *build; /* of the build inside it */
    uint32_t file_count;
    struct patient_file files[PATIENT_MAX_FILES];
};

/* Takes the directory of a published store, malloc'ed, which discharge removes. */
struct patient *patient_admit(char *directory);
void patient_discharge(struct patient *patient);
/* Writes every file as it was. */
void patient_heal(const struct patient *patient);
/* Writes the whole build, file i from images[i] [files[i].size], resealed. The images change. */
void patient_write_resealed(const struct patient *patient, uint8_t *const images[]);
/* The same with all files as they were but one. */
void patient_write_one_resealed(const struct patient *patient, uint32_t file,
                                const uint8_t *damaged);

uint8_t *damage_read_file(const char *path, size_t *size);
void damage_write_file(const char *path, const void *bytes, size_t size);
/* Calls every accessor on every row; only that it returns matters. */
void damage_read_everything(const hw_store *store);
/* 1 if the store opens and verify finds nothing; then, too, everything is read. Aborts unless
 * failure is HW_BAD_STORE with a message. */
int damage_seems_well(const char *path, hw_load load);

#endif
