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

/* A store that `make` builds in a directory, which discharge removes. */
struct patient *patient_admit(hw_store *(*make)(const char *store_path));
void patient_discharge(struct patient *patient);
/* Writes every file as it was. */
void patient_heal(const struct patient *patient);
/* Where an element of a section lies in a file. */
size_t patient_place(const struct patient *patient, uint32_t file, uint32_t section,
                     uint32_t element);
/* Copies of all files, for patient_free. */
void patient_copy(const struct patient *patient, uint8_t *images[PATIENT_MAX_FILES]);
void patient_free(const struct patient *patient, uint8_t *images[PATIENT_MAX_FILES]);
/* Writes the whole build, file i from images[i] [files[i].size], resealed. The images change. */
void patient_write_resealed(const struct patient *patient, uint8_t *const images[]);
/* The same with all files as they were but `bytes` of `value` at a place of one; not resealed,
 * writes that one alone. */
void patient_wound(const struct patient *patient, uint32_t file, size_t at, uint64_t value,
                   size_t bytes, int is_resealed);
/* Flips bits of one byte. */
void patient_flip(const struct patient *patient, uint32_t file, size_t at, uint8_t bits,
                  int is_resealed);

uint8_t *damage_read_file(const char *path, size_t *size);
void damage_write_file(const char *path, const void *bytes, size_t size);
/* Calls every accessor on every row; only that it returns matters. */
void damage_read_everything(const hw_store *store);
/* 1 if the store opens and verify finds nothing; then, too, everything is read. Aborts unless
 * failure is HW_BAD_STORE with a message. */
int damage_seems_well(const char *path, hw_load load);

#endif
