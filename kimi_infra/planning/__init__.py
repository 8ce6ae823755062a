"""Pure functions from choices and facts to plans. Reads no file, no clock, no environment."""
