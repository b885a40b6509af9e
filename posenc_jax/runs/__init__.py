"""What a run is: its folder, checkpoints, parameters, and how others read it back."""
