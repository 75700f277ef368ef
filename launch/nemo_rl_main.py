"""The wrapper's documented name: ``python -m gavel.launch.nemo_rl_main --config FILE``."""

from gavel.launch.training.nemo_rl.main import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
