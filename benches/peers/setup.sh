#!/usr/bin/env bash
# Installs the loaders that benches/formats.py compares with into their own virtual environment.
#
# usage: benches/peers/setup.sh VENV
#
# Some gigabytes, because torch brings its CUDA libraries with it. The versions are those that the results name.
set -euo pipefail
venv=${1:?usage: benches/peers/setup.sh VENV}
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --upgrade pip
"$venv/bin/pip" install --quiet webdataset==1.0.2 mosaicml-streaming==0.13.0 litdata==0.2.76 torch numpy
# Installed apart from the others, because it needs its own version of protobuf.
"$venv/bin/pip" install --quiet tensorflow-cpu
"$venv/bin/python" - <<'PYTHON'
import importlib.metadata as metadata

for name in ("webdataset", "mosaicml-streaming", "litdata", "torch", "tensorflow-cpu"):
    print(name, metadata.version(name))
PYTHON
