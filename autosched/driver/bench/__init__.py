"""Programs measured side by side: rounds, verdicts, peaks of the machine, profiles of a model."""
