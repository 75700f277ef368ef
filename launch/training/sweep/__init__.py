"""A verb at every point of a sweep."""
