"""Libraries of CUDA: their patterns; there is no code generator for them."""
