"""The checks that programs make, by what they look at."""
