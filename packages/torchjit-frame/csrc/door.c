/* The call path of a front door: bind, pick an entry, or compile one. */
#include "door.h"

#include "decisions.h"
#include "entry.h"
#include "hook.h"
#include "tail_call.h"

/* An entry behind the first one is moved to the front after so many hits in a row: calls that alternate move nothing. */
#define STREAK_TO_FRONT 4

/* The rest of a function, called by what runs its beginning: one frame more than plain Python has. */
static inline int
is_further_frame(FrontDoor *door, Invocation *call)
{
    return door->code == NULL && !call->tail;
}

static PyObject *call_door(FrontDoor *door, Invocation *call);

/* What begins ranges while a profiler runs, see set_ranges; else NULL. */
static PyObject *ranges = NULL;

PyObject *
door_set_ranges(PyObject *Py_UNUSED(module), PyObject *begin)
{
    if (begin != Py_None && !PyCallable_Check(begin)) {
        return PyErr_Format(PyExc_TypeError, "set_ranges takes a callable or None, not '%.200s'", Py_TYPE(begin)->tp_name);
    }
    Py_XSETREF(ranges, begin == Py_None ? NULL : Py_NewRef(begin));
    Py_RETURN_NONE;
}

/* A new reference to what ends the range; NULL: an exception is set. `what` is an entry that is called, or None for the search. */
static Py_NO_INLINE PyObject *
range_begin(FrameThread *thread, PyObject *what)
{
    PyObject *begin = Py_NewRef(ranges);
    thread->hook_suspended++;
    PyObject *end = PyObject_CallOneArg(begin, what);
    thread->hook_suspended--;
    Py_DECREF(begin);
    return end;
}

/* Takes over the reference. Returns 0, or -1 with an exception set. One that is set already stays. */
static Py_NO_INLINE int
range_end(FrameThread *thread, PyObject *end)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    thread->hook_suspended++;
    PyObject *done = PyObject_CallNoArgs(end);
    thread->hook_suspended--;
    Py_DECREF(end);
    Py_XDECREF(done);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, error, traceback);
        return 0;
    }
    return done == NULL ? -1 : 0;
}

/* The calls that targets have left to us, until one gives a result. Takes over the reference. */
static PyObject *
finish_tail_calls(FrameThread *thread, PyObject *result)
{
    while (result != NULL && TailCall_Check(result)) {
        TailCall *tail = (TailCall *)result;
        PyObject *const *args = ((PyTupleObject *)tail->args)->ob_item;
        size_t nargs = (size_t)PyTuple_GET_SIZE(tail->args);
        if (PyExceptionInstance_Check(tail->callable)) {
            PyErr_SetObject((PyObject *)Py_TYPE(tail->callable), tail->callable);
            result = NULL;
        }
        else if (FrontDoor_Check(tail->callable)) {
            Invocation call = {FROM_CALL, args, nargs, NULL, NULL, NULL, 1, 0};
            result = call_door((FrontDoor *)tail->callable, &call);
        }
        else {
            thread->bypass = hook_installed ? tail->callable : NULL;
            result = call_vector(tail->callable, args, nargs, NULL);
            thread->bypass = NULL;
        }
        Py_DECREF(tail);
    }
    return result;
}

PyObject *
door_run_original(FrontDoor *door, Invocation *call)
{
    FrameThread *thread = frame_thread();
    if (call->origin == FROM_FRAME) {
        InterpreterFrame *frame = call->frame;
        call->frame = NULL;
        return hook_pass_on(call->tstate, thread, frame, 0);
    }
    StackCredit credit;
    if (frame_stack_enter(thread, &credit) < 0) {
        return NULL;
    }
    /* The hook would send the frame straight back to this door. */
    thread->bypass = hook_installed ? door->function : NULL;
    int lent = is_further_frame(door, call) ? frame_lend_level(thread) : 0;
    PyObject *result;
    if (call->origin == FROM_SLOTS && door->code != NULL) {
        result = signature_call(&door->signature, door->function, call->args);
    }
    else {
        result = call_vector(door->function, call->args, call->nargsf, call->kwnames);
    }
    thread->bypass = NULL;
    call->handed_on = result != NULL; /* a function with a `leave` begins nothing itself: it gives a tail call */
    if (door->code == NULL && !call->tail) {
        result = finish_tail_calls(thread, result);
    }
    if (lent) {
        frame_take_back(lent);
    }
    frame_stack_leave(credit);
    return result;
}

