/* The inner loops of the gateway: heads, chunks, the `model` of a body, usage of an answer; and the
 * module, of which the access log's part is in lines.c and that of limits in spending.c.
 *
 * Here: the ordinary case of what heads.py, fields.py, framing.py, skim.py, rewriting.py and tokens.py do, found in
 * one pass over the bytes. Not here: any case that is malformed, rare or near a limit, any policy, any error. For those
 * each function answers None, and the caller asks the Python that stands beside it, which alone refuses and says why. So
 * nothing can be accepted here that Python would refuse, as long as each function accepts only what it fully
 * understands; the differential tests (tests/property/test_gateway_native_core.py) compare every answer.
 *
 * Memory: nothing is kept between calls, but for tables that are filled once. Bytes are read by pointer and length,
 * never beyond `end`, and no buffer outlives its call. The global lock is held throughout: the calls take less time
 * than letting go of it.
 *
 * Under the sanitizers (by hand, after each change of this file):
 *   mkdir -p /tmp/core; gcc -shared -fPIC -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
 *     $(python3-config --includes) -o /tmp/core/moorage_gateway_native.so src/moorage/gateway/native/[a-z]*.c
 *   LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
 *     ASAN_OPTIONS=detect_leaks=0 MOORAGE_NATIVE_CORE=/tmp/core/moorage_gateway_native.so \
 *     .venv/bin/pytest -s tests/property/test_gateway_native_*.py
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lines.h"
#include "spending.h"

typedef unsigned char byte;

enum { CHUNKED = -1, UNFRAMED = -2 }; /* as in fields.py */
enum { LENGTH_DIGITS_MAX = 18, CHUNK_DIGITS_MAX = 15, COUNT_DIGITS_MAX = 12, ID_BYTES_MAX = 128 };
enum { NAME_BYTES_MAX = 1024, KEY_BYTES_MAX = 64, STOPPING_MAX = 16 };

/* --- bytes ------------------------------------------------------------------------------------------------------ */

enum { IN_TOKEN = 1, IN_VALUE = 2, IN_ID = 4, IS_SPACE = 8 };
static byte classes[256];

static void fill_classes(void) {
    static const char marks[] = "!#$%&'*+.^_`|~-";
    for (int c = 0; c < 256; c++) {
        bool digit = c >= '0' && c <= '9';
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool mark = c != 0 && strchr(marks, c) != NULL;
        bool value = c == '\t' || (c >= 0x20 && c != 0x7f);
        bool id = digit || letter || (c != 0 && strchr("._:-", c) != NULL);
        bool space = c == ' ' || (c >= '\t' && c <= '\r'); /* what `\s` is for bytes */
        classes[c] = (byte)((digit || letter || mark ? IN_TOKEN : 0) | (value ? IN_VALUE : 0) | (id ? IN_ID : 0) |
                            (space ? IS_SPACE : 0));
    }
}

static inline byte lower(byte c) { return c >= 'A' && c <= 'Z' ? (byte)(c | 0x20) : c; }
static inline bool is_digit(byte c) { return c >= '0' && c <= '9'; }

static inline uint64_t of_all(byte c) { return UINT64_MAX / 255 * c; }

static inline uint64_t eight_at(const void *at) {
    uint64_t eight;
    memcpy(&eight, at, 8);
    return eight;
}

/* Whether bytes are those of a word in lower case, however they spell it. Besides capitals only control characters pass
 * for others, which no header has: of letters, digits, `-`, `.`, `/` and spaces all have the bit that is set here. */
static inline bool spell(const byte *at, const char *word, size_t size) {
    if (size < 8) {
        for (size_t i = 0; i < size; i++)
            if ((at[i] | 0x20) != (byte)word[i])
                return false;
        return true;
    }
    for (size_t i = 0; i + 8 < size; i += 8)
        if ((eight_at(at + i) | of_all(0x20)) != eight_at(word + i))
            return false;
    return (eight_at(at + size - 8) | of_all(0x20)) == eight_at(word + size - 8);
}

/* Whether the bytes, of a head without control characters, begin with a word in lower case, however they spell it. */
static inline bool begins(const byte *at, const byte *end, const char *word) {
    size_t size = strlen(word);
    return end - at >= (ptrdiff_t)size && spell(at, word, size);
}

static inline bool equals(const byte *at, const byte *end, const char *word) {
    return (size_t)(end - at) == strlen(word) && begins(at, end, word);
}

static const byte *after_space(const byte *at, const byte *end) {
    while (at < end && classes[*at] & IS_SPACE)
        at++;
    return at;
}

/* Steps over a word; false where another one stands. */
static bool take(const byte **at, const byte *end, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(end - *at) < size || memcmp(*at, word, size) != 0)
        return false;
    *at += size;
    return true;
}

