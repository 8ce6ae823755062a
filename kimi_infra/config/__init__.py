"""Reads files and turns them into domain values; the only home of pydantic and YAML."""
