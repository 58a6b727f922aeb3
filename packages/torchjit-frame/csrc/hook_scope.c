/* hook_scope(callback): the hook is active in a thread between __enter__ and __exit__. */
#include "decisions.h"
#include "hook.h"
#include "thread.h"

typedef struct {
    PyObject_HEAD
    PyObject *callback;
} HookScope;

PyObject *
hook_scope_callback(PyObject *scope)
{
    return ((HookScope *)scope)->callback;
}

PyObject *
hook_scope_of(PyObject *callback)
{
    HookScope *self = (HookScope *)HookScope_Type.tp_alloc(&HookScope_Type, 0);
    if (self != NULL) {
        self->callback = Py_NewRef(callback);
    }
    return (PyObject *)self;
}

static PyObject *
scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"callback", NULL};
    PyObject *callback;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:hook_scope", keywords, &callback)) {
        return NULL;
    }
    if (!PyCallable_Check(callback)) {
        PyErr_Format(PyExc_TypeError, "the callback of a hook_scope must be callable, not '%.200s'",
                     Py_TYPE(callback)->tp_name);
        return NULL;
    }
    return hook_scope_of(callback);
}

static int
scope_traverse(HookScope *self, visitproc visit, void *arg)
{
    Py_VISIT(self->callback);
    return 0;
}

static int
scope_clear(HookScope *self)
{
    Py_CLEAR(self->callback);
    return 0;
}

static void
scope_dealloc(HookScope *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->callback);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

int
hook_open(FrameThread *thread, PyObject *scope, int lent)
{
    OpenScope *open = PyMem_Malloc(sizeof(OpenScope));
    if (open == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    open->scope = Py_NewRef(scope);
    open->outer = thread->scope;
    thread->scope = open;
    open->lent = lent;
    hook_install();
    return 0;
}

int
hook_close(FrameThread *thread, PyObject *scope)
{
    /* Usually the innermost one; not if generators that hold scopes are interleaved. */
    for (OpenScope **link = &thread->scope; *link != NULL; link = &(*link)->outer) {
        if ((*link)->scope == scope) {
            OpenScope *open = *link;
            *link = open->outer;
            hook_uninstall();
            frame_take_back(open->lent);
            PyMem_Free(open);
            Py_DECREF(scope); /* the caller still holds it */
            return 0;
        }
    }
    return -1;
}

static PyObject *
scope_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    FrameThread *thread = frame_thread();
    int lent = frame_lend_level(thread); /* the frame that opens the scope */
    if (hook_open(thread, self, lent) < 0) {
        frame_take_back(lent);
        return NULL;
    }
    return Py_NewRef(self);
}

static PyObject *
scope_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    if (hook_close(frame_thread(), self) < 0) {
        PyErr_SetString(PyExc_RuntimeError, "this hook_scope is not open in this thread");
        return NULL;
    }
    decisions_sweep();
    Py_RETURN_NONE;
}

static PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, "Make the hook active in this thread."},
    {"__exit__", (PyCFunction)(void (*)(void))scope_exit, METH_FASTCALL, "End what __enter__ began, in the same thread."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject HookScope_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.hook_scope",
    .tp_doc = "hook_scope(callback)\n--\n\n"
              "Within the block, functions that this thread calls are offered to `callback(function)`, once per code object.\n\n"
              "It returns None (the code runs as it is from then on), a FrontDoor (called with the frame's slots instead; when the\n"
              "door falls back, the frame runs as it is), or a code object that runs instead, in the same frame. Such code has the\n"
              "same argument slots and free variables in the same order, and is no generator.\n\n"
              "It may also return LEAVE_ALL: the code runs as it is, and nothing that it calls is offered while it does.\n\n"
              "A FrontDoor, or code made by `trampoline`, serves its own function only: another function over the same code, with\n"
              "another closure or other globals, is offered too, up to 8 of them. Decisions belong to the callback that made them\n"
              "and last until `forget`. An exception in the callback reaches the caller of the function.\n\n"
              "Generators, coroutines, class bodies, module code and comprehension frames are never offered. The hook is\n"
              "suspended while the callback, an on_miss or a Python guard runs, and while the thread is eager.\n\n"
              "A scope may be entered more than once. Its exit restores what was active before.",
    .tp_basicsize = sizeof(HookScope),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = scope_new,
    .tp_dealloc = (destructor)scope_dealloc,
    .tp_traverse = (traverseproc)scope_traverse,
    .tp_clear = (inquiry)scope_clear,
    .tp_methods = scope_methods,
};
