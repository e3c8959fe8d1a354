"""The folder of one steward's state, and what every chapter needs of the machine: files, clock, cores, build."""
