"""What `tools/staleness.py` is made of: features of programs, projects of some of them, edits, and runs in forked processes."""
