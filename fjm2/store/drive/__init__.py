"""The journal on a real disk: the directory, its lock, and the thread that commits."""
