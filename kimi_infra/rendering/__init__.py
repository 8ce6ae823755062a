"""Pure, byte-stable text: the same plan always gives the same bytes."""
