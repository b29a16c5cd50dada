/* A reader of JSON; see json.h. */
#include "base/json.h"

#include <stdint.h>
#include <string.h>

#define LONE_SURROGATE 0xfffdu /* stands for half a pair */

static int fail(struct hwi_json *json, const char *expected) {
    if (json->fault == NULL) {
        json->fault = expected;
    }
    return 0;
}

/* The character at the next place that is not a space, 0 at the end or after a fault. */
static char peek(struct hwi_json *json) {
    if (json->fault != NULL) {
        return 0;
    }
    while (json->at < json->bytes && json->text[json->at] != 0 &&
           strchr(" \t\r\n", json->text[json->at]) != NULL) {
        json->at++;
    }
    return json->at < json->bytes ? json->text[json->at] : 0;
}

static int take(struct hwi_json *json, char expected) {
    int is_there = peek(json) == expected;
    json->at += (size_t)is_there;
    return is_there;
}

/* Passes over a string, and finds the bytes between its quotes. */
static int skip_string(struct hwi_json *json, const char **start, size_t *bytes) {
    if (!take(json, '"')) {
        return fail(json, "a string");
    }
    *start = json->text + json->at;
    for (size_t at = json->at; at < json->bytes; at++) {
        if (json->text[at] == '"') {
            *bytes = at - json->at;
            json->at = at + 1;
            return 1;
        }
        at += json->text[at] == '\\';
    }
    return fail(json, "the end of a string");
}

int hwi_json_enter(struct hwi_json *json, char bracket) {
    json->is_first = 1;
    return take(json, bracket) || fail(json, bracket == '[' ? "an array" : "an object");
}

int hwi_json_next(struct hwi_json *json, char closing) {
    int was_first = json->is_first;
    json->is_first = 0;
    if (json->fault != NULL || take(json, closing)) {
        return 0;
    }
    if (!was_first && !take(json, ',')) {
        return fail(json, "a comma, or the end of an array or object");
    }
    if (closing == ']') {
        return 1;
    }
    return skip_string(json, &json->key, &json->key_bytes) &&
           (take(json, ':') || fail(json, "a colon"));
}

int hwi_json_is(const struct hwi_json *json, const char *name) {
    return json->key_bytes == strlen(name) && memcmp(json->key, name, json->key_bytes) == 0;
}

/* A number or a word. */
static int skip_scalar(struct hwi_json *json) {
    size_t start = json->at;
    while (json->at < json->bytes && json->text[json->at] != 0 &&
           strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzEIN", json->text[json->at]) != NULL) {
        json->at++;
    }
    return json->at > start || fail(json, "a value");
}

void hwi_json_skip(struct hwi_json *json) {
    static const char opening[] = "{[", closing[] = "}]";
    const char *start = NULL;
    size_t bytes = 0;
    uint64_t depth = 0;
    for (int is_begun = 0; json->fault == NULL && (!is_begun || depth > 0); is_begun = 1) {
        char next = peek(json);
        if (next == '"') {
            skip_string(json, &start, &bytes);
        } else if (next != 0 && strchr(opening, next) != NULL) {
            depth++;
            json->at++;
        } else if (next != 0 && depth > 0 && strchr(closing, next) != NULL) {
            depth--;
            json->at++;
        } else if (depth > 0 && (next == ',' || next == ':')) {
            json->at++;
        } else {
            skip_scalar(json);
        }
    }
}

/* ---- strings ----------------------------------------------------------------------------- */

/* The number of four hexadecimal digits, UINT32_MAX if these are not there. */
static uint32_t hex4(const char *text, const char *end) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    uint32_t number = 0;
    if (end - text < 4) {
        return UINT32_MAX;
    }
    for (int i = 0; i < 4; i++) {
        const char *digit = text[i] == 0 ? NULL : strchr(digits, text[i]);
        if (digit == NULL) {
            return UINT32_MAX;
        }
        number = number << 4 | (uint32_t)(digit - digits) % 16;
    }
    return number;
}

static char *append_utf8(char *out, uint32_t code) {
    static const uint32_t ends[] = {0x80, 0x800, 0x10000};
    static const uint32_t marks[] = {0, 0xc0, 0xe0, 0xf0};
    uint32_t more = 0;
    while (more < 3 && code >= ends[more]) {
        more++;
    }
    *out++ = (char)(marks[more] | code >> (6 * more));
    while (more-- > 0) {
        *out++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    }
    return out;
}

/* Reads a character from behind its \u; NULL if that is not hexadecimal. */
static const char *read_code(const char *at, const char *end, char **out) {
    uint32_t code = hex4(at, end), low = UINT32_MAX;
    if (code == UINT32_MAX) {
        return NULL;
    }
    at += 4;
    if (code >= 0xd800 && code < 0xdc00 && end - at >= 2 && at[0] == '\\' && at[1] == 'u') {
        low = hex4(at + 2, end);
    }
    if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    } else if (code >= 0xd800 && code < 0xe000) {
        code = LONE_SURROGATE;
    }
    *out = append_utf8(*out, code);
    return at;
}

int hwi_json_string(struct hwi_json *json, char *string, size_t *bytes) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = NULL;
    char *out = string;
    if (!skip_string(json, &at, bytes)) {
        return 0;
    }
    for (const char *end = at + *bytes; at < end;) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        char kind = at[1]; /* there is one: the quote that ends the string is not escaped */
        const char *escape = kind == 0 ? NULL : strchr(escapes, kind);
        at += 2;
        if (escape != NULL) {
            *out++ = meant[escape - escapes];
        } else if (kind != 'u' || (at = read_code(at, end, &out)) == NULL) {
            return fail(json, "no other escape than those of JSON");
        }
    }
    *out = 0;
    *bytes = (size_t)(out - string);
    return 1;
}
