/* Lines of the access log, out of parts that all of them share and columns of what is each one's own.
 *
 * Here: what `_filled` of access_lines.py does, for parts of the exact types bytes, list and tuple, and items of the
 * exact types bytes, str (ASCII only), int and float. Not here: what a line says; anything else, for which the answer
 * is None, and Python makes the lines. The differential tests (tests/property/test_gateway_native_lines.py) compare
 * every answer.
 *
 * Memory and threads: as in core.c. No code of Python's runs between the look at the parts and the last line, so that
 * nobody can change them meanwhile: what could start the collector of cycles is made before.
 */

#include "lines.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { PARTS_MAX = 64, LINE_BYTES_MAX = 1 << 14, NUMBER_BYTES_MAX = 24 };

typedef struct {
    PyObject **items;  /* of a column; NULL where all lines share the bytes */
    const char *bytes; /* of those */
    Py_ssize_t size;
} Part;

static char *put_number(char *at, uint64_t value) {
    char digits[NUMBER_BYTES_MAX];
    int left = NUMBER_BYTES_MAX;
    do {
        digits[--left] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(at, digits + left, (size_t)(NUMBER_BYTES_MAX - left));
    return at + NUMBER_BYTES_MAX - left;
}

/* As `%.3f`: the nearest thousandth, and of two the even one. Exact, since a mantissa of 53 bits times 1000 has 63.
 * NULL for what is negative (zero, too), not finite, or not below 2^42. */
static char *put_thousandths(char *at, double value) {
    uint64_t bits, scaled, below;
    int shift;
    memcpy(&bits, &value, sizeof bits);
    if (bits >> 63 || !(value < (double)((int64_t)1 << 42)))
        return NULL;
    shift = 1075 - (int)(bits >> 52);
    scaled = shift == 1075 ? 0 : 1000 * ((bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52);
    if (shift >= 64) { /* less than half a thousandth: `scaled` is below 2^63 */
        scaled = 0;
    } else { /* at least 11, since the value is below 2^42 */
        below = scaled & (((uint64_t)1 << shift) - 1);
        scaled >>= shift;
        if (below > (uint64_t)1 << (shift - 1) || (below == (uint64_t)1 << (shift - 1) && scaled & 1))
            scaled++;
    }
    at = put_number(at, scaled / 1000);
    *at++ = '.';
    for (int place = 100, rest = (int)(scaled % 1000); place; rest %= place, place /= 10)
        *at++ = (char)('0' + rest / place);
    return at;
}

/* As `%d`; NULL for what has more than 63 bits. */
static char *put_int(char *at, PyObject *item) {
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow)
        return NULL;
    if (value < 0) {
        *at++ = '-';
        return put_number(at, -(uint64_t)value);
    }
    return put_number(at, (uint64_t)value);
}

/* One line into a buffer; its end, or NULL where Python has to make it. */
static char *put_line(char *at, const Part *parts, Py_ssize_t count, Py_ssize_t line) {
    const char *end = at + LINE_BYTES_MAX;
    for (Py_ssize_t each = 0; each < count; each++) {
        const char *bytes = parts[each].bytes;
        Py_ssize_t size = parts[each].size;
        if (parts[each].items != NULL) {
            PyObject *item = parts[each].items[line];
            if (PyBytes_CheckExact(item)) {
                bytes = PyBytes_AS_STRING(item);
                size = PyBytes_GET_SIZE(item);
            } else if (PyUnicode_CheckExact(item)) {
                if (!PyUnicode_IS_COMPACT_ASCII(item))
                    return NULL;
                bytes = (const char *)PyUnicode_1BYTE_DATA(item);
                size = PyUnicode_GET_LENGTH(item);
            } else {
                if (end - at < NUMBER_BYTES_MAX)
                    return NULL;
                at = PyFloat_CheckExact(item)  ? put_thousandths(at, PyFloat_AS_DOUBLE(item))
                     : PyLong_CheckExact(item) ? put_int(at, item)
                                               : NULL;
                if (at == NULL)
                    return NULL;
                continue;
            }
        }
        if (end - at < size)
            return NULL;
        memcpy(at, bytes, (size_t)size);
        at += size;
    }
    return at;
}

/* Looks at the parts; false where they are not as told above. */
static bool take_parts(PyObject *given, Py_ssize_t number, Part *parts) {
    Py_ssize_t count = PyList_GET_SIZE(given);
    for (Py_ssize_t each = 0; each < count; each++) {
        PyObject *part = PyList_GET_ITEM(given, each);
        if (PyBytes_CheckExact(part)) {
            parts[each] = (Part){NULL, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)};
        } else if ((PyList_CheckExact(part) || PyTuple_CheckExact(part)) && PySequence_Fast_GET_SIZE(part) == number) {
            parts[each] = (Part){PySequence_Fast_ITEMS(part), NULL, 0};
        } else {
            return false;
        }
    }
    return true;
}

const char access_lines_doc[] = PyDoc_STR("lines(parts, number) -> list[bytes] | None\n\n"
                                          "So many lines out of parts: bytes of all, or a column.");

PyObject *access_lines(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Part parts[PARTS_MAX];
    char line[LINE_BYTES_MAX];
    PyObject *lines;
    Py_ssize_t number;
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyLong_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "lines takes a list of parts and a number");
        return NULL;
    }
    number = PyLong_AsSsize_t(args[1]);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    if (number < 1 || PyList_GET_SIZE(args[0]) > PARTS_MAX)
        Py_RETURN_NONE;
    lines = PyList_New(number);
    if (lines == NULL)
        return NULL;
    if (!take_parts(args[0], number, parts)) {
        Py_DECREF(lines);
        Py_RETURN_NONE;
    }
    for (Py_ssize_t each = 0; each < number; each++) {
        char *end = put_line(line, parts, PyList_GET_SIZE(args[0]), each);
        PyObject *made = end == NULL ? NULL : PyBytes_FromStringAndSize(line, end - line);
        if (made == NULL) {
            Py_DECREF(lines);
            if (end != NULL)
                return NULL;
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(lines, each, made);
    }
    return lines;
}
