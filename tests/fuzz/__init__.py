"""Mutated files of every kind that autosched reads: each is read, or refused by one of our errors, in bounded time.

python -m tests.fuzz                     # 200 of each kind
python -m tests.fuzz onnx npz --count 3000 --seed 7 --show
"""
