"""How a config comes about: a verb and the words behind it go in, a frozen dataclass comes out."""
