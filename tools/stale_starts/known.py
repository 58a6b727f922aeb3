"""Imported by the process that runs fork from: what the keys of entries ask of the machine, found out once."""

import torch  # noqa: F401  parts of it are in the key

from torchjit_store.key import process_parts

process_parts()
