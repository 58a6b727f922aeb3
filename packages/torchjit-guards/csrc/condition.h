/* Conditions over integers: a stack machine on int64 that gives up, rather than wrap, when a value does not fit. */
#ifndef TORCHJIT_CONDITION_H
#define TORCHJIT_CONDITION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#define CONDITION_OPS(X)                                                                                          \
    X(CONST) X(NAME) X(ADD) X(SUB) X(MUL) X(FLOORDIV) X(MOD) X(NEG) X(MIN) X(MAX)                                 \
    X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE) X(NOT) X(AND) X(OR) X(POP)

enum {
#define X(name) COND_##name,
    CONDITION_OPS(X)
#undef X
    COND_COUNT
};

enum { CONDITION_MAX_DEPTH = 64 };

typedef struct {
    int code;
    int64_t imm;        /* the constant, the name's number, or (AND, OR) the instruction to jump to */
} Instruction;

typedef struct {
    Py_ssize_t n;
    Instruction code[];
} Condition;

Condition *condition_new(PyObject *code, Py_ssize_t nnames);

/* 1, 0, or -1: overflow or division by zero, ask Python. */
int condition_run(const Condition *condition, const int64_t *names);

#endif
