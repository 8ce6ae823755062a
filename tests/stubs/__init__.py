"""Programs that stand in for what a test machine lacks; contract tests hold them to the truth."""
