#include "condition.h"

static int stack_effect(int code) {
    switch (code) {
    case COND_CONST:
    case COND_NAME:
        return 1;
    case COND_NEG:
    case COND_NOT:
    case COND_AND:
    case COND_OR:
        return 0;
    default:
        return -1;
    }
}

/* Each instruction has one depth whatever the way to it: AND and OR keep their operand when they jump, and the POP
 * that follows drops it when they do not, so a jump lands where the right operand has been pushed in its place. */
static bool well_formed(const Condition *c, Py_ssize_t nnames) {
    int depth = 0;
    for (Py_ssize_t i = 0; i < c->n; i++) {
        const Instruction *ins = &c->code[i];
        int needed = ins->code == COND_CONST || ins->code == COND_NAME ? 0 : 1 + (ins->code >= COND_ADD && stack_effect(ins->code) < 0 && ins->code != COND_POP);
        if (ins->code < 0 || ins->code >= COND_COUNT || depth < needed) {
            return false;
        }
        if (ins->code == COND_NAME && (ins->imm < 0 || ins->imm >= nnames)) {
            return false;
        }
        if ((ins->code == COND_AND || ins->code == COND_OR) && (ins->imm <= i || ins->imm > c->n)) {
            return false;
        }
        depth += stack_effect(ins->code);
        if (depth > CONDITION_MAX_DEPTH) {
            return false;
        }
    }
    return depth == 1;
}

Condition *condition_new(PyObject *code, Py_ssize_t nnames) {
    if (!PyTuple_Check(code)) {
        PyErr_SetString(PyExc_TypeError, "condition code must be a tuple");
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(code);
    Condition *c = PyMem_Calloc(1, sizeof(Condition) + (size_t)n * sizeof(Instruction));
    if (c == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    c->n = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        long long imm;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(code, i), "iL", &c->code[i].code, &imm)) {
            PyMem_Free(c);
            return NULL;
        }
        c->code[i].imm = imm;
    }
    if (!well_formed(c, nnames)) {
        PyMem_Free(c);
        PyErr_SetString(PyExc_ValueError, "malformed condition code");
        return NULL;
    }
    return c;
}

/* Python's floor division; false when it is undefined or overflows. */
static inline bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        return false;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q -= 1;
        r += b;
    }
    *quotient = q;
    *remainder = r;
    return true;
}

static inline bool binary(int code, int64_t a, int64_t b, int64_t *out) {
    int64_t unused;
    switch (code) {
    case COND_ADD: return !__builtin_add_overflow(a, b, out);
    case COND_SUB: return !__builtin_sub_overflow(a, b, out);
    case COND_MUL: return !__builtin_mul_overflow(a, b, out);
    case COND_FLOORDIV: return floor_divide(a, b, out, &unused);
    case COND_MOD: return floor_divide(a, b, &unused, out);
    case COND_MIN: *out = a < b ? a : b; return true;
    case COND_MAX: *out = a > b ? a : b; return true;
    case COND_EQ: *out = a == b; return true;
    case COND_NE: *out = a != b; return true;
    case COND_LT: *out = a < b; return true;
    case COND_LE: *out = a <= b; return true;
    case COND_GT: *out = a > b; return true;
    default: *out = a >= b; return true;
    }
}

int condition_run(const Condition *c, const int64_t *names) {
    int64_t stack[CONDITION_MAX_DEPTH + 1];
    int top = -1;
    for (Py_ssize_t i = 0; i < c->n; i++) {
        const Instruction *ins = &c->code[i];
        switch (ins->code) {
        case COND_CONST: stack[++top] = ins->imm; break;
        case COND_NAME: stack[++top] = names[ins->imm]; break;
        case COND_NOT: stack[top] = !stack[top]; break;
        case COND_POP: top--; break;
        case COND_NEG:
            if (__builtin_sub_overflow((int64_t)0, stack[top], &stack[top])) {
                return -1;
            }
            break;
        case COND_AND:
        case COND_OR:
            if ((stack[top] != 0) == (ins->code == COND_OR)) {
                i = ins->imm - 1;   /* decided: keep the operand as the result */
            }
            break;
        default:
            top--;
            if (!binary(ins->code, stack[top], stack[top + 1], &stack[top])) {
                return -1;
            }
        }
    }
    return stack[0] != 0;
}
