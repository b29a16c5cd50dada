/*
 * Publication: an old build is replaced, and what is not a store's own stays. That equal input
 * gives equal bytes is store/test_golden.c's matter.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/bench.h"
#include "support/unit_test.h"

static void publication_replaces_the_old_build(void **state) {
    char *directory = fixture_directory();
    hw_store *before = bookstore(directory);
    char old[33];
    memcpy(old, hw_store_fingerprint(before), sizeof old);
    hw_store *after = deliveries(directory);
    assert_string_not_equal(hw_store_fingerprint(after), old);
    assert_int_equal(fixture_entries(directory), 2); /* manifest.json and one build */
    /* The open one goes on over its unlinked files. */
    const char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(hw_store_text(before, 3, &text, &bytes, NULL), HW_OK);
    assert_memory_equal(text, "Fog", 3);
    fixture_sound(before);
    hw_store_close(before);
    hw_store_close(after);
    fixture_remove(directory);
}

static void an_equal_build_is_kept_and_a_damaged_one_replaced(void **state) {
    char *directory = fixture_directory();
    hw_store *store = bookstore(directory);
    char *texts = fixture_path(hw_store_directory(store), "texts.bin");
    hw_store_close(store);
    hw_store_close(bookstore(directory));
    assert_int_equal(fixture_entries(directory), 2);
    FILE *stream = fopen(texts, "r+b");
    assert_non_null(stream);
    fseek(stream, -64, SEEK_END);
    fputc('X', stream);
    fclose(stream);
    store = bookstore(directory);
    fixture_sound(store);
    hw_store_close(store);
    free(texts);
    fixture_remove(directory);
}

/* A build that is published removes the one before it, which a reader of the manifest was about to
 * open: one open in 230 failed. */
static void a_store_opens_while_builds_are_published(void **state) {
    char *directory = fixture_directory();
    int opened = 0, status = 0;
    hw_store_close(bookstore(directory));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            hw_store_close(deliveries(directory));
            hw_store_close(bookstore(directory));
        }
        _exit(0);
    }
    for (; waitpid(child, &status, WNOHANG) == 0; opened++) {
        hw_store_close(fixture_open(directory, HW_LOAD_MMAP)); /* fails if a file is missing */
    }
    assert_int_equal(status, 0);
    assert_true(opened > 100);
    fixture_remove(directory);
}

