"""Operators of neural networks, under the names of TVM's `relax.op.nn`."""
