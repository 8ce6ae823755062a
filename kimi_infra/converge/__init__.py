"""Running Ansible from Python; the only home of ansible besides the plugins."""
