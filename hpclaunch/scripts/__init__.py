"""Job scripts that somebody else wrote: read, checked line by line, and written anew."""
