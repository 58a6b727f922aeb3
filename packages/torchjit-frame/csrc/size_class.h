/* Classes of sizes: a call's varying sizes, multiplied, by powers of two. What is known of a call's speed is kept for each of them. */
#ifndef TORCHJIT_FRAME_SIZE_CLASS_H
#define TORCHJIT_FRAME_SIZE_CLASS_H

#include <Python.h>
#include <stdint.h>

#include "guard_abi.h"

#define SIZE_CLASSES 64
#define MOST_SIZES 16

/* A guard program that gathers sizes; all NULL where none vary. */
typedef struct {
    PyObject *object;
    PyObject *capsule; /* keeps `program` alive */
    const torchjit_guard_v1 *program;
} SizeReader;

/* Takes `object` (borrowed; None: nothing varies) in place of what it had. -1: an exception is set and nothing has changed. */
int size_reader_set(SizeReader *reader, PyObject *object);
void size_reader_clear(SizeReader *reader);
/* The product, 0 where no size varies; -1: an exception is set. */
int64_t size_product(const SizeReader *reader, PyObject *const *slots, Py_ssize_t nslots);

/* The number of bits of a product. */
static inline int
size_class(int64_t product)
{
    return product == 0 ? 0 : SIZE_CLASSES - __builtin_clzll((unsigned long long)product);
}

#endif
