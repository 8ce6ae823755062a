"""Inventory and facts to the files of each host: what the CLI, Ansible and Pulumi all call."""
