/* One specialisation of a front door: a guard, and what to call when it holds. */
#ifndef TORCHJIT_FRAME_ENTRY_H
#define TORCHJIT_FRAME_ENTRY_H

#include <Python.h>

#include "guard_abi.h"
#include "size_class.h"

/* The local variable that a target has once its graph has run: what it raises then is no longer to be given to `leave`. */
#define GRAPH_IS_OVER "graph_is_over"

typedef struct {
    PyObject_HEAD
    PyObject *guard;
    PyObject *target;
    PyObject *data;                   /* the wiring's own, Py_None if it gave none */
    PyObject *capsule;                /* keeps `program` alive; NULL: the guard is called as an ordinary callable */
    const torchjit_guard_v1 *program; /* NULL as capsule */
    PyObject *scope;                  /* the HookScope that calls run in, or NULL */
    PyObject *on_raise;               /* what is asked about an exception of the target, or NULL */
    Py_ssize_t unwrap;
    unsigned long long hits;
    char enabled;
    char detour;                      /* whether calls look at what follows: one test on the way of all others */
    uint64_t original;                /* by class of sizes, a bit each: the original is called in place of the target */
    uint64_t decided;                 /* likewise: the trial is not asked any more */
    PyObject *trial;                  /* what is asked before each call, or NULL */
    SizeReader sizes;                 /* of those that vary between calls */
    unsigned char quiet;              /* looks at sizes, one after the other, that the trial was not asked about */
    unsigned char rest;               /* calls until the next look, where no class runs the original */
    PyObject *weakrefs;
} Entry;

/* PyObject_Vectorcall without its checks of the result, which our own caller makes; worth 3 ns on 3.12 and 3.13. */
static inline PyObject *
call_vector(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL)) {
        vectorcallfunc function;
        memcpy(&function, (char *)callable + type->tp_vectorcall_offset, sizeof(function));
        if (function != NULL) {
            return function(callable, args, nargsf, kwnames);
        }
    }
    return PyObject_Vectorcall(callable, args, nargsf, kwnames);
}

/* A look at sizes takes some 0.1 us: where nothing comes of it for so many calls, one in so many is left of them. */
#define QUIET_LOOKS 64
#define RESTS 15

extern PyTypeObject Entry_Type;
#define Entry_Check(op) Py_IS_TYPE((op), &Entry_Type)

/* What a guard found, ready for a vectorcall. Small ones need no allocation. */
#define GATHERED_INLINE 24
typedef struct {
    PyObject **items; /* items[-1] is writable, for PY_VECTORCALL_ARGUMENTS_OFFSET */
    Py_ssize_t count;
    PyObject *tuple; /* owns `items` when the guard is an ordinary callable, else NULL and each item is owned */
    PyObject *room[1 + GATHERED_INLINE];
} Gathered;

/* 1: the guard holds and `gathered` must be given to entry_call; 0: miss; -1: an exception is set. */
int entry_check(Entry *entry, PyObject *const *slots, Py_ssize_t nslots, Gathered *gathered);
/* Counts the hit, calls the target, releases `gathered`. Returns a new reference or NULL. */
PyObject *entry_call(Entry *entry, Gathered *gathered);
/* For a hit whose target is not called. */
void gathered_release(Gathered *gathered);

#endif
