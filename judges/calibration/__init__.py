"""Agreement of a judge with labelled answers."""
