"""Random ONNX models of mixed types against ONNX Runtime: some sizes are open, some configurations are drawn.

python -m tests.frontend.random_onnx 0 1000                        # the models 0 to 999
python -m tests.frontend.random_onnx 0 100000 --seconds 3600       # as many as fit into an hour
python -m tests.frontend.random_onnx 417 1 --show                  # one model: its nodes, where it differs
python -m tests.frontend.random_onnx 0 1000 --target "llvm -mcpu=haswell"
python -m tests.frontend.random_onnx 0 100 --target "cuda -arch=sm_80"     # small models, on the emulator
"""
