"""The C backend: vector code for CPUs, one header-free file per graph."""
