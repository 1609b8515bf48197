"""Site profiles: the model, its YAML, the rules between its keys, and where profiles are found."""
