"""Every configuration of Kimi-K3.1-Pro against a table that was written from the seed documents."""
