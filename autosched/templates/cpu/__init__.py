"""Templates for CPUs, one file each."""
