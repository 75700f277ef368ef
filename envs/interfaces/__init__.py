"""The ways in which others run the environments."""
