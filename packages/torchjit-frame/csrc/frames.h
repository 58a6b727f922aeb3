/* What the hook does to interpreter frames. frames.c alone includes CPython's internal headers. */
#ifndef TORCHJIT_FRAME_FRAMES_H
#define TORCHJIT_FRAME_FRAMES_H

#include <Python.h>

typedef struct _PyInterpreterFrame InterpreterFrame;

/* All of these hold at the entry of the hook only: the arguments are in place and no instruction has run. */

PyCodeObject *frame_code(InterpreterFrame *frame);         /* borrowed */
PyFunctionObject *frame_function(InterpreterFrame *frame); /* borrowed */
PyObject **frame_slots(InterpreterFrame *frame);           /* the arguments, in the order of co_varnames */
int frame_on_data_stack(InterpreterFrame *frame);          /* false for generators */

/* Number of argument slots of a code object. */
Py_ssize_t code_slots(PyCodeObject *code);

/* Make the frame run `code`, which satisfies the layout contract of hook.c. Returns 0, with nothing changed, if the
 * larger frame does not fit into the chunk of the data stack. */
int frame_swap_code(PyThreadState *tstate, InterpreterFrame *frame, PyCodeObject *code);

/* Give up a frame on the data stack without running it; `result` is passed through for the hook to return. */
PyObject *frame_abandon(PyThreadState *tstate, InterpreterFrame *frame, PyObject *result);

#endif
