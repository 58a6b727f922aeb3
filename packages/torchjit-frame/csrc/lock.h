/* The lock under which one thread compiles for a front door. */
#ifndef TORCHJIT_FRAME_LOCK_H
#define TORCHJIT_FRAME_LOCK_H

#include <Python.h>

#include "thread.h"

typedef struct {
    PyThread_type_lock lock;
    unsigned long owner; /* thread identifier while `held` */
    unsigned fork;       /* the process generation in which `lock` was made */
    char held;
} CompileLock;

typedef enum {
    LOCK_ERROR = -1, /* an exception is set */
    LOCK_TAKEN,      /* release it */
    LOCK_RUN_EAGERLY /* this thread compiles already, for this door or for another one that may be waiting for us */
} LockStatus;

int compile_lock_init(CompileLock *self);
void compile_lock_destroy(CompileLock *self);
/* Waits with the GIL released, signal handlers run meanwhile. */
LockStatus compile_lock_take(CompileLock *self, FrameThread *thread);
void compile_lock_release(CompileLock *self, FrameThread *thread);

/* Once per process: notices forks, after which a lock that another thread held would never be released. */
int compile_lock_watch_forks(void);

#endif
