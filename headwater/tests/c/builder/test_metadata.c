/*
 * What hw_builder_finish makes if the caller gives nothing: the embedder, its vectors and
 * metadata.json.
 */
#define _XOPEN_SOURCE 700

#include <stdio.h>

#include "builder/builder.h"
#include "support/bench.h"
#include "support/damage.h"
#include "support/unit_test.h"

static void assert_said(const struct bench *bench, const char *message) {
    if (strstr(bench->error.message, message) == NULL) {
        fail_msg("'%s', expected '%s'", bench->error.message, message);
    }
}

static void write_events(struct bench *bench) {
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    fixture_parents(bench->b, 0, (int64_t[]){-1, 0, 0, 0, 0, 0}, 6, 0);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

static void vectors_of_another_embedder_are_not_made(void **state) {
    struct bench *bench = *state;
    char fingerprint[33];
    write_events(bench);
    assert_int_equal(hw_builder_set_embedder(bench->b, "own", 4, NULL), HW_OK);
    assert_int_equal(hw_builder_finish(bench->b, NULL, 0, fingerprint, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "0 embeddings of columns were written, the store has 4 columns");
}

/* What stands for the columns and categories of the events, by hand: C's vectors are those of these
 * phrases. */
static const char *const event_phrases[] = {"at of events", "number of events", "color of events",
                                            "flag of events"};
static const char *const color_phrases[] = {"color is red", "color is blue"};

static void assert_embedded(const hw_store *store, hw_embedding_kind kind,
                            const char *const *phrases, uint64_t expected) {
    const uint16_t *vectors = NULL;
    uint64_t count = 0;
    assert_int_equal(hw_store_vectors(store, kind, (const void **)&vectors, &count, NULL), HW_OK);
    assert_int_equal(count, expected);
    for (uint64_t i = 0; i < count; i++) {
        uint16_t own[256];
        assert_int_equal(hw_hash_embed(phrases[i], strlen(phrases[i]), 256, own, NULL), HW_OK);
        assert_memory_equal(vectors + 256 * i, own, sizeof own);
    }
}

static void without_an_embedder_phrases_are_hashed(void **state) {
    struct bench *bench = *state;
    char fingerprint[33];
    write_events(bench);
    assert_int_equal(hw_builder_finish(bench->b, NULL, 0, fingerprint, NULL), HW_OK);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, NULL), HW_OK);
    hw_store *store = fixture_open(bench->directory, HW_LOAD_MMAP);
    fixture_sound(store);
    assert_embedded(store, HW_EMBED_COLUMNS, event_phrases, 4);
    assert_embedded(store, HW_EMBED_CATEGORIES, color_phrases, 2);
    assert_embedded(store, HW_EMBED_TEXTS, NULL, 0);
    hw_store_close(store);
}

/* Characters of one to four bytes and the first and last of each; then what only looks like one:
 * too long, surrogates, past the last, cut, a byte in its middle. */
static void utf8_is_told_from_what_is_not(void **state) {
    static const char *const good[] = {
        "plain",        "\x7f",         "\xc2\x80",     "\xdf\xbf",         "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xe2\x82",
                                      "a\xc3",
                                      "\xc3(",
                                      "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(hwi_is_utf8(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hwi_is_utf8(bad[i], strlen(bad[i])));
    }
    struct bench *bench = *state;
    hw_builder_options options = {sizeof options, "caf\xe9", 0};
    hw_builder *b = NULL;
    assert_int_equal(hw_builder_open("nowhere", &options, &b, &bench->error), HW_BAD_ARGUMENT);
    assert_said(bench, "the name of a database is not UTF-8");
    assert_int_equal(hw_builder_set_embedder(bench->b, "caf\xe9", 16, &bench->error),
                     HW_BAD_ARGUMENT);
    assert_said(bench, "the embedder's name is not UTF-8");
}

/* ---- metadata.json --------------------------------------------------------------------------- */

