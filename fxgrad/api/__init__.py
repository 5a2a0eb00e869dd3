"""The transforms users call. Each traces its function, rewrites the program, and runs it (or records it in an outer trace)."""
