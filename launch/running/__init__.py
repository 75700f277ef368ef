"""A run and its folder: what is planned, played, journaled and counted."""
