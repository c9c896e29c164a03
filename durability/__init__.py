"""The pure core of the power-loss durability tester.

Every result here depends only on its arguments. No module of this package touches a socket, a clock or a
disk. None imports the command line, the server, the client or the lab. So the same rules of evidence can be
tested in memory and relied on with a real drive.
"""

__version__ = "0.2.0"
