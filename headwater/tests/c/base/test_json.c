/* The reader of JSON: values by hand, and that it stays within any text. */
#include <stdio.h>

#include "base/json.h"
#include "support/unit_test.h"

static struct hwi_json over(const char *text) {
    return (struct hwi_json){.text = text, .bytes = strlen(text)};
}

static void assert_string(const char *text, const char *expected, size_t expected_bytes) {
    char string[64] = "";
    size_t bytes = 0;
    struct hwi_json json = over(text);
    assert_true(strlen(text) < sizeof string);
    assert_int_equal(hwi_json_string(&json, string, &bytes), 1);
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(string, expected, bytes + 1);
    assert_true(bytes + 1 <= json.at);
}

static void strings_are_decoded(void **state) {
    assert_string("\"\"", "", 0);
    assert_string(" \"a/\\/\"", "a//", 3);
    assert_string("\"\\\"\\\\\\b\\f\\n\\r\\t\"", "\"\\\b\f\n\r\t", 7);
    assert_string("\"\\u0041\\u00e9\\u20AC\\ud83d\\udea2\"",
                  "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2", 10);
    assert_string("\"\\u0000b\"", "\0b", 2);
    /* Halves of a pair stand for no character. */
    assert_string("\"\\ud83dx\\udea2\"", "\xef\xbf\xbdx\xef\xbf\xbd", 7);
    assert_string("\"\\ud83d\\u0041\"", "\xef\xbf\xbd\x41", 4);
}

static void what_is_no_string_is_a_fault(void **state) {
    static const struct {
        const char *text, *fault;
        size_t at;
    } cases[] = {
        {"7", "a string", 0},
        {"", "a string", 0},
        {"  \"abc", "the end of a string", 3},
        {"\"a\\\"", "the end of a string", 1},
        {"\"\\x\"", "no other escape than those of JSON", 4},
        {"\"\\u12g4\"", "no other escape than those of JSON", 8},
        {"\"\\u12\"", "no other escape than those of JSON", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char string[16];
        size_t bytes = 0;
        struct hwi_json json = over(cases[i].text);
        assert_int_equal(hwi_json_string(&json, string, &bytes), 0);
        assert_string_equal(json.fault, cases[i].fault);
        assert_int_equal(json.at, cases[i].at);
        assert_int_equal(hwi_json_string(&json, string, &bytes), 0); /* the fault stays */
    }
}

static void values_are_passed_over(void **state) {
    struct hwi_json json =
        over("[ {\"a\": [1, {\"b\": \"]}\"}], \"c\": null}, -1.5E+3 ,[] ,\"x\", true]");
    int count = 0;
    assert_true(hwi_json_enter(&json, '['));
    while (hwi_json_next(&json, ']')) {
        hwi_json_skip(&json);
        count++;
    }
    assert_null(json.fault);
    assert_int_equal(count, 5);
    assert_int_equal(json.at, json.bytes);
}

static void members_have_their_keys(void **state) {
    struct hwi_json json = over("{\"one\": {}, \"two\": [[], {\"three\": 3}]}");
    char found[16] = "";
    assert_true(hwi_json_enter(&json, '{'));
    while (hwi_json_next(&json, '}')) {
        strcat(found, hwi_json_is(&json, "one") ? "1" : hwi_json_is(&json, "two") ? "2" : "?");
        if (!hwi_json_is(&json, "two")) {
            hwi_json_skip(&json);
            continue;
        }
        assert_true(hwi_json_enter(&json, '['));
        while (hwi_json_next(&json, ']')) {
            assert_true(hwi_json_enter(&json, '[') || json.text[json.at] == '{');
            while (hwi_json_next(&json, ']')) {
                strcat(found, "!");
            }
            json.fault = NULL;
            if (json.text[json.at] == '{') {
                assert_true(hwi_json_enter(&json, '{'));
                assert_true(hwi_json_next(&json, '}') && hwi_json_is(&json, "three"));
                hwi_json_skip(&json);
                assert_false(hwi_json_next(&json, '}'));
                strcat(found, "3");
            }
        }
    }
    assert_null(json.fault);
    assert_string_equal(found, "123");
}

static void what_is_no_list_is_a_fault(void **state) {
    static const struct {
        const char *text, *fault;
    } cases[] = {
        {"[1 2]", "a comma, or the end of an array or object"},
        {"[1,]", "a value"},
        {"[,1]", "a value"},
        {"[1", "a comma, or the end of an array or object"},
        {"[1}", "a comma, or the end of an array or object"},
        {"[{\"a\": 1", "a value"},
        {"{}", "an array"},
        {"[#]", "a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hwi_json json = over(cases[i].text);
        hwi_json_enter(&json, '[');
        while (hwi_json_next(&json, ']')) {
            hwi_json_skip(&json);
        }
        assert_non_null(json.fault);
        assert_string_equal(json.fault, cases[i].fault);
    }
}

/* Every text of up to five of these characters, in memory of just its size. */
static void no_text_leads_out_of_it(void **state) {
    static const char letters[] = "[]{}\",:\\u1 a";
    char string[8];
    for (uint32_t length = 0; length <= 5; length++) {
        uint32_t texts = 1;
        for (uint32_t i = 0; i < length; i++) {
            texts *= sizeof letters - 1;
        }
        char *text = malloc(length + (length == 0));
        assert_non_null(text);
        for (uint32_t number = 0; number < texts; number++) {
            uint32_t rest = number;
            size_t bytes = 0;
            for (uint32_t i = 0; i < length; i++, rest /= sizeof letters - 1) {
                text[i] = letters[rest % (sizeof letters - 1)];
            }
            const struct hwi_json start = {.text = text, .bytes = length};
            struct hwi_json json = start;
            hwi_json_skip(&json);
            assert_true(json.at <= length);
            json = start;
            hwi_json_enter(&json, '{');
            while (hwi_json_next(&json, '}')) {
                hwi_json_skip(&json);
            }
            assert_true(json.at <= length);
            json = start;
            if (hwi_json_string(&json, string, &bytes)) {
                assert_true(bytes + 1 <= length);
            }
        }
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(what_is_no_string_is_a_fault),
        cmocka_unit_test(values_are_passed_over),
        cmocka_unit_test(members_have_their_keys),
        cmocka_unit_test(what_is_no_list_is_a_fault),
        cmocka_unit_test(no_text_leads_out_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
