"""What is tested: files and block devices, and what must not be overwritten."""
