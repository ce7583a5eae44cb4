"""Every fault sparklag must come through, on real parts, judged by a client that is not ours."""
