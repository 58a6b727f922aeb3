/* The frame hook. A replacement code object runs in the frame of the original: no second frame, no copied arguments. */
#include "hook.h"

#include "decisions.h"
#include "door.h"
#include "thread.h"

int hook_installed = 0;
PyObject *hook_leave_all = NULL;
static int finalizing = 0;
static unsigned long long asked = 0, swapped = 0, twin_calls = 0;

/* Another tool may install its hook over ours; then we stay in its chain when our last scope closes ("buried"), and
 * our next scope goes on top of it. `below` is what was there before we first came, `previous` what is called next. */
static int buried = 0;
static _PyFrameEvalFunction below = NULL;
static _PyFrameEvalFunction previous = NULL;

void
hook_install(void)
{
    if (hook_installed++ > 0) {
        return;
    }
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (current == hook_evaluate) {
        buried = 0;
        return;
    }
    if (!buried) {
        below = current;
    }
    previous = current;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, hook_evaluate);
}

void
hook_uninstall(void)
{
    if (--hook_installed > 0) {
        return;
    }
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != hook_evaluate) {
        buried = 1;
        return;
    }
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
    buried = previous != below;
    previous = below;
}

PyObject *
hook_shutdown(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    finalizing = 1;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == hook_evaluate) {
        _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
    }
    Py_RETURN_NONE;
}

PyObject *
hook_after_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    int open = 0;
    for (OpenScope *scope = frame_thread()->scope; scope != NULL; scope = scope->outer) {
        open++;
    }
    if (open == 0 && hook_installed > 0) {
        hook_installed = 1;
        hook_uninstall();
    }
    hook_installed = open;
    Py_RETURN_NONE;
}

PyObject *
hook_counters(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("{s:i,s:K,s:K,s:K}", "open_scopes", hook_installed, "asked", asked, "swapped", swapped,
                         "twin_calls", twin_calls);
}

PyObject *
hook_pass_on(PyThreadState *tstate, FrameThread *thread, InterpreterFrame *frame, int throwflag)
{
    /* A hook over ours may pass to us what we pass to it: a frame that comes again goes to what was there before we came, and
     * if that is the same hook, which has found us in the slot when it was installed again, to CPython. */
    int turn = thread->chaining == frame ? thread->turn + 1 : 0;
    _PyFrameEvalFunction next = turn == 0 ? previous : turn == 1 && below != previous ? below : NULL;
    if (next == NULL || next == hook_evaluate) {
        next = _PyEval_EvalFrameDefault;
    }
    StackCredit credit = 0;
    if (frame_on_data_stack(frame) && frame_stack_enter(thread, &credit) < 0) {
        return frame_abandon(tstate, frame, NULL);
    }
    PyObject *result;
    if (next == _PyEval_EvalFrameDefault) {
        result = next(tstate, frame, throwflag);
    }
    else {
        void *outer = thread->chaining;
        int outer_turn = thread->turn;
        thread->chaining = frame;
        thread->turn = turn;
        result = next(tstate, frame, throwflag);
        thread->chaining = outer;
        thread->turn = outer_turn;
    }
    frame_stack_leave(credit);
    return result;
}

/* Frames that are never offered to a callback, whoever asks. */
static int
out_of_scope(PyCodeObject *code)
{
    const int function_flags = CO_OPTIMIZED | CO_NEWLOCALS;
    if ((code->co_flags & function_flags) != function_flags ||
        (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0) {
        return 1;
    }
    /* The implicit argument of a comprehension's frame. */
    return code->co_argcount == 1 &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(code->co_localsplusnames, 0), ".0") == 0;
}

