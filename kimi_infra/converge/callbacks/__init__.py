"""Callbacks that Ansible loads by their path."""
