"""Readers written from the rules of the programs that read our text; independent of the product."""
