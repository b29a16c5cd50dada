/*
 * A reader of JSON that looks for a few facts in a text. It moves on through the text, builds no
 * tree and does not recurse. The first fault stays: from then on every function finds nothing.
 * Values that are passed over are only checked as far as finding their end needs it.
 */
#ifndef HWI_JSON_H
#define HWI_JSON_H

#include <stddef.h>

struct hwi_json {
    const char *text; /* [bytes] */
    size_t bytes, at;
    const char *fault; /* the thing that is missing at byte `at`, or NULL */
    const char *key; /* [key_bytes] of the member, as it stands in the text */
    size_t key_bytes;
    int is_first; /* nothing of the innermost array or object was read yet */
};

/* Goes into the array ('[') or object ('{') that begins here; a fault if none does. */
int hwi_json_enter(struct hwi_json *json, char bracket);
/* Goes to the next value in the array or object that ends with `closing`; 0: there is no more, and
 * it is left. Each value must be entered and left, read or skipped. */
int hwi_json_next(struct hwi_json *json, char closing);
/* Whether the member has this name, which is plain ASCII. */
int hwi_json_is(const struct hwi_json *json, const char *name);
/* Passes over a value. */
void hwi_json_skip(struct hwi_json *json);
/* Reads a string into `string`, with a zero behind it, and its length. Together they
 * take no more bytes than the string takes in the text. */
int hwi_json_string(struct hwi_json *json, char *string, size_t *bytes);

#endif
