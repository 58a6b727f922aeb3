"""PEP 523 frame hook and the C front door that calls specialised code."""
