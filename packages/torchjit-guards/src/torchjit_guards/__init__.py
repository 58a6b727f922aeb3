"""Guards as a flat C program, and symbolic shapes."""
