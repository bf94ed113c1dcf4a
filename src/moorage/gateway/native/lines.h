/* Lines of the access log (lines.c), for the module's table (core.c). */

#ifndef MOORAGE_LINES_H
#define MOORAGE_LINES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *access_lines(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char access_lines_doc[];

#endif
