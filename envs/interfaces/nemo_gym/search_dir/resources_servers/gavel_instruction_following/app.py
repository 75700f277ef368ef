"""NeMo Gym's entrypoint of this server."""

from gavel.envs.interfaces.nemo_gym.started import main

if __name__ == "__main__":
    main()
