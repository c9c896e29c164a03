"""What every rig needs around its drive."""
