"""The benchmark's pages: a result, or a comparison, as one HTML file with its pictures in it."""
