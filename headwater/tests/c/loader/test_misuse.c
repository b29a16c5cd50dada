/* What a binding may lean on: wrong calls are refused with what is wrong, and nothing is read or
 * written beyond what the caller says that a struct has. */
#include "support/fixtures.h"
#include "support/read.h"
#include "support/unit_test.h"

/* As a program has them whose header is newer. */
struct newer_options {
    hw_sampler_options known;
    uint64_t later;
};

/* The message of opening a sampler, which must be refused, or "" if it opens. */
static const char *refusal(hw_store *store, const hw_sampler_options *options, hw_error *error) {
    hw_sampler *sampler = NULL;
    error->message[0] = 0;
    if (hw_sampler_open(store, options, &sampler, error) == HW_OK) {
        hw_sampler_close(sampler);
        return "";
    }
    assert_int_equal(error->status, HW_BAD_ARGUMENT);
    assert_null(sampler);
    return error->message;
}

static void options_are_refused_that_say_no_size_or_more_than_is_known(void **state) {
    hw_error error;
    hw_store *store = store_of(state);
    hw_sampler_options options;
    assert_string_equal(refusal(store, NULL, &error),
                        "the pointer to an hw_sampler_options is NULL");
    hw_sampler_options_init(&options, sizeof options);
    options.struct_bytes = 0;
    assert_string_equal(refusal(store, &options, &error),
                        "struct_bytes of an hw_sampler_options is 0: set it to "
                        "sizeof(hw_sampler_options) before the call");
    for (size_t i = 0; i < 2; i++) { /* as if it were not set, or to the size of a pointer */
        options.struct_bytes = i == 0 ? (size_t)-1 : sizeof(void *);
        assert_non_null(strstr(refusal(store, &options, &error), "before the call"));
    }

    /* A newer header: what it has beyond is fine as long as it is not used. */
    unsigned char newer[sizeof(struct newer_options)];
    memset(newer, 0, sizeof newer);
    hw_sampler_options_init((hw_sampler_options *)(void *)newer, sizeof newer);
    assert_string_equal(refusal(store, (const hw_sampler_options *)(const void *)newer, &error),
                        "");
    newer[sizeof(hw_sampler_options) + 3] = 1;
    const char *said = refusal(store, (const hw_sampler_options *)(const void *)newer, &error);
    char expected[200];
    snprintf(expected, sizeof expected,
             "byte %zu of an hw_sampler_options is set, which headwater %s does not know: it has "
             "%zu bytes there",
             sizeof(hw_sampler_options) + 3, HW_VERSION, sizeof(hw_sampler_options));
    assert_string_equal(said, expected);
}

static void a_list_that_is_missing_is_not_all_of_them(void **state) {
    hw_error error;
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    options.task_count = 5;
    assert_string_equal(refusal(store_of(state), &options, &error),
                        "tasks is NULL, but is to have 5 entries");
    hw_sampler_options_init(&options, sizeof options);
    options.objective = HW_OBJECTIVE_MASKED_CELLS;
    options.seed_table_count = 1;
    assert_string_equal(refusal(store_of(state), &options, &error),
                        "seed_tables is NULL, but is to have 1 entries");
}

/* A program with an older header: the members behind `contexts_per_batch` are not its own. */
static void no_more_is_written_than_the_caller_has(void **state) {
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    hw_sampler *sampler = fixture_sampler(store_of(state), &options);
    hw_shape whole = shape_of(sampler), part;
    memset(&part, 0xee, sizeof part);
    part.struct_bytes = offsetof(hw_shape, contexts_per_batch);
    MUST(hw_sampler_shape(sampler, &part, &error));
    assert_int_equal(part.struct_bytes, offsetof(hw_shape, contexts_per_batch));
    assert_int_equal(part.parent_slots, whole.parent_slots);
    assert_int_equal(part.sequence_length, 1024);
    assert_int_equal(part.contexts_per_batch, 0xeeeeeeee);

    hw_shape unset = {0};
    hw_error error;
    assert_int_equal(hw_sampler_shape(sampler, &unset, &error), HW_BAD_ARGUMENT);
    assert_string_equal(
        error.message,
        "struct_bytes of an hw_shape is 0: set it to sizeof(hw_shape) before the call");
    assert_int_equal(hw_sampler_shape(sampler, NULL, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "the pointer to an hw_shape is NULL");

    /* And with a newer one: what the library does not have is 0. */
    struct {
        hw_batch_sizes known;
        uint64_t later;
    } newer;
    hw_batch *batch = fixture_next(sampler, HW_TRAIN);
    memset(&newer, 0xee, sizeof newer);
    newer.known.struct_bytes = sizeof newer;
    MUST(hw_batch_get_sizes(batch, &newer.known, &error));
    assert_int_equal(newer.known.texts, sizes_of(batch).texts);
    assert_int_equal(newer.later, 0);
    hw_batch_release(batch);
    hw_sampler_close(sampler);
}

static void numbers_and_names_that_do_not_exist_are_named(void **state) {
    hw_sampler_options options;
    hw_sampler_options_init(&options, sizeof options);
    hw_sampler *sampler = fixture_sampler(store_of(state), &options);
    hw_batch *batch = fixture_next(sampler, HW_TRAIN);
    hw_error error;
    hw_tensor tensor = {.struct_bytes = sizeof tensor};
    uint32_t count = hw_batch_tensor_count(batch);
    char expected[100];
    assert_int_equal(hw_batch_tensor(batch, count, &tensor, &error), HW_BAD_ARGUMENT);
    snprintf(expected, sizeof expected, "array %u of a batch with %u arrays", count, count);
    assert_string_equal(error.message, expected);
    MUST(hw_batch_find(batch, "column_ids", &tensor, &error));
    assert_string_equal(tensor.name, "column_ids");
    assert_int_equal(tensor.shape[1], 1024);
    assert_int_equal(hw_batch_find(batch, "padding_mask", &tensor, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message, "this sampler's batches have no array 'padding_mask', which "
                                       "comes with attention_masks");
    assert_int_equal(hw_batch_find(batch, "columns", &tensor, &error), HW_BAD_ARGUMENT);
    assert_string_equal(error.message,
                        "no batch has an array 'columns'; hw_batch_field_at lists all arrays");
    hw_batch_field field = {.struct_bytes = sizeof field};
    assert_int_equal(hw_batch_field_at(hw_batch_field_count(), &field, NULL), HW_BAD_ARGUMENT);
    hw_batch_release(batch);
    hw_sampler_close(sampler);
}

static void the_abi_is_that_of_the_header(void **state) {
    assert_int_equal(hw_abi(), HW_ABI);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_refused_that_say_no_size_or_more_than_is_known),
        cmocka_unit_test(a_list_that_is_missing_is_not_all_of_them),
        cmocka_unit_test(no_more_is_written_than_the_caller_has),
        cmocka_unit_test(numbers_and_names_that_do_not_exist_are_named),
        cmocka_unit_test(the_abi_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, open_bookstore, close_shelf);
}
