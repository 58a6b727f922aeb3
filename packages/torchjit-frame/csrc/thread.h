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

/* The `set_eager` and `is_eager` functions of the module. */
PyObject *frame_set_eager(PyObject *module, PyObject *flag);
PyObject *frame_is_eager(PyObject *module, PyObject *unused);

#endif
