"""Measurement on many machines: a `dask.distributed` cluster with one slot a device. Needs the extra `cluster`.

dask scheduler --host 127.0.0.1           # anywhere
autosched worker tcp://127.0.0.1:8786     # on each device
autosched tune model.onnx --on tcp://127.0.0.1:8786
"""
