/* The PEP 523 frame hook: scopes, decisions, and the functions of the module that belong to them. */
#ifndef TORCHJIT_FRAME_HOOK_H
#define TORCHJIT_FRAME_HOOK_H

#include <Python.h>

/* Number of open hook scopes in the process; also >0 while our hook stays buried under a foreign one. */
extern int hook_installed;

#endif
