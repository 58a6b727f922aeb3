"""The loop IR: values, kernels, buffers, and an evaluator that defines what they mean."""
