"""The training loop, evaluation, inference, checkpoints and settings."""
