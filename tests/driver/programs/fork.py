"""Forks before and after cuInit."""

import os

from driver_api import code, start

if os.fork() == 0:  # nothing was initialised yet
    fresh = code("cuInit", 0)
    os._exit(10 + fresh)
_, status = os.wait()
start()
if os.fork() == 0:
    print("child", code("cuInit", 0), code("cuCtxSynchronize"), flush=True)
    os._exit(0)
os.wait()
print("parent", code("cuCtxSynchronize"))
print("fresh", os.waitstatus_to_exitcode(status) - 10)
