"""Measurement on remote devices: candidates are built here, checked and timed in sessions of `autosched.rpc` servers.

autosched rpc serve --port 9091                            # beside the device
autosched tune model.onnx --remote 127.0.0.1:9091
"""
