"""The measured cluster, a counted epoch, and the plan that they make fastest."""
