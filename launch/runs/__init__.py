"""The run folder: what is in it, who may write to it, and which runs belong together."""
