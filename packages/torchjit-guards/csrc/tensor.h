/* Raw reads of a tensor's metadata, at offsets that the Python side found out and tested (torch_support.py). */
#ifndef TORCHJIT_TENSOR_H
#define TORCHJIT_TENSOR_H

#include "walk.h"

#define TENSOR_FREE INT64_MIN   /* a size, stride or offset that may be anything */
#define TENSOR_MAX_EXACT 8

typedef struct {
    int ready;
    int impl;                   /* of the TensorImpl pointer in the PyObject */
    int storage, autograd, ndim, sizes, offset, dtype, device, keys;    /* in TensorImpl */
    int inline_dims;            /* up to so many dimensions are stored inside TensorImpl */
    int grad_flag, grad_fn;     /* in AutogradMeta */
    void *plain_meta;           /* vtable of an AutogradMeta that is not a view's */
    uint64_t plain_keys;        /* dispatch keys that a plainly stored tensor may have */
    PyTypeObject *exact[TENSOR_MAX_EXACT];
    int nexact;
    PyObject *keep;             /* owns `exact` and the descriptors */
    getter requires_grad, is_leaf;
    void *requires_grad_closure, *is_leaf_closure;
} TensorLayout;

typedef struct {
    uint16_t dtype;
    uint16_t device;            /* type and index, one byte each, as stored */
    signed char requires_grad, is_leaf;     /* is_leaf: -1 is free */
    bool has_strides, has_keys;
    int64_t offset;
    uint64_t keys;
    int64_t ndim;
    int64_t dims[];             /* sizes, then strides if has_strides */
} TensorSpec;

extern TensorLayout tensor_layout;

PyObject *tensor_set_layout(PyObject *module, PyObject *args);
TensorSpec *tensor_spec_new(PyObject *spec);
int tensor_grad_slow(PyObject *o, bool leaf);

static inline char *tensor_impl(PyObject *o) {
    return *(char **)((char *)o + tensor_layout.impl);
}

/* Is it an exact Tensor or Parameter whose metadata lies in TensorImpl where we look? */
static inline bool tensor_is_plain(PyObject *o) {
    PyTypeObject *tp = Py_TYPE(o);
    for (int i = 0; i < tensor_layout.nexact; i++) {
        if (tp == tensor_layout.exact[i]) {
            char *impl = tensor_impl(o);
            return impl != NULL && (*(uint64_t *)(impl + tensor_layout.keys) & ~tensor_layout.plain_keys) == 0;
        }
    }
    return false;
}

static inline int64_t tensor_ndim(char *impl) {
    return *(int64_t *)(impl + tensor_layout.ndim);
}

static inline int64_t *tensor_sizes(char *impl) {
    char *at = impl + tensor_layout.sizes;
    return tensor_ndim(impl) <= tensor_layout.inline_dims ? (int64_t *)at : *(int64_t **)at;
}

static inline int64_t *tensor_strides(char *impl) {
    int64_t n = tensor_ndim(impl);
    return tensor_sizes(impl) + (n <= tensor_layout.inline_dims ? tensor_layout.inline_dims : n);
}

static inline int64_t tensor_offset(char *impl) {
    return *(int64_t *)(impl + tensor_layout.offset);
}

static inline void *tensor_storage(char *impl) {
    return *(void **)(impl + tensor_layout.storage);
}

/* 1 or 0; -1: only torch can tell (a view, whose base may require a gradient). */
static inline int tensor_requires_grad(char *impl) {
    char *meta = *(char **)(impl + tensor_layout.autograd);
    if (meta == NULL) {
        return 0;
    }
    if (*(bool *)(meta + tensor_layout.grad_flag) || *(void **)(meta + tensor_layout.grad_fn) != NULL) {
        return 1;
    }
    return *(void **)meta == tensor_layout.plain_meta ? 0 : -1;
}

static inline int tensor_is_leaf(char *impl) {
    char *meta = *(char **)(impl + tensor_layout.autograd);
    return meta == NULL || *(void **)(meta + tensor_layout.grad_fn) == NULL;
}

/* Everything but requires_grad. The tensor is plain. */
static inline bool tensor_matches(char *impl, const TensorSpec *spec) {
    int64_t n = spec->ndim;
    if (*(uint16_t *)(impl + tensor_layout.dtype) != spec->dtype || tensor_ndim(impl) != n ||
        *(uint16_t *)(impl + tensor_layout.device) != spec->device ||
        (spec->has_keys && *(uint64_t *)(impl + tensor_layout.keys) != spec->keys) ||
        (spec->offset != TENSOR_FREE && tensor_offset(impl) != spec->offset) ||
        (spec->is_leaf >= 0 && tensor_is_leaf(impl) != spec->is_leaf)) {
        return false;
    }
    const int64_t *sizes = tensor_sizes(impl);
    for (int64_t i = 0; i < n; i++) {
        if (spec->dims[i] != sizes[i] && spec->dims[i] != TENSOR_FREE) {
            return false;
        }
    }
    if (spec->has_strides) {
        const int64_t *strides = tensor_strides(impl);
        for (int64_t i = 0; i < n; i++) {
            if (spec->dims[n + i] != strides[i] && spec->dims[n + i] != TENSOR_FREE) {
                return false;
            }
        }
    }
    return true;
}

#endif
