"""Known answers that a judge must grade right, for each kind of rubric."""
