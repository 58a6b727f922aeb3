/* What the hook decided for a code object, kept in the code object's extra slot. */
#ifndef TORCHJIT_FRAME_DECISIONS_H
#define TORCHJIT_FRAME_DECISIONS_H

#include <Python.h>

typedef enum {
    DECISION_PENDING, /* the callback is being asked: other threads run the original */
    DECISION_SKIP,
    DECISION_SKIP_ALL, /* nor what the original calls is offered */
    DECISION_RUN
} DecisionState;

typedef struct Decision {
    struct Decision *next;
    Py_ssize_t references;
    unsigned epoch; /* of forget_all; an older one does not count */
    DecisionState state;
    PyObject *callback; /* whose decision it is */
    PyObject *function; /* the function that the replacement is for; NULL: any function of the code object */
    PyCodeObject *code; /* DECISION_RUN: the replacement, or */
    PyObject *door;     /* the FrontDoor that is called instead */
    PyCodeObject *twin; /* the replacement with positional arguments only; NULL until it is needed */
} Decision;

/* Functions of one code object (closures) that get a replacement of their own; later ones run the original. */
#define MAX_VARIANTS 8

int decisions_init(void);

/* The decision of `callback` for `function`, borrowed, or NULL. `*full` is set if no further one may be added. */
Decision *decision_find(PyCodeObject *code, PyObject *callback, PyFunctionObject *function, int *full);
/* A new pending one; a new reference. NULL with an exception set. */
Decision *decision_add(PyCodeObject *code, PyObject *callback);
/* Take it out of the code object's list, if it is still there. */
void decision_drop(PyCodeObject *code, Decision *decision);
void decision_hold(Decision *decision);
void decision_release(Decision *decision);

/* Module functions. */
PyObject *frame_forget(PyObject *module, PyObject *code);
PyObject *frame_forget_all(PyObject *module, PyObject *unused);
PyObject *frame_bind_code(PyObject *module, PyObject *args);

/* The function that a trampoline's code object was made for, borrowed, or NULL. */
PyObject *code_bound_function(PyCodeObject *code);

/* Let go of what died with code objects; only where Python code may run. */
void decisions_sweep(void);

#endif