static int
replace_entries(FrontDoor *door, PyObject *entries)
{
    if (entries == NULL) {
        return -1;
    }
    Py_SETREF(door->entries, entries);
    return 0;
}

static Py_ssize_t
index_of(PyObject *entries, PyObject *entry)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        if (PyTuple_GET_ITEM(entries, i) == entry) {
            return i;
        }
    }
    return -1;
}

int
door_append(FrontDoor *door, PyObject *entry)
{
    if (index_of(door->entries, entry) >= 0) {
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(door->entries);
    PyObject *entries = PyTuple_New(count + 1);
    if (entries == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(entries, i, Py_NewRef(PyTuple_GET_ITEM(door->entries, i)));
    }
    PyTuple_SET_ITEM(entries, count, Py_NewRef(entry));
    return replace_entries(door, entries);
}

int
door_remove(FrontDoor *door, PyObject *entry)
{
    Py_ssize_t at = index_of(door->entries, entry);
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "the entry is not in this front door");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(door->entries);
    PyObject *entries = PyTuple_New(count - 1);
    if (entries == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count - 1; i++) {
        PyTuple_SET_ITEM(entries, i, Py_NewRef(PyTuple_GET_ITEM(door->entries, i < at ? i : i + 1)));
    }
    return replace_entries(door, entries);
}

int
door_clear_entries(FrontDoor *door)
{
    return replace_entries(door, PyTuple_New(0));
}

/* Keep the entries that are hit in front. `entries` is what the hit was found in; it may be out of date by now. */
static void
note_hit(FrontDoor *door, PyObject *entries, Py_ssize_t at)
{
    if (at == 0) {
        door->streak = 0;
        return;
    }
    PyObject *entry = PyTuple_GET_ITEM(entries, at);
    door->streak = door->streak_entry == entry ? door->streak + 1 : 1;
    door->streak_entry = entry;
    if (door->streak < STREAK_TO_FRONT || door->entries != entries) {
        return;
    }
    PyObject *moved = PyTuple_New(PyTuple_GET_SIZE(entries));
    if (moved == NULL) {
        PyErr_Clear(); /* the order is only a matter of speed */
        return;
    }
    PyTuple_SET_ITEM(moved, 0, Py_NewRef(entry));
    for (Py_ssize_t i = 0, next = 1; i < PyTuple_GET_SIZE(entries); i++) {
        if (i != at) {
            PyTuple_SET_ITEM(moved, next++, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
        }
    }
    door->streak = 0;
    Py_SETREF(door->entries, moved);
}

/* 1: `*found` (borrowed from `entries`) holds for the slots; 0: none does; -1: an exception is set. */
static int
pick_entry(FrontDoor *door, PyObject *entries, PyObject *const *slots, Entry **found, Gathered *gathered)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
        Entry *entry = (Entry *)PyTuple_GET_ITEM(entries, i);
        if (!entry->enabled) {
            continue;
        }
        int status = entry_check(entry, slots, door->nslots, gathered);
        if (status != 0) {
            if (status > 0) {
                note_hit(door, entries, i);
                *found = entry;
            }
            return status;
        }
    }
    return 0;
}

