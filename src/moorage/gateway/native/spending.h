/* What limits ask of each request (spending.c), for the module's table (core.c). */

#ifndef MOORAGE_SPENDING_H
#define MOORAGE_SPENDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *most_tokens(PyObject *module, PyObject *body);
extern const char most_tokens_doc[];
PyObject *spelled(PyObject *module, PyObject *const *args, Py_ssize_t count);
extern const char spelled_doc[];

#endif
