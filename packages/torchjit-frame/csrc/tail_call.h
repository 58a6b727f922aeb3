/* A call that is made after the frame that asked for it has ended: the front door that called that frame makes it. */
#ifndef TORCHJIT_FRAME_TAIL_CALL_H
#define TORCHJIT_FRAME_TAIL_CALL_H

#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *callable;
    PyObject *args; /* a tuple */
} TailCall;

extern PyTypeObject TailCall_Type;
#define TailCall_Check(op) Py_IS_TYPE((op), &TailCall_Type)

#endif
