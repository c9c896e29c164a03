"""What lies where: plans, records and the documents that describe a machine and a run."""
