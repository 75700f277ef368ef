"""The environments inside NVIDIA NeMo-RL: an actor, a dataset, turn framing, hooks of the driver, registration, a
ledger.

Checked against NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""
