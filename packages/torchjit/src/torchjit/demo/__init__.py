"""`torchjit demo`: the main job on two models, checked against eager and timed."""
