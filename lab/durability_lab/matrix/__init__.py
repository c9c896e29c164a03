"""`lab matrix`: cuts every drive many times and grades each verdict."""
