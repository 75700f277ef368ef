"""The judge that a training run asks: served beside it, shared by several, watched."""
