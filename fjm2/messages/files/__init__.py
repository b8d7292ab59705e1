"""Messages whose body is a file, and the frames that carry it in parts."""
