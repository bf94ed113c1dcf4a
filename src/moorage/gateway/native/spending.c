/* What limits ask of each request: the bound that its body sets on its answer, and header lines with numbers in them.
 *
 * Here: what `_most_tokens` of limits.py does for a whole body, and what `%d` of bytes does in limit_answers.py. Not here:
 * which limits there are, whether they admit a request, which lines it gets. The differential tests
 * (tests/property/test_gateway_native_spending.py) compare every answer.
 *
 * Memory and threads: as in core.c. No code of Python's runs in either function.
 */

#include "spending.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { BOUND_DIGITS_MAX = 9, PARTS_MAX = 8, NUMBER_BYTES_MAX = 20, PART_BYTES_MAX = 1 << 12 };

/* --- the bound in a body ---------------------------------------------------------------------------------------- */

static const char *after_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) /* what `\s` is for bytes */
        at++;
    return at;
}

/* Steps over a word; false where another one stands. */
static bool take(const char **at, const char *end, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(end - *at) < size || memcmp(*at, word, size) != 0)
        return false;
    *at += size;
    return true;
}

/* The number after `"max_`, where that key and a number stand; else 0. */
static long bound_at(const char *at, const char *end) {
    long value = 0;
    if (!take(&at, end, "completion_"))
        take(&at, end, "output_");
    if (!take(&at, end, "tokens\""))
        return 0;
    at = after_space(at, end);
    if (!take(&at, end, ":"))
        return 0;
    at = after_space(at, end);
    for (int digits = 0; digits < BOUND_DIGITS_MAX && at < end && *at >= '0' && *at <= '9'; digits++)
        value = value * 10 + (*at++ - '0');
    return value;
}

const char most_tokens_doc[] = "most_tokens(body) -> int | None\n\n"
                               "The largest bound that a body sets on the tokens of its answer; 0: none.";

PyObject *most_tokens(PyObject *Py_UNUSED(module), PyObject *body) {
    static const char key[] = "\"max";
    const ptrdiff_t before = sizeof(key) - 1;
    if (!PyBytes_CheckExact(body))
        Py_RETURN_NONE;
    const char *start = PyBytes_AS_STRING(body), *end = start + PyBytes_GET_SIZE(body), *at = start;
    long most = 0;
    /* `_` is the rarest of the key's bytes in a body. */
    while ((at = memchr(at, '_', (size_t)(end - at))) != NULL) {
        const char *from = at++;
        if (from - start >= before && memcmp(from - before, key, (size_t)before) == 0) {
            long value = bound_at(at, end);
            if (value > most)
                most = value;
        }
    }
    return PyLong_FromLong(most);
}

/* --- header lines ----------------------------------------------------------------------------------------------- */

typedef struct {
    const char *bytes;
    Py_ssize_t size;
    char digits[NUMBER_BYTES_MAX];
} Part;

/* False where a part is neither short bytes nor a number from 0 to 2^63 - 1. */
static bool read_part(Part *part, PyObject *from) {
    if (PyBytes_CheckExact(from)) {
        part->bytes = PyBytes_AS_STRING(from);
        part->size = PyBytes_GET_SIZE(from);
        return part->size <= PART_BYTES_MAX;
    }
    if (!PyLong_CheckExact(from))
        return false;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(from, &overflow); /* has no other error for an int */
    if (overflow || value < 0)
        return false;
    char *at = part->digits + NUMBER_BYTES_MAX;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    part->bytes = at;
    part->size = part->digits + NUMBER_BYTES_MAX - at;
    return true;
}

const char spelled_doc[] = "spelled(*parts) -> bytes | None\n\n"
                           "Bytes, and numbers by their decimal digits, one after another.";

PyObject *spelled(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Part parts[PARTS_MAX];
    Py_ssize_t size = 0;
    if (count > PARTS_MAX)
        Py_RETURN_NONE;
    for (Py_ssize_t n = 0; n < count; n++) {
        if (!read_part(&parts[n], args[n]))
            Py_RETURN_NONE;
        size += parts[n].size;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(made);
    for (Py_ssize_t n = 0; n < count; n++) {
        memcpy(at, parts[n].bytes, (size_t)parts[n].size);
        at += parts[n].size;
    }
    return made;
}
