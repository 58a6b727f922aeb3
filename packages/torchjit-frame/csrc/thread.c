/* Thread state: the eager flag, and the bounds of the C stack. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_getattr_np */
#endif
#include "thread.h"

#include <pthread.h>
#include <stdint.h>

__thread FrameThread frame_thread_state = {.shallow_above = (char *)UINTPTR_MAX};

/* Above this many bytes of used stack the recursion budget is lent back: shallow calls pay nothing. */
#define SHALLOW_BYTES ((size_t)64 * 1024)
/* Kept free for what runs below us: regex engines, allocators, tensor kernels. */
#define RESERVE_BYTES ((size_t)256 * 1024)

/* PY_EVAL_C_STACK_UNITS of CPython's ceval.c, which no header exports. */
#define UNITS_PER_FRAME 2

static int
stack_bounds(char **low, size_t *size)
{
#if defined(__APPLE__)
    pthread_t self = pthread_self();
    *size = pthread_get_stacksize_np(self);
    *low = (char *)pthread_get_stackaddr_np(self) - *size;
    return 0;
#elif defined(__linux__)
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return -1;
    }
    void *address = NULL;
    int status = pthread_attr_getstack(&attributes, &address, size);
    pthread_attr_destroy(&attributes);
    *low = (char *)address;
    return status == 0 ? 0 : -1;
#else
    (void)low;
    (void)size;
    return -1;
#endif
}

static void
measure_stack(FrameThread *thread, char *here)
{
    char *low = NULL;
    size_t size = 0;
    thread->stack_low = NULL;
    thread->shallow_above = NULL;
    if (stack_bounds(&low, &size) < 0 || here < low || here >= low + size) {
        return; /* unknown or foreign stack: CPython's own limits stay in charge */
    }
    size_t reserve = size / 4 < RESERVE_BYTES ? size / 4 : RESERVE_BYTES;
    size_t shallow = size / 4 < SHALLOW_BYTES ? size / 4 : SHALLOW_BYTES;
    thread->stack_low = low + reserve;
    thread->shallow_above = here > low + shallow ? here - shallow : low;
}

int
frame_stack_enter_slow(FrameThread *thread, StackCredit *credit)
{
    char *here = (char *)__builtin_frame_address(0);
    if (thread->shallow_above == (char *)UINTPTR_MAX) {
        measure_stack(thread, here);
        if (here > thread->shallow_above) {
            return 0;
        }
    }
    if (here < thread->stack_low) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack of this thread is used up");
        return -1;
    }
#if PY_VERSION_HEX >= 0x030C0000
    if (thread->stack_low != NULL) {
        PyThreadState_Get()->c_recursion_remaining += UNITS_PER_FRAME;
        *credit = UNITS_PER_FRAME;
    }
#else
    (void)credit;
#endif
    return 0;
}

void
frame_stack_leave_slow(StackCredit credit)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyThreadState_Get()->c_recursion_remaining -= credit;
#else
    (void)credit;
#endif
}

PyObject *
frame_set_eager(PyObject *Py_UNUSED(module), PyObject *flag)
{
    int value = PyObject_IsTrue(flag);
    if (value < 0) {
        return NULL;
    }
    FrameThread *thread = frame_thread();
    int previous = thread->eager;
    thread->eager = value;
    return PyBool_FromLong(previous);
}

PyObject *
frame_is_eager(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(frame_thread()->eager);
}
