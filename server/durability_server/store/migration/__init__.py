"""A store that an earlier release made becomes one of this release, and the old one is kept."""
