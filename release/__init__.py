"""Scripts that make what users install, from this repository and its lock files; none of it ships."""
