"""The environments inside Hugging Face TRL: a reward function that grades, and a small GRPO training on the CPU."""
