"""Training: from a frozen configuration to metrics, checkpoints and results."""
