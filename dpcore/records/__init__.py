"""Records: their schema, their encoding as points, histogram cells and whole numbers, and the decoding of points."""
