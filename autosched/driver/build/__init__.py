"""From a module to something that runs: passes, choice of configurations, kernels, executable."""
