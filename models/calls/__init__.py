"""A call to a model's server: its form, its tries, its limits, and what came back."""
