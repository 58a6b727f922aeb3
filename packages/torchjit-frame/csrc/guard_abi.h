/* The guard ABI: how a compiled guard program shows its C entry to a front door.
 *
 * An object with an attribute `__torchjit_guard__`, a PyCapsule named TORCHJIT_GUARD_CAPSULE around a torchjit_guard_v1,
 * is called through `check`. Provider and consumer each carry a copy of this file; neither includes the other's.
 */
#ifndef TORCHJIT_GUARD_ABI_H
#define TORCHJIT_GUARD_ABI_H

#include <Python.h>

#define TORCHJIT_GUARD_CAPSULE "torchjit.guard.v1"
#define TORCHJIT_GUARD_ABI 1u

typedef struct {
    unsigned abi; /* TORCHJIT_GUARD_ABI */
    void *self;   /* passed back to check */
    Py_ssize_t ngathered;
    /* 1: hit, `gathered` is filled with `ngathered` new references. 0: miss. -1: an exception is set.
     * After 0 and -1 nothing in `gathered` is owned. `slots` are borrowed. */
    int (*check)(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered);
} torchjit_guard_v1;

#endif
