"""What a run is: its folder, its checkpoints, its parameters, and what others ask of it."""
