"""TRL on the CPU as a trainer."""