static PyObject *
call_on_miss(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call)
{
    PyObject *tuple = PyTuple_New(door->nslots);
    if (tuple == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < door->nslots; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(slots[i]));
    }
    door->misses++;
    PyObject *args[] = {NULL, (PyObject *)door, tuple};
    thread->hook_suspended++;
    PyObject *made = PyObject_Vectorcall(door->on_miss, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    thread->hook_suspended--;
    Py_DECREF(tuple);
    if (made != NULL && PyExceptionInstance_Check(made)) {
        call->handed_on = 1;
        PyErr_Restore(Py_NewRef(Py_TYPE(made)), made, PyException_GetTraceback(made));
        return NULL;
    }
    if (made != NULL && made != Py_None && !Entry_Check(made)) {
        PyErr_Format(PyExc_TypeError, "on_miss must return an Entry, None or an exception, not '%.200s'",
                     Py_TYPE(made)->tp_name);
        Py_CLEAR(made);
    }
    if (made != NULL && made != Py_None && door_append(door, made) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

/* Under the lock: find what another thread made meanwhile, or make an entry.
 *
 * `seen` are the entries that missed. Returns as pick_entry; `*holder` is a new reference that keeps `*found` alive. */
static int
find_or_make(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call, PyObject *seen,
             Entry **found, Gathered *gathered, PyObject **holder)
{
    if (door->entries != seen) {
        *holder = Py_NewRef(door->entries);
        int status = pick_entry(door, *holder, slots, found, gathered);
        if (status != 0) {
            return status;
        }
        Py_CLEAR(*holder);
    }
    if (door->sealed) {
        return 0;
    }
    PyObject *made = call_on_miss(door, thread, slots, call);
    if (made == NULL) {
        return -1;
    }
    *holder = made;
    if (made == Py_None || !((Entry *)made)->enabled) {
        return 0;
    }
    *found = (Entry *)made;
    int status = entry_check(*found, slots, door->nslots, gathered);
    if (status == 0) {
        door->stale_entries++;
    }
    return status;
}

/* Had the target begun with what follows its graph, when it raised the exception that is set?
 *
 * A target that has more than a graph says so by a local variable, which calls that return can afford. */
static int
graph_was_over(Entry *entry)
{
    static PyObject *marker = NULL;
    if (marker == NULL && (marker = PyUnicode_InternFromString(GRAPH_IS_OVER)) == NULL) {
        PyErr_Clear();
        return 0;
    }
    if (!PyFunction_Check(entry->target)) {
        return 0;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    int over = 0;
    if (traceback != NULL) {
        PyFrameObject *frame = ((PyTracebackObject *)traceback)->tb_frame;
        PyCodeObject *code = PyFrame_GetCode(frame);
        if ((PyObject *)code == PyFunction_GET_CODE(entry->target)) {
            PyObject *locals = PyFrame_GetLocals(frame);
            over = locals != NULL && PyMapping_HasKey(locals, marker);
            Py_XDECREF(locals);
            PyErr_Clear();
        }
        Py_DECREF(code);
    }
    PyErr_Restore(type, error, traceback);
    return over;
}

/* The exception that is set, with its traceback, and none is set any more. A new reference. */
static PyObject *
take_raised(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

/* The target has raised: what `on_raise` makes of it. A new reference to what is called after the original has run; NULL: the
 * exception that is set now is the result. */
static PyObject *
ask_on_raise(FrameThread *thread, PyObject *on_raise)
{
    PyObject *error = take_raised();
    thread->hook_suspended++;
    PyObject *answer = PyObject_CallOneArg(on_raise, error);
    thread->hook_suspended--;
    Py_DECREF(error);
    if (answer != NULL && PyExceptionInstance_Check(answer)) {
        PyErr_Restore(Py_NewRef(Py_TYPE(answer)), answer, PyException_GetTraceback(answer));
        return NULL;
    }
    return answer;
}

/* The original in place of a target that has raised, if `on_raise` wants that. */
static Py_NO_INLINE PyObject *
run_again(FrontDoor *door, FrameThread *thread, PyObject *on_raise, Invocation *call)
{
    PyObject *afterwards = ask_on_raise(thread, on_raise);
    if (afterwards == NULL) {
        return NULL;
    }
    thread->hook_suspended++;
    PyObject *result = door_run_original(door, call);
    if (call->tail && door->code == NULL) {
        result = finish_tail_calls(thread, result);
    }
    if (result != NULL) {
        PyObject *told = PyObject_CallNoArgs(afterwards);
        if (told == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(told);
    }
    thread->hook_suspended--;
    Py_DECREF(afterwards);
    return result;
}

/* As pick_entry, in a range. */
static Py_NO_INLINE int
pick_entry_ranged(FrontDoor *door, FrameThread *thread, PyObject *entries, PyObject *const *slots, Entry **found,
                  Gathered *gathered)
{
    PyObject *range = range_begin(thread, Py_None);
    if (range == NULL) {
        return -1;
    }
    int status = pick_entry(door, entries, slots, found, gathered);
    if (range_end(thread, range) < 0) {
        if (status > 0) {
            gathered_release(gathered);
        }
        return -1;
    }
    return status;
}

/* As entry_call, in a range. What begins and ends it is no target. */
static Py_NO_INLINE PyObject *
entry_call_ranged(FrameThread *thread, Entry *entry, Gathered *gathered)
{
    PyObject *bypass = thread->bypass;
    thread->bypass = NULL;
    PyObject *range = range_begin(thread, (PyObject *)entry);
    if (range == NULL) {
        gathered_release(gathered);
        return NULL;
    }
    thread->bypass = bypass;
    PyObject *result = entry_call(entry, gathered);
    thread->bypass = NULL;
    if (range_end(thread, range) < 0) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *
call_entry(FrontDoor *door, FrameThread *thread, Entry *entry, Gathered *gathered, Invocation *call)
{
    StackCredit credit;
    if (frame_stack_enter(thread, &credit) < 0) {
        gathered_release(gathered);
        return NULL;
    }
    if (entry->scope != NULL && hook_open(thread, entry->scope, 0) < 0) {
        gathered_release(gathered);
        frame_stack_leave(credit);
        return NULL;
    }
    /* What we emitted is not to be captured in turn; what it calls may be. */
    thread->bypass = hook_installed ? entry->target : NULL;
    int lent = is_further_frame(door, call) ? frame_lend_level(thread) : 0;
    PyObject *result = __builtin_expect(ranges != NULL, 0) ? entry_call_ranged(thread, entry, gathered)
                                                           : entry_call(entry, gathered);
    thread->bypass = NULL;
    PyObject *on_raise = result == NULL ? entry->on_raise : NULL;
    if (door->leave != NULL) {
        call->handed_on = result != NULL || graph_was_over(entry);
    }
    if (!call->tail) {
        result = finish_tail_calls(thread, result);
    }
    if (lent) {
        frame_take_back(lent);
    }
    if (entry->scope != NULL) {
        hook_close(thread, entry->scope);
        if (result != NULL) {
            decisions_sweep();
        }
    }
    frame_stack_leave(credit);
    return on_raise == NULL ? result : run_again(door, thread, on_raise, call);
}

/* The original in place of the target, and of the targets of all doors that it calls. */
static PyObject *
call_original(FrontDoor *door, FrameThread *thread, Entry *entry, Gathered *gathered, Invocation *call)
{
    gathered_release(gathered);
    entry->hits++;
    int eager = thread->eager;
    thread->eager = 1;
    PyObject *result = door_run_original(door, call);
    if (call->tail && door->code == NULL) {
        result = finish_tail_calls(thread, result);
    }
    thread->eager = eager;
    return result;
}

/* Tells `done` what came of a call: the result, or nothing where an exception is set. Takes over both references. */
static PyObject *
tell_trial(FrameThread *thread, PyObject *done, PyObject *result)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    thread->hook_suspended++;
    PyObject *told = result == NULL ? PyObject_CallNoArgs(done) : PyObject_CallOneArg(done, result);
    thread->hook_suspended--;
    Py_DECREF(done);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    else if (told == NULL) {
        Py_CLEAR(result);
    }
    Py_XDECREF(told);
    return result;
}

/* What the entry's trial answers. 1: `*done` is a new reference to what is told; 0: the call is as any other; -1: an exception is set. */
static int
ask_trial(FrameThread *thread, Entry *entry, int64_t product, int *runs_original, PyObject **done)
{
    PyObject *trial = Py_NewRef(entry->trial);
    thread->hook_suspended++;
    PyObject *answer = PyObject_CallFunction(trial, "OL", (PyObject *)entry, (long long)product);
    thread->hook_suspended--;
    Py_DECREF(trial);
    int status = answer == NULL ? -1 : answer != Py_None;
    if (status > 0 && !(PyTuple_Check(answer) && PyArg_ParseTuple(answer, "pO:trial", runs_original, done))) {
        PyErr_Format(PyExc_TypeError, "the trial of an Entry returns None or (runs_original, done), not '%.200s'",
                     Py_TYPE(answer)->tp_name);
        status = -1;
    }
    if (status > 0) {
        Py_INCREF(*done);
    }
    Py_XDECREF(answer);
    return status;
}

/* The product of a call's varying sizes; -1: an exception is set. */
static int64_t
look_at_sizes(FrontDoor *door, FrameThread *thread, Entry *entry, PyObject *const *slots)
{
    thread->hook_suspended++;
    int64_t product = size_product(&entry->sizes, slots, door->nslots);
    thread->hook_suspended--;
    return product;
}

/* Notes whether a look at sizes was of use. */
static void
note_look(Entry *entry, int open)
{
    entry->quiet = open ? 0 : entry->quiet + (entry->quiet < QUIET_LOOKS);
    entry->rest = entry->quiet == QUIET_LOOKS ? RESTS : 0;
}

/* A call of an entry whose target is on trial, or has been found to be worse than the original. */
static Py_NO_INLINE PyObject *
call_detoured(FrontDoor *door, FrameThread *thread, Entry *entry, PyObject *const *slots, Gathered *gathered, Invocation *call)
{
    if (entry->rest > 0 && entry->original == 0) {
        entry->rest--;
        return call_entry(door, thread, entry, gathered, call);
    }
    int64_t product = look_at_sizes(door, thread, entry, slots);
    int sizes = product < 0 ? 0 : size_class(product);
    int runs_original = entry->original >> sizes & 1;
    int open = entry->trial != NULL && !(entry->decided >> sizes & 1);
    note_look(entry, open);
    PyObject *done = NULL;
    if (product < 0 || (open && ask_trial(thread, entry, product, &runs_original, &done) < 0)) {
        gathered_release(gathered);
        return NULL;
    }
    PyObject *result = runs_original ? call_original(door, thread, entry, gathered, call)
                                     : call_entry(door, thread, entry, gathered, call);
    return done == NULL ? result : tell_trial(thread, done, result);
}

static inline PyObject *
follow(FrontDoor *door, FrameThread *thread, Entry *entry, PyObject *const *slots, Gathered *gathered, Invocation *call)
{
    if (__builtin_expect(entry->detour, 0)) {
        return call_detoured(door, thread, entry, slots, gathered, call);
    }
    return call_entry(door, thread, entry, gathered, call);
}

static PyObject *
miss(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call, PyObject *seen)
{
    LockStatus lock = compile_lock_take(&door->lock, thread);
    if (lock != LOCK_TAKEN) {
        return lock == LOCK_ERROR ? NULL : door_run_original(door, call);
    }
    Entry *found = NULL;
    PyObject *holder = NULL;
    Gathered gathered;
    int status = find_or_make(door, thread, slots, call, seen, &found, &gathered, &holder);
    compile_lock_release(&door->lock, thread);
    PyObject *result = NULL;
    if (status > 0) {
        result = follow(door, thread, found, slots, &gathered, call);
    }
    else if (status == 0) {
        result = door_run_original(door, call);
    }
    Py_XDECREF(holder);
    return result;
}

/* Calls `leave` in place of what was to go on, with the exception that is set. Its own errors take its place, and it is called again. */
#define MOST_LEAVES 10
static Py_NO_INLINE PyObject *
leave_blocks(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call)
{
    Py_ssize_t kept = door->nslots - (door->thrown && door->nslots > 0);
    int lent = is_further_frame(door, call) ? frame_lend_level(thread) : 0;
    PyObject *result = NULL, *before = NULL;
    for (int i = 0; i < MOST_LEAVES && result == NULL; i++) {
        PyObject *error = take_raised();
        PyObject *context = PyException_GetContext(error);
        PyObject *thrown = door->thrown && door->nslots > 0 ? slots[door->nslots - 1] : NULL;
        if (context == NULL && thrown != NULL && thrown != error && PyExceptionInstance_Check(thrown)) {
            PyException_SetContext(error, Py_NewRef(thrown)); /* takes over the reference */
        }
        Py_XDECREF(context);
        if (before != NULL && before != error) {
            PyException_SetContext(error, before);
            before = NULL;
        }
        Py_XSETREF(before, Py_NewRef(error));
        PyObject *args = PyTuple_New(kept + 1);
        if (args != NULL) {
            for (Py_ssize_t j = 0; j < kept; j++) {
                PyTuple_SET_ITEM(args, j, Py_NewRef(slots[j]));
            }
            PyTuple_SET_ITEM(args, kept, Py_NewRef(error));
            thread->hook_suspended++;
            result = PyObject_Call(door->leave, args, NULL);
            thread->hook_suspended--;
            Py_DECREF(args);
        }
        Py_DECREF(error);
    }
    Py_XDECREF(before);
    result = finish_tail_calls(thread, result);
    if (lent) {
        frame_take_back(lent);
    }
    return result;
}

static PyObject *
pick_and_call(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call)
{
    PyObject *entries = Py_NewRef(door->entries);
    Entry *found = NULL;
    Gathered gathered;
    PyObject *result = NULL;
    int status = __builtin_expect(ranges != NULL, 0)
                     ? pick_entry_ranged(door, thread, entries, slots, &found, &gathered)
                     : pick_entry(door, entries, slots, &found, &gathered);
    if (status > 0) {
        result = follow(door, thread, found, slots, &gathered, call);
    }
    else if (status == 0) {
        result = door->sealed ? door_run_original(door, call) : miss(door, thread, slots, call, entries);
    }
    Py_DECREF(entries);
    return result;
}

static inline PyObject *
dispatch(FrontDoor *door, FrameThread *thread, PyObject *const *slots, Invocation *call)
{
    PyObject *result = pick_and_call(door, thread, slots, call);
    if (__builtin_expect(result == NULL, 0) && door->leave != NULL && !call->handed_on) {
        return leave_blocks(door, thread, slots, call);
    }
    return result;
}

int
door_bind(FrontDoor *door, Bound *bound, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    bound->count = door->nslots;
    bound->slots = bound->room;
    if (bound->count > BOUND_INLINE) {
        bound->slots = PyMem_New(PyObject *, (size_t)bound->count);
        if (bound->slots == NULL) {
            bound->count = 0;
            PyErr_NoMemory();
            return -1;
        }
    }
    memset(bound->slots, 0, (size_t)bound->count * sizeof(PyObject *));
    if (door->code != NULL) {
        int status = forwarding_bind(&door->forwards, args, nargs, kwnames, bound->slots);
        if (status != 0) {
            return status;
        }
        return signature_bind(&door->signature, (PyFunctionObject *)door->function, args, nargs, kwnames, bound->slots);
    }
    if (nargs != door->nslots || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        bound->slots[i] = Py_NewRef(args[i]);
    }
    return 1;
}

void
bound_release(Bound *bound)
{
    for (Py_ssize_t i = 0; i < bound->count; i++) {
        Py_XDECREF(bound->slots[i]);
    }
    if (bound->slots != bound->room) {
        PyMem_Free(bound->slots);
    }
}

static Py_NO_INLINE PyObject *
bind_and_dispatch(FrontDoor *door, FrameThread *thread, Invocation *call)
{
    Bound bound;
    PyObject *result = NULL;
    int status = door_bind(door, &bound, call->args, PyVectorcall_NARGS(call->nargsf), call->kwnames);
    if (status > 0) {
        result = dispatch(door, thread, bound.slots, call);
    }
    else if (status == 0) {
        result = door_run_original(door, call); /* raises its own TypeError */
    }
    bound_release(&bound);
    return result;
}

/* Whether the slots still mean what they meant when the door was made: `function.__code__` can be assigned. */
static inline int
same_code(FrontDoor *door)
{
    return door->code == NULL || PyFunction_GET_CODE(door->function) == (PyObject *)door->code;
}

/* Without a look at the entries. */
static PyObject *
pass_on(FrontDoor *door, FrameThread *thread, Invocation *call)
{
    PyObject *result = door_run_original(door, call);
    if (result == NULL && door->leave != NULL && !call->handed_on && PyVectorcall_NARGS(call->nargsf) == door->nslots) {
        return leave_blocks(door, thread, call->args, call);
    }
    return result;
}

static PyObject *
call_door(FrontDoor *door, Invocation *call)
{
    FrameThread *thread = frame_thread();
    if (thread->eager || !same_code(door)) {
        return pass_on(door, thread, call);
    }
    if (door->positional_only_call && call->kwnames == NULL && PyVectorcall_NARGS(call->nargsf) == door->nslots) {
        return dispatch(door, thread, call->args, call);
    }
    return bind_and_dispatch(door, thread, call);
}

PyObject *
door_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Invocation call = {FROM_CALL, args, nargsf, kwnames, NULL, NULL, 0, 0};
    return call_door((FrontDoor *)self, &call);
}

PyObject *
door_enter(FrontDoor *door, PyObject *const *slots, Py_ssize_t nargs)
{
    if (nargs != door->nslots) {
        PyErr_Format(PyExc_TypeError, "this front door has %zd slots, not %zd", door->nslots, nargs);
        return NULL;
    }
    FrameThread *thread = frame_thread();
    Invocation call = {FROM_SLOTS, slots, (size_t)nargs, NULL, NULL, NULL, 0, 0};
    if (thread->eager || !same_code(door)) {
        return pass_on(door, thread, &call);
    }
    return dispatch(door, thread, slots, &call);
}

PyObject *
door_enter_frame(FrontDoor *door, PyThreadState *tstate, InterpreterFrame *frame)
{
    Invocation call = {FROM_FRAME, frame_slots(frame), (size_t)door->nslots, NULL, tstate, frame, 0, 0};
    PyObject *result = dispatch(door, frame_thread(), call.args, &call);
    return call.frame == NULL ? result : frame_abandon(tstate, frame, result);
}
