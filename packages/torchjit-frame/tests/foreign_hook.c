/* Another tool's frame hook: counts the frames that it sees and passes them on. */
#include <Python.h>

static _PyFrameEvalFunction next_hook = NULL;
static long long frames = 0;

static PyObject *
foreign(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    frames++;
    return next_hook(tstate, frame, throwflag);
}

void
foreign_install(void)
{
    next_hook = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), foreign);
}

void
foreign_remove(void)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), next_hook);
}

/* As torch.compile's, which goes into the slot each time that it finds another there, and remembers that one. */
void
foreign_clear(void)
{
    next_hook = _PyEval_EvalFrameDefault;
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), next_hook);
}

int
foreign_is_current(void)
{
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == foreign;
}

long long
foreign_frames(void)
{
    return frames;
}
