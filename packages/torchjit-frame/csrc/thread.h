/* What the extension keeps for each thread, and the room that is left on the thread's C stack. */
#ifndef TORCHJIT_FRAME_THREAD_H
#define TORCHJIT_FRAME_THREAD_H

#include <Python.h>

struct OpenScope;

typedef struct {
    int eager;               /* every front door calls its original function */
    int locks_held;          /* front doors that this thread is compiling for */
    int hook_suspended;      /* >0: our own Python code runs, the frame hook lets it be */
    PyObject *bypass;        /* borrowed: the function whose next frame the hook runs as it is; only compared */
    void *chaining;          /* the frame that was handed to a foreign hook, to notice when it comes back */
    int turn;                /* how often it came back so far */
    struct OpenScope *scope; /* innermost hook scope of this thread, owned */
    char *shallow_above;     /* stack addresses above this need no attention; all ones before the first look */
    char *stack_low;         /* below this there is no room for another Python call; NULL: bounds unknown */
} FrameThread;

extern __thread FrameThread frame_thread_state;

static inline FrameThread *
frame_thread(void)
{
    return &frame_thread_state;
}

/* How many units of the C recursion budget were given back; see frame_stack_enter. */
typedef int StackCredit;

int frame_stack_enter_slow(FrameThread *thread, StackCredit *credit);
void frame_stack_leave_slow(StackCredit credit);

/* Called before Python code is entered from C at a depth that user code controls.
 *
 * CPython 3.12 and 3.13 budget C recursion by a count (1500 units in 3.12.1, two per Python frame that C entered), so that a
 * recursive function behind a front door would fail at ~740 levels where plain Python allows 1000. We look at the real stack instead: deep, but with
 * room, the units are lent back for the duration of the call; without room this raises RecursionError (3.11 would crash).
 *
 * Returns 0, or -1 with RecursionError set. After 0 the caller calls frame_stack_leave(credit). */
static inline int
frame_stack_enter(FrameThread *thread, StackCredit *credit)
{
    *credit = 0;
    if (__builtin_expect((char *)__builtin_frame_address(0) > thread->shallow_above, 1)) {
        return 0;
    }
    return frame_stack_enter_slow(thread, credit);
}

static inline void
frame_stack_leave(StackCredit credit)
{
    if (__builtin_expect(credit != 0, 0)) {
        frame_stack_leave_slow(credit);
    }
}

/* The budget of Python frames that `sys.setrecursionlimit` sets. */
static inline int *
frame_python_budget(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030C0000
    return &tstate->py_recursion_remaining;
#else
    return &tstate->recursion_remaining;
#endif
}

/* A frame of ours that plain Python would not have, such as a continuation's, is not to count: its level is lent until
 * frame_take_back. Only where the stack's bounds are known: then frame_stack_enter sees to it that the stack lasts. */
static inline int
frame_lend_level(FrameThread *thread)
{
    int lent = thread->stack_low != NULL;
    *frame_python_budget(PyThreadState_Get()) += lent;
    return lent;
}

static inline void
frame_take_back(int lent)
{
    *frame_python_budget(PyThreadState_Get()) -= lent;
}

/* The `set_eager` and `is_eager` functions of the module. */
PyObject *frame_set_eager(PyObject *module, PyObject *flag);
PyObject *frame_is_eager(PyObject *module, PyObject *unused);

#endif
