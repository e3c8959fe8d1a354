"""Records: their schema, how they become points, cells and whole numbers, and how points become cells."""
