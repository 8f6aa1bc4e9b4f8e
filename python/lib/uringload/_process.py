"""Reports forks and the end of the interpreter to the native part. Importing it is enough."""

from __future__ import annotations

import atexit
import os

from ._uringload import begun, ending

begun()
os.register_at_fork(after_in_child=begun)
# Registered before any loader's closing, so that it runs after it.
atexit.register(ending)
