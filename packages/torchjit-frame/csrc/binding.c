/* Binding of call arguments; the counterpart of initialize_locals in CPython's Python/ceval.c (3.11 to 3.13). */
#include "binding.h"

void
signature_of_code(PyCodeObject *code, Signature *signature)
{
    signature->names = code->co_localsplusnames;
    signature->positional_only = code->co_posonlyargcount;
    signature->positional = code->co_argcount;
    signature->keyword_only = code->co_kwonlyargcount;
    signature->star = (code->co_flags & CO_VARARGS) != 0;
    signature->double_star = (code->co_flags & CO_VARKEYWORDS) != 0;
}

static int
bind_positional(const Signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject **slots)
{
    Py_ssize_t taken = nargs < signature->positional ? nargs : signature->positional;
    for (Py_ssize_t i = 0; i < taken; i++) {
        slots[i] = Py_NewRef(args[i]);
    }
    if (!signature->star) {
        return nargs <= signature->positional;
    }
    PyObject *rest = PyTuple_New(nargs - taken);
    if (rest == NULL) {
        return -1;
    }
    for (Py_ssize_t i = taken; i < nargs; i++) {
        PyTuple_SET_ITEM(rest, i - taken, Py_NewRef(args[i]));
    }
    slots[signature_named(signature)] = rest;
    return 1;
}

/* The slot that a keyword names, or -1. Positional-only names are not found: they go to **kwargs. */
static Py_ssize_t
find_keyword(const Signature *signature, PyObject *keyword)
{
    Py_ssize_t named = signature_named(signature);
    PyObject **names = ((PyTupleObject *)signature->names)->ob_item;
    for (Py_ssize_t i = signature->positional_only; i < named; i++) {
        if (names[i] == keyword) {
            return i;
        }
    }
    for (Py_ssize_t i = signature->positional_only; i < named; i++) {
        if (PyUnicode_Compare(names[i], keyword) == 0) {
            return i;
        }
    }
    return -1;
}

static int
bind_keywords(const Signature *signature, PyObject *const *values, PyObject *kwnames, PyObject **slots)
{
    PyObject *extra = NULL;
    if (signature->double_star) {
        extra = PyDict_New();
        if (extra == NULL) {
            return -1;
        }
        slots[signature_named(signature) + signature->star] = extra;
    }
    Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, i);
        if (!PyUnicode_CheckExact(keyword)) {
            return 0; /* a subclass may compare in Python code of its own */
        }
        Py_ssize_t slot = find_keyword(signature, keyword);
        if (slot >= 0) {
            if (slots[slot] != NULL) {
                return 0;
            }
            slots[slot] = Py_NewRef(values[i]);
        }
        else if (extra == NULL) {
            return 0;
        }
        else if (PyDict_SetItem(extra, keyword, values[i]) < 0) {
            return -1;
        }
    }
    return 1;
}

static int
bind_defaults(const Signature *signature, PyFunctionObject *function, PyObject **slots)
{
    PyObject *defaults = function->func_defaults;
    Py_ssize_t count = defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < signature->positional; i++) {
        if (slots[i] != NULL) {
            continue;
        }
        Py_ssize_t from_end = signature->positional - i;
        if (from_end > count) {
            return 0;
        }
        slots[i] = Py_NewRef(PyTuple_GET_ITEM(defaults, count - from_end));
    }
    for (Py_ssize_t i = signature->positional; i < signature_named(signature); i++) {
        if (slots[i] != NULL) {
            continue;
        }
        if (function->func_kwdefaults == NULL) {
            return 0;
        }
        PyObject *value = PyDict_GetItemWithError(function->func_kwdefaults, PyTuple_GET_ITEM(signature->names, i));
        if (value == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        slots[i] = Py_NewRef(value);
    }
    return 1;
}

int
signature_bind(const Signature *signature, PyFunctionObject *function, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **slots)
{
    int status = bind_positional(signature, args, nargs, slots);
    if (status > 0) {
        status = bind_keywords(signature, args + nargs, kwnames, slots);
    }
    if (status > 0) {
        status = bind_defaults(signature, function, slots);
    }
    return status;
}

static PyObject *
positional_arguments(const Signature *signature, PyObject *const *slots)
{
    PyObject *star = signature->star ? slots[signature_named(signature)] : NULL;
    Py_ssize_t extra = star == NULL ? 0 : PyTuple_GET_SIZE(star);
    PyObject *args = PyTuple_New(signature->positional + extra);
    if (args == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < signature->positional; i++) {
        PyTuple_SET_ITEM(args, i, Py_NewRef(slots[i]));
    }
    for (Py_ssize_t i = 0; i < extra; i++) {
        PyTuple_SET_ITEM(args, signature->positional + i, Py_NewRef(PyTuple_GET_ITEM(star, i)));
    }
    return args;
}

static PyObject *
keyword_arguments(const Signature *signature, PyObject *const *slots)
{
    PyObject *kwargs = PyDict_New();
    if (kwargs == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = signature->positional; i < signature_named(signature); i++) {
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(signature->names, i), slots[i]) < 0) {
            Py_DECREF(kwargs);
            return NULL;
        }
    }
    if (signature->double_star && PyDict_Update(kwargs, slots[signature_named(signature) + signature->star]) < 0) {
        Py_DECREF(kwargs);
        return NULL;
    }
    return kwargs;
}

PyObject *
signature_call(const Signature *signature, PyObject *function, PyObject *const *slots)
{
    if (signature_slots(signature) == signature->positional) {
        return PyObject_Vectorcall(function, slots, (size_t)signature->positional, NULL);
    }
    PyObject *star = signature->star ? slots[signature_named(signature)] : NULL;
    PyObject *double_star = signature->double_star ? slots[signature_named(signature) + signature->star] : NULL;
    if ((star != NULL && !PyTuple_Check(star)) || (double_star != NULL && !PyDict_Check(double_star))) {
        PyErr_SetString(PyExc_TypeError, "the slots of *args and **kwargs hold a tuple and a dict");
        return NULL;
    }
    PyObject *args = positional_arguments(signature, slots);
    PyObject *kwargs = args == NULL ? NULL : keyword_arguments(signature, slots);
    PyObject *result = kwargs == NULL ? NULL : PyObject_Call(function, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}
