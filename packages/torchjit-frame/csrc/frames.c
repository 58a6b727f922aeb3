/* Interpreter frames of CPython 3.11, 3.12 and 3.13; facts from Include/internal/pycore_frame.h and Python/ceval.c. */
#define Py_BUILD_CORE 1
#include <Python.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_ceval.h>
#endif
#pragma GCC diagnostic pop

#include "frames.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "torchjit-frame knows the frames of CPython 3.11, 3.12 and 3.13"
#endif

#ifdef Py_GIL_DISABLED
#error "torchjit-frame relies on the GIL"
#endif

PyCodeObject *
frame_code(InterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

PyFunctionObject *
frame_function(InterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030C0000
    return (PyFunctionObject *)frame->f_funcobj;
#else
    return frame->f_func;
#endif
}

PyObject **
frame_slots(InterpreterFrame *frame)
{
    return frame->localsplus;
}

int
frame_on_data_stack(InterpreterFrame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD;
}

Py_ssize_t
code_slots(PyCodeObject *code)
{
    return (Py_ssize_t)code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
           ((code->co_flags & CO_VARKEYWORDS) != 0);
}

static Py_ssize_t
frame_words(PyCodeObject *code)
{
    return (Py_ssize_t)code->co_nlocalsplus + code->co_stacksize + FRAME_SPECIALS_SIZE;
}

int
frame_swap_code(PyThreadState *tstate, InterpreterFrame *frame, PyCodeObject *code)
{
    PyCodeObject *old = frame_code(frame);
    PyObject **base = (PyObject **)frame;
    if (base + frame_words(old) != tstate->datastack_top || base + frame_words(code) >= tstate->datastack_limit) {
        return 0;
    }
    for (Py_ssize_t i = code_slots(code); i < code->co_nlocalsplus; i++) {
        frame->localsplus[i] = NULL;
    }
    frame->stacktop = code->co_nlocalsplus;
    tstate->datastack_top = base + frame_words(code);
    Py_INCREF(code);
#if PY_VERSION_HEX >= 0x030D0000
    frame->f_executable = (PyObject *)code;
    frame->instr_ptr = _PyCode_CODE(code);
#else
    frame->f_code = code;
    frame->prev_instr = _PyCode_CODE(code) - 1;
#endif
    Py_DECREF(old);
    return 1;
}

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
/* As _PyThreadState_PopFrame, which 3.12 does not export. */
static void
pop_data_stack(PyThreadState *tstate, InterpreterFrame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator arenas;
    PyObject_GetArenaAllocator(&arenas);
    arenas.free(arenas.ctx, chunk, chunk->size);
}
#endif

PyObject *
frame_abandon(PyThreadState *tstate, InterpreterFrame *frame, PyObject *result)
{
    /* Releasing the arguments may run finalizers, which must not see or disturb a pending exception. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
#if PY_VERSION_HEX >= 0x030D0000
    _PyEval_FrameClearAndPop(tstate, frame);
#elif PY_VERSION_HEX >= 0x030C0000
    for (int i = 0; i < frame->stacktop; i++) {
        Py_CLEAR(frame->localsplus[i]);
    }
    Py_CLEAR(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame->f_code);
    pop_data_stack(tstate, frame);
#else
    (void)tstate;
    (void)frame; /* 3.11: _PyEval_Vector clears the frame after the hook */
#endif
    PyErr_Restore(type, value, traceback);
    return result;
}
