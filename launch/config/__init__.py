"""What a config is: the classes of its sections, their keys, and how a config is stored."""
