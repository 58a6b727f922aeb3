"""One compiled callable: its regions, what misses and failures lead to, and what of a program is left to Python."""