/* The layout contract: the new code must understand the frame's argument slots and the function's closure. */
static int
check_contract(PyCodeObject *old, PyObject *made)
{
    const int shape = CO_OPTIMIZED | CO_NEWLOCALS | CO_VARARGS | CO_VARKEYWORDS;
    const char *problem = NULL;
    if (!PyCode_Check(made)) {
        PyErr_Format(PyExc_TypeError, "the callback of a hook_scope must return a code object, a FrontDoor, LEAVE_ALL or None, not '%.200s'",
                     Py_TYPE(made)->tp_name);
        return -1;
    }
    PyCodeObject *code = (PyCodeObject *)made;
    if ((code->co_flags & shape) != (old->co_flags & shape) || code->co_argcount != old->co_argcount ||
        code->co_kwonlyargcount != old->co_kwonlyargcount) {
        problem = "its arguments differ";
    }
    else if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) {
        problem = "it is a generator or a coroutine";
    }
    else if (code->co_nfreevars != old->co_nfreevars) {
        problem = "its free variables differ";
    }
    for (int i = 0; problem == NULL && i < code->co_nfreevars; i++) {
        PyObject *new_name = PyTuple_GET_ITEM(code->co_localsplusnames, code->co_nlocalsplus - code->co_nfreevars + i);
        PyObject *old_name = PyTuple_GET_ITEM(old->co_localsplusnames, old->co_nlocalsplus - old->co_nfreevars + i);
        if (PyUnicode_Compare(new_name, old_name) != 0) {
            problem = "its free variables differ";
        }
    }
    if (problem != NULL) {
        PyErr_Format(PyExc_ValueError, "the replacement %R cannot run in a frame of %R: %s", made, (PyObject *)old,
                     problem);
        return -1;
    }
    return 0;
}

/* A door instead of code: it is called with the frame's slots. */
static int
settle_door(Decision *decision, PyCodeObject *code, PyFunctionObject *function, FrontDoor *door)
{
    int fits = door->code == NULL ? door->nslots == code_slots(code) : door->code == code;
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "the front door %R cannot stand in for %R: its slots are those of other code",
                     (PyObject *)door, (PyObject *)function);
        return -1;
    }
    decision->door = Py_NewRef((PyObject *)door);
    decision->function = Py_NewRef((PyObject *)function);
    decision->state = DECISION_RUN;
    return 0;
}

static int
settle(Decision *decision, PyCodeObject *code, PyFunctionObject *function, PyObject *made)
{
    if (made == Py_None) {
        decision->state = DECISION_SKIP;
        return 0;
    }
    if (made == hook_leave_all) {
        decision->state = DECISION_SKIP_ALL;
        return 0;
    }
    if (FrontDoor_Check(made)) {
        return settle_door(decision, code, function, (FrontDoor *)made);
    }
    if (check_contract(code, made) < 0) {
        return -1;
    }
    decision->code = (PyCodeObject *)Py_NewRef(made);
    decision->function = Py_XNewRef(code_bound_function(decision->code));
    decision->state = DECISION_RUN;
    return 0;
}

/* Ask the callback about a function seen for the first time. Returns a new reference; NULL with an exception set. */
static Decision *
ask(PyThreadState *tstate, FrameThread *thread, PyCodeObject *code, PyFunctionObject *function)
{
    PyObject *callback = hook_scope_callback(thread->scope->scope);
    Decision *decision = decision_add(code, callback);
    if (decision == NULL) {
        return NULL;
    }
    Py_INCREF(function);
    Py_INCREF(code);
    thread->hook_suspended++;
    PyThreadState_EnterTracing(tstate); /* the callback is no part of the program that is traced */
    decisions_sweep();
    asked++;
    PyObject *made = PyObject_CallOneArg(decision->callback, (PyObject *)function);
    int status = made == NULL ? -1 : settle(decision, code, function, made);
    Py_XDECREF(made);
    if (status < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        decision_drop(code, decision);
        decision_release(decision);
        PyErr_Restore(type, value, traceback);
        decision = NULL;
    }
    PyThreadState_LeaveTracing(tstate);
    thread->hook_suspended--;
    Py_DECREF(function);
    Py_DECREF(code);
    return decision;
}

/* The replacement for a call that passes the slots one by one. */
static PyCodeObject *
make_twin(PyCodeObject *code)
{
    PyObject *replace = PyObject_GetAttrString((PyObject *)code, "replace");
    PyObject *none = PyTuple_New(0);
    PyObject *changes = Py_BuildValue("{s:n,s:i,s:i,s:i}", "co_argcount", code_slots(code), "co_posonlyargcount", 0,
                                      "co_kwonlyargcount", 0, "co_flags",
                                      code->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS));
    PyObject *twin = replace && none && changes ? PyObject_Call(replace, none, changes) : NULL;
    Py_XDECREF(replace);
    Py_XDECREF(none);
    Py_XDECREF(changes);
    return (PyCodeObject *)twin;
}