/* Digits at `*at`, at most `most`; steps behind them. -1 where there is none or one too many. */
static int64_t number(const byte **at, const byte *end, int most) {
    int64_t value = 0;
    const byte *from = *at, *p = from;
    for (; p < end && is_digit(*p); p++) {
        if (p - from == most)
            return -1;
        value = 10 * value + (*p - '0');
    }
    *at = p;
    return p == from ? -1 : value;
}

/* Of eight bytes with this bit set each where one is not as wished: how many come before the first such one. */
static inline int before_first(uint64_t marks) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_ctzll(marks) / 8;
#else
    return __builtin_clzll(marks) / 8;
#endif
}

/* Where a token ends; eight at a time while they are letters and dashes. */
static const byte *after_token(const byte *at, const byte *end) {
    for (; end - at >= 8; at += 8) {
        uint64_t eight = eight_at(at), seven = eight & of_all(0x7f), small = seven | of_all(0x20);
        uint64_t letters = (small + of_all(0x80 - 'a')) & ~(small + of_all(0x80 - 'z' - 1)); /* sums stay in a byte */
        uint64_t dashes = ~((seven ^ of_all('-')) + of_all(0x7f));
        uint64_t others = (~(letters | dashes) | eight) & of_all(0x80);
        if (others) {
            at += before_first(others);
            break;
        }
    }
    while (at < end && classes[*at] & IN_TOKEN)
        at++;
    return at;
}

/* Where the bytes end that a header's value may have; eight at a time while all of them are printable. */
static const byte *after_value(const byte *at, const byte *end) {
    for (; end - at >= 8; at += 8) {
        uint64_t eight = eight_at(at), deletes = eight ^ of_all(0x7f);
        /* a byte's high bit is set here if it is below 0x20, or 0x7f; wrongly so only next above one that is */
        uint64_t others = (((eight - of_all(0x20)) & ~eight) | ((deletes - of_all(1)) & ~deletes)) & of_all(0x80);
        if (others) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            at += before_first(others);
#endif
            break;
        }
    }
    while (at < end && classes[*at] & IN_VALUE)
        at++;
    return at;
}

/* A tuple of one of the caller's named types; NULL with an error when it is no such type. Its items are to be set. */
static PyObject *named(PyObject *type, Py_ssize_t items) {
    PyTypeObject *own = (PyTypeObject *)type;
    if (!PyType_Check(type) || !PyType_FastSubclass(own, Py_TPFLAGS_TUPLE_SUBCLASS) ||
        own->tp_basicsize != PyTuple_Type.tp_basicsize || own->tp_itemsize != PyTuple_Type.tp_itemsize) {
        PyErr_SetString(PyExc_TypeError, "a named tuple type is needed");
        return NULL;
    }
    return own->tp_alloc(own, items);
}

