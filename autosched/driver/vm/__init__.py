"""Modules built for the virtual machine: branches, calls and tuples between built graphs."""
