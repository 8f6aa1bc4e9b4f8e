"""Tells the native part of forks and of the end of the interpreter. Importing it is all there is to do."""

from __future__ import annotations

import atexit
import os

from ._uringload import begun, ending

begun()
os.register_at_fork(after_in_child=begun)
# Registered before any loader's closing, so that it runs behind it.
atexit.register(ending)
