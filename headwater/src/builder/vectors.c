/* Texts of the build, and the three embedding files, appended to as vectors come. */
#define _DEFAULT_SOURCE 1

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "builder/builder.h"
#include "builder/hash_embed.h"

#define HASH_NAME "hash" /* the embedder of a caller who sets none, and its width */
#define HASH_DIM 256u
#define PIECE_BYTES (1u << 20) /* of hash vectors that are written at a time */

uint32_t hw_builder_text_count(const hw_builder *b) {
    return b->texts.count;
}

hw_status hw_builder_text(hw_builder *b, uint32_t index, const char **text, size_t *bytes,
                          hw_error *error) {
    if (index >= b->texts.count) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "text %u of %u", index, b->texts.count);
    }
    uint32_t text_bytes = 0;
    *text = hwi_dictionary_text(&b->texts, index, &text_bytes);
    *bytes = text_bytes;
    return HW_OK;
}

hw_status hw_builder_set_embedder(hw_builder *b, const char *name, uint32_t text_dim,
                                  hw_error *error) {
    if (b->is_failed || b->is_finished || b->text_dim != 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "the embedder is set once, on a builder that has not failed or finished");
    }
    if (name == NULL || text_dim == 0 || text_dim > HWI_MAX_TEXT_DIM) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        "embedder '%s' has vectors of %u numbers, expected 1 to %u",
                        name != NULL ? name : "", text_dim, HWI_MAX_TEXT_DIM);
    }
    if (!hwi_is_utf8(name, strlen(name))) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "the embedder's name is not UTF-8: '%.200s'", name);
    }
    b->embedder = strdup(name);
    if (b->embedder == NULL) {
        return hwi_no_memory(error, "a name", strlen(name));
    }
    hw_status status = HW_OK;
    for (uint32_t kind = 0; kind < 3 && status == HW_OK; kind++) {
        status = hwi_writer_open(&b->vectors[kind], b->directory, HWI_FILE_TEXT_EMBEDDINGS + kind,
                                 0, 1, error);
        if (status == HW_OK) {
            status = hwi_writer_begin(&b->vectors[kind], HWI_SECTION(HWI_SECTION_VECTORS, 0),
                                      2 * text_dim, error);
        }
    }
    b->text_dim = status == HW_OK ? text_dim : 0;
    return hwi_builder_latch(b, status);
}

static hw_status check_embedder(const hw_builder *b, hw_error *error) {
    if (b->is_failed || b->is_finished || b->text_dim == 0) {
        return hwi_fail(error, HW_BAD_ARGUMENT,
                        b->text_dim == 0 ? "no embedder is set"
                                         : "the builder has failed or is finished");
    }
    return HW_OK;
}

hw_status hw_builder_write_vectors(hw_builder *b, hw_embedding_kind kind, const void *vectors,
                                   uint64_t count, hw_error *error) {
    uint64_t number_count = 0;
    HW_TRY(check_embedder(b, error));
    if ((unsigned)kind > HW_EMBED_CATEGORIES ||
        hwi_mul_overflows(count, b->text_dim, &number_count) || number_count > UINT64_MAX / 4 ||
        (vectors == NULL && count > 0)) {
        return hwi_fail(error, HW_BAD_ARGUMENT, "%llu vectors of kind %u",
                        (unsigned long long)count, (unsigned)kind);
    }
    const uint8_t *numbers = vectors;
    for (uint64_t i = 0; i < number_count; i++) {
        if ((numbers[2 * i + 1] & 0x7c) == 0x7c) { /* exponent all ones */
            return hwi_fail(error, HW_BAD_SOURCE,
                            "embedding %llu of kind %u holds NaN or infinity at place %llu",
                            (unsigned long long)(b->vector_counts[kind] + i / b->text_dim),
                            (unsigned)kind, (unsigned long long)(i % b->text_dim));
        }
    }
    b->vector_counts[kind] += count;
    return hwi_builder_latch(
        b, hwi_writer_append(&b->vectors[kind], vectors, 2 * number_count, error));
}

/* ---- hash ------------------------------------------------------------------------------------ */

static uint64_t expected_vectors(const hw_builder *b, hw_embedding_kind kind) {
    return kind == HW_EMBED_TEXTS     ? b->texts.count
           : kind == HW_EMBED_COLUMNS ? b->column_count
                                      : b->category_count;
}

/* A phrase for a column or a category. The embedder reads no more than this of a text. */
struct phrase {
    size_t bytes;
    char text[HWI_EMBED_TEXT_BYTES];
};

static void add_text(struct phrase *phrase, const char *text, size_t bytes) {
    size_t left = sizeof phrase->text - phrase->bytes;
    size_t taken = bytes < left ? bytes : left;
    memcpy(phrase->text + phrase->bytes, text, taken);
    phrase->bytes += taken;
}

static void add_string(struct phrase *phrase, const char *text) {
    add_text(phrase, text, strlen(text));
}

/* "<column> of <table>: <description>"; the owner of a task's column is the task. */
static void phrase_column(struct phrase *phrase, const hw_builder *b,
                          const struct hwi_build_column *column) {
    add_string(phrase, column->name);
    add_string(phrase, " of ");
    add_string(phrase, column->info.table != HWI_NONE ? b->tables[column->info.table].name
                                                      : b->tasks[column->info.task].name);
    if (column->description != NULL) {
        add_string(phrase, ": ");
        add_string(phrase, column->description);
    }
}