static const char events_document[] =
    "{\"name\": \"bench\", \"format_version\": 2, \"text\": {\"embedder\": \"hash\", "
    "\"dim\": 256, \"count\": 0}, \"stats_until\": \"1970-01-01T00:00:00.000020Z\", "
    "\"csv_bytes\": 0, \"undecodable\": 0,\n \"tables\": [\n  "
    "{\"name\": \"events\", \"row_range\": [0, 6], \"column_range\": [0, 4], "
    "\"primary_key\": [\"key\"], \"temporal_column\": \"at\", \"time_resolution\": \"instant\", "
    "\"null_time\": \"hidden\", \"foreign_keys\": [\n   "
    "{\"columns\": [\"number\"], \"references\": {\"table\": \"events\", "
    "\"columns\": [\"key\"]}, \"edges\": 5, \"dangling\": 0, \"nulls\": 1}], "
    "\"untimed\": 0, \"duplicates_dropped\": 0, \"null_values\": 0, \"conversions\": []}],\n "
    "\"columns\": [\n  "
    "{\"table\": \"events\", \"name\": \"at\", \"stype\": \"timestamp\", \"stats\": "
    "{\"count\": 6, \"nulls\": 0, \"min\": \"1970-01-01T00:00:00.000010Z\", "
    "\"max\": \"1970-01-01T00:00:00.000050Z\"}},\n  "
    /* of 1, 3 and 5: the deviation is the root of 8 / 3 */
    "{\"table\": \"events\", \"name\": \"number\", \"stype\": \"numerical\", \"stats\": "
    "{\"count\": 6, \"nulls\": 0, \"mean\": 3, \"std\": 1.6329931618554521, \"min\": 1, "
    "\"max\": 300}},\n  "
    "{\"table\": \"events\", \"name\": \"color\", \"stype\": \"categorical\", \"stats\": "
    "{\"count\": 5, \"nulls\": 1, \"cat_emb_start\": 0, \"categories\": [\"red\", \"blue\"]}},\n  "
    "{\"table\": \"events\", \"name\": \"flag\", \"stype\": \"boolean\", \"stats\": "
    "{\"count\": 6, \"nulls\": 0, \"true\": 3, \"false\": 3}}],\n "
    "\"tasks\": []}\n";

/* The metadata.json of a builder that ends here, published; the caller frees it. */
static char *finished_document(hw_builder *b, const char *directory) {
    char fingerprint[33], name[64];
    size_t size = 0;
    MUST(hw_builder_finish(b, NULL, 0, fingerprint, &error));
    MUST(hw_builder_publish(b, directory, &error));
    snprintf(name, sizeof name, "%s/metadata.json", fingerprint);
    char *path = fixture_path(directory, name);
    uint8_t *bytes = damage_read_file(path, &size);
    char *text = calloc(1, size + 1);
    memcpy(text, bytes, size);
    free(bytes);
    free(path);
    return text;
}

static void metadata_state_what_was_declared_and_measured(void **state) {
    struct bench *bench = *state;
    write_events(bench);
    char *text = finished_document(bench->b, bench->directory);
    assert_string_equal(text, events_document);
    free(text);
}

static void assert_holds(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("no %s", part);
    }
}

/* One table without rows, whose names need escapes; known_at of every kind; a cell task that
 * predicts a foreign key, and a derived one. */
