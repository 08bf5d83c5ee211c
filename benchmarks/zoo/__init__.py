"""Networks of public packages, with random weights and small configurations: what users bring."""