/* For a replacement that needs a larger frame than the data stack's chunk has room for: a frame of its own. */
static PyObject *
call_twin(FrameThread *thread, InterpreterFrame *frame, Decision *decision)
{
    PyFunctionObject *original = frame_function(frame);
    if (decision->twin == NULL) {
        PyCodeObject *made = make_twin(decision->code);
        if (made == NULL) {
            return NULL;
        }
        Py_XSETREF(decision->twin, made);
    }
    PyObject *function = PyFunction_NewWithQualName((PyObject *)decision->twin, original->func_globals,
                                                    original->func_qualname);
    if (function == NULL) {
        return NULL;
    }
    if (original->func_closure != NULL && PyFunction_SetClosure(function, original->func_closure) < 0) {
        Py_DECREF(function);
        return NULL;
    }
    thread->bypass = function;
    PyObject *result =
        PyObject_Vectorcall(function, frame_slots(frame), (size_t)code_slots(decision->code), NULL);
    thread->bypass = NULL;
    Py_DECREF(function);
    return result;
}

static PyObject *
run_replacement(PyThreadState *tstate, FrameThread *thread, InterpreterFrame *frame, Decision *decision)
{
    PyObject *result;
    if (decision->door != NULL) {
        PyObject *door = Py_NewRef(decision->door); /* forget() may be called meanwhile */
        result = door_enter_frame((FrontDoor *)door, tstate, frame);
        Py_DECREF(door);
        return result;
    }
    StackCredit credit;
    if (frame_stack_enter(thread, &credit) < 0) {
        return frame_abandon(tstate, frame, NULL);
    }
    if (frame_swap_code(tstate, frame, decision->code)) {
        swapped++;
        result = _PyEval_EvalFrameDefault(tstate, frame, 0);
    }
    else {
        twin_calls++;
        decision_hold(decision);
        result = frame_abandon(tstate, frame, call_twin(thread, frame, decision));
        decision_release(decision);
    }
    frame_stack_leave(credit);
    return result;
}

/* The original, as decided: with DECISION_SKIP_ALL the hook rests until it returns. */
static PyObject *
run_original(PyThreadState *tstate, FrameThread *thread, InterpreterFrame *frame, DecisionState state)
{
    int rests = state == DECISION_SKIP_ALL;
    thread->hook_suspended += rests;
    PyObject *result = hook_pass_on(tstate, thread, frame, 0);
    thread->hook_suspended -= rests;
    return result;
}

static PyObject *
first_sight(PyThreadState *tstate, FrameThread *thread, InterpreterFrame *frame)
{
    Decision *decision = ask(tstate, thread, frame_code(frame), frame_function(frame));
    if (decision == NULL) {
        return frame_abandon(tstate, frame, NULL);
    }
    PyObject *result;
    if (decision->state == DECISION_RUN) {
        result = run_replacement(tstate, thread, frame, decision);
    }
    else {
        result = run_original(tstate, thread, frame, decision->state);
    }
    decision_release(decision);
    return result;
}

PyObject *
hook_evaluate(PyThreadState *tstate, InterpreterFrame *frame, int throwflag)
{
    FrameThread *thread = frame_thread();
    if (thread->bypass != NULL && thread->bypass == (PyObject *)frame_function(frame)) {
        thread->bypass = NULL;
        return hook_pass_on(tstate, thread, frame, throwflag);
    }
    if (thread->scope == NULL || throwflag || thread->hook_suspended || thread->eager || finalizing ||
        thread->chaining == frame) {
        return hook_pass_on(tstate, thread, frame, throwflag);
    }
    PyCodeObject *code = frame_code(frame);
    if (out_of_scope(code)) {
        return hook_pass_on(tstate, thread, frame, throwflag);
    }
    int full;
    Decision *decision =
        decision_find(code, hook_scope_callback(thread->scope->scope), frame_function(frame), &full);
    if (decision == NULL) {
        return full ? hook_pass_on(tstate, thread, frame, 0) : first_sight(tstate, thread, frame);
    }
    if (decision->state == DECISION_RUN) {
        return run_replacement(tstate, thread, frame, decision);
    }
    return run_original(tstate, thread, frame, decision->state);
}