static void a_manifest_that_may_not_be_read_is_an_error_of_the_system(void **state) {
    char *directory = fixture_directory();
    char *manifest = fixture_path(directory, "manifest.json");
    hw_store_close(bookstore(directory));
    assert_int_equal(chmod(manifest, 0), 0);
    assert_int_equal(chmod(directory, 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hw_store *store = NULL;
        hw_error error = {.message = ""};
        _exit((getuid() != 0 || setuid(65534) == 0) &&
              hw_store_open(directory, HW_LOAD_MMAP, &store, &error) == HW_IO &&
              strstr(error.message, manifest) != NULL &&
              strstr(error.message, strerror(EACCES)) != NULL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    free(manifest);
    fixture_remove(directory);
}

/* ---- what is not a store's own ----------------------------------------------------------- */

static void write_file(const char *directory, const char *name, const char *text) {
    char *path = fixture_path(directory, name);
    FILE *stream = fopen(path, "wbe");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
    free(path);
}

static void make_folder(const char *directory, const char *name) {
    char *path = fixture_path(directory, name);
    assert_int_equal(mkdir(path, 0777), 0);
    free(path);
}

static void assert_there(const char *directory, const char *name, const char *text) {
    char found[64] = "";
    char *path = fixture_path(directory, name);
    FILE *stream = fopen(path, "rbe");
    assert_non_null(stream);
    found[fread(found, 1, sizeof found - 1, stream)] = 0;
    fclose(stream);
    free(path);
    assert_string_equal(found, text);
}

/* They were removed: anything called by 32 hex digits was taken for an older build, and what a link
 * led to as well. */
static void publication_removes_nothing_but_builds(void **state) {
    static const char foreign[] = "00112233445566778899aabbccddeeff";
    static const char alike[] = "11112233445566778899aabbccddeeff";
    static const char link_name[] = "22112233445566778899aabbccddeeff";
    char *directory = fixture_directory(), *elsewhere = fixture_directory();
    hw_store *before = bookstore(directory);
    char old[33], name[80];
    memcpy(old, hw_store_fingerprint(before), sizeof old);
    /* A folder of someone; one whose files are called as ours; a link to a build elsewhere; and a
     * true build with a file of someone in it. */
    make_folder(directory, foreign);
    write_file(directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    make_folder(directory, alike);
    write_file(directory, "11112233445566778899aabbccddeeff/schema.bin", "mine too");
    hw_store_close(bookstore(elsewhere));
    char *link_path = fixture_path(directory, link_name), *build = fixture_path(elsewhere, old);
    assert_int_equal(symlink(build, link_path), 0);
    snprintf(name, sizeof name, "%s/notes.txt", old);
    write_file(directory, name, "keep");
    hw_store *after = deliveries(directory);
    assert_string_not_equal(hw_store_fingerprint(after), old);
    assert_there(directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    assert_there(directory, "11112233445566778899aabbccddeeff/schema.bin", "mine too");
    assert_there(directory, name, "keep");
    hw_store_close(after);
    for (int i = 0; i < 2; i++) { /* the build behind the link, and the one with a note in it */
        char *path = fixture_path(i == 0 ? elsewhere : directory, old);
        hw_store *store = fixture_open(path, HW_LOAD_MMAP);
        fixture_sound(store);
        hw_store_close(store);
        free(path);
    }
    hw_store_close(before);
    free(link_path);
    free(build);
    fixture_remove(directory);
    fixture_remove(elsewhere);
}

/* {manifest.json, expected message}: each was replaced, status 0. */
static void a_folder_whose_manifest_is_not_a_store_s_stays(void **state) {
    static const char *const refused[][2] = {
        {"", "is not that of a store"},
        {"{}", "is not that of a store"},
        {"{\"manifest_version\": 3, \"name\": \"of a browser\"}", "is not that of a store"},
        {"{\"fingerprint\": \"00112233445566778899aabbccddeeff\"}", "is not that of a store"},
        {"{\"format_version\": 2, \"byte_order\": \"big\", \"fingerprint\": "
         "\"00112233445566778899aabbccddeeff\", \"files\": []}",
         "is not that of a store"},
        {"{\"format_version\": 99, \"byte_order\": \"little\", \"fingerprint\": "
         "\"11112233445566778899aabbccddeeff\", \"files\": []}",
         "is a store of format version 99, this headwater writes version 2"},
        {"{\"format_version\": 2, \"byte_order\": \"little\", \"fingerprint\": "
         "\"00112233445566778899aabbccddeeff\", \"files\": []}",
         "which its manifest.json names, is not a build"},
    };
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 0), HW_OK);
    fixture_parents(bench->b, 0, NULL, 0, 0);
    fixture_complete(bench->b, 4, 2, FIXTURE_TEXT_DIM);
    make_folder(bench->directory, "00112233445566778899aabbccddeeff");
    write_file(bench->directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        write_file(bench->directory, "manifest.json", refused[i][0]);
        assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error),
                         HW_BAD_STORE);
        if (strstr(bench->error.message, refused[i][1]) == NULL) {
            fail_msg("'%s', expected '%s'", bench->error.message, refused[i][1]);
        }
        assert_int_equal(fixture_entries(bench->directory), 3); /* with the builder's own folder */
    }
    /* A link, and what it leads to. */
    write_file(bench->directory, "of another", "mine");
    char *path = fixture_path(bench->directory, "manifest.json");
    char *other = fixture_path(bench->directory, "of another");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_BAD_STORE);
    assert_non_null(strstr(bench->error.message, "is not a regular file"));
    assert_int_equal(unlink(path), 0);
    /* Nor is one opened where the manifest is written first. */
    char *beside = fixture_path(bench->directory, ".building-fixture.manifest.json");
    assert_int_equal(symlink(other, beside), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_IO);
    assert_there(bench->directory, "of another", "mine");
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(hw_builder_publish(bench->b, bench->directory, &bench->error), HW_OK);
    assert_there(bench->directory, "of another", "mine");
    assert_there(bench->directory, "00112233445566778899aabbccddeeff/letter.txt", "mine");
    free(path);
    free(other);
    free(beside);
}

static void an_unfinished_build_leaves_nothing(void **state) {
    struct bench *bench = *state;
    struct fixture_column columns[EVENT_FIELDS];
    good_columns(columns);
    assert_int_equal(write_rows(bench, columns, EVENT_FIELDS, 6), HW_OK);
    assert_int_equal(fixture_entries(bench->directory), 1);
    hw_builder_close(bench->b);
    bench->b = NULL;
    assert_int_equal(fixture_entries(bench->directory), 0);
}

static void a_directory_that_exists_is_not_built_in(void **state) {
    struct bench *bench = *state;
    hw_builder_options options = {sizeof options, "again", INT64_MAX};
    hw_builder *b = NULL;
    assert_int_equal(hw_builder_open(bench->directory, &options, &b, &bench->error), HW_IO);
    assert_null(b);
    assert_int_equal(fixture_entries(bench->directory), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publication_replaces_the_old_build),
        cmocka_unit_test(an_equal_build_is_kept_and_a_damaged_one_replaced),
        cmocka_unit_test(a_store_opens_while_builds_are_published),
        cmocka_unit_test(a_manifest_that_may_not_be_read_is_an_error_of_the_system),
        cmocka_unit_test(publication_removes_nothing_but_builds),
        ON(open_bench, a_folder_whose_manifest_is_not_a_store_s_stays),
        ON(open_bench, an_unfinished_build_leaves_nothing),
        ON(open_bench, a_directory_that_exists_is_not_built_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