/* Sets the items of a new tuple, and takes over the references; drops the tuple when one of them is NULL. */
static PyObject *filled(PyObject *tuple, PyObject **items, Py_ssize_t count) {
    bool whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && items[i] != NULL;
        if (tuple != NULL)
            PyTuple_SET_ITEM(tuple, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    if (!whole)
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *own_ref(PyObject *object) {
    Py_INCREF(object);
    return object;
}

static bool counted(Py_ssize_t have, Py_ssize_t want) {
    if (have != want)
        PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", want, have);
    return have == want;
}

/* --- heads ------------------------------------------------------------------------------------------------------ */

/* What a line means. RARE: whoever sends it is read in Python. STOPS: it ends at this hop, and says nothing here. */
typedef enum { PLAIN, RARE, STOPS, LENGTH, CODING, HOST, TYPE, CONNECTION, REQUEST_ID, CREDENTIAL, SESSION } Kind;

/* By the length of the name. The two kinds are those in heads of requests and of answers; compare fields.py, _KINDS. */
static const struct {
    const char *name;
    byte size;
    byte asked, answered;
} NAMES[] = {
    {"te", 2, STOPS, STOPS},
    {"host", 4, HOST, PLAIN},
    {"expect", 6, RARE, STOPS},
    {"origin", 6, RARE, PLAIN},
    {"upgrade", 7, STOPS, STOPS}, /* it says nothing unless Connection names it, and such a Connection is rare */
    {"x-api-key", 9, CREDENTIAL, PLAIN},
    {"connection", 10, CONNECTION, CONNECTION},
    {"keep-alive", 10, STOPS, STOPS},
    {"content-type", 12, TYPE, PLAIN},
    {"x-request-id", 12, REQUEST_ID, STOPS},
    {"authorization", 13, CREDENTIAL, PLAIN},
    {"content-length", 14, LENGTH, LENGTH},
    {"http2-settings", 14, STOPS, STOPS},
    {"proxy-connection", 16, STOPS, STOPS},
    {"transfer-encoding", 17, CODING, CODING},
    {"x-moorage-session", 17, SESSION, STOPS},
    {"proxy-authenticate", 18, STOPS, STOPS},
    {"x-moorage-endpoint", 18, RARE, STOPS},
    {"x-moorage-revision", 18, RARE, STOPS},
    {"proxy-authorization", 19, STOPS, STOPS},
    {"", 0, PLAIN, PLAIN},
};
enum { NAME_SIZE_MAX = 19 };
static byte first_of_size[NAME_SIZE_MAX + 1]; /* the place in NAMES of the first name so long or longer */

static void fill_names(void) {
    byte at = 0;
    for (int size = 0; size <= NAME_SIZE_MAX; size++) {
        while (NAMES[at].size && NAMES[at].size < size)
            at++;
        first_of_size[size] = at;
    }
}

typedef struct {
    const byte *name, *colon, *value, *value_end; /* the value is without the spaces around it */
    const byte *next;                             /* where the next line begins */
} Line;

typedef struct {
    const byte *first_end, *lines, *lines_end;
    int64_t length;
    int framings, hosts;
    bool close, keep_alive, events;
    Line host, request_id; /* request_id.name is NULL where there is none */
    const byte *credential, *credential_end;
    const byte *session, *session_end; /* the first that says something */
    Line stopping[STOPPING_MAX];
    int stops;
} Head;

/* One header line; false when it is not well formed (fields.py, _LINE). */
static bool read_line(const byte *at, const byte *end, Line *line) {
    line->name = at;
    at = after_token(at, end);
    if (at == line->name || at >= end || *at != ':')
        return false;
    line->colon = at++;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    line->value = at;
    at = after_value(at, end);
    if (end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return false;
    line->next = at + 2;
    while (at > line->value && (at[-1] == ' ' || at[-1] == '\t'))
        at--;
    line->value_end = at;
    return true;
}

static Kind kind_of(const Line *line, bool answers) {
    size_t size = (size_t)(line->colon - line->name);
    for (int i = first_of_size[size <= NAME_SIZE_MAX ? size : 0]; NAMES[i].size == size; i++)
        if (spell(line->name, NAMES[i].name, size))
            return answers ? NAMES[i].answered : NAMES[i].asked;
    return answers && begins(line->name, line->colon, "x-moorage-") ? STOPS : PLAIN;
}

static bool is_form(const Line *line) {
    return begins(line->value, line->value_end, "multipart/") ||
           begins(line->value, line->value_end, "application/x-www-form-urlencoded");
}

/* Whether a value holds `text/event-stream`, as heads.py looks for it: anywhere in the lines that go on. */
static bool tells_events(const Line *line) {
    const byte *at = line->value, *end = line->value_end;
    while ((at = memchr(at, '/', (size_t)(end - at))) != NULL) {
        if (at - line->value >= 4 && begins(at - 4, end, "text/event-stream"))
            return true;
        at++;
    }
    return false;
}

/* A Moorage key in a value, however it is introduced (fields.py, _KEY). */
static const byte *key_in(const Line *line) {
    const byte *at = line->value;
    if (begins(at, line->value_end, "bearer ")) {
        at += 7;
        while (at < line->value_end && *at == ' ')
            at++;
    }
    return begins(at, line->value_end, "moor-key.") ? at : NULL;
}

/* A connection's one word, or what makes the head one for Python: more words, or others. */
static bool take_connection(Head *head, const Line *line) {
    if (equals(line->value, line->value_end, "keep-alive"))
        head->keep_alive = true;
    else if (equals(line->value, line->value_end, "close"))
        head->close = true;
    else
        return false;
    return true;
}

static bool take_request_id(Head *head, const Line *line) {
    ptrdiff_t size = line->value_end - line->value;
    if (head->request_id.name || size < 1 || size > ID_BYTES_MAX)
        return false;
    for (const byte *at = line->value; at < line->value_end; at++)
        if (!(classes[*at] & IN_ID))
            return false;
    head->request_id = *line;
    return true;
}

static bool take_length(Head *head, const Line *line) {
    const byte *at = line->value;
    head->framings++;
    head->length = number(&at, line->value_end, LENGTH_DIGITS_MAX);
    return head->length >= 0 && at == line->value_end;
}

/* One line's meaning added to the head; false when Python has to read it. */
static bool take_line(Head *head, const Line *line, bool answers) {
    Kind kind = kind_of(line, answers);
    switch (kind) {
    case PLAIN:
        head->events = head->events || (answers && tells_events(line));
        return true;
    case RARE:
        return false;
    case LENGTH:
        return take_length(head, line);
    case CODING:
        head->framings++;
        head->length = CHUNKED;
        return equals(line->value, line->value_end, "chunked");
    case HOST:
        head->hosts++;
        head->host = *line;
        return true;
    case TYPE:
        return !is_form(line);
    case CONNECTION:
        if (!take_connection(head, line))
            return false;
        break;
    case SESSION:
        if (head->session == head->session_end) {
            head->session = line->value;
            head->session_end = line->value_end;
        }
        return true;
    case REQUEST_ID:
        if (!take_request_id(head, line))
            return false;
        break;
    case CREDENTIAL: {
        const byte *key = key_in(line);
        if (key == NULL)
            return true; /* somebody else's: it goes on as it came */
        if (head->credential != NULL)
            return false;
        head->credential = key;
        head->credential_end = line->value_end;
        break;
    }
    case STOPS:
        break;
    }
    if (head->stops == STOPPING_MAX)
        return false;
    head->stopping[head->stops++] = *line;
    return true;
}

/* A whole head, which ends with the last of the bytes; false when Python has to read it. */
static bool read_head(const byte *at, const byte *end, bool answers, Head *head) {
    head->length = UNFRAMED;
    head->framings = head->hosts = head->stops = 0;
    head->close = head->keep_alive = head->events = false;
    head->request_id.name = head->credential = head->credential_end = NULL;
    head->session = head->session_end = at;
    const byte *cr = memchr(at, '\r', (size_t)(end - at));
    if (cr == NULL || end - cr < 4 || cr[1] != '\n')
        return false;
    head->first_end = cr;
    head->lines = at = cr + 2;
    while (end - at != 2) {
        Line line;
        if (!read_line(at, end, &line) || !take_line(head, &line, answers))
            return false;
        at = line.next;
        if (end - at < 2)
            return false;
    }
    head->lines_end = at;
    return at[0] == '\r' && at[1] == '\n' && head->framings <= 1;
}

/* The lines that go on, behind a prefix. */
static PyObject *kept_lines(const Head *head, const char *prefix, Py_ssize_t prefix_size) {
    Py_ssize_t size = prefix_size + (head->lines_end - head->lines);
    for (int i = 0; i < head->stops; i++)
        size -= head->stopping[i].next - head->stopping[i].name;
    PyObject *kept = PyBytes_FromStringAndSize(NULL, size);
    if (kept == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(kept);
    memcpy(to, prefix, (size_t)prefix_size);
    to += prefix_size;
    const byte *from = head->lines;
    for (int i = 0; i < head->stops; i++) {
        size_t part = (size_t)(head->stopping[i].name - from);
        memcpy(to, from, part);
        to += part;
        from = head->stopping[i].next;
    }
    memcpy(to, from, (size_t)(head->lines_end - from));
    return kept;
}

static PyObject *bytes_of(const byte *at, const byte *end) {
    return PyBytes_FromStringAndSize((const char *)at, end - at);
}

static bool is_http11(const byte *at, const byte *end) { return end - at >= 8 && memcmp(end - 8, "HTTP/1.1", 8) == 0; }

PyDoc_STRVAR(request_head_doc,
             "request_head(raw, RequestHead, Asks, lines, hosts) -> RequestHead | None\n\n"
             "lines: what known request lines mean, by their bytes. hosts: Host lines that were let in.");

static PyObject *request_head(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Head head;
    if (!counted(count, 5))
        return NULL;
    if (!PyBytes_Check(args[0]) || !PyDict_Check(args[3]) || !PyAnySet_Check(args[4]))
        Py_RETURN_NONE;
    const byte *raw = (const byte *)PyBytes_AS_STRING(args[0]), *end = raw + PyBytes_GET_SIZE(args[0]);
    if (!read_head(raw, end, false, &head) || head.hosts != 1 || !is_http11(raw, head.first_end))
        Py_RETURN_NONE;

    PyObject *first = bytes_of(raw, head.first_end), *host = bytes_of(head.host.name, head.host.next - 2);
    PyObject *line = first == NULL ? NULL : PyDict_GetItemWithError(args[3], first);
    Py_XINCREF(line);
    int let_in = line == NULL || host == NULL ? 0 : PySet_Contains(args[4], host);
    Py_XDECREF(first);
    Py_XDECREF(host);
    if (let_in != 1) {
        Py_XDECREF(line);
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *asks = own_ref(Py_None);
    if (head.credential != NULL) {
        PyObject *empty = PyBytes_FromStringAndSize(NULL, 0);
        Py_XINCREF(empty);
        Py_XINCREF(empty);
        PyObject *told[] = {empty, empty, empty, bytes_of(head.credential, head.credential_end)};
        Py_SETREF(asks, filled(named(args[2], 4), told, 4));
    }
    const Line *id = &head.request_id;
    PyObject *items[] = {
        line,
        kept_lines(&head, "", 0),
        PyLong_FromLongLong(head.length == UNFRAMED ? 0 : head.length),
        PyBool_FromLong(!head.close),
        own_ref(Py_False),
        id->name == NULL ? own_ref(Py_None) : bytes_of(id->value, id->value_end),
        own_ref(Py_None),
        asks,
        bytes_of(head.session, head.session_end),
    };
    return filled(named(args[1], 9), items, 9);
}

PyDoc_STRVAR(response_head_doc,
             "response_head(raw, ResponseHead, lines) -> ResponseHead | None\n\n"
             "lines: what known status lines mean, by their bytes: the status, and the line that goes on.");

static PyObject *response_head(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Head head;
    if (!counted(count, 3))
        return NULL;
    if (!PyBytes_Check(args[0]) || !PyDict_Check(args[2]))
        Py_RETURN_NONE;
    const byte *raw = (const byte *)PyBytes_AS_STRING(args[0]), *end = raw + PyBytes_GET_SIZE(args[0]);
    if (!read_head(raw, end, true, &head) || !begins(raw, head.first_end, "http/1.1 "))
        Py_RETURN_NONE;
    PyObject *first = bytes_of(raw, head.first_end);
    PyObject *line = first == NULL ? NULL : PyDict_GetItemWithError(args[2], first);
    Py_XDECREF(first);
    if (line == NULL && PyErr_Occurred())
        return NULL;
    if (line == NULL || !PyTuple_Check(line) || PyTuple_GET_SIZE(line) != 3 ||
        !PyLong_Check(PyTuple_GET_ITEM(line, 0)) || !PyBytes_Check(PyTuple_GET_ITEM(line, 1)))
        Py_RETURN_NONE;
    PyObject *status = PyTuple_GET_ITEM(line, 0), *own = PyTuple_GET_ITEM(line, 1);
    long code = PyLong_AsLong(status);
    if (code < 200 || code > 999 || code == 204 || code == 304) { /* most of these have no body whatever they say */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *items[] = {
        own_ref(status),
        kept_lines(&head, PyBytes_AS_STRING(own), PyBytes_GET_SIZE(own)),
        PyLong_FromLongLong(head.length),
        PyBool_FromLong(!head.close),
        PyBytes_FromStringAndSize(NULL, 0),
        PyBool_FromLong(head.events),
    };
    return filled(named(args[1], 6), items, 6);
}

/* --- chunks ----------------------------------------------------------------------------------------------------- */

static int hex_of(byte c) {
    if (is_digit(c))
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

typedef struct {
    int64_t left;     /* chunk data still to come */
    int64_t line_end; /* bytes of the line end behind it still to come */
} Chunks;

/* A size line that is there whole, without an extension; steps behind it. -1 for Python. */
static int64_t chunk_size(const byte **at, const byte *end) {
    int64_t size = 0;
    const byte *p = *at;
    for (int digit; p < end && (digit = hex_of(*p)) >= 0; p++) {
        if (p - *at == CHUNK_DIGITS_MAX)
            return -1;
        size = 16 * size + digit;
    }
    if (p == *at || end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return -1;
    *at = p + 2;
    return size;
}

enum { GOES_ON, ENDED, ASK };

static int count_to_end(Chunks *chunks, const byte **at, const byte *end) {
    const byte *p = *at;
    for (;;) {
        if (chunks->left > 0) {
            int64_t here = end - p < chunks->left ? end - p : chunks->left;
            chunks->left -= here;
            p += here;
            if (chunks->left)
                return GOES_ON;
            chunks->line_end = 2;
        }
        for (; chunks->line_end && p < end; p++, chunks->line_end--)
            if (*p != (chunks->line_end == 2 ? '\r' : '\n'))
                return ASK;
        if (p == end)
            return GOES_ON;
        chunks->left = chunk_size(&p, end);
        if (chunks->left < 0)
            return ASK;
        if (chunks->left == 0) {
            if (end - p < 2 || p[0] != '\r' || p[1] != '\n')
                return ASK; /* trailers, or an end that came in parts */
            *at = p + 2;
            return ENDED;
        }
    }
}

PyDoc_STRVAR(count_chunks_doc,
             "count_chunks(data, pos, left, line_end) -> (end, left, line_end) | None\n\n"
             "end: the index just after the body's end, or -1 when the body goes on.");

static PyObject *count_chunks(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (!counted(count, 4))
        return NULL;
    if (!PyBytes_Check(args[0]))
        Py_RETURN_NONE;
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]), size = PyBytes_GET_SIZE(args[0]);
    Chunks chunks = {PyLong_AsLongLong(args[2]), PyLong_AsLongLong(args[3])};
    if (PyErr_Occurred())
        return NULL;
    if (pos < 0 || pos > size || chunks.left < 0 || chunks.line_end < 0 || chunks.line_end > 2)
        Py_RETURN_NONE;
    const byte *data = (const byte *)PyBytes_AS_STRING(args[0]), *at = data + pos;
    int outcome = count_to_end(&chunks, &at, data + size);
    if (outcome == ASK)
        Py_RETURN_NONE;
    PyObject *items[] = {
        PyLong_FromSsize_t(outcome == ENDED ? at - data : -1),
        PyLong_FromLongLong(chunks.left),
        PyLong_FromLongLong(chunks.line_end),
    };
    return filled(PyTuple_New(3), items, 3);
}

/* --- the model of a body ---------------------------------------------------------------------------------------- */

/* The quote that ends the string of which the first byte is at `at`; NULL when the bytes end first. */
static const byte *string_end(const byte *at, const byte *end) {
    const byte *quote = NULL;
    for (;;) {
        if (quote == NULL || quote < at) /* each byte is searched once, however many escapes there are */
            quote = memchr(at, '"', (size_t)(end - at));
        if (quote == NULL)
            return NULL;
        const byte *escape = memchr(at, '\\', (size_t)(quote - at));
        if (escape == NULL)
            return quote;
        if (end - escape < 2)
            return NULL;
        at = escape + 2;
    }
}

/* How often a mark stands there with these bytes behind it; counts to two. From mark to mark, since there are few. */
static int times(const byte *at, const byte *end, char mark, const char *behind, size_t size) {
    int found = 0;
    while (found < 2 && (at = memchr(at, mark, (size_t)(end - at))) != NULL) {
        at++;
        found += (size_t)(end - at) >= size && *at == (byte)*behind && memcmp(at, behind, size) == 0;
    }
    return found;
}

/* Whether a second top-level `model` is out of the question, by the rule of names_twice (skim.py). */
static bool named_once(const byte *body, const byte *end) {
    return times(body, end, '"', "model\"", 6) < 2 && times(body, end, '\\', "u006", 4) == 0;
}

static bool is_model_key(const byte *at, const byte *end) { return end - at == 5 && memcmp(at, "model", 5) == 0; }

/* What stands between the quotes of a `model` that leads (skim.py, _LEADING); false where it does not. */
static bool leading_model(const byte *at, const byte *end, const byte **from, const byte **to) {
    const byte *p = after_space(at, end);
    if (!take(&p, end, "{"))
        return false;
    p = after_space(p, end);
    if (!take(&p, end, "\"model\""))
        return false;
    p = after_space(p, end);
    if (!take(&p, end, ":"))
        return false;
    p = after_space(p, end);
    if (!take(&p, end, "\""))
        return false;
    *from = p;
    while (p < end && *p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    *to = p;
    return p < end && *p == '"';
}

/* Finds what stands between the quotes of the first top-level `model`; false where Python has to look. */
static bool find_model(const byte *body, const byte *end, const byte **from, const byte **to) {
    const byte *at = body;
    long depth = 0;
    bool key_next = false, model_next = false;
    for (; at < end; at++) {
        byte c = *at;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
            continue;
        if (depth == 0 && c != '{')
            return false;
        switch (c) {
        case '"': {
            const byte *start = at + 1, *stop = string_end(start, end);
            if (stop == NULL)
                return false;
            at = stop;
            if (depth != 1)
                break;
            bool plain = memchr(start, '\\', (size_t)(stop - start)) == NULL;
            if (key_next) {
                if (!plain && stop - start <= KEY_BYTES_MAX)
                    return false; /* escapes may spell it too */
                key_next = false;
                model_next = is_model_key(start, stop);
            } else if (model_next) {
                *from = start;
                *to = stop;
                return plain && stop - start <= NAME_BYTES_MAX;
            }
            break;
        }
        case '{':
        case '[':
            if (model_next && depth == 1)
                return false;
            depth++;
            key_next = depth == 1;
            break;
        case '}':
        case ']':
            if (--depth <= 0)
                return false;
            break;
        case ',':
            if (depth == 1) {
                key_next = true;
                model_next = false;
            }
            break;
        case ':':
            break;
        default:
            if (model_next && depth == 1)
                return false; /* a number, true, false or null where the name should be */
        }
    }
    return false;
}

PyDoc_STRVAR(sole_model_doc, "sole_model(body) -> str | None\n\n"
                             "The top-level `model` of a whole body, when it is there once.");

static PyObject *sole_model(PyObject *Py_UNUSED(module), PyObject *body) {
    Py_buffer view;
    if (PyObject_GetBuffer(body, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const byte *at = view.buf, *end = at + view.len, *from, *to;
    PyObject *name = NULL;
    bool found = view.len > 0 && (leading_model(at, end, &from, &to) || find_model(at, end, &from, &to)) &&
                 named_once(at, end);
    if (found)
        name = PyUnicode_DecodeUTF8((const char *)from, to - from, "replace");
    PyBuffer_Release(&view);
    if (found)
        return name;
    Py_RETURN_NONE;
}

/* Where the value of the one Content-Length begins and ends, spaces behind it among it; false where none is found. */
static bool find_length(const byte *at, const byte *end, const byte **from, const byte **to) {
    while (end - at > 15) {
        const byte *next = memchr(at, '\n', (size_t)(end - at));
        if (next == NULL)
            return false;
        if (lower(*at) == 'c' && begins(at, next, "content-length:")) {
            const byte *p = at + 15;
            while (*p == ' ' || *p == '\t') /* each of these ends at the line's end, before `next` */
                p++;
            *from = p;
            while (is_digit(*p))
                p++;
            bool digits = p > *from;
            while (*p == ' ' || *p == '\t')
                p++;
            *to = p;
            return digits && p[0] == '\r' && p + 1 == next;
        }
        at = next + 1;
    }
    return false;
}

/* Bytes with others in place of those from `from` to `to`. */
static PyObject *spliced(PyObject *whole, const byte *from, const byte *to, const char *others, Py_ssize_t size) {
    const byte *begin = (const byte *)PyBytes_AS_STRING(whole), *end = begin + PyBytes_GET_SIZE(whole);
    PyObject *made = PyBytes_FromStringAndSize(NULL, (from - begin) + size + (end - to));
    if (made == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(made);
    memcpy(at, begin, (size_t)(from - begin));
    memcpy(at + (from - begin), others, (size_t)size);
    memcpy(at + (from - begin) + size, to, (size_t)(end - to));
    return made;
}

/* Whether a text stands in JSON as it is (skim.py, within_string). */
static bool stands_as_it_is(const char *text, Py_ssize_t size) {
    for (Py_ssize_t i = 0; i < size; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '"' || text[i] == '\\')
            return false;
    return true;
}

/* The head of a body of another length; NULL without an error where Python has to make it. */
static PyObject *with_length(PyObject *head, long long difference) {
    PyObject *lines = PyTuple_GET_ITEM(head, 1);
    const byte *begin = (const byte *)PyBytes_AS_STRING(lines), *from, *to;
    long long length = PyLong_AsLongLong(PyTuple_GET_ITEM(head, 2));
    PyErr_Clear(); /* one so long is told as -1 */
    if (length < 0 || length + difference < 0 || !find_length(begin, begin + PyBytes_GET_SIZE(lines), &from, &to))
        return NULL;
    char digits[20], *first = digits + sizeof digits;
    for (long long left = length + difference; left || first == digits + sizeof digits; left /= 10)
        *--first = (char)('0' + left % 10);
    Py_ssize_t size = digits + sizeof digits - first;
    Py_ssize_t count = PyTuple_GET_SIZE(head);
    PyObject *made = named((PyObject *)Py_TYPE(head), count);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(made, i, i == 1   ? spliced(lines, from, to, first, size)
                                  : i == 2 ? PyLong_FromLongLong(length + difference)
                                           : own_ref(PyTuple_GET_ITEM(head, i)));
    if (PyTuple_GET_ITEM(made, 1) == NULL || PyTuple_GET_ITEM(made, 2) == NULL)
        Py_CLEAR(made);
    return made;
}

PyDoc_STRVAR(renamed_doc, "renamed(head, body, model) -> (head, body) | None\n\n"
                          "A request with another model, where that leads its body.");

static PyObject *renamed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (!counted(count, 3))
        return NULL;
    PyObject *head = args[0], *body = args[1], *model = args[2];
    if (!PyTuple_Check(head) || PyTuple_CheckExact(head) || PyTuple_GET_SIZE(head) < 3 ||
        !PyBytes_Check(PyTuple_GET_ITEM(head, 1)) ||
        !PyLong_Check(PyTuple_GET_ITEM(head, 2)) || !PyBytes_Check(body) || !PyUnicode_Check(model) ||
        !PyUnicode_IS_COMPACT_ASCII(model))
        Py_RETURN_NONE;
    const byte *begin = (const byte *)PyBytes_AS_STRING(body), *from, *to;
    const char *name = (const char *)PyUnicode_1BYTE_DATA(model);
    Py_ssize_t size = PyUnicode_GET_LENGTH(model);
    if (!stands_as_it_is(name, size) || !leading_model(begin, begin + PyBytes_GET_SIZE(body), &from, &to))
        Py_RETURN_NONE;
    PyObject *made = size == to - from ? own_ref(head) : with_length(head, size - (to - from));
    if (made == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *items[] = {made, spliced(body, from, to, name, size)};
    return filled(PyTuple_New(2), items, 2);
}

/* --- usage ------------------------------------------------------------------------------------------------------ */

/* `"KEY_tokens" : NUMBER`, where KEY is one of two; -1 where it does not stand there. */
static int64_t take_count(const byte **at, const byte *end, const char *key, const char *other) {
    const byte *p = *at;
    if (!take(&p, end, "\"") || !(take(&p, end, key) || take(&p, end, other)) || !take(&p, end, "_tokens\""))
        return -1;
    p = after_space(p, end);
    if (!take(&p, end, ":"))
        return -1;
    p = after_space(p, end);
    int64_t value = number(&p, end, COUNT_DIGITS_MAX);
    if (value >= 0)
        *at = p;
    return value;
}

static bool take_comma(const byte **at, const byte *end) {
    if (!take(at, end, ","))
        return false;
    *at = after_space(*at, end);
    return true;
}

/* What stands behind `"usage"` as nearly all servers write it (tokens.py, _FLAT); steps to what ends the last number. */
static bool take_usage(const byte **at, const byte *end, int64_t *prompt, int64_t *completion) {
    const byte *p = after_space(*at, end);
    if (!take(&p, end, ":"))
        return false;
    p = after_space(p, end);
    if (!take(&p, end, "{"))
        return false;
    p = after_space(p, end);
    if ((*prompt = take_count(&p, end, "prompt", "input")) >= 0) {
        if (!take_comma(&p, end))
            return false;
        if (take_count(&p, end, "total", "total") >= 0 && !take_comma(&p, end))
            return false;
        *completion = take_count(&p, end, "completion", "output");
    } else if ((*completion = take_count(&p, end, "completion", "completion")) >= 0) {
        if (!take_comma(&p, end))
            return false;
        *prompt = take_count(&p, end, "prompt", "prompt");
    }
    if (*prompt < 0 || *completion < 0)
        return false;
    while (p < end && *p == ' ')
        p++;
    *at = p;
    return p < end && (*p == ',' || *p == '}');
}

/* How many levels are closed from here to the end, strings aside; none where a string does not end. */
static long closed(const byte *at, const byte *end) {
    long levels = 0;
    for (; at < end; at++) {
        if (*at == '"') {
            at = string_end(at + 1, end);
            if (at == NULL)
                return 0;
        } else if (*at == '}') {
            levels++;
        } else if (*at == '{') {
            levels--;
        }
    }
    return levels;
}

/* As tokens.py: where nothing opens, strings could only add to what closes. */
static long closed_after(const byte *at, const byte *end) {
    if (memchr(at, '{', (size_t)(end - at)) != NULL)
        return closed(at, end);
    long levels = 0;
    for (; at < end; at++)
        levels += *at == '}';
    return levels;
}

static const byte *last_usage(const byte *from, const byte *end) {
    static const char word[] = "\"usage\"";
    for (const byte *at = end - (sizeof word - 1); at >= from; at--)
        if (*at == '"' && memcmp(at, word, sizeof word - 1) == 0)
            return at;
    return NULL;
}

PyDoc_STRVAR(usage_doc, "usage(tail, Tokens) -> Tokens | None\n\n"
                        "What the end of a JSON answer tells of its tokens.");

static PyObject *usage(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (!counted(count, 2))
        return NULL;
    if (!PyBytes_Check(args[0]) || PyBytes_GET_SIZE(args[0]) < 16)
        Py_RETURN_NONE;
    const byte *tail = (const byte *)PyBytes_AS_STRING(args[0]), *end = tail + PyBytes_GET_SIZE(args[0]);
    const byte *at = last_usage(tail, end);
    if (at == NULL || at == tail)
        Py_RETURN_NONE;
    byte before = at[-1];
    int64_t prompt, completion;
    at += 7;
    if (!(before == '{' || before == ',' || classes[before] & IS_SPACE) || !take_usage(&at, end, &prompt, &completion) ||
        closed_after(at, end) != 2) /* what closes: the usage itself, and the answer */
        Py_RETURN_NONE;
    PyObject *items[] = {PyLong_FromLongLong(prompt), PyLong_FromLongLong(completion), own_ref(Py_False)};
    return filled(named(args[1], 3), items, 3);
}

PyDoc_STRVAR(place_doc, "place(bounds, value) -> int\n\nbisect_left of a tuple of floats.");

static PyObject *place(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (!counted(count, 2))
        return NULL;
    if (!PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "bounds: a tuple is needed");
        return NULL;
    }
    double value = PyFloat_AsDouble(args[1]);
    Py_ssize_t low = 0, high = PyTuple_GET_SIZE(args[0]);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (PyFloat_AsDouble(PyTuple_GET_ITEM(args[0], middle)) < value)
            low = middle + 1;
        else
            high = middle;
    }
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(low);
}

/* --- the module ------------------------------------------------------------------------------------------------- */

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL
static PyMethodDef methods[] = {
    {"request_head", FAST(request_head), request_head_doc},
    {"response_head", FAST(response_head), response_head_doc},
    {"count_chunks", FAST(count_chunks), count_chunks_doc},
    {"sole_model", sole_model, METH_O, sole_model_doc},
    {"renamed", FAST(renamed), renamed_doc},
    {"usage", FAST(usage), usage_doc},
    {"lines", FAST(access_lines), access_lines_doc},
    {"most_tokens", most_tokens, METH_O, most_tokens_doc},
    {"spelled", FAST(spelled), spelled_doc},
    {"place", FAST(place), place_doc},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *Py_UNUSED(module)) {
    fill_classes();
    fill_names();
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "moorage_gateway_native",
    .m_doc = "The inner loops of Moorage's gateway; each function answers as the Python beside it, or None.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_moorage_gateway_native(void) { return PyModuleDef_Init(&module); }
