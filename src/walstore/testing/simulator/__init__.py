"""Whole fleets in one process: clients, a relay and an archive writer in a world that goes wrong.

One seed is one run, exactly. Time, chance, network and clients' disks are the simulator's;
everything else is what ships.
"""
