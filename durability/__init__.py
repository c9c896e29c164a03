"""The pure core of the power-loss durability tester.

Everything here is a function of its arguments: no module of this package touches a socket, a clock or a disk,
and none imports the command line, the server, the client or the lab. So the same rules of evidence can be
tested in memory and trusted on a real drive.
"""

__version__ = "0.2.0"
