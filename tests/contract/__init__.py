"""Claims about the engine that the stub must meet and the real vLLM is known to meet."""
