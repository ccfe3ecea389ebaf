"""What goes into the pipe: the sink, prefetched streams and STATE."""
