/* The module torchjit_frame._c. */
#include <Python.h>

#include "decisions.h"
#include "door.h"
#include "entry.h"
#include "hook.h"
#include "lock.h"
#include "signals.h"
#include "tail_call.h"
#include "thread.h"

static PyMethodDef module_methods[] = {
    {"set_eager", frame_set_eager, METH_O,
     "set_eager(flag)\n--\n\nSwitch eager calls on or off for this thread; returns the previous state."},
    {"is_eager", frame_is_eager, METH_NOARGS,
     "is_eager()\n--\n\nWhether every front door calls its original function in this thread."},
    {"forget", frame_forget, METH_O,
     "forget(code)\n--\n\nDrop what every hook_scope callback decided for a code object."},
    {"forget_all", frame_forget_all, METH_NOARGS,
     "forget_all()\n--\n\nDrop every decision; what it held is let go of when the code is next offered, or dies."},
    {"bind_code", frame_bind_code, METH_VARARGS,
     "bind_code(code, function)\n--\n\nSay that a replacement is for one function only; it must be among the code's constants."},
    {"hook_counters", hook_counters, METH_NOARGS,
     "hook_counters()\n--\n\nOf this process: open scopes, callbacks asked, frames swapped in place, calls of twins."},
    {"set_ranges", door_set_ranges, METH_O,
     "set_ranges(begin)\n--\n\nOf every front door: call begin(entry) before an entry is called, and begin(None) before one is searched,\n"
     "and what that returns afterwards; None: call nothing."},
    {"_after_fork", hook_after_fork, METH_NOARGS,
     "_after_fork()\n--\n\nForget the scopes of threads that the child of a fork does not have."},
    {"_shutdown", hook_shutdown, METH_NOARGS, "_shutdown()\n--\n\nTake the hook out for good; for atexit."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "torchjit_frame._c",
    .m_doc = "Front doors and the frame hook, in C.",
    .m_size = -1,
    .m_methods = module_methods,
};

/* In the children of forks `_after_fork` is called. Returns 0, or -1 with an exception set. */
static int
watch_forks(PyObject *module)
{
    static int watched = 0;
    PyObject *os = watched ? NULL : PyImport_ImportModule("os");
    if (os == NULL) {
        return watched ? 0 : -1;
    }
    int status = 0;
    if (PyObject_HasAttrString(os, "register_at_fork")) {
        PyObject *function = PyObject_GetAttrString(os, "register_at_fork");
        PyObject *keywords = Py_BuildValue("{s:N}", "after_in_child", PyObject_GetAttrString(module, "_after_fork"));
        PyObject *nothing = PyTuple_New(0);
        PyObject *result = NULL;
        if (function != NULL && keywords != NULL && nothing != NULL) {
            result = PyObject_Call(function, nothing, keywords);
        }
        status = result == NULL ? -1 : 0;
        Py_XDECREF(result);
        Py_XDECREF(nothing);
        Py_XDECREF(keywords);
        Py_XDECREF(function);
    }
    Py_DECREF(os);
    watched = status == 0;
    return status;
}

PyMODINIT_FUNC
PyInit__c(void)
{
    static int forks_watched = 0;
    if (decisions_init() < 0 || (!forks_watched && compile_lock_watch_forks() < 0)) {
        return NULL;
    }
    forks_watched = 1;
    PyObject *module = PyModule_Create(&module_definition);
    if (module == NULL) {
        return NULL;
    }
    if (PyModule_AddType(module, &Entry_Type) < 0 || PyModule_AddType(module, &FrontDoor_Type) < 0 ||
        PyModule_AddType(module, &HookScope_Type) < 0 || PyModule_AddType(module, &TailCall_Type) < 0 ||
        PyModule_AddType(module, &HeardHandler_Type) < 0 || PyModule_AddType(module, &Unhooked_Type) < 0 ||
        watch_forks(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    if (hook_leave_all == NULL) {
        hook_leave_all = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    }
    if (hook_leave_all == NULL || PyModule_AddObjectRef(module, "LEAVE_ALL", hook_leave_all) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
