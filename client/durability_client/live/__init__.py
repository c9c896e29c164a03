"""The live image's own program: joins a server after each boot, and says on the consoles what happens."""
