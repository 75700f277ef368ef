"""What ``gavel train`` does before and beside the trainer: preflight, rendering, jobs, judges of a run, sweeps."""
