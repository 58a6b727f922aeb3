/* One spelling for the calls of a function that passes its arguments on to a method of the first one. */
#ifndef TORCHJIT_FRAME_FORWARDING_H
#define TORCHJIT_FRAME_FORWARDING_H

#include <Python.h>

#include "binding.h"

/* Of `def f(self, *args, **kwargs)`, which does no more than `self.method(*args, **kwargs)` unless something observes it. */
typedef struct {
    PyObject *method;         /* its name; NULL: the function is not of this kind */
    PyObject *observers;      /* attributes of the instance: dicts that see how a call is spelled, unless they are empty */
    PyObject *all_observers;  /* a tuple of dicts that do so for every instance */
    PyTypeObject *type;       /* borrowed, only compared: where `target` was looked up */
    unsigned version;         /* the type's at that time; it tells every change */
    PyFunctionObject *target; /* borrowed from the type while it has this version; NULL: no plain function */
} Forwarding;

/* From None or `(method, observers, all_observers)`. Returns 0, or -1 with TypeError set. */
int forwarding_init(Forwarding *self, PyObject *description);
int forwarding_traverse(Forwarding *self, visitproc visit, void *arg);
void forwarding_clear(Forwarding *self);

/* Fill the slots self, *args and **kwargs (NULL before) in the one spelling of all calls that bind alike: positional as far as
 * possible, then keyword-only arguments in the method's order, and nothing at the end that is what its default is.
 *
 * Returns 1 when they are filled, with new references; 0, with nothing filled, where the call is spelled so already, where
 * its spelling is observed or where it does not fit the method; -1 with an exception set. What was filled stays the
 * caller's. */
int forwarding_bind(Forwarding *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **slots);

#endif
