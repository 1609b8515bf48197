"""What was submitted or runs here: run folders, the registry, logs and reasons."""