/* "<column> is <category>" */
static void phrase_category(struct phrase *phrase, const struct hwi_build_column *column,
                            uint32_t category) {
    uint32_t bytes = 0;
    const char *text = hwi_dictionary_text(&column->categories, category, &bytes);
    add_string(phrase, column->name);
    add_string(phrase, " is ");
    add_text(phrase, text, bytes);
}

/* Vectors of one kind on their way, written piece by piece. */
struct hashing {
    hw_builder *b;
    hw_embedding_kind kind;
    uint32_t done;
    uint32_t column, category; /* of categories: that which is next, within its column */
    struct hwi_embed_scratch *scratch;
    struct phrase *phrase;
    uint8_t *piece; /* float16 [piece_count, text_dim] */
    uint32_t piece_count;
};

/* The text or phrase of vector `done`. */
static const char *next_text(struct hashing *hashing, size_t *bytes) {
    const hw_builder *b = hashing->b;
    if (hashing->kind == HW_EMBED_TEXTS) {
        uint32_t text_bytes = 0;
        const char *text = hwi_dictionary_text(&b->texts, hashing->done, &text_bytes);
        *bytes = text_bytes;
        return text;
    }
    hashing->phrase->bytes = 0;
    if (hashing->kind == HW_EMBED_COLUMNS) {
        phrase_column(hashing->phrase, b, &b->columns[hashing->done]);
    } else {
        while (hashing->category == b->columns[hashing->column].info.category_count) {
            hashing->column++;
            hashing->category = 0;
        }
        phrase_category(hashing->phrase, &b->columns[hashing->column], hashing->category++);
    }
    *bytes = hashing->phrase->bytes;
    return hashing->phrase->text;
}

static hw_status begin_hashing(struct hashing *hashing, hw_error *error) {
    uint32_t vector_bytes = 2 * hashing->b->text_dim;
    assert(vector_bytes > 0);
    hashing->piece_count = PIECE_BYTES > vector_bytes ? PIECE_BYTES / vector_bytes : 1;
    size_t scratch_bytes = hwi_embed_scratch_bytes(hashing->b->text_dim);
    size_t piece_bytes = (size_t)hashing->piece_count * vector_bytes;
    hashing->scratch = malloc(scratch_bytes);
    hashing->piece = malloc(piece_bytes);
    hashing->phrase = malloc(sizeof *hashing->phrase);
    return hashing->scratch == NULL || hashing->piece == NULL || hashing->phrase == NULL
               ? hwi_no_memory(error, "embeddings", scratch_bytes + piece_bytes)
               : HW_OK;
}

static hw_status hash_piece(struct hashing *hashing, uint32_t count, hw_error *error) {
    hw_builder *b = hashing->b;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *text = next_text(hashing, &bytes);
        hwi_embed(hashing->scratch, text, bytes, b->text_dim,
                  hashing->piece + 2 * (size_t)b->text_dim * i);
        hashing->done++;
    }
    b->vector_counts[hashing->kind] += count;
    return hwi_writer_append(&b->vectors[hashing->kind], hashing->piece,
                             2 * (uint64_t)b->text_dim * count, error);
}

static hw_status hash_kind(hw_builder *b, hw_embedding_kind kind, hw_error *error) {
    struct hashing hashing = {.b = b, .kind = kind};
    uint32_t count = (uint32_t)expected_vectors(b, kind);
    hw_status status = begin_hashing(&hashing, error);
    while (status == HW_OK && hashing.done < count) {
        uint32_t left = count - hashing.done;
        status =
            hash_piece(&hashing, left < hashing.piece_count ? left : hashing.piece_count, error);
    }
    free(hashing.scratch);
    free(hashing.piece);
    free(hashing.phrase);
    return status;
}

hw_status hwi_build_missing_vectors(hw_builder *b, hw_error *error) {
    if (b->text_dim == 0) {
        HW_TRY(hw_builder_set_embedder(b, HASH_NAME, HASH_DIM, error));
    }
    for (uint32_t kind = 0; kind < 3 && strcmp(b->embedder, HASH_NAME) == 0; kind++) {
        if (b->vector_counts[kind] == 0) {
            HW_TRY(hash_kind(b, (hw_embedding_kind)kind, error));
        }
    }
    return HW_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

hw_status hwi_build_vectors(hw_builder *b, struct hwi_file_info files[3], hw_error *error) {
    static const char *const kinds[3] = {"texts", "columns", "categories"};
    for (uint32_t kind = 0; kind < 3; kind++) {
        uint64_t expected = expected_vectors(b, (hw_embedding_kind)kind);
        if (b->vector_counts[kind] != expected) {
            return hwi_fail(error, HW_BAD_ARGUMENT,
                            "%llu embeddings of %s were written, the store has %llu %s",
                            (unsigned long long)b->vector_counts[kind], kinds[kind],
                            (unsigned long long)expected, kinds[kind]);
        }
        HW_TRY(hwi_writer_end(&b->vectors[kind], error));
        HW_TRY(hwi_writer_close(&b->vectors[kind], HW_OK, &files[kind], error));
    }
    return HW_OK;
}
