"""Machine code for a CPU that this machine is not, run on an emulated one: `python -m tests.emulated`."""
