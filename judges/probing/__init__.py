"""What a judge is tried with before it counts: controls, attacks, its identity."""
