"""The pure core of the power-loss durability tester.

Everything here is a function of its arguments: no module of this package touches a socket, a clock
or a disk, and none imports the server or the client (`cli` alone does, inside its functions). That
is what lets the same rules of evidence be tested in memory and trusted on a real drive.
"""

__version__ = "0.2.0"
