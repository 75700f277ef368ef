"""What a composition is made of, what it will cost, and whether its judges qualify."""
