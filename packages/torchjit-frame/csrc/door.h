/* The front door: what is called in place of a function, and picks the specialisation that fits the arguments. */
#ifndef TORCHJIT_FRAME_DOOR_H
#define TORCHJIT_FRAME_DOOR_H

#include <Python.h>

#include "binding.h"
#include "forwarding.h"
#include "frames.h"
#include "lock.h"
#include "thread.h"

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function; /* the original: a Python function, or any callable if the door is flat */
    PyCodeObject *code; /* the code that `signature` describes; NULL: flat */
    Signature signature;
    Forwarding forwards; /* where the arguments end up, if the function only passes them on */
    Py_ssize_t nslots;
    int positional_only_call; /* `nslots` positional arguments are the slots as they stand */
    PyObject *entries;        /* a tuple, replaced and never written, so whoever holds it may iterate */
    PyObject *on_miss;
    PyObject *leave; /* see leave_blocks; NULL: nothing waits */
    char thrown;     /* `leave` takes its exception in place of the last slot */
    PyObject *streak_entry; /* borrowed, only compared: the entry behind the first that hit last */
    int streak;
    char sealed;
    unsigned long long misses;
    unsigned long long stale_entries;
    CompileLock lock;
    PyObject *dict;
    PyObject *weakrefs;
} FrontDoor;

extern PyTypeObject FrontDoor_Type;
#define FrontDoor_Check(op) Py_IS_TYPE((op), &FrontDoor_Type)

typedef enum {
    FROM_CALL,  /* args, nargsf and kwnames are the arguments as they came */
    FROM_SLOTS, /* args are the slots */
    FROM_FRAME  /* the original's frame is set up and waits in the hook */
} Origin;

/* One call: how to run the original if it comes to that. */
typedef struct {
    Origin origin;
    PyObject *const *args;
    size_t nargsf;
    PyObject *kwnames;
    PyThreadState *tstate;
    InterpreterFrame *frame; /* NULL as soon as it has been evaluated */
    int tail;                /* the caller makes the tail call that this one may give */
    int handed_on;           /* what the door's `leave` is for is up to code that has begun, or is done */
} Invocation;

PyObject *door_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* The call with the slots already bound; `nargs` must be door->nslots. */
PyObject *door_enter(FrontDoor *door, PyObject *const *slots, Py_ssize_t nargs);
PyObject *door_set_ranges(PyObject *module, PyObject *begin);
PyObject *door_run_original(FrontDoor *door, Invocation *call);
/* The call whose frame the hook was given. The frame is gone afterwards, or (3.11) left for the caller to clear. */
PyObject *door_enter_frame(FrontDoor *door, PyThreadState *tstate, InterpreterFrame *frame);

/* Slots of one binding, owned. Small ones need no allocation. */
#define BOUND_INLINE 16
typedef struct {
    PyObject **slots;
    Py_ssize_t count;
    PyObject *room[BOUND_INLINE];
} Bound;

/* As signature_bind; whatever the outcome, bound_release must follow. */
int door_bind(FrontDoor *door, Bound *bound, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
void bound_release(Bound *bound);

/* Replace the entries. Each returns 0, or -1 with an exception set. Appending an entry twice does nothing. */
int door_append(FrontDoor *door, PyObject *entry);
int door_remove(FrontDoor *door, PyObject *entry);
int door_clear_entries(FrontDoor *door);

#endif
