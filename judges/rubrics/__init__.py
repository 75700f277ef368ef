"""The rubrics: how each puts its question to a model, and how its reply is read."""
