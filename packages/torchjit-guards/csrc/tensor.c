#include "tensor.h"

TensorLayout tensor_layout;

static int read_getset(PyObject *descriptor, getter *get, void **closure) {
    if (!Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        PyErr_SetString(PyExc_TypeError, "set_tensor_layout needs getset descriptors");
        return -1;
    }
    *get = ((PyGetSetDescrObject *)descriptor)->d_getset->get;
    *closure = ((PyGetSetDescrObject *)descriptor)->d_getset->closure;
    return 0;
}

/* set_tensor_layout(offsets, plain_meta, plain_keys, exact types, requires_grad, is_leaf), or () to forget it. */
PyObject *tensor_set_layout(PyObject *Py_UNUSED(module), PyObject *args) {
    TensorLayout l = {0};
    if (PyTuple_GET_SIZE(args) == 0) {
        PyObject *keep = tensor_layout.keep;
        tensor_layout = l;
        Py_XDECREF(keep);
        Py_RETURN_NONE;
    }
    PyObject *types, *grad, *leaf;
    unsigned long long plain_meta, plain_keys;
    if (!PyArg_ParseTuple(args, "(iiiiiiiiiiii)KKO!OO", &l.impl, &l.storage, &l.autograd, &l.ndim, &l.sizes, &l.offset,
                          &l.dtype, &l.device, &l.keys, &l.inline_dims, &l.grad_flag, &l.grad_fn, &plain_meta,
                          &plain_keys, &PyTuple_Type, &types, &grad, &leaf) ||
        read_getset(grad, &l.requires_grad, &l.requires_grad_closure) < 0 ||
        read_getset(leaf, &l.is_leaf, &l.is_leaf_closure) < 0) {
        return NULL;
    }
    l.plain_meta = (void *)(uintptr_t)plain_meta;
    l.plain_keys = plain_keys;
    if (PyTuple_GET_SIZE(types) > TENSOR_MAX_EXACT) {
        PyErr_Format(PyExc_ValueError, "at most %d exact tensor types", TENSOR_MAX_EXACT);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++) {
        l.exact[l.nexact++] = (PyTypeObject *)PyTuple_GET_ITEM(types, i);
    }
    l.keep = Py_NewRef(args);
    l.ready = 1;
    PyObject *old = tensor_layout.keep;
    tensor_layout = l;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static int read_dim(PyObject *item, int64_t *out) {
    if (item == Py_None) {
        *out = TENSOR_FREE;
        return 0;
    }
    *out = PyLong_AsLongLong(item);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* From (dtype, device, requires_grad, is_leaf or -1, sizes, strides or None, offset or None, keys or None). */
TensorSpec *tensor_spec_new(PyObject *spec) {
    int dtype, device, grad, leaf;
    PyObject *sizes, *strides, *offset, *keys;
    if (!PyArg_ParseTuple(spec, "iiiiO!OOO", &dtype, &device, &grad, &leaf, &PyTuple_Type, &sizes, &strides, &offset,
                          &keys)) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(sizes);
    if (strides != Py_None && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != n)) {
        PyErr_SetString(PyExc_ValueError, "a tensor spec needs as many strides as sizes");
        return NULL;
    }
    TensorSpec *s = PyMem_Calloc(1, sizeof(TensorSpec) + 2 * (size_t)n * sizeof(int64_t));
    if (s == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    s->dtype = (uint16_t)dtype;
    s->device = (uint16_t)device;
    s->requires_grad = (signed char)grad;
    s->is_leaf = (signed char)leaf;
    s->has_strides = strides != Py_None;
    s->has_keys = keys != Py_None;
    s->ndim = n;
    bool bad = read_dim(offset, &s->offset) < 0;
    if (s->has_keys) {
        s->keys = PyLong_AsUnsignedLongLong(keys);
        bad = bad || PyErr_Occurred() != NULL;
    }
    for (Py_ssize_t i = 0; i < n && !bad; i++) {
        bad = read_dim(PyTuple_GET_ITEM(sizes, i), &s->dims[i]) < 0 ||
              (s->has_strides && read_dim(PyTuple_GET_ITEM(strides, i), &s->dims[n + i]) < 0);
    }
    if (bad) {
        PyMem_Free(s);
        return NULL;
    }
    return s;
}

/* Ask torch's own getter, as attribute access would: 1, 0, or -1 with an error set. May run Python code. */
int tensor_grad_slow(PyObject *o, bool leaf) {
    PyObject *answer = leaf ? tensor_layout.is_leaf(o, tensor_layout.is_leaf_closure)
                            : tensor_layout.requires_grad(o, tensor_layout.requires_grad_closure);
    if (answer == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return truth;
}
