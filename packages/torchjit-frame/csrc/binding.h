/* Binding of call arguments to a flat slot array, as CPython binds them to a frame's locals. */
#ifndef TORCHJIT_FRAME_BINDING_H
#define TORCHJIT_FRAME_BINDING_H

#include <Python.h>

/* The shape of a Python function's slots, in the order of co_varnames: positional, keyword-only, *args, **kwargs. */
typedef struct {
    PyObject *names;      /* borrowed: co_localsplusnames */
    Py_ssize_t positional_only;
    Py_ssize_t positional; /* the positional-only ones included */
    Py_ssize_t keyword_only;
    int star;   /* 1 if there is a slot for *args */
    int double_star; /* 1 if there is a slot for **kwargs */
} Signature;

static inline Py_ssize_t
signature_named(const Signature *signature)
{
    return signature->positional + signature->keyword_only;
}

static inline Py_ssize_t
signature_slots(const Signature *signature)
{
    return signature_named(signature) + signature->star + signature->double_star;
}

void signature_of_code(PyCodeObject *code, Signature *signature);

/* Fill `slots` (signature_slots of them, all NULL before) with new references.
 *
 * Returns 1 if the arguments fit; 0 if they do not, or if only CPython can tell (keywords that are not exact strings):
 * the caller lets the function itself raise; -1 with an exception set. What was filled stays owned by the caller. */
int signature_bind(const Signature *signature, PyFunctionObject *function, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **slots);

/* Call `function` with arguments that bind to exactly these slots. */
PyObject *signature_call(const Signature *signature, PyObject *function, PyObject *const *slots);

#endif
