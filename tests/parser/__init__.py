"""vLLM itself as the judge of our commands: its parser, its registries and its rules for nodes."""
