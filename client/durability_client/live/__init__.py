"""The live image's program: joins a server after each boot, and shows the state on the consoles."""
