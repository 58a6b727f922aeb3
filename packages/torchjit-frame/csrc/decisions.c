/* Decisions per code object and callback. */
#include "decisions.h"

#if PY_VERSION_HEX >= 0x030C0000
#define request_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define get_extra PyUnstable_Code_GetExtra
#define set_extra PyUnstable_Code_SetExtra
#else
#define request_extra_index _PyEval_RequestCodeExtraIndex
#define get_extra _PyCode_GetExtra
#define set_extra _PyCode_SetExtra
#endif

typedef struct {
    Decision *decisions;
    PyObject *bound; /* borrowed: the code object's constants hold the function */
} Record;

static Py_ssize_t extra_index = -1;

/* Decisions of code objects that died. A code object can die at any instruction, with the collector running, so its
 * decisions wait here until Python code may run. */
static Decision *graveyard = NULL;
static int sweep_requested = 0;

/* forget_all cannot reach the code objects; what was decided before it is dropped when it is met. */
static unsigned epoch = 0;

void
decision_hold(Decision *decision)
{
    decision->references++;
}

void
decision_release(Decision *decision)
{
    if (--decision->references > 0) {
        return;
    }
    Py_XDECREF(decision->callback);
    Py_XDECREF(decision->function);
    Py_XDECREF(decision->code);
    Py_XDECREF(decision->door);
    Py_XDECREF(decision->twin);
    PyMem_Free(decision);
}

void
decisions_sweep(void)
{
    while (graveyard != NULL) {
        Decision *dead = graveyard;
        graveyard = dead->next;
        dead->next = NULL;
        decision_release(dead);
    }
}

static int
pending_sweep(void *Py_UNUSED(arg))
{
    sweep_requested = 0;
    decisions_sweep();
    return 0;
}

static void
record_free(void *extra)
{
    Record *record = extra;
    if (record == NULL) {
        return;
    }
    Decision *decision = record->decisions;
    while (decision != NULL) {
        Decision *next = decision->next;
        decision->next = graveyard;
        graveyard = decision;
        decision = next;
    }
    PyMem_Free(record);
    if (graveyard != NULL && !sweep_requested) {
        sweep_requested = Py_AddPendingCall(pending_sweep, NULL) == 0;
    }
}

int
decisions_init(void)
{
    if (extra_index < 0) {
        extra_index = request_extra_index(record_free);
    }
    if (extra_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "no slot for extra data of code objects is left in this interpreter");
        return -1;
    }
    return 0;
}

static Record *
find_record(PyCodeObject *code)
{
    void *extra = NULL;
    if (get_extra((PyObject *)code, extra_index, &extra) < 0) {
        PyErr_Clear();
        return NULL;
    }
    return extra;
}

static Record *
make_record(PyCodeObject *code)
{
    Record *record = find_record(code);
    if (record != NULL) {
        return record;
    }
    record = PyMem_Calloc(1, sizeof(Record));
    if (record == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (set_extra((PyObject *)code, extra_index, record) < 0) {
        PyMem_Free(record);
        return NULL;
    }
    return record;
}

/* `self.method` is a new object each time, and means the same callback. */
static int
same_callback(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    return PyMethod_Check(a) && PyMethod_Check(b) && PyMethod_GET_SELF(a) == PyMethod_GET_SELF(b) &&
           PyMethod_GET_FUNCTION(a) == PyMethod_GET_FUNCTION(b);
}

/* A replacement that was made for `known` serves `function` if nothing that either can reach differs. */
static int
same_function(PyObject *known, PyFunctionObject *function)
{
    PyFunctionObject *other = (PyFunctionObject *)known;
    return other == function ||
           (other->func_code == function->func_code && other->func_globals == function->func_globals &&
            other->func_builtins == function->func_builtins && other->func_closure == function->func_closure);
}

Decision *
decision_find(PyCodeObject *code, PyObject *callback, PyFunctionObject *function, int *full)
{
    *full = 0;
    Record *record = find_record(code);
    if (record == NULL) {
        return NULL;
    }
    int variants = 0;
    for (Decision *decision = record->decisions; decision != NULL; decision = decision->next) {
        if (decision->epoch != epoch || !same_callback(decision->callback, callback)) {
            continue;
        }
        if (decision->function == NULL || same_function(decision->function, function)) {
            return decision;
        }
        variants++;
    }
    *full = variants >= MAX_VARIANTS;
    return NULL;
}

static void
bury_old(Record *record)
{
    Decision **link = &record->decisions;
    while (*link != NULL) {
        Decision *decision = *link;
        if (decision->epoch == epoch) {
            link = &decision->next;
            continue;
        }
        *link = decision->next;
        decision->next = graveyard;
        graveyard = decision;
    }
}

Decision *
decision_add(PyCodeObject *code, PyObject *callback)
{
    Record *record = make_record(code);
    Decision *decision = record == NULL ? NULL : PyMem_Calloc(1, sizeof(Decision));
    if (decision == NULL) {
        return record == NULL ? NULL : (Decision *)PyErr_NoMemory();
    }
    bury_old(record);
    decision->epoch = epoch;
    decision->references = 2; /* the list's and the caller's */
    decision->state = DECISION_PENDING;
    decision->callback = Py_NewRef(callback);
    decision->next = record->decisions;
    record->decisions = decision;
    return decision;
}

void
decision_drop(PyCodeObject *code, Decision *decision)
{
    Record *record = find_record(code);
    if (record == NULL) {
        return;
    }
    for (Decision **link = &record->decisions; *link != NULL; link = &(*link)->next) {
        if (*link == decision) {
            *link = decision->next;
            decision->next = NULL;
            decision_release(decision);
            return;
        }
    }
}

PyObject *
code_bound_function(PyCodeObject *code)
{
    Record *record = find_record(code);
    return record == NULL ? NULL : record->bound;
}

static int
check_code(PyObject *code)
{
    if (!PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "a code object is needed, not '%.200s'", Py_TYPE(code)->tp_name);
        return -1;
    }
    return 0;
}

PyObject *
frame_forget(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (check_code(code) < 0) {
        return NULL;
    }
    Record *record = find_record((PyCodeObject *)code);
    while (record != NULL && record->decisions != NULL) {
        Decision *first = record->decisions;
        record->decisions = first->next;
        first->next = NULL;
        decision_release(first);
    }
    Py_RETURN_NONE;
}

PyObject *
frame_forget_all(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    epoch++;
    Py_RETURN_NONE;
}

PyObject *
frame_bind_code(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *code, *function;
    if (!PyArg_ParseTuple(args, "O!O!:bind_code", &PyCode_Type, &code, &PyFunction_Type, &function)) {
        return NULL;
    }
    PyObject *constants = ((PyCodeObject *)code)->co_consts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
        if (PyTuple_GET_ITEM(constants, i) == function) {
            Record *record = make_record((PyCodeObject *)code);
            if (record == NULL) {
                return NULL;
            }
            record->bound = function;
            Py_RETURN_NONE;
        }
    }
    PyErr_SetString(PyExc_ValueError, "the function must be among the constants of the code, which keep it alive");
    return NULL;
}
