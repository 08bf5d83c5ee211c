"""What tests and benchmarks share: suites for implementations of one interface, and the replay of recorded spaces."""
