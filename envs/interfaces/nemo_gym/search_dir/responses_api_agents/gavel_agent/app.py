"""NeMo Gym's entrypoint of the agent that plays a training's rows."""

from gavel.envs.interfaces.nemo_rl.gym_process import main

if __name__ == "__main__":
    raise SystemExit(main())
