/* Handlers of signals while our own code runs; and calls that the hook lets be. */
#ifndef TORCHJIT_FRAME_SIGNALS_H
#define TORCHJIT_FRAME_SIGNALS_H

#include <Python.h>

extern PyTypeObject HeardHandler_Type;
extern PyTypeObject Unhooked_Type;

#endif
