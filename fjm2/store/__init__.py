"""The journal: frames on disk, without I/O of its own. `fjm2.store.drive` has the disk and the thread that commits."""
