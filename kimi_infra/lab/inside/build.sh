#!/bin/sh
# Builds the lab's runtime and model inside the serving image's own root file system.
# Given by the caller: /opt/kimi-lab (to be filled), /run/kimi-build (this folder), uv on PATH.
set -eu
lab=/opt/kimi-lab
python=$lab/runtime/bin/python

export UV_CACHE_DIR=$lab/.uv UV_LINK_MODE=hardlink UV_PYTHON_DOWNLOADS=never
uv venv -q --python /usr/bin/python3 "$lab/runtime"
uv pip install -q --no-deps --python "$python" -r /run/kimi-build/runtime.lock
# Copied because the build writes beside its sources and they are mounted read-only.
cp -r /run/kimi-build/connector "$lab/.connector"
uv pip install -q --no-deps --no-build-isolation --python "$python" "$lab/.connector"
rm -rf "$lab/.uv" "$lab/.connector"

# Loaded at run time by a GPU only, and half a gigabyte.
find "$lab/runtime/lib" \( -path '*/nvidia/cudnn/lib/libcudnn_*' -o -path '*/nvidia/cu13/lib/libnvrtc.alt*' \
    -o -path '*/nvidia/cu13/lib/libnvperf*' \) -delete

# The containers see this path read-only, so nothing caches byte code later:
# without it each process of an engine compiles everything again.
# Some packages ship templates and files for other Pythons that do not compile.
"$python" -m compileall -q -j 0 "$lab/runtime/lib" > /dev/null 2>&1 || true

HF_HUB_OFFLINE=1 "$python" /run/kimi-build/tiny_model.py "$lab/models/lab-tiny"
chmod -R a+rX "$lab/models"
"$lab/runtime/bin/vllm" --version
