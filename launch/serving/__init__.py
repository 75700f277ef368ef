"""What ``gavel serve`` is made of."""
