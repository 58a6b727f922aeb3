/* The PEP 523 frame hook: installation, scopes, and what happens to a frame. */
#ifndef TORCHJIT_FRAME_HOOK_H
#define TORCHJIT_FRAME_HOOK_H

#include <Python.h>

#include "frames.h"
#include "thread.h"

/* Number of open hook scopes in the process. */
extern int hook_installed;

extern PyTypeObject HookScope_Type;

/* An open scope, in a list per thread. */
typedef struct OpenScope {
    struct OpenScope *outer;
    PyObject *scope; /* owned: the HookScope that was entered */
    int lent; /* levels of recursion, see frame_lend_level */
} OpenScope;

void hook_install(void);
void hook_uninstall(void);

/* Make the hook active in this thread; `scope` is the HookScope. Returns 0, or -1 with MemoryError set. */
int hook_open(FrameThread *thread, PyObject *scope, int lent);
/* End what hook_open began for this scope. Returns 0, or -1 if it is not open in this thread. */
int hook_close(FrameThread *thread, PyObject *scope);

/* A HookScope around a callback. */
PyObject *hook_scope_of(PyObject *callback);

/* The evaluation function of PEP 523. */
PyObject *hook_evaluate(PyThreadState *tstate, InterpreterFrame *frame, int throwflag);

/* Evaluate a frame with what CPython would call without us. */
PyObject *hook_pass_on(PyThreadState *tstate, FrameThread *thread, InterpreterFrame *frame, int throwflag);

/* Run at interpreter exit: nothing is hooked any more. */
PyObject *hook_shutdown(PyObject *module, PyObject *unused);

/* Run in the child of a fork: scopes of other threads never close there, and the hook goes when none is open in this one. */
PyObject *hook_after_fork(PyObject *module, PyObject *unused);

PyObject *hook_counters(PyObject *module, PyObject *unused);

/* What a callback returns for DECISION_SKIP_ALL: the module's LEAVE_ALL. */
extern PyObject *hook_leave_all;

/* The callback of a HookScope, borrowed. */
PyObject *hook_scope_callback(PyObject *scope);

#endif
