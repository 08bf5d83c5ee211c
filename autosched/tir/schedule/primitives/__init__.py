"""The primitives of `Schedule`, by what they work on."""
