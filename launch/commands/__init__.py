"""One file for each verb of ``gavel``: its config is read, the work called, the outcome printed."""