static void metadata_escape_texts_and_name_times_and_tasks(void **state) {
    struct bench *bench = calloc(1, sizeof *bench);
    bench->directory = fixture_directory();
    bench->b = fixture_builder("say \"so\"\\", bench->directory, INT64_MAX);
    *state = bench;
    static const char *const moods[] = {"gl\xc3\xbc\x63k\n", "\x01"};
    fixture_table(
        bench->b,
        (hw_table_spec){.name = "t\tab", .key_part_count = 3, .days = 1, .null_time_visible = 1});
    const hw_column_spec columns[] = {
        {.name = "at", .stype = HW_TIMESTAMP, .description = "when \"it\" came"},
        {.name = "a", .stype = HW_CATEGORICAL, .known = HW_KNOWN_COLUMN, .known_column = 0},
        {.name = "b",
         .stype = HW_NUMERICAL,
         .known = HW_KNOWN_OFFSET,
         .known_offset_us = INT64_C(86400000000)},
        {.name = "c",
         .stype = HW_NUMERICAL,
         .known = HW_KNOWN_OFFSET,
         .known_offset_us = -90000000},
        {.name = "d", .stype = HW_BOOLEAN, .known = HW_KNOWN_NEVER},
    };
    for (uint32_t i = 0; i < 5; i++) {
        fixture_add_column(bench->b, 0, columns[i]);
    }
    MUST(hw_builder_set_categories(bench->b, 1, moods, 2, &error));
    fixture_key(bench->b, 0, 0, 1);
    const hw_task_spec tasks[] = {
        {sizeof *tasks, .name = "which", .target_column = 1, .hidden = (uint32_t[]){0, 4},
         .hidden_count = 2, .exclusive = 1, .given_split = 1},
        {sizeof *tasks, .name = "mood", .target_column = UINT32_MAX, .target_name = "mood",
         .target_stype = HW_NUMERICAL},
    };
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t index = 0;
        MUST(hw_builder_add_task(bench->b, &tasks[i], &index, &error));
    }
    const struct fixture_column rows[] = {
        {"", "u", NULL, NULL},   {"id", "l", NULL, NULL}, {"id", "l", NULL, NULL},
        {"at", "l", NULL, NULL}, {"a", "u", NULL, NULL},  {"b", "g", NULL, NULL},
        {"c", "g", NULL, NULL},  {"d", "b", NULL, NULL},
    };
    const struct fixture_column seeds[] = {
        {"anchor", "l", NULL, NULL},   {"obs_time", "l", NULL, NULL}, {"target", "u", NULL, NULL},
        {"labelled", "b", NULL, NULL}, {"split", "i", NULL, NULL},    {"position", "l", NULL, NULL},
    };
    struct fixture_column numbers[6];
    memcpy(numbers, seeds, sizeof seeds);
    numbers[2].format = "g";
    fixture_rows(bench->b, 0, rows, 8, 0, 0);
    fixture_parents(bench->b, 0, NULL, 0, 0);
    fixture_seeds(bench->b, 0, seeds, 6, 0);
    fixture_seeds(bench->b, 1, numbers, 6, 0);
    char *text = finished_document(bench->b, bench->directory);
    assert_holds(text, "{\"name\": \"say \\\"so\\\"\\\\\", ");
    assert_holds(text, "\"stats_until\": null");
    assert_holds(text, "{\"name\": \"t\\u0009ab\", \"row_range\": [0, 0]");
    assert_holds(text, "\"primary_key\": [\"key\", \"id\", \"key3\"], \"temporal_column\": null, "
                       "\"time_resolution\": \"day\", \"null_time\": \"visible\"");
    assert_holds(text, "\"description\": \"when \\\"it\\\" came\", \"stats\": {\"count\": 0");
    assert_holds(text, "\"name\": \"a\", \"stype\": \"categorical\", \"known_at\": \"at\"");
    assert_holds(text, "\"name\": \"b\", \"stype\": \"numerical\", \"known_at\": \"+1 day\"");
    assert_holds(text, "\"name\": \"c\", \"stype\": \"numerical\", \"known_at\": \"-90 seconds\"");
    assert_holds(text, "\"name\": \"d\", \"stype\": \"boolean\", \"known_at\": \"never\"");
    assert_holds(text, "\"categories\": [\"gl\xc3\xbc\x63k\\u000a\", \"\\u0001\"]");
    assert_holds(text, "{\"table\": null, \"task\": \"mood\", \"name\": \"obs_time\"");
    assert_holds(text,
                 "{\"name\": \"which\", \"kind\": \"cell\", \"anchor_table\": \"t\\u0009ab\", "
                 "\"target_column\": \"a\", \"target_stype\": \"categorical\", "
                 "\"target_column_id\": 1, \"seeds\": {\"train\": 0, \"val\": 0, "
                 "\"test\": 0, \"unlabelled\": 0}, \"obs_time_range\": null, "
                 "\"split\": \"given\", \"cutoff\": \"exclusive\", "
                 "\"context_labels\": \"none\", "
                 "\"hidden_columns\": [\"t\\u0009ab.at\", \"t\\u0009ab.d\"]");
    assert_holds(text, "{\"name\": \"mood\", \"kind\": \"derived\"");
    assert_holds(text, "\"cutoff\": \"inclusive\", \"context_labels\": \"train\", "
                       "\"hidden_columns\": []");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(open_bench, vectors_of_another_embedder_are_not_made),
        ON(open_bench, without_an_embedder_phrases_are_hashed),
        ON(open_bench, utf8_is_told_from_what_is_not),
        ON(open_bench_until_20, metadata_state_what_was_declared_and_measured),
        cmocka_unit_test_teardown(metadata_escape_texts_and_name_times_and_tasks, close_bench),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
