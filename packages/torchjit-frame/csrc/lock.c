/* The compile lock: re-entry and cross-waiting run eagerly instead of deadlocking. */
#include "lock.h"

#include <pthread.h>

static volatile unsigned fork_generation = 0;
static volatile unsigned long forked_by = 0; /* the thread that a child begins with; its identifier is the same as before */

static void
after_fork_in_child(void)
{
    fork_generation++;
    forked_by = PyThread_get_thread_ident();
}

int
compile_lock_watch_forks(void)
{
    if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
        return -1;
    }
    return 0;
}

int
compile_lock_init(CompileLock *self)
{
    self->held = 0;
    self->owner = 0;
    self->fork = fork_generation;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void
compile_lock_destroy(CompileLock *self)
{
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
        self->lock = NULL;
    }
}

static LockStatus
wait_for(CompileLock *self)
{
    PyThread_type_lock lock = self->lock;
    while (1) {
        PyLockStatus status;
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(lock, -1, 1);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_ACQUIRED) {
            return LOCK_TAKEN;
        }
        if (PyErr_CheckSignals() < 0) {
            return LOCK_ERROR;
        }
    }
}

LockStatus
compile_lock_take(CompileLock *self, FrameThread *thread)
{
    unsigned long me = PyThread_get_thread_ident();
    /* In the child of a fork too, if the thread that forked is still inside on_miss. New threads there may be given the
     * identifiers of those that did not come along. */
    if (self->held && self->owner == me && (self->fork == fork_generation || me == forked_by)) {
        return LOCK_RUN_EAGERLY;
    }
    if (self->fork != fork_generation && compile_lock_init(self) < 0) {
        return LOCK_ERROR; /* the parent's lock object leaks: freeing a lock that is held is not defined */
    }
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK) == 0) {
        if (thread->locks_held > 0) {
            return LOCK_RUN_EAGERLY;
        }
        LockStatus status = wait_for(self);
        if (status != LOCK_TAKEN) {
            return status;
        }
    }
    self->held = 1;
    self->owner = me;
    thread->locks_held++;
    return LOCK_TAKEN;
}

void
compile_lock_release(CompileLock *self, FrameThread *thread)
{
    thread->locks_held--;
    self->held = 0;
    PyThread_release_lock(self->lock);
}
