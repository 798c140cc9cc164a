"""Golden cases of position encodings, and what an engine does instead: `pegen conform MODULE:FUNCTION`. Needs NumPy."""
