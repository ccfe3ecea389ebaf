"""What is read of a stream: bounds, slices, the snapshot, the boundary, resume and budget."""
